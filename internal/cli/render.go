package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/manager"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
)

type renderOptions struct {
	files, secrets                                 []string
	defaultSecret                                  string
	all, includeSecrets, incompleteSecrets, strict bool
	output                                         string
	publish, cluster                               string
	publishOnly                                    bool
}

func newRender(streams Streams) *cobra.Command {
	var o renderOptions
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
			err := noArgs(cmd, args)
			if err != nil && o.publish == publishAnnotated {
				return usageError{fmt.Errorf("%w; did you mean --publish=%s?", err, args[0])}
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
	f.StringVar(&o.publish, "publish", "",
		"also print what the controller would publish: the outputs of annotation capi-proxy-patcher.io/publish, or those "+
			"of the list")
	f.Lookup("publish").NoOptDefVal = publishAnnotated
	f.BoolVar(&o.publishOnly, "publish-only", false,
		"print published values and nothing else; with a list of outputs for the workload cluster, its objects, for kubectl "+
			"apply; implies --publish")
	f.StringVar(&o.cluster, "cluster", "",
		"with --publish, the Cluster whose values are printed, or namespace/name; not needed if there is only one")
	f.BoolVar(&o.strict, "strict", false, "also exit with 1 on warnings, and write nothing")
	f.StringVarP(&o.output, "output", "o", "yaml", "yaml or diff")
	complete(cmd, "output", "yaml", "diff")
	return cmd
}

func runRender(cmd *cobra.Command, o renderOptions, streams Streams) error {
	switch {
	case o.cluster != "" && !o.published().Wanted:
		return usageError{errors.New("render: --cluster needs --publish or --publish-only")}
	case len(o.files) == 0:
		return usageError{errors.New("render: no input; use -f FILE, or -f - for standard input")}
	case o.incompleteSecrets && !o.includeSecrets:
		return usageError{errors.New("render: --incomplete-secrets needs --include-secrets")}
	case o.output != "yaml" && o.output != "diff":
		return usageError{fmt.Errorf("render: unknown output %q; use yaml or diff", o.output)}
	}
	if err := o.published().Check(); err != nil {
		return usageError{fmt.Errorf("render: --publish: %w", err)}
	}
	defaultSecret, err := manager.ParseDefaultSecret(o.defaultSecret)
	if err != nil {
		return usageError{err}
	}
	inputs, secrets, err := readManifests(o.files, o.secrets, streams.In)
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
	_, _ = fmt.Fprint(streams.Err, finding.Links(result.Findings.Sections()...))
	if o.strict && result.Warnings > 0 {
		return errors.New("render: nothing is written, because --strict makes the warnings above errors")
	}
	text, out := result.Output, streams.manifests()
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
	p := render.Publish{Wanted: o.publishOnly || o.publish != "", List: o.publish, Cluster: o.cluster, Only: o.publishOnly}
	if o.publish == publishAnnotated {
		p.List = ""
	}
	return p
}

// maxInput is how many bytes of manifests a command reads in total.
const maxInput = 64 << 20

// readManifests reads the manifests and the files with Secrets of a command.
func readManifests(files, secrets []string, stdin io.Reader) (manifests, beside []clusters.Input, err error) {
	if os.Getenv("GOGC") == "" {
		// What is read is needed until the end: collecting garbage less often saves a fifth of the time.
		debug.SetGCPercent(300)
	}
	r := inputReader{stdin: stdin, left: maxInput}
	if manifests, err = r.read(files); err != nil {
		return nil, nil, err
	}
	beside, err = r.read(secrets)
	return manifests, beside, err
}

// inputReader reads inputs up to a limit.
type inputReader struct {
	stdin io.Reader
	left  int64
}

// read reads files, the manifests of folders in the order of their names, and standard input.
func (r *inputReader) read(names []string) ([]clusters.Input, error) {
	var inputs []clusters.Input
	for _, name := range names {
		files := []string{name}
		if name != "-" {
			var err error
			if files, err = manifestFiles(name); err != nil {
				return nil, err
			}
		}
		for _, file := range files {
			data, err := r.readFile(file)
			if err != nil {
				return nil, err
			}
			inputs = append(inputs, clusters.Input{Name: file, Data: data})
		}
	}
	return inputs, nil
}

// readFile reads one input.
func (r *inputReader) readFile(name string) ([]byte, error) {
	from := r.stdin
	if name == "-" {
		name = "standard input"
	} else {
		file, err := os.Open(name) //nolint:gosec // the user names the file
		if err != nil {
			return nil, fmt.Errorf("reading input: %w", err)
		}
		defer func() { _ = file.Close() }()
		from = file
	}
	data, err := io.ReadAll(io.LimitReader(from, r.left+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if r.left -= int64(len(data)); r.left < 0 {
		return nil, fmt.Errorf("reading %s: the input is larger than %d MiB in total; give fewer manifests at a time",
			name, maxInput>>20)
	}
	return data, nil
}

// manifestFiles returns the file itself, or the manifests of a folder as kubectl takes them.
func manifestFiles(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("reading input: %w", err)
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("reading input: %w", err)
	}
	var files []string
	for _, entry := range entries {
		if !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
			files = append(files, filepath.Join(name, entry.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("reading input: folder %s has no file that ends with .yaml, .yml or .json", name)
	}
	return files, nil
}
