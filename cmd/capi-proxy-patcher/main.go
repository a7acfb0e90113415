// Command capi-proxy-patcher configures Cluster API nodes for a corporate proxy.
package main

import (
	"context"
	"os"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/check"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/fleet"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
)

func main() {
	streams := kit.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	os.Exit(cli.Main(context.Background(), os.Args[1:], streams, capabilities()...)) //nolint:forbidigo // the context begins here
}

// capabilities are what the program can do beside its core. Each can be left out.
func capabilities() []kit.Capability {
	return []kit.Capability{
		inplace.New(),
		publish.New(),
		offline.New(),
		explain.New(),
		fleet.New(),
		check.New(),
	}
}
