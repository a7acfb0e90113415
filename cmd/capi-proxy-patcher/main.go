// Command capi-proxy-patcher configures Cluster API nodes for a corporate proxy.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
)

func main() {
	streams := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	os.Exit(cli.Main(ctrl.SetupSignalHandler(), os.Args[1:], streams))
}
