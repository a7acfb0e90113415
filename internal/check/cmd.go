package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/manager"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/remote"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/reported"
)

const (
	// checkRequestTime bounds each request of check, and checkRoundTime all of them. checkPause is between two rounds of
	// --wait.
	checkRequestTime = 10 * time.Second
	checkRoundTime   = time.Minute
	checkPause       = 2 * time.Second
	// checkNodesTime bounds a round with Pods on nodes.
	checkNodesTime = 20 * time.Minute
	// exitUnchecked is the status if something could not be checked, and nothing failed.
	exitUnchecked = 2
)

// Capability implements kit.Capability.
type Capability struct{}

// New returns the capability to check an installation.
func New() Capability { return Capability{} }

// Commands implements kit.Capability.
func (Capability) Commands(streams kit.Streams, all []kit.Capability) []*cobra.Command {
	return []*cobra.Command{newCheck(streams, all)}
}

// Brief is function Brief for the installation that it finds.
func (Capability) Brief(ctx context.Context, api client.Client, now func() time.Time) string {
	return Brief(ctx, Options{Client: api, Now: now})
}

// prober is offered by what has a command that asks from a node.
type prober interface{ Probe() []string }

type checkOptions struct {
	probe                          prober  // nil for none
	clients                        clients // nil for none
	context, kubeconfig, namespace string
	cluster, manager               string
	defaultSecret, output          string
	fromNodes, nodeImage           string
	endpoints                      []string
	pre, preDelete                 bool
	wait                           time.Duration
}

func newCheck(streams kit.Streams, all []kit.Capability) *cobra.Command {
	var o checkOptions
	o.clients, _ = kit.Find[clients](all)
	o.probe, _ = kit.Find[prober](all)
	cmd := &cobra.Command{
		Use:   "check [--pre | --pre-delete] [CLUSTER]",
		Short: "Check whether the product is installed right and works",
		Long: `Checks Cluster API, the installation and the labelled Clusters, and one Cluster in detail if you name it: then
no other Cluster fails. Each check is one line: ok, warning, skipped (it does not apply, or you have no right to make
it, with the reason), failed, or unknown (the API server did not answer). What is not ok says what to do, and where it
is explained. With --pre it checks whether the product can be installed, with --pre-delete whether it can be removed.
--wait says on standard error what it waits for; an interrupt prints the last report.

It writes nothing: the object that proves that webhooks answer is created as a dry run. Only --from-nodes writes: for
each node, or the one that it names, it creates a Pod in namespace kube-system of the workload cluster, with the
kubeconfig of Secret <cluster>-kubeconfig, and deletes it when it has answered, or when the command is interrupted. It
needs the rights to get that Secret, and in the workload cluster those to create, get and delete Pods and to list Nodes.

Exit status: 0 nothing failed, 1 a check failed, 2 it could not be checked, you have too few rights, or wrong usage.`,
		Example: `  capi-proxy-patcher check --pre
  capi-proxy-patcher check --wait 5m
  capi-proxy-patcher check --namespace team-a prod -o json
  capi-proxy-patcher check team-a/prod --from-nodes --endpoint https://registry.k8s.io/v2/`,
		Args: func(cmd *cobra.Command, args []string) error {
			err := kit.ClusterArg(&o.cluster)(cmd, args)
			if err != nil && o.fromNodes == AllNodes {
				return kit.Usage(fmt.Errorf("%w; a node is --from-nodes=%s", err, args[len(args)-1]))
			}
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runCheck(cmd.Context(), o, streams) },
	}
	f := cmd.Flags()
	f.StringVar(&o.context, "context", "", "context of the kubeconfig; defaults to the current one")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; defaults to $KUBECONFIG, then ~/.kube/config")
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the Cluster; defaults to that of the context")
	f.StringVar(&o.cluster, "cluster", "", "check this Cluster, too; name or namespace/name, as the argument")
	f.StringVar(&o.manager, "manager-namespace", "", "namespace of the manager; by default the one that has a manager")
	f.StringVar(&o.defaultSecret, "default-proxy-secret", "",
		"with a Cluster, the installation-wide proxy Secret as namespace/name, as given to the manager")
	f.BoolVar(&o.pre, "pre", false, "check whether the product can be installed")
	f.BoolVar(&o.preDelete, "pre-delete", false, "check whether the product can be removed: list what still needs it")
	f.DurationVar(&o.wait, "wait", 0, "check again until nothing fails, for at most this time")
	f.StringVar(&o.fromNodes, "from-nodes", "",
		"with a Cluster, ask from this node, or without a value from each of the first 50")
	f.Lookup("from-nodes").NoOptDefVal = AllNodes
	f.StringVar(&o.nodeImage, "node-image", "",
		"with --from-nodes, image of this program; defaults to that of the manager")
	f.StringArrayVar(&o.endpoints, "endpoint", nil,
		"with --from-nodes, URL to ask through the proxy, at most 6; defaults to key readinessEndpoints of the proxy Secret")
	f.StringVarP(&o.output, "output", "o", "text", "text, short (only problems, one line each), json or yaml")
	kit.Complete(cmd, "output", "text", "short", "json", "yaml")
	kit.CompleteContext(cmd)
	kit.CompleteClusters(cmd)
	return cmd
}

