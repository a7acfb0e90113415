// Package cli is the command line: flags become options, options become calls, errors become exit statuses.
package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// Exit statuses.
const (
	exitDone  = 0
	exitInput = 1
	exitUsage = 2
)

// Streams are what a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// printed is a writer for people. It escapes what a terminal would obey and text that changes its direction, which
// input may hold: control characters but for tabs and line ends, and invalid UTF-8. JSON stays the same JSON.
type printed struct{ io.Writer }

func (p printed) Write(text []byte) (int, error) {
	safe := make([]byte, 0, len(text))
	for i, c := range string(text) {
		lineEnd := c == '\r' && bytes.HasPrefix(text[i:], []byte("\r\n"))
		if unicode.IsControl(c) && c != '\n' && c != '\t' && !lineEnd || unicode.Is(unicode.Bidi_Control, c) {
			safe = fmt.Appendf(safe, "\\u%04x", c)
		} else {
			safe = utf8.AppendRune(safe, c)
		}
	}
	if _, err := p.Writer.Write(safe); err != nil {
		return 0, err //nolint:wrapcheck // a writer returns the error of the writer below
	}
	return len(text), nil
}

// manifests returns the writer of standard output for manifests, which are not changed.
func (s Streams) manifests() io.Writer {
	if p, is := s.Out.(printed); is {
		return p.Writer
	}
	return s.Out
}

// usageError is an error about the command line itself.
type usageError struct{ error }

// statusError carries another exit status. Its text is already printed.
type statusError struct{ status int }

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// Main runs the program with args, without the program's name, and returns the exit status: 0 done, 1 bad input or a
// failure, 2 a wrong command line. Commands document further statuses.
func Main(ctx context.Context, args []string, streams Streams) int {
	streams.Out, streams.Err = printed{streams.Out}, printed{streams.Err}
	root := newRoot(streams) //nolint:contextcheck // a command takes its context from cobra
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var (
		usage  usageError
		status statusError
	)
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &status):
		return status.status
	case errors.As(err, &usage):
		_, _ = fmt.Fprintf(streams.Err, "capi-proxy-patcher: %v\n%sRun '%s --help' for usage.\n", err, linksOf(err),
			cmd.CommandPath())
		return exitUsage
	default:
		_, _ = fmt.Fprintf(streams.Err, "capi-proxy-patcher: %v\n%s", err, linksOf(err))
		return exitInput
	}
}

// linksOf returns the lines with the sections about the findings in an error.
func linksOf(err error) string { return finding.Links(finding.Of(err).Sections()...) }

func newRoot(streams Streams) *cobra.Command {
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
				return usageError{fmt.Errorf("unknown command %q; did you mean %s?", args[0], near[0])}
			}
			return usageError{fmt.Errorf("unknown command %q", args[0])}
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
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl capi-proxy"}
	}
	root.SuggestionsMinimumDistance = 2
	root.AddCommand(newManager(streams), newHooks(streams), newRender(streams), newExplain(streams), newLint(streams),
		newSecret(streams), newStatus(streams), newCheck(streams), newPlan(streams), newNode(streams), newVersion(streams))
	return root
}

// untilSignal returns the context of a server: SIGINT and SIGTERM end it, and a second signal ends the process. Other
// commands do not use it, so that the first signal ends them at once, whatever they wait for.
func untilSignal(ctx context.Context) context.Context {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}

// noArgs rejects arguments as a usage error.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), args[0])}
	}
	return nil
}
