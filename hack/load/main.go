// Command load measures what the product costs with many Clusters. It starts etcd and kube-apiserver, creates Clusters
// (one control plane, three pools; no two of them are alike), runs the real program as its ServiceAccount and with the
// environment of its manifests, and prints what it needs from nothing to configured, at rest, after a restart, when the
// one proxy Secret of all Clusters changes, for one call of a webhook or a hook, and to render manifests. The floor
// beside a figure is that of a program that does nothing, run in the same way.
//
//	go run ./hack/load [-clusters 1000] [-bounds hack/load/bounds.json]
//
// The exit status is 1 if a figure exceeds its bound.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
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

func run() error {
	var null nullOptions
	flag.StringVar(&null.kind, "null", "", "be the manager or the hooks that do nothing: manager or hooks")
	flag.StringVar(&null.kubeconfig, "null-kubeconfig", "", "API server of -null manager")
	flag.StringVar(&null.health, "null-health", "", "health address of -null manager")
	flag.StringVar(&null.pprof, "null-pprof", "", "address of the profiles of -null manager")
	flag.IntVar(&null.port, "null-port", 0, "HTTPS port of -null")
	flag.StringVar(&null.certDir, "null-cert-dir", "", "certificate of -null")
	clusters := flag.Int("clusters", 1000, "number of Clusters")
	program := flag.String("program", "bin/capi-proxy-patcher", "program to measure")
	file := flag.String("bounds", "hack/load/bounds.json", "file with the bounds of figures")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	switch null.kind {
	case "":
	case "hooks":
		return null.serveHooks(ctx)
	default:
		return null.serveManager(ctx)
	}
	if _, err := exec.LookPath(*program); err != nil {
		return fmt.Errorf("finding the program: %w; build it with make build", err)
	}
	bounds, err := readBounds(*file)
	if err != nil {
		return err
	}
	figures, err := measure(ctx, *program, *clusters)
	if err != nil {
		return err
	}
	return figures.print(os.Stdout, bounds)
}