func (o checkOptions) check() error {
	switch {
	case !slices.Contains([]string{"text", "short", "json", "yaml"}, o.output):
		return fmt.Errorf("unknown output %q; use text, short, json or yaml", o.output)
	case o.pre && o.cluster != "":
		return errors.New("--pre and a Cluster exclude each other")
	case o.preDelete && (o.pre || o.cluster != ""):
		return errors.New("--pre-delete excludes --pre and a Cluster")
	case o.defaultSecret != "" && o.cluster == "":
		return errors.New("--default-proxy-secret needs a Cluster")
	case o.fromNodes != "" && (o.cluster == "" || o.wait > 0):
		return errors.New("--from-nodes needs a Cluster, and excludes --wait")
	case o.fromNodes == "" && (o.nodeImage != "" || len(o.endpoints) > 0):
		return errors.New("--node-image and --endpoint need --from-nodes")
	case o.fromNodes != "" && o.probe == nil:
		return errors.New("--from-nodes: this program has no command that runs on nodes")
	case o.wait < 0:
		return errors.New("--wait is negative")
	}
	return nil
}

func runCheck(ctx context.Context, o checkOptions, streams kit.Streams) error {
	if err := o.check(); err != nil {
		return kit.Usage(err)
	}
	kit.CutNamespace(&o.namespace, &o.cluster)
	config, namespace, err := kit.LoadKubeconfig(o.kubeconfig, o.context)
	if err != nil {
		return unchecked(streams, err)
	}
	if o.namespace == "" {
		o.namespace = namespace
	}
	options, err := o.options(config)
	if err != nil {
		return unchecked(streams, err)
	}
	run := func(ctx context.Context, options Options) Report {
		limit := checkRoundTime
		if options.FromNodes != nil {
			limit = checkNodesTime
		}
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if o.pre {
			return Pre(ctx, options)
		}
		if o.preDelete {
			return PreDelete(ctx, options)
		}
		return Run(ctx, options)
	}
	if o.fromNodes != "" {
		ctx = kit.UntilSignal(ctx, syscall.SIGHUP) // to remove the Pods
		if options.FromNodes, err = o.workload(ctx, options.Client); err != nil {
			options.FromNodes = &FromNodes{Node: o.fromNodes, Err: err}
		}
	}
	data := o.output == "json" || o.output == "yaml"
	p := newPrinter(streams, o.output == "short")
	if o.wait > 0 {
		ctx, options.Waiting = kit.UntilSignal(ctx), true // to print the last report
	} else if !data {
		options.Done = p.group
	}
	report := run(ctx, options)
	if o.wait > 0 && ctx.Err() != nil {
		return unchecked(streams, errors.New("interrupted in the first round: nothing was seen yet"))
	}
	said := ""
	for until := time.Now().Add(o.wait); report.Status != OK && time.Now().Before(until); { //nolint:forbidigo // the clock enters here
		if now := report.waitsFor(); now != said {
			_, _ = fmt.Fprintln(streams.Err, "waiting for "+now)
			said = now
		}
		select {
		case <-ctx.Done():
		case <-time.After(checkPause):
		}
		next := run(ctx, options)
		if ctx.Err() != nil {
			break
		}
		report = next
	}
	switch {
	case data:
		err = streams.WriteData(o.output, report)
	case o.wait > 0:
		for _, group := range report.Groups {
			p.group(group)
		}
		fallthrough
	default:
		err = p.end(report)
	}
	switch {
	case err != nil:
		return err
	case report.Status == Failed:
		return kit.StatusError{Status: kit.ExitInput}
	case report.Status == Unknown:
		return kit.StatusError{Status: exitUnchecked}
	}
	return nil
}

// newPrinter returns a printer for standard output. What is printed there is escaped, but for the colours.
func newPrinter(streams kit.Streams, short bool) *printer {
	p := &printer{out: streams.Out, short: short}
	file, is := streams.Manifests().(*os.File)
	if !is {
		return p
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return p
	}
	p.width = 80
	if os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		p.terminal = file
	}
	return p
}

// unchecked ends the command with the status of a check that could not be made.
func unchecked(streams kit.Streams, err error) error {
	_, _ = fmt.Fprintf(streams.Err, "capi-proxy-patcher: %v\n%s", err, kit.LinksOf(err))
	return kit.StatusError{Status: exitUnchecked}
}

