package offline

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/manager"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
)

type renderOptions struct {
	publisher                                      kit.Publisher // nil for none
	files, secrets                                 []string
	defaultSecret                                  string
	all, includeSecrets, incompleteSecrets, strict bool
	output                                         string
	publish, cluster                               string
	publishOnly                                    bool
}

func newRender(streams kit.Streams, all []kit.Capability) *cobra.Command {
	var o renderOptions
	o.publisher, _ = kit.Find[kit.Publisher](all)
	cmd := &cobra.Command{
		Use:   "render -f FILE...",
		Short: "Patch manifests without a cluster",
		Long: `Reads manifests, patches the bootstrap objects and ClusterClasses of Clusters with the label
capi-proxy-patcher.io/enabled=true, and writes all objects to standard output; the others are unchanged, byte for byte.
Notes and warnings are written to standard error.

Exit status: 0 success, 1 bad input or, with --strict, a warning (nothing is written), 2 wrong usage.`,
		Example: `  clusterctl generate cluster demo |
    capi-proxy-patcher render -f - --secret proxy-secret.yaml | kubectl apply -f -
  capi-proxy-patcher render -f clusters/ --include-secrets -o diff`,
		Args: func(cmd *cobra.Command, args []string) error {
			err := kit.NoArgs(cmd, args)
			if err != nil && o.publish == publishAnnotated {
				return kit.Usage(fmt.Errorf("%w; did you mean --publish=%s?", err, args[0]))
			}
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runRender(cmd, o, streams) },
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil,
		"file or folder with manifests, - for standard input; may be repeated")
	f.StringArrayVar(&o.secrets, "secret", nil,
		"file with the proxy Secret, if it is not among the manifests; may be repeated")
	f.StringVar(&o.defaultSecret, "default-proxy-secret", "",
		"installation-wide proxy Secret as namespace/name, as given to the manager")
	f.BoolVar(&o.all, "all", false, "patch every Cluster, with or without the label")
	f.BoolVar(&o.includeSecrets, "include-secrets", false,
		"also print the generated Secrets, which hold the proxy's credentials")
	f.BoolVar(&o.incompleteSecrets, "incomplete-secrets", false,
		"with --include-secrets, print generated Secrets even if the network of their Cluster is not known yet")
	if o.publisher != nil {
		f.StringVar(&o.publish, "publish", "",
			"also print what the controller would publish: the outputs of annotation capi-proxy-patcher.io/publish, or those "+
				"of the list")
		f.Lookup("publish").NoOptDefVal = publishAnnotated
		f.BoolVar(&o.publishOnly, "publish-only", false,
			"print published values and nothing else; with a list of outputs for the workload cluster, its objects, for "+
				"kubectl apply; implies --publish")
		f.StringVar(&o.cluster, "cluster", "",
			"with --publish, the Cluster whose values are printed, or namespace/name; not needed if there is only one")
	}
	f.BoolVar(&o.strict, "strict", false, "also exit with 1 on warnings, and write nothing")
	f.StringVarP(&o.output, "output", "o", "yaml", "yaml or diff")
	kit.Complete(cmd, "output", "yaml", "diff")
	return cmd
}

func runRender(cmd *cobra.Command, o renderOptions, streams kit.Streams) error {
	switch {
	case o.cluster != "" && !o.published().Wanted:
		return kit.Usage(errors.New("--cluster needs --publish or --publish-only"))
	case len(o.files) == 0:
		return kit.Usage(errors.New("no input; use -f FILE, or -f - for standard input"))
	case o.incompleteSecrets && !o.includeSecrets:
		return kit.Usage(errors.New("--incomplete-secrets needs --include-secrets"))
	case o.output != "yaml" && o.output != "diff":
		return kit.Usage(fmt.Errorf("unknown output %q; use yaml or diff", o.output))
	}
	if err := o.published().Check(); err != nil {
		return kit.Usage(fmt.Errorf("--publish: %w", err))
	}
	defaultSecret, err := manager.ParseDefaultSecret(o.defaultSecret)
	if err != nil {
		return kit.Usage(err)
	}
	inputs, secrets, err := kit.ReadFiles(o.files, o.secrets, streams.In)
	if err != nil {
		return err
	}
	result, err := render.Render(cmd.Context(), render.Options{
		Inputs: inputs, Secrets: secrets, DefaultSecret: defaultSecret, All: o.all, IncludeSecrets: o.includeSecrets,
		IncompleteSecrets: o.incompleteSecrets, Publish: o.published(),
		Now: time.Now, //nolint:forbidigo // the clock enters here
	})
	if err != nil {
		return err
	}
	for _, note := range result.Notes {
		_, _ = fmt.Fprintln(streams.Err, note)
	}
	if result.Summary != "" {
		_, _ = fmt.Fprintln(streams.Err, result.Summary)
	}
	_, _ = fmt.Fprint(streams.Err, kit.Links(kit.Sections(result.Findings)...))
	if o.strict && result.Warnings > 0 {
		return errors.New("nothing is written, because --strict makes the warnings above errors")
	}
	text, out := result.Output, streams.Manifests()
	if o.output == "diff" {
		text, out = result.Diff(), streams.Out
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("writing output: %w", err)
	}
	return nil
}

// publishAnnotated is the value of --publish without a list.
const publishAnnotated = "ANNOTATION"

// published are the options about published values.
func (o renderOptions) published() render.Publish {
	p := render.Publish{
		Publisher: o.publisher, Wanted: o.publishOnly || o.publish != "", List: o.publish, Cluster: o.cluster,
		Only: o.publishOnly,
	}
	if o.publish == publishAnnotated {
		p.List = ""
	}
	return p
}
