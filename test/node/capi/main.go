//go:build e2e && node

// Command capi is a management cluster of Cluster API with the product, for a test that boots real machines with the
// bootstrap data of its controllers.
//
//	capi ROOT FOLDER
//
// ROOT is the folder of this repository, FOLDER one that exists; its logs are in FOLDER/logs. It has to be started in
// network and PID namespaces of its own, and reaches the machines if they are connected to that network. When it works
// it prints a line of JSON, see ready, and it ends when standard input is closed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/infra"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/management"
)

// ready is what it prints.
type ready struct {
	// Kubeconfig is a file of the administrator's, Product the program of this repository.
	Kubeconfig, Product string
}

func main() {
	log.SetFlags(0)
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:]); err != nil {
		log.Fatal("capi: ", err)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: capi ROOT FOLDER")
	}
	root, folder := args[0], args[1]
	logs := filepath.Join(folder, "logs")
	if err := os.Mkdir(logs, 0o700); err != nil { //nolint:gosec // an argument of the test
		return err
	}
	output, err := os.Create(filepath.Join(logs, "infrastructure.log")) //nolint:gosec // an argument of the test
	if err != nil {
		return err
	}
	defer func() { _ = output.Close() }()
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(output))))
	binary, err := management.Build(ctx, root, folder)
	if err != nil {
		return err
	}
	api, err := management.FindClusterAPI(ctx, root, "")
	if err != nil {
		return err
	}
	cluster, err := management.Start(ctx, management.Options{
		Root: root, ClusterAPI: api, Logs: logs, CRDs: infra.CRDs(), Progress: func(step string) { log.Print(step) },
	})
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, cluster, binary), cluster.Stop())
}

// nodeImage is the image of the product in the registry of the lab.
const nodeImage = "registry.k8s.io/capi-proxy-patcher:v1"

// serve starts what the Cluster lacks and returns when standard input is closed.
func serve(ctx context.Context, cluster *management.Cluster, binary string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := infra.Start(ctx, cluster.Config(), nil); err != nil {
		return err
	}
	if _, err := cluster.InstallProduct(ctx, binary, "--node-image", nodeImage); err != nil {
		return err
	}
	line, err := json.Marshal(ready{Kubeconfig: cluster.Kubeconfig, Product: binary})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(os.Stdout, "%s\n", line); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
