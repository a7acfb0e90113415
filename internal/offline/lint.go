package offline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/manager"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/lint"
)

type lintOptions struct {
	publisher      kit.Publisher // nil for none
	files, secrets []string
	defaultSecret  string
	output         string
	strict         bool
}

func newLint(streams kit.Streams, all []kit.Capability) *cobra.Command {
	var o lintOptions
	o.publisher, _ = kit.Find[kit.Publisher](all)
	cmd := &cobra.Command{
		Use:   "lint -f FILE...",
		Short: "Check proxy Secrets and labelled Clusters in manifests",
		Long: `Reports everything that would be rejected, or that works differently than it looks: in the proxy Secrets that
Clusters use, in Secrets with the label capi-proxy-patcher.io/proxy or with keys of a proxy Secret, and in the
annotations, the network and NO_PROXY of each Cluster with the label capi-proxy-patcher.io/enabled=true.

A finding names file, line, object, key and entry, and never shows a value of a Secret.

Exit status: 0 no rejection, 1 a rejection, with --strict also a warning, or input that cannot be read, 2 wrong usage.`,
		Example: `  capi-proxy-patcher lint -f clusters/ -f proxy-secret.yaml
  capi-proxy-patcher lint -f - -o json --strict < cluster.yaml`,
		Args: kit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now() //nolint:forbidigo // the clock enters here
			return runLint(cmd.Context(), o, now, streams)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil,
		"file or folder with manifests, - for standard input; may be repeated")
	f.StringArrayVar(&o.secrets, "secret", nil,
		"file with the proxy Secret, if it is not among the manifests; may be repeated")
	f.StringVar(&o.defaultSecret, "default-proxy-secret", "",
		"installation-wide proxy Secret as namespace/name, as given to the manager")
	f.BoolVar(&o.strict, "strict", false, "also exit with 1 on warnings")
	f.StringVarP(&o.output, "output", "o", "text", "text or json")
	kit.Complete(cmd, "output", "text", "json")
	return cmd
}

func runLint(ctx context.Context, o lintOptions, now time.Time, streams kit.Streams) error {
	defaultSecret, err := manager.ParseDefaultSecret(o.defaultSecret)
	switch {
	case len(o.files) == 0:
		return kit.Usage(errors.New("no input; use -f FILE, or -f - for standard input"))
	case o.output != "text" && o.output != "json":
		return kit.Usage(fmt.Errorf("unknown output %q; use text or json", o.output))
	case err != nil:
		return kit.Usage(err)
	}
	inputs, secrets, err := kit.ReadFiles(o.files, o.secrets, streams.In)
	if err != nil {
		return err
	}
	report, err := lint.Run(ctx, lint.Options{
		Inputs: inputs, Secrets: secrets, DefaultSecret: defaultSecret, Publisher: o.publisher, Now: now,
	})
	if err != nil {
		return err
	}
	for _, line := range report.Unread {
		_, _ = fmt.Fprintln(streams.Err, line)
	}
	text := []byte(report.Text())
	if o.output == "json" {
		if text, err = json.MarshalIndent(report, "", "  "); err != nil {
			return fmt.Errorf("encoding output: %w", err)
		}
		text = append(text, '\n')
	}
	if _, err := streams.Out.Write(text); err != nil {
		return fmt.Errorf("writing output: %w", err)
	}
	if report.Summary.Clusters+report.Summary.Secrets+len(report.Findings) == 0 {
		_, _ = fmt.Fprintf(streams.Err, "the input has neither a Cluster with label %s nor a proxy Secret\n",
			contract.LabelEnabled)
	}
	if report.Summary.Rejections > 0 || o.strict && report.Summary.Warnings > 0 {
		return kit.StatusError{Status: kit.ExitInput}
	}
	return nil
}
