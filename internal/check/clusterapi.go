package check

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// maxList bounds what a check reads at once.
const maxList = client.Limit(500)

func (c *checker) clusterAPI() []one {
	return []one{
		{CodeClusterAPI, c.version},
		{CodeKinds, c.kinds},
		{CodeCertManager, c.certManager},
		{CodeFeatureGates, c.featureGates},
		{CodeExtensions, c.extensions},
	}
}

func listOf(group, version, kind string) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind + "List"})
	return list
}

// core returns the Deployment of Cluster API's core provider, nil if there is none.
func (c *checker) core(ctx context.Context) (*appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	err := c.Client.List(ctx, &list, client.MatchingLabels{clusterv1.ProviderNameLabel: "cluster-api"}, maxList)
	if err != nil || len(list.Items) == 0 {
		return nil, err //nolint:wrapcheck // the result is the error
	}
	return &list.Items[0], nil
}

func (c *checker) version(ctx context.Context) Result {
	found, err := world.ClusterAPIVersion(ctx, c.Client)
	if found == "" && (err == nil || apierrors.IsForbidden(err)) {
		var core *appsv1.Deployment
		if core, err = c.core(ctx); core != nil {
			found = tag(core)
		}
	}
	switch {
	case err != nil:
		return unread(err)
	case contract.ClusterAPIMinor(found) == "":
		return skipped("neither the inventory of clusterctl nor the image of Cluster API's core manager has a version")
	}
	if err := contract.SupportsClusterAPI(found); err != nil {
		return failed("%v", err)
	}
	return ok("Cluster API %s", found)
}

// tag returns the tag of the image of a Deployment's first container.
func tag(deployment *appsv1.Deployment) string {
	containers := deployment.Spec.Template.Spec.Containers
	if len(containers) == 0 {
		return ""
	}
	image, _, _ := strings.Cut(containers[0].Image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[i+1:]
	}
	return ""
}

// kinds checks that the API server serves what the manager watches.
func (c *checker) kinds(context.Context) Result {
	var missing []string
	for _, kind := range []schema.GroupVersionKind{
		{Group: clusterv1.GroupVersion.Group, Version: "v1beta2", Kind: "Cluster"},
		{Group: clusterv1.GroupVersion.Group, Version: "v1beta2", Kind: "MachinePool"},
		{Group: "bootstrap.cluster.x-k8s.io", Version: "v1beta2", Kind: "KubeadmConfigTemplate"},
		{Group: "controlplane.cluster.x-k8s.io", Version: "v1beta2", Kind: "KubeadmControlPlane"},
	} {
		_, err := c.Client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		switch {
		case meta.IsNoMatchError(err):
			missing = append(missing, kind.Kind+" of "+kind.GroupVersion().String())
		case err != nil:
			return unread(err)
		}
	}
	if len(missing) > 0 {
		return failed("the API server does not serve kind %s", finding.Few(missing))
	}
	return ok("the core, kubeadm bootstrap and kubeadm control plane providers are installed")
}

func (c *checker) certManager(ctx context.Context) Result {
	_, err := c.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: "cert-manager.io", Kind: "Certificate"}, "v1")
	switch {
	case meta.IsNoMatchError(err):
		if callers, err := c.callers(ctx); !c.pre && err == nil && len(callers) == 0 {
			return skipped("cert-manager is not installed, and no webhooks or hooks need it")
		}
		return failed("cert-manager is not installed, so webhooks and hooks get no certificate")
	case err != nil:
		return unread(err)
	}
	return ok("cert-manager is installed")
}

// topologies returns the ClusterClasses of labelled Clusters, each once, as namespace/name, or only that of the Cluster
// of the options.
func (c *checker) topologies(ctx context.Context) ([]client.ObjectKey, error) {
	var clusters clusterv1.ClusterList
	options := []client.ListOption{labelled, maxList}
	if c.Cluster.Name != "" {
		options = append(options, client.InNamespace(c.Cluster.Namespace))
	}
	if err := c.Client.List(ctx, &clusters, options...); err != nil {
		return nil, err //nolint:wrapcheck // the result is the error
	}
	var classes []client.ObjectKey
	for _, cluster := range clusters.Items {
		if c.Cluster.Name != "" && cluster.Name != c.Cluster.Name {
			continue
		}
		if key := cluster.GetClassKey(); key.Name != "" && !slices.Contains(classes, key) {
			classes = append(classes, key)
		}
	}
	return classes, nil
}

// ofClusters is what is wrong with labelled Clusters: only the Cluster of the options can fail, not those of others.
func (c *checker) ofClusters(format string, args ...any) Result {
	if c.Cluster.Name == "" {
		return warning(format, args...)
	}
	return failed(format, args...)
}

