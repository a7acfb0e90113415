package offline

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/foreign"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/lint"
)

// labelMove has clusterctl move take a Secret along that nothing owns.
const labelMove = "clusterctl.cluster.x-k8s.io/move"

// fromEnvironment is the value of --from that reads the variables of the shell.
const fromEnvironment = "env"

type secretOptions struct {
	from, name, namespace string
	// values are those of flags by the key of a proxy Secret; of password and certificates they are names of files.
	values map[string]*string
}

func newSecret(streams kit.Streams) *cobra.Command {
	var o secretOptions
	cmd := &cobra.Command{
		Use:   "secret --http-proxy URL | --from FILE",
		Short: "Print a labelled proxy Secret",
		Long: `Writes a proxy Secret with its label to standard output: with the values of flags, or with the settings of
another system. A password is read from a file, since other users of the machine can read a command line.

--from recognizes the form: httpProxyConfig of AKS; topology of a Cluster; Cluster of EKS Anywhere;
TanzuKubernetesCluster and variables of TKG; Proxy and install-config of OpenShift; Helm values; variables such as
HTTP_PROXY in a list, a mapping, a Secret or ConfigMap, a shell file, a drop-in of systemd or the shell (env). A
shell file is not executed.

User and password in a URL become the keys username and password. Standard error lists the entries of noProxy that are
left out because they are composed anyway, the keys about proxies or certificates that are not read, and the findings of
lint. The output holds the credentials of the proxy.

Exit status: 0 success, 1 something cannot be read or used (nothing is written), 2 wrong usage.`,
		Example: `  capi-proxy-patcher secret -n team-a --http-proxy http://proxy.example.com:3128 | kubectl apply -f -
  capi-proxy-patcher secret --http-proxy http://proxy.example.com:3128 --username node --password-file password.txt
  capi-proxy-patcher secret --from aks-proxy-config.json --namespace team-a | kubectl apply -f -
  kubectl get secret prod-config-values -o yaml | capi-proxy-patcher secret --from -
  capi-proxy-patcher secret --from env`,
		Args: kit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now() //nolint:forbidigo // the clock enters here
			return runSecret(cmd.Context(), o, now, streams)
		},
	}
	f := cmd.Flags()
	o.values = map[string]*string{
		contract.KeyHTTPProxy:  f.String("http-proxy", "", "URL of the proxy, without a user"),
		contract.KeyHTTPSProxy: f.String("https-proxy", "", "URL of the proxy for https; defaults to --http-proxy"),
		contract.KeyNoProxy:    f.String("no-proxy", "", "hosts and networks without the proxy, beside those of the Cluster"),
		contract.KeyUsername:   f.String("username", "", "user of the proxy"),
		contract.KeyPassword:   f.String("password-file", "", "file with the password, - for standard input"),
		contract.KeyTrustedCA:  f.String("trusted-ca", "", "file with certificates that nodes trust, - for standard input"),
	}
	f.StringVar(&o.from, "from", "", "file with the settings of another system, - for standard input, env for the "+
		"variables of the shell")
	f.StringVar(&o.name, "name", "", "name of the Secret; defaults to CLUSTER-http-proxy if the input names a cluster, "+
		"else http-proxy")
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the Secret; defaults to that of the input, if any")
	return cmd
}

func runSecret(ctx context.Context, o secretOptions, now time.Time, streams kit.Streams) error {
	given := false
	for _, value := range o.values {
		given = given || *value != ""
	}
	switch {
	case given == (o.from != ""):
		return kit.Usage(errors.New("use either --http-proxy URL, or --from FILE, - or env"))
	case strings.Contains(*o.values[contract.KeyHTTPProxy]+*o.values[contract.KeyHTTPSProxy], "@"):
		return kit.Usage(errors.New("the URL has a user; use --username and --password-file"))
	}
	for _, name := range []string{o.name, o.namespace} {
		if problems := validation.IsDNS1123Subdomain(name); name != "" && len(problems) > 0 {
			return kit.Usage(fmt.Errorf("%q cannot be a name: %s", name, problems[0]))
		}
	}
	var (
		result foreign.Result
		err    error
	)
	if given {
		result.Data, err = o.read(streams)
	} else if result, err = readForeign(o.from, streams); err != nil {
		from := map[string]string{"-": "standard input", fromEnvironment: "the environment"}[o.from]
		err = fmt.Errorf("reading proxy settings from %s: %w", cmp.Or(from, o.from), err)
	}
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(proxySecret(o, result))
	if err != nil {
		return fmt.Errorf("encoding output: %w", err)
	}
	for _, note := range result.Notes {
		_, _ = fmt.Fprintln(streams.Err, note)
	}
	report, err := lint.Run(ctx, lint.Options{Inputs: []clusters.Input{{Name: "output", Data: text}}, Now: now})
	if err != nil {
		return err
	}
	for _, row := range report.Findings {
		_, _ = fmt.Fprintln(streams.Err, row)
	}
	_, _ = fmt.Fprint(streams.Err, report.Links())
	if report.Summary.Rejections > 0 {
		return errors.New("nothing is printed, because the settings are rejected")
	}
	if _, err := streams.Manifests().Write(text); err != nil {
		return fmt.Errorf("writing output: %w", err)
	}
	return nil
}

// read returns the data of the Secret by flags.
func (o secretOptions) read(streams kit.Streams) (map[string]string, error) {
	data := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(o.values)) {
		value := *o.values[key]
		if value != "" && (key == contract.KeyPassword || key == contract.KeyTrustedCA) {
			text, err := kit.ReadFile(value, streams.In)
			if invalid := (*fs.PathError)(nil); key == contract.KeyPassword && errors.As(err, &invalid) { // the path may be it
				err = fmt.Errorf("reading the file for key %s: %w", key, invalid.Err)
			}
			text = bytes.TrimPrefix(text, []byte("\ufeff")) // a byte order mark
			switch value = strings.TrimRight(string(text), "\r\n"); {
			case err != nil:
				return nil, err
			case value == "":
				return nil, fmt.Errorf("the file for key %s is empty", key)
			case !utf8.ValidString(value):
				return nil, fmt.Errorf("the file for key %s is not UTF-8; convert it, or create the Secret with kubectl", key)
			}
		}
		if value != "" {
			data[key] = value
		}
	}
	return data, nil
}

func readForeign(from string, streams kit.Streams) (foreign.Result, error) {
	var text []byte
	if from == fromEnvironment {
		for _, entry := range os.Environ() {
			name, value, _ := strings.Cut(entry, "=")
			text = fmt.Appendf(text, "%+q: %+q\n", name, value) // YAML, each character of it ASCII
		}
	} else {
		var err error
		if text, err = kit.ReadFile(from, streams.In); err != nil {
			return foreign.Result{}, err
		}
	}
	return foreign.Read(text)
}

// proxySecret returns the manifest. A name or namespace of the command line wins.
func proxySecret(o secretOptions, result foreign.Result) map[string]any {
	name, namespace := contract.DefaultSecretName, result.Namespace
	if result.Cluster != "" {
		name = result.Cluster + contract.ClusterSecretSuffix
	}
	if o.name != "" {
		name = o.name
	}
	if o.namespace != "" {
		namespace = o.namespace
	}
	metadata := map[string]any{
		"name":   name,
		"labels": map[string]string{contract.LabelProxySecret: "", labelMove: ""},
	}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "stringData": result.Data,
	}
}
