// Command capi-proxy-patcher configures Cluster API nodes for a corporate proxy.
package main

import (
	"context"
	"os"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
)

func main() {
	streams := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	os.Exit(cli.Main(context.Background(), os.Args[1:], streams)) //nolint:forbidigo // the context begins here
}
