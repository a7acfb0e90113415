package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain/match"
)

// exitProxied is the status if a client of --fail-on does not reach a destination of the Cluster directly.
const exitProxied = 3

const (
	// nodeClients is what runs on nodes: containerd, kubelet and kubeadm are Go programs.
	nodeClients = "go"
	// allClients is the value of --client for commonClients.
	allClients = "all"
	// commonClients are what runs on nodes and in common images.
	commonClients = "go,curl@7.88.1,curl@8.14.1,wget,busybox,urllib,requests,httpx,ruby,node-fetch,node-http"
)

// Capability implements kit.Capability.
type Capability struct{}

// New returns the capability to explain who uses the proxy.
func New() Capability { return Capability{} }

// Commands implements kit.Capability.
func (Capability) Commands(streams kit.Streams, all []kit.Capability) []*cobra.Command {
	return []*cobra.Command{newExplain(streams, all)}
}

// Proxied reports whether a client, as name or name@version, does not reach a URL directly.
func (Capability) Proxied(client, noProxy, url string) (bool, error) {
	found, err := match.Lookup(client)
	if err != nil {
		return false, err
	}
	answer, err := found.Match(noProxy, url)
	return err == nil && (answer.Verdict == match.Proxied || answer.Verdict == match.Refuses), err
}

type explainOptions struct {
	manifests                               kit.ManifestReader // nil for none
	files, secrets                          []string
	context, kubeconfig, namespace, cluster string
	pool, defaultSecret, profile            string
	noProxy                                 string
	hasNoProxy, hasClients                  bool
	mirrors                                 bool // registry mirrors are destinations
	clients, failOn                         []string
	output                                  string
}

func newExplain(streams kit.Streams, all []kit.Capability) *cobra.Command {
	var o explainOptions
	o.manifests, _ = kit.Find[kit.ManifestReader](all)
	cmd := &cobra.Command{
		Use:   "explain [DESTINATION...]",
		Short: "Show which clients reach a destination directly, and why",
		Long: `Says how many destinations of the Cluster are reached directly, and which are not; then for each destination
and each client whether a request is sent directly or through the proxy, and which entry of NO_PROXY decides. Nodes run
Go programs; --client all adds the clients of common images. A destination is a URL, a host with a dot, host:port or an
address. Without a scheme it is https, or http for port 80. Without a destination, the important ones of the Cluster are
used, and the registry mirrors in files of its bootstrap objects.

The value of NO_PROXY is that of a Cluster in manifests (-f), that of a Cluster in a management cluster (--cluster,
--context), or the one of --no-proxy. No name is resolved and no connection is made, except to the API server of the
management cluster.

Exit status: 0 success, 1 bad input, 2 wrong usage, 3 a client of --fail-on does not reach a destination of the
Cluster directly.`,
		Example: `  capi-proxy-patcher explain -f cluster.yaml --secret proxy-secret.yaml
  capi-proxy-patcher explain --context mgmt --namespace team-a --cluster prod registry.corp.example.com 10.96.0.1
  capi-proxy-patcher explain --no-proxy '.svc,10.0.0.0/8' --client all https://10.1.2.3
  capi-proxy-patcher explain -f clusters/ --cluster prod --fail-on go,requests`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.hasNoProxy = cmd.Flags().Changed("no-proxy")
			o.hasClients = cmd.Flags().Changed("client")
			return runExplain(cmd.Context(), o, args, streams)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil,
		"file or folder with manifests, - for standard input; may be repeated")
	f.StringArrayVar(&o.secrets, "secret", nil,
		"file with the proxy Secret, if it is not among the manifests; may be repeated")
	f.StringVar(&o.context, "context", "", "context of the kubeconfig; defaults to the current one")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; defaults to $KUBECONFIG, then ~/.kube/config")
	f.StringVarP(&o.namespace, "namespace", "n", "",
		"namespace of the Cluster; defaults to that of the context, with manifests to any")
	f.StringVar(&o.cluster, "cluster", "", "name of the Cluster, or namespace/name; not needed if there is only one")
	f.StringVar(&o.pool, "pool", "", "MachineDeployment or MachinePool with its own proxy Secret")
	f.StringVar(&o.defaultSecret, "default-proxy-secret", "",
		"installation-wide proxy Secret as namespace/name, as given to the manager")
	f.StringVar(&o.profile, "profile", string(noproxy.ProfileService),
		"who reads the value: service (nodes) or shell (other programs)")
	f.StringVar(&o.noProxy, "no-proxy", "", "value to explain; a Cluster then only provides the destinations")
	f.StringSliceVar(&o.clients, "client", []string{nodeClients},
		"clients, each as name or name@version; "+allClients+" are those of nodes and of common images, the default for "+
			"profile shell")
	f.StringSliceVar(&o.failOn, "fail-on", nil,
		"clients that must reach every destination of the Cluster directly, else the exit status is 3")
	f.StringVarP(&o.output, "output", "o", "text", "text, json or yaml")
	kit.Complete(cmd, "output", "text", "json", "yaml")
	kit.Complete(cmd, "profile", string(noproxy.ProfileService), string(noproxy.ProfileShell))
	kit.Complete(cmd, "client", append(clientNames(), allClients)...)
	kit.Complete(cmd, "fail-on", clientNames()...)
	kit.CompleteContext(cmd)
	kit.CompleteClusters(cmd)
	return cmd
}

