// Command load measures what the product costs with many Clusters. It starts etcd and kube-apiserver, creates Clusters
// (one control plane, three pools; no two of them are alike), runs the real program as its ServiceAccount and with the
// environment of its manifest, and prints what it needs from nothing to configured, when the one proxy Secret of all
// Clusters changes, after a restart, and at rest.
//
//	go run ./hack/load [-clusters 1000]
//
// The exit status is 1 if a figure exceeds its bound. docs/development/performance.md has the bounds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	w := &world{figures: figures{out: os.Stdout}}
	flag.IntVar(&w.clusters, "clusters", 1000, "number of Clusters")
	flag.StringVar(&w.program, "program", "bin/capi-proxy-patcher", "program to measure")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer func() { err = errors.Join(err, w.close()) }()
	for _, phase := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"starting etcd and kube-apiserver", w.open},
		{"creating Clusters", w.create},
		{"from nothing to configured", w.configure},
		{"one Secret for all", w.change},
		{"restart", w.restart},
		{"rest", w.rest},
		{"plain writer", w.plainWriter},
	} {
		fmt.Fprintln(os.Stderr, "load:", phase.name)
		if err := phase.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
	}
	return errors.Join(w.figures.exceeded...)
}

// figures are printed when they are measured. The unit of each is in its name.
type figures struct {
	out io.Writer
	// exceeded are those that exceed their bounds.
	exceeded []error
}

// add prints a figure that has no bound.
func (f *figures) add(name string, value float64) {
	_, _ = fmt.Fprintf(f.out, "%10.2f  %s\n", value, name)
}

// bounded prints a figure, and compares it with the most that it may be.
func (f *figures) bounded(name string, value, most float64) {
	if value > most {
		f.exceeded = append(f.exceeded, fmt.Errorf("%s: %.2f, at most %g", name, value, most))
	}
	f.add(fmt.Sprintf("%s, at most %g", name, most), value)
}
