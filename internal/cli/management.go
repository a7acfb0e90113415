package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/manager"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
)

// managementOptions are the flags of render that describe the management cluster.
type managementOptions struct {
	// render is the value of --for.
	render                string
	cluster               string
	podCIDRs, serviceCIDR []string
	serviceDomain         string
	namespaces            []string
}

// forManagement is the value of --for.
const forManagement = "management"

func (o *managementOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.render, "for", "",
		"management prints a kustomize Component that gives the providers of Cluster API the variables, and nothing else")
	f.StringVar(&o.cluster, "management-cluster", "",
		"with --for, name of the management cluster's own Cluster in the manifests, or namespace/name")
	f.StringSliceVar(&o.podCIDRs, "pod-cidr", nil, "with --for, Pod networks of the management cluster")
	f.StringSliceVar(&o.serviceCIDR, "service-cidr", nil, "with --for, Service networks of the management cluster")
	f.StringVar(&o.serviceDomain, "service-domain", "", "with --for, Service domain of the management cluster")
	f.StringSliceVar(&o.namespaces, "provider-namespace", nil,
		"with --for, namespaces of providers that are not among the manifests; a proxy with credentials needs a Secret in "+
			"each")
	complete(cmd, "for", forManagement)
}

// check returns the problem with the flags.
func (o *managementOptions) check() error {
	network := len(o.podCIDRs)+len(o.serviceCIDR) > 0 || o.serviceDomain != ""
	switch {
	case o.render == "" && !network && o.cluster == "" && len(o.namespaces) == 0:
		return nil
	case o.render == "":
		return errors.New("--management-cluster, --pod-cidr, --service-cidr, --service-domain and --provider-namespace " +
			"need --for " + forManagement)
	case o.render != forManagement:
		return fmt.Errorf("unknown --for %q; use %s", o.render, forManagement)
	case network == (o.cluster != ""):
		return errors.New("the network of the management cluster is that of --management-cluster, or of --pod-cidr, " +
			"--service-cidr and --service-domain; give one of the two")
	case o.cluster == "" && (len(o.podCIDRs) == 0 || len(o.serviceCIDR) == 0):
		return errors.New("give both --pod-cidr and --service-cidr")
	}
	return nil
}

// runManagement prints the Component.
func runManagement(cmd *cobra.Command, o renderOptions, streams Streams) error {
	defaultSecret, err := manager.ParseDefaultSecret(o.defaultSecret)
	if err != nil {
		return usageError{err}
	}
	inputs, secrets, err := readManifests(o.files, o.secrets, streams.In)
	if err != nil {
		return err
	}
	manifests, err := clusters.Read(inputs, secrets, defaultSecret)
	if err != nil {
		return err
	}
	all := manifests.Clusters()
	view, err := o.management.view(all)
	if err != nil {
		return err
	}
	endpoints, warnings := endpointsOf(all)
	resolver := manifests.Resolver(nil)
	resolver.Now = time.Now //nolint:forbidigo // the clock enters here
	resolution, err := resolver.Resolve(cmd.Context(), view, intent.Options{NoProxy: strings.Join(endpoints, "\n")}, "")
	if err != nil {
		hint := ""
		if finding.Of(err).Has(contract.ReasonSettingsNotFound) {
			hint = "; give the proxy Secret of the providers with --secret"
		}
		return fmt.Errorf("%w%s", err, hint)
	}
	if resolution.Settings.IsTrustOnly() {
		return fmt.Errorf("%s has no proxy URL, so providers need no variables", resolution.Secret)
	}
	for _, warning := range resolution.Warnings {
		if !noproxy.IsUsual(warning.Code) {
			warnings = append(warnings, "warning: "+warning.String())
		}
	}
	namespaces, notes, wrong := providersOf(manifests.Objects())
	warnings = append(warnings, wrong...)
	for _, namespace := range o.management.namespaces {
		if !slices.Contains(namespaces, namespace) {
			namespaces = append(namespaces, namespace)
		}
	}
	switch {
	case !resolution.Settings.HasCredentials():
		namespaces = nil // the values are in the Deployments
	case len(namespaces) == 0:
		return errors.New("the proxy has credentials, which providers get from a Secret in their namespace; give the " +
			"manifests of the providers, or --provider-namespace")
	}
	text, err := render.ProviderComponent(resolution.Settings.Vars(resolution.NoProxy.Value), namespaces)
	if err != nil {
		return err
	}
	for _, line := range slices.Concat(manifests.Notes, notes, warnings, []string{laterClusters}) {
		_, _ = fmt.Fprintln(streams.Err, line)
	}
	if o.strict && len(warnings) > 0 {
		return errors.New("render: nothing is written, because --strict makes the warnings above errors")
	}
	if _, err := streams.manifests().Write(text); err != nil {
		return fmt.Errorf("writing output: %w", err)
	}
	return nil
}

// view is what resolving needs to know about the management cluster.
func (o *managementOptions) view(all []clusters.Cluster) (intent.Cluster, error) {
	if o.cluster == "" {
		return intent.Cluster{
			Name: "management", PodCIDRs: o.podCIDRs, ServiceCIDRs: o.serviceCIDR, ServiceDomain: o.serviceDomain,
		}, nil
	}
	i, err := clusters.Choose(clusterNames(all), "", o.cluster, "--management-cluster")
	if err != nil {
		return intent.Cluster{}, err
	}
	return all[i].View, all[i].Invalid
}

// laterClusters is what people should know of every Component.
const laterClusters = "NO_PROXY has the endpoints of the Clusters that are given; put a domain or a network with " +
	"those of later Clusters into noProxy of the proxy Secret, or render again"

// endpointsOf returns the hosts of the API servers of Clusters, to which controllers talk directly, and warnings.
func endpointsOf(clusters []clusters.Cluster) (hosts, warnings []string) {
	for _, cluster := range clusters {
		switch host := cluster.View.EndpointHost; {
		case host == "":
			warnings = append(warnings, fmt.Sprintf("warning: %s has no control-plane endpoint yet; unless noProxy "+
				"covers it, controllers talk to the Cluster through the proxy", cluster.Object))
		case !slices.Contains(hosts, host):
			hosts = append(hosts, host)
		}
	}
	return hosts, warnings
}

// providersOf returns the namespaces of the Deployments that the Component changes, notes about those that look like
// providers, and warnings about those that it breaks.
func providersOf(objects []*manifest.Object) (namespaces, notes, warnings []string) {
	for _, object := range objects {
		if object.Kind() != "Deployment" {
			continue
		}
		_, provider := object.Labels()[render.ProviderLabel]
		containers := clusters.Items(object.Value(), "spec", "template", "spec", "containers")
		manager := slices.ContainsFunc(containers,
			func(c map[string]any) bool { return c["name"] == render.ProviderContainer })
		switch {
		case provider && manager:
			if !slices.Contains(namespaces, object.Namespace()) {
				namespaces = append(namespaces, object.Namespace())
			}
		case provider:
			warnings = append(warnings, fmt.Sprintf("warning: %s: it has label %s and no container %s, so the Component adds "+
				"one that the API server rejects; remove the label where the Component is used", clusters.Place(object),
				render.ProviderLabel, render.ProviderContainer))
		case manager:
			notes = append(notes, fmt.Sprintf("%s: it has container %s and no label %s, so the Component leaves it "+
				"unchanged; add the label if it is a provider", clusters.Place(object), render.ProviderContainer,
				render.ProviderLabel))
		}
	}
	return namespaces, notes, warnings
}
