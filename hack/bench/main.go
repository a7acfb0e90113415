// Command bench compares the server of hooks with an extension that does nothing. Both run one after the other on one
// core, with the same requests over HTTPS, in rounds that alternate, and the CPU time that each server used is divided
// by the number of requests. Every answer of the first round is applied and checked.
//
//	go run ./hack/bench [-program bin/capi-proxy-patcher] [-requests 400] [-rounds 5] [-pools 1,10,100]
//
// Wall-clock times of a shared machine mean little; the ratio of CPU times repeats. The exit status is 1 if a goal is
// missed.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/hack/measure"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// scenario is one kind of request, and the goal for its ratio.
type scenario struct {
	name  string
	limit float64
}

func run() error {
	null := flag.Bool("null", false, "be the extension that does nothing")
	port := flag.Int("port", 0, "port of -null")
	certDir := flag.String("cert-dir", "", "certificates of -null")
	program := flag.String("program", "bin/capi-proxy-patcher", "program to measure")
	count := flag.Int("requests", 400, "requests for one pool in a round; fewer for more pools")
	rounds := flag.Int("rounds", 5, "rounds of which the median counts")
	poolList := flag.String("pools", "1,10,100", "numbers of pools")
	flag.Parse()
	if *null {
		return serveNull(*port, *certDir)
	}
	var pools []int
	for text := range strings.SplitSeq(*poolList, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-pools %q: write numbers separated by commas", *poolList)
		}
		pools = append(pools, n)
	}
	b, err := newBench(*program)
	if err != nil {
		return err
	}
	defer b.close()
	fmt.Printf("start to answered discovery: %d ms (null %d ms); idle resident memory %.1f MiB (null %.1f MiB)\n\n",
		b.started.Milliseconds(), b.nullStarted.Milliseconds(),
		measure.ResidentMiB(b.product.Process.Pid), measure.ResidentMiB(b.null.Process.Pid))
	fmt.Println("pools  request      bytes in  bytes out   null ms    ours ms    ratio  goal")
	missed := 0
	for _, n := range pools {
		for _, s := range []scenario{
			{"plain", 1.2},
			{"overrides", 1.3},
			{"distinct", 1.5},
			{"patched", 1},
			{"validate", 0.6},
		} {
			figures, err := b.compare(n, s.name, max(*count/n, 20), *rounds)
			if err != nil {
				return fmt.Errorf("%d pools, %s: %w", n, s.name, err)
			}
			verdict := ""
			if figures.ratio > s.limit {
				missed++
				verdict = "  MISSED"
			}
			fmt.Printf("%5d  %-10s %10d %10d %9.3f  %9.3f  %7.2f  %.1f%s\n", n, s.name, figures.in, figures.out, figures.null,
				figures.ours, figures.ratio, s.limit, verdict)
		}
	}
	fmt.Printf("\npeak resident memory %.0f MiB\n", measure.PeakMiB(b.product.Process.Pid))
	if missed > 0 {
		return fmt.Errorf("%d goals missed", missed)
	}
	return nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