// options connects checks with a management cluster.
func (o checkOptions) options(config *rest.Config) (Options, error) {
	secret, err := manager.ParseDefaultSecret(o.defaultSecret)
	if err != nil {
		return Options{}, err
	}
	config.QPS, config.Timeout, config.WarningHandler = -1, checkRequestTime, rest.NoWarnings{}
	clock := &kit.ServerClock{}
	config.Wrap(clock.Wrap)
	scheme, err := world.Scheme()
	if err != nil {
		return Options{}, err
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return Options{}, fmt.Errorf("setting up client: %w", err)
	}
	reader, err := kit.NewReader(config)
	if err != nil {
		return Options{}, err
	}
	cluster := types.NamespacedName{}
	if o.cluster != "" {
		cluster = types.NamespacedName{Namespace: o.namespace, Name: o.cluster}
	}
	return Options{
		Client: api, Namespace: o.manager, Version: contract.CurrentBuild().Version, Now: clock.Now, Cluster: cluster,
		Rows: func(ctx context.Context, one types.NamespacedName) (reported.Result, error) {
			read, err := reported.Read(ctx, reader, one.Namespace, one.Name)
			if errors.Is(err, reported.ErrNotLabelled) {
				err = nil
			}
			return read, err //nolint:wrapcheck // the result is the error
		},
		NoProxy: func(ctx context.Context) (string, error) { return noProxyOf(ctx, reader, cluster, secret) },
		Clients: o.checkedClients(),
	}, nil
}

// noProxyOf returns the value of NO_PROXY for the nodes of a Cluster.
func noProxyOf(ctx context.Context, api client.Reader, name, defaultSecret types.NamespacedName) (string, error) {
	cluster := &clusterv1.Cluster{}
	if err := api.Get(ctx, name, cluster); err != nil {
		return "", fmt.Errorf("reading Cluster %s: %w", name, err)
	}
	// What the controller has read is in the generated Secret. This command asks for no kind of a provider.
	known := &world.Memory{Cached: api, Live: api, Mapper: meta.NewDefaultRESTMapper(nil)}
	asked, err := settings.Of(cluster)
	if err != nil {
		return "", err
	}
	view := settings.ClusterOf(cluster)
	view.Provisioned = false
	found, err := known.Facts(ctx, view)
	if err != nil {
		return "", err
	}
	view.Facts = found.Facts
	view = asked.ApplyTo(view)
	resolver := settings.Resolver{
		Secrets: known, Profile: noproxy.ProfileService,
		Default: settings.Installation{Secret: defaultSecret, Namespaces: settings.EveryNamespace{}},
	}
	resolution, err := resolver.Resolve(ctx, view, asked.Options, "")
	if err == nil && resolution.Note() != "" {
		err = errors.New(resolution.Note())
	}
	return resolution.NoProxy.Value, err
}

// workload connects checks with the nodes of the workload cluster, by the same rules as the manager: who may write the
// kubeconfig of a Cluster must not make this machine run a program or read a file.
func (o checkOptions) workload(ctx context.Context, api client.Client) (*FromNodes, error) {
	cluster := types.NamespacedName{Namespace: o.namespace, Name: o.cluster}
	config, httpClient, err := remote.Dial(ctx, api, cluster)
	if err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Service"), meta.RESTScopeNamespace)
	nodesAPI, err := client.New(config, client.Options{
		HTTPClient: httpClient, Mapper: mapper, Scheme: clientgoscheme.Scheme,
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to the workload cluster: %w", err)
	}
	nodes := &FromNodes{
		Node: o.fromNodes, Command: o.probe.Probe(), Client: nodesAPI, APIServer: config.Host, Image: o.nodeImage,
		Endpoints: o.endpoints,
	}
	described := &clusterv1.Cluster{}
	if err := api.Get(ctx, cluster, described); err != nil {
		return nil, fmt.Errorf("reading Cluster %s: %w", cluster, err)
	}
	nodes.ServiceDomain = described.Spec.ClusterNetwork.ServiceDomain
	if len(nodes.Endpoints) == 0 {
		generated := &corev1.Secret{}
		key := types.NamespacedName{Namespace: o.namespace, Name: settings.Pool{}.GeneratedSecret(o.cluster)}
		if err := api.Get(ctx, key, generated); err == nil {
			nodes.Endpoints = strings.Fields(string(generated.Data[contract.KeyReadiness]))
		}
	}
	return nodes, nil
}

// clients is offered by what knows how programs read NO_PROXY.
type clients interface {
	// Proxied reports whether a program does not reach a URL directly.
	Proxied(program, noProxy, url string) (bool, error)
}

// checkedClients are the programs on a node that read NO_PROXY.
func (o checkOptions) checkedClients() (checked []NoProxyClient) {
	if o.clients == nil {
		return nil
	}
	for _, program := range []struct{ spec, name string }{
		{"go", "containerd, kubelet and kubeadm"}, {"curl", "curl of your commands"},
	} {
		checked = append(checked, NoProxyClient{Name: program.name, Proxied: func(noProxy, url string) bool {
			proxied, err := o.clients.Proxied(program.spec, noProxy, url)
			return err == nil && proxied
		}})
	}
	return checked
}
