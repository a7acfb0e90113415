// Package kit is what commands have in common: streams, exit statuses, kubeconfigs, files and completions, and what a
// capability is.
package kit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// Exit statuses.
const (
	ExitDone  = 0
	ExitInput = 1
	ExitUsage = 2
)

// Streams are what a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// ForPeople returns the streams with outputs that escape what a terminal would obey.
func (s Streams) ForPeople() Streams {
	return Streams{In: s.In, Out: printed{s.Out}, Err: printed{s.Err}}
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

// Manifests returns the writer of standard output for manifests, which are not changed.
func (s Streams) Manifests() io.Writer {
	if p, is := s.Out.(printed); is {
		return p.Writer
	}
	return s.Out
}

// WriteData writes data as JSON or YAML.
func (s Streams) WriteData(format string, data any) error {
	out := s.Out
	text, err := json.MarshalIndent(data, "", "  ")
	if err == nil && format == "yaml" {
		text, err = yaml.JSONToYAML(text)
		out = s.Manifests() // YAML escapes by itself
	} else {
		text = append(text, '\n')
	}
	if err != nil {
		return fmt.Errorf("encoding %s: %w", format, err)
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("writing %s: %w", format, err)
	}
	return nil
}

// UsageError is an error about the command line itself.
type UsageError struct{ error }

// Usage returns err as a UsageError.
func Usage(err error) error { return UsageError{err} }

// StatusError carries another exit status. Its text is already printed.
type StatusError struct{ Status int }

func (e StatusError) Error() string { return fmt.Sprintf("exit status %d", e.Status) }

// LinksOf returns the lines with the sections about the findings in an error.
func LinksOf(err error) string { return Links(Sections(finding.Of(err))...) }

// UntilSignal returns the context of a server: SIGINT, SIGTERM and more end it, and a second signal ends the process.
// Other commands do not use it, so that the first signal ends them at once, whatever they wait for.
func UntilSignal(ctx context.Context, more ...os.Signal) context.Context {
	more = slices.DeleteFunc(more, signal.Ignored) // nohup
	ctx, stop := signal.NotifyContext(ctx, append(more, os.Interrupt, syscall.SIGTERM)...)
	context.AfterFunc(ctx, stop)
	return ctx
}

// NoArgs rejects arguments as a usage error, which does not repeat them: one may be a password.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage(fmt.Errorf("%s takes no arguments, got %d", cmd.Name(), len(args)))
	}
	return nil
}

// ClusterArg takes the Cluster as an argument, too, instead of with flag --cluster.
func ClusterArg(cluster *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 1:
			return Usage(fmt.Errorf("%s takes one argument, a Cluster, got %q", cmd.Name(), args))
		case len(args) == 1 && *cluster != "":
			return Usage(fmt.Errorf("%s names two Clusters, %q and %q; leave out one", cmd.Name(), *cluster, args[0]))
		case len(args) == 1:
			*cluster = args[0]
		}
		return nil
	}
}

// CutNamespace takes the namespace out of a name that is namespace/name.
func CutNamespace(namespace, name *string) {
	if before, after, qualified := strings.Cut(*name, "/"); qualified {
		*namespace, *name = before, after
	}
}