// featureGates checks what Clusters with a ClusterClass need.
func (c *checker) featureGates(ctx context.Context) Result {
	core, err := c.core(ctx)
	if err != nil || core == nil || len(core.Spec.Template.Spec.Containers) == 0 {
		if err == nil {
			return skipped("the Deployment of Cluster API's core manager was not found")
		}
		return unread(err)
	}
	enabled := gates(core.Spec.Template.Spec.Containers[0].Args)
	var off []string
	for _, gate := range []string{"ClusterTopology", "RuntimeSDK"} {
		if !enabled[gate] {
			off = append(off, gate)
		}
	}
	if len(off) == 0 {
		return ok("ClusterTopology and RuntimeSDK are on")
	}
	classes, err := c.topologies(ctx)
	if err == nil && len(classes) > 0 {
		return c.ofClusters("a labelled Cluster has a ClusterClass, and Cluster API runs without feature gate %s",
			strings.Join(off, " and "))
	}
	return skipped("%s off; only Clusters with a ClusterClass need it", finding.Few(off))
}

// gates reads --feature-gates.
func gates(args []string) map[string]bool {
	enabled := map[string]bool{}
	for _, arg := range args {
		list, is := strings.CutPrefix(strings.TrimLeft(arg, "-"), "feature-gates=")
		if !is {
			continue
		}
		for gate := range strings.SplitSeq(list, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(gate), "=")
			enabled[name] = strings.EqualFold(value, "true")
		}
	}
	return enabled
}

// extensions looks for what would keep Cluster API from calling ours, or changes the same things.
func (c *checker) extensions(ctx context.Context) Result {
	list := extensionConfigs()
	if err := c.Client.List(ctx, list, maxList); err != nil {
		return unread(err)
	}
	var silent, proxies []string
	for _, config := range list.Items {
		if c.isOurs(&config) {
			continue
		}
		if status, _, _ := condition(&config, "Discovered"); status != "True" {
			silent = append(silent, config.GetName())
		}
		handlers, _, _ := unstructured.NestedSlice(config.Object, "status", "handlers")
		for _, handler := range handlers {
			fields, _ := handler.(map[string]any)
			if name, _ := fields["name"].(string); strings.Contains(strings.ToLower(name), "proxy") {
				proxies = append(proxies, name)
			}
		}
	}
	switch {
	case len(silent) > 0:
		return failed("ExtensionConfig %s is not discovered", finding.Few(silent))
	case len(proxies) > 0:
		return warning("handler %s of another extension is about proxies, too", finding.Few(proxies))
	}
	return ok("no other extension is in the way")
}

func extensionConfigs() *unstructured.UnstructuredList {
	return listOf("runtime.cluster.x-k8s.io", "v1beta2", "ExtensionConfig")
}

// condition returns a condition of an object, and "" without it.
func condition(object *unstructured.Unstructured, name string) (status, reason, message string) {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, one := range conditions {
		fields, _ := one.(map[string]any)
		if fields["type"] == name {
			status, _ = fields["status"].(string)
			reason, _ = fields["reason"].(string)
			message, _ = fields["message"].(string)
		}
	}
	return status, reason, message
}

// Released are the resources that the release has, by group.
func Released() []schema.GroupResource {
	return []schema.GroupResource{
		{Resource: "namespaces"},
		{Resource: "serviceaccounts"},
		{Resource: "services"},
		{Group: "apps", Resource: "deployments"},
		{Group: "policy", Resource: "poddisruptionbudgets"},
		{Group: "networking.k8s.io", Resource: "networkpolicies"},
		{Group: "rbac.authorization.k8s.io", Resource: "roles"},
		{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
		{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"},
		{Group: "cert-manager.io", Resource: "issuers"},
		{Group: "cert-manager.io", Resource: "certificates"},
	}
}

// rights checks that the user may create what the release has.
func (c *checker) rights(ctx context.Context) Result {
	var missing []string
	for _, resource := range Released() {
		review := &authorizationv1.SelfSubjectAccessReview{}
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace: c.Namespace, Verb: "create", Group: resource.Group, Resource: resource.Resource,
		}
		if err := c.Client.Create(ctx, review); err != nil {
			return unread(err)
		}
		if !review.Status.Allowed {
			missing = append(missing, resource.String())
		}
	}
	if len(missing) > 0 {
		return failed("you may not create %s", finding.Few(missing))
	}
	return ok("you may create every kind of the release in namespace %s", c.Namespace)
}
