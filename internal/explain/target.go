package explain

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/manager"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// target is the Cluster that is explained, from manifests or from a management cluster.
type target struct {
	cluster settings.Cluster
	// settings are what the Cluster asks for, including its topology; invalid is why some of it cannot be used.
	settings settings.ClusterSettings
	invalid  error
	secrets  settings.SecretReader
	// override is the Secret that the chosen pool names, contract.SecretNone, or "".
	override string
	// unresolved names the fields of a manifest with an unresolved variable.
	unresolved string
	// bootstrap are the bootstrap objects of the Cluster that use that Secret.
	bootstrap []kinds.BootstrapObject
}

// resolve completes in with the list of the chosen Cluster, and returns what belongs to that Cluster.
func (o explainOptions) resolve(ctx context.Context, in *Input, streams kit.Streams) (Cluster, error) {
	if len(o.files) == 0 && !o.live() {
		return NewCluster(noproxy.Input{}, 0)
	}
	find := o.fromManifests
	if o.live() {
		find = o.fromAPI
	}
	t, err := find(ctx, streams)
	if err != nil {
		return Cluster{}, err
	}
	name := "Cluster " + kit.Qualified(t.cluster.Namespace, t.cluster.Name)
	note := func(format string, args ...any) {
		_, _ = fmt.Fprintf(streams.Err, "%s: %s\n", name, fmt.Sprintf(format, args...))
	}
	if t.invalid != nil {
		return Cluster{}, fmt.Errorf("%s: %w", name, t.invalid)
	}
	network, err := NewCluster(settings.NoProxyInput(t.cluster, t.settings.Options), t.cluster.EndpointPort)
	if err != nil {
		return Cluster{}, fmt.Errorf("%s: %w", name, err)
	}
	t.addHosts(&network)
	in.Cluster, in.Pool = kit.Qualified(t.cluster.Namespace, t.cluster.Name), o.pool
	if t.unresolved != "" {
		note("%s has unresolved variables and is left out", t.unresolved)
	}
	if o.hasNoProxy {
		return network, nil
	}
	if t.override == contract.SecretNone {
		return network, fmt.Errorf("%s: pool %s uses no proxy (its Secret is %q); there is nothing to explain", name, o.pool,
			contract.SecretNone)
	}
	switch {
	case t.cluster.Enabled:
	case t.cluster.Unclear != nil:
		note("%s; this is what it would get", t.cluster.Unclear)
	default:
		note("it has no label %s=%s; this is what it would get", contract.LabelEnabled, contract.LabelEnabledValue)
	}
	defaultSecret, err := manager.ParseDefaultSecret(o.defaultSecret)
	if err != nil {
		return network, kit.Usage(err)
	}
	resolver := settings.Resolver{
		Secrets: withoutFiles{t.secrets},
		Default: settings.Installation{Secret: defaultSecret, Namespaces: settings.EveryNamespace{}},
		Profile: noproxy.Profile(o.profile),
	}
	if t.override != "" {
		resolver.Object = "pool " + o.pool
	}
	resolution, err := resolver.Resolve(ctx, t.cluster, t.settings.Options, t.override)
	if err != nil {
		hint := ""
		if finding.Of(err).Has(contract.ReasonSettingsNotFound) && !o.live() {
			hint = "; it must be in the input or in a file given with --secret"
		}
		return network, fmt.Errorf("%s: %w%s", name, err, hint)
	}
	if note := resolution.Note(); note != "" {
		return network, fmt.Errorf("%s: %s; there is nothing to explain", name, note)
	}
	in.NoProxy, in.Entries, in.Warnings = resolution.NoProxy.Value, resolution.NoProxy.Entries, resolution.Warnings
	in.NoHTTPProxy = !resolution.Settings.HTTPProxy.IsSet()
	in.OwnAddresses = o.profile == string(noproxy.ProfileService) && !resolution.NoProxy.HasNodeNetwork
	in.Secret, in.Profile = "Secret "+
		kit.Qualified(resolution.Secret.Name.Namespace, resolution.Secret.Name.Name), o.profile
	return network, nil
}

// withoutFiles names Secrets as a management cluster does, without the files of manifests.
type withoutFiles struct{ secrets settings.SecretReader }

// ReadSecret implements settings.SecretReader.
func (w withoutFiles) ReadSecret(ctx context.Context, name types.NamespacedName) (*settings.Secret, error) {
	secret, err := w.secrets.ReadSecret(ctx, name)
	if secret != nil {
		secret.Where = ""
	}
	return secret, err
}

// fromManifests finds the Cluster in files.
func (o explainOptions) fromManifests(_ context.Context, streams kit.Streams) (target, error) {
	inputs, secrets, err := kit.ReadFiles(o.files, o.secrets, streams.In)
	if err != nil {
		return target{}, err
	}
	installation, err := manager.ParseDefaultSecret(o.defaultSecret)
	if err != nil {
		return target{}, kit.Usage(err)
	}
	all, notes, err := o.manifests.ReadClusters(inputs, secrets, installation)
	if err != nil {
		return target{}, err
	}
	for _, line := range notes {
		_, _ = fmt.Fprintln(streams.Err, line)
	}
	names := clusterNames(all)
	i, err := o.choose(names)
	if err != nil {
		return target{}, err
	}
	chosen := all[i]
	t := target{
		cluster: chosen.View, settings: chosen.Settings, invalid: chosen.Invalid, secrets: chosen.Secrets,
		unresolved: chosen.Unresolved,
	}
	if o.pool == "" {
		t.bootstrap = chosen.Bootstrap("")
		return t, nil
	}
	pools := make([]string, 0, len(chosen.Pools))
	for _, pool := range chosen.Pools {
		if pool.Name == o.pool {
			t.override = pool.Override
			t.bootstrap = chosen.Bootstrap(t.override)
			return t, nil
		}
		pools = append(pools, pool.Name)
	}
	if override, found := topologyPool(t.settings, o.pool); found {
		t.override = override
		return t, nil
	}
	for _, pool := range t.settings.Pools {
		pools = append(pools, pool.Name)
	}
	return t, fmt.Errorf("Cluster %s has no pool %s in the input; %s", names[i], o.pool, kit.Listed(pools))
}

// clusterNames returns the names of Clusters with their namespaces.
func clusterNames(all []kit.ManifestCluster) []string {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = kit.Qualified(c.View.Namespace, c.View.Name)
	}
	return names
}

// topologyPool returns the Secret that a pool of a topology names. The pool is identified by its name in spec.topology.
func topologyPool(desired settings.ClusterSettings, name string) (override string, found bool) {
	for _, pool := range desired.Pools {
		if pool.Name == name {
			return pool.Override, true
		}
	}
	return "", false
}

// choose returns the index of the Cluster that the flags select.
func (o explainOptions) choose(names []string) (int, error) {
	return kit.Choose(names, o.namespace, o.cluster, "--cluster")
}