// bare is a name that other commands take for a Cluster.
var bare = regexp.MustCompile(`^[A-Za-z0-9-]+(/[A-Za-z0-9.-]+)?$`)

// check returns the problem with the flags and arguments themselves.
func (o explainOptions) check(args []string) error {
	if i := slices.IndexFunc(args, bare.MatchString); i >= 0 {
		return fmt.Errorf("destination %d looks like a Cluster, which is --cluster %s; a host without a dot is https://%s",
			i+1, args[i], args[i])
	}
	live := o.context != "" || o.kubeconfig != ""
	switch {
	case !slices.Contains([]string{"text", "json", "yaml"}, o.output):
		return fmt.Errorf("unknown output %q; use text, json or yaml", o.output)
	case o.profile != string(noproxy.ProfileService) && o.profile != string(noproxy.ProfileShell):
		return fmt.Errorf("unknown profile %q; use %s or %s", o.profile, noproxy.ProfileService,
			noproxy.ProfileShell)
	case len(o.files) > 0 && o.manifests == nil:
		return errors.New("this program does not read manifests")
	case len(o.files) > 0 && live:
		return errors.New("-f reads manifests, --context and --kubeconfig a management cluster; use one of them")
	case len(o.files) == 0 && !o.live() && !o.hasNoProxy:
		return errors.New(
			"no NO_PROXY to explain; use -f FILE for manifests, --cluster NAME for a management cluster, or " +
				"--no-proxy VALUE")
	case len(o.files) == 0 && len(o.secrets) > 0:
		return errors.New("--secret needs -f; a management cluster has the Secret")
	case len(o.files) == 0 && !o.live() && len(args) == 0:
		return errors.New("no destination; give a URL, a host, host:port or an address, or a Cluster")
	case o.hasNoProxy && o.pool != "":
		return errors.New("--pool chooses a Secret and --no-proxy replaces it; use one of them")
	}
	return nil
}

// live reports whether a management cluster is asked.
func (o explainOptions) live() bool {
	return len(o.files) == 0 && (o.context != "" || o.kubeconfig != "" || o.cluster != "" ||
		o.namespace != "" || o.pool != "")
}

func runExplain(ctx context.Context, o explainOptions, args []string, streams kit.Streams) error {
	if err := o.check(args); err != nil {
		return kit.Usage(err)
	}
	in := Input{NoProxy: o.noProxy}
	var err error
	if o.profile == string(noproxy.ProfileShell) && !o.hasClients {
		o.clients = []string{allClients}
	}
	if i := slices.Index(o.clients, allClients); i >= 0 {
		o.clients = slices.Replace(o.clients, i, i+1, strings.Split(commonClients, ",")...)
	}
	if in.Clients, err = lookupClients(o.clients); err != nil {
		return kit.Usage(err)
	}
	if in.FailOn, err = lookupClients(o.failOn); err != nil {
		return kit.Usage(err)
	}
	if len(in.Clients)+len(in.FailOn) == 0 {
		return kit.Usage(errors.New("--client is empty; name at least one"))
	}
	if _, err := (Cluster{}).Choose(args); err != nil {
		return kit.Usage(err)
	}
	o.mirrors = len(args) == 0
	network, err := o.resolve(ctx, &in, streams)
	if err != nil {
		return err
	}
	if in.Destinations, err = network.Choose(args); err != nil {
		return err
	}
	report, err := Explain(in)
	if err != nil {
		return err
	}
	return o.print(report, streams)
}

func lookupClients(specs []string) ([]match.Client, error) {
	var clients []match.Client
	for _, spec := range specs {
		c, err := match.Lookup(strings.TrimSpace(spec))
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	return clients, nil
}

// print writes the report and returns the exit status as an error.
func (o explainOptions) print(report Report, streams kit.Streams) error {
	var (
		text []byte
		err  error
	)
	switch o.output {
	case "json":
		text, err = json.MarshalIndent(report, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(report)
	default:
		text = []byte(report.Text())
	}
	if err != nil {
		return fmt.Errorf("encoding output: %w", err)
	}
	if _, err := streams.Out.Write(text); err != nil {
		return fmt.Errorf("writing output: %w", err)
	}
	for _, f := range report.Failures {
		_, _ = fmt.Fprintf(streams.Err, "capi-proxy-patcher: %s: %s by %s, but it belongs to the Cluster\n",
			f.Destination, passive(f.Verdict), f.Client)
	}
	if len(report.Failures) > 0 {
		return kit.StatusError{Status: exitProxied}
	}
	return nil
}

// passive puts a verdict in front of "by".
func passive(v match.Verdict) string {
	if v == match.Refuses {
		return "refused"
	}
	return string(v)
}

// clientNames are the names of clients, with and without a version.
func clientNames() []string {
	clients := match.Clients()
	names := make([]string, 0, 2*len(clients))
	for _, c := range clients {
		names = append(names, c.Name, c.Name+"@"+c.Version)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
