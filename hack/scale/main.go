// Command scale measures the manager with many Clusters. It starts etcd and kube-apiserver, creates classic Clusters
// (one control plane, three pools), runs the real program as its ServiceAccount, and counts what it does from nothing
// to converged, at rest, after a restart, when the one proxy Secret of all Clusters changes or is written again, and
// for one call of a webhook. The floor beside a figure is that of a manager that caches the same kinds and does
// nothing, run in the same way.
//
//	go run ./hack/scale [-clusters 1000] [-json out/scale.json] [-baseline FILE [-update]]
//	go run ./hack/scale -plot out/growth.svg out/scale-100.json out/scale-1000.json
//
// With a baseline only counts are compared: requests, reconciles, allocations, bytes. Wall-clock times of a shared
// machine mean little. The exit status is 1 if a count has grown beyond its tolerance.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	clusters, pools, calls  int
	program, args, profiles string
}

func run() error {
	var o options
	var null nullOptions
	flag.BoolVar(&null.on, "null", false, "be the manager that does nothing")
	flag.StringVar(&null.kubeconfig, "null-kubeconfig", "", "API server of -null")
	flag.StringVar(&null.health, "null-health", "", "health address of -null")
	flag.StringVar(&null.pprof, "null-pprof", "", "address of the profiles of -null")
	flag.IntVar(&null.port, "null-port", 0, "webhook port of -null")
	flag.StringVar(&null.certDir, "null-cert-dir", "", "certificates of -null")
	flag.IntVar(&o.clusters, "clusters", 1000, "Clusters")
	flag.IntVar(&o.pools, "pools", 3, "MachineDeployments of each")
	flag.IntVar(&o.calls, "calls", 500, "calls of the webhook")
	flag.StringVar(&o.program, "program", "bin/capi-proxy-patcher", "program to measure")
	flag.StringVar(&o.args, "args", "--kube-api-qps=10000 --kube-api-burst=20000",
		"more flags of its manager; its own limit of requests is no property of its work")
	flag.StringVar(&o.profiles, "profiles", "", "folder for profiles of memory and CPU; default is none")
	output := flag.String("json", "out/scale.json", "file for all figures")
	baseline := flag.String("baseline", "", "file with the counts to compare with")
	update := flag.Bool("update", false, "write the baseline instead")
	svg := flag.String("plot", "", "write a plot of the runs whose JSON files are the arguments, and measure nothing")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if null.on {
		return null.serve(ctx)
	}
	if *svg != "" {
		return writePlot(*svg, flag.Args())
	}
	if _, err := exec.LookPath(o.program); err != nil {
		return fmt.Errorf("finding the program: %w; build it with make build", err)
	}
	r, err := measureAll(ctx, o)
	if err != nil {
		return err
	}
	r.print(os.Stdout)
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the figures: %w", err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(*output), 0o755), os.WriteFile(*output, append(text, '\n'), 0o644)); err != nil { //nolint:gosec // anybody may read it
		return fmt.Errorf("writing the figures: %w", err)
	}
	switch {
	case *baseline == "":
		return nil
	case *update:
		return r.writeBaseline(*baseline)
	default:
		return r.compare(*baseline, os.Stdout)
	}
}
