// Package cli is the command line: flags become options, options become calls, errors become exit statuses.
package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
)

// Main runs the program with args, without the program's name, and returns the exit status: 0 done, 1 bad input or a
// failure, 2 a wrong command line. Commands document further statuses.
func Main(ctx context.Context, args []string, streams kit.Streams, capabilities ...kit.Capability) int {
	streams = streams.ForPeople()
	root := NewRoot(streams, capabilities...) //nolint:contextcheck // a command takes its context from cobra
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var (
		usage  kit.UsageError
		status kit.StatusError
	)
	switch {
	case err == nil:
		return kit.ExitDone
	case errors.As(err, &status):
		return status.Status
	case errors.As(err, &usage):
		_, _ = fmt.Fprintf(streams.Err, "capi-proxy-patcher: %v\n%sRun '%s --help' for usage.\n", err, kit.LinksOf(err),
			cmd.CommandPath())
		return kit.ExitUsage
	default:
		// A command with this flag asks nobody but the API server.
		if request, is := errors.AsType[*url.Error](err); is && cmd.Flags().Lookup("context") != nil {
			err = errors.New(kit.Unreachable(request))
		}
		_, _ = fmt.Fprintf(streams.Err, "capi-proxy-patcher: %v\n%s", err, kit.LinksOf(err))
		return kit.ExitInput
	}
}

// NewRoot returns the command that has all others.
func NewRoot(streams kit.Streams, capabilities ...kit.Capability) *cobra.Command {
	var printVersion bool
	root := &cobra.Command{
		Use:   "capi-proxy-patcher",
		Short: "Cluster API nodes behind a corporate proxy",
		Long: "Configures containerd, kubelet, the shell of your commands and the trust store of Cluster API nodes for an " +
			"HTTP proxy.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				return kit.Usage(fmt.Errorf("unknown command %q; did you mean %s?", args[0], near[0]))
			}
			return kit.Usage(fmt.Errorf("unknown command %q", args[0]))
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if printVersion {
				return writeVersion(streams)
			}
			return cmd.Help()
		},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	// Not cobra's own, which needs a template: with text/template in it, the linker keeps every method of every type,
	// and the program is a quarter larger.
	root.Flags().BoolVarP(&printVersion, "version", "v", false, "version for capi-proxy-patcher")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return kit.Usage(err) })
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl capi-proxy"}
	}
	root.SuggestionsMinimumDistance = 2
	root.AddCommand(newManager(streams, capabilities), newHooks(streams), newVersion(streams))
	for _, one := range capabilities {
		root.AddCommand(one.Commands(streams, capabilities)...)
	}
	return root
}
