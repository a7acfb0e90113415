package check

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
)

// labelled selects the Clusters that the product serves.
var labelled = client.MatchingLabels{contract.LabelEnabled: contract.LabelEnabledValue} //nolint:gochecknoglobals // a constant

// expiry is from when on a serving certificate should have been renewed. cert-manager does so a month before its end.
const expiry = 14 * 24 * time.Hour

// caller is what the API server, or Cluster API, calls the product with.
type caller struct {
	name, role, host string
	bundle           []byte
}

// callers returns the callers of webhooks and of hooks, but for those of another installation.
func (c *checker) callers(ctx context.Context) ([]caller, error) {
	var (
		found    []caller
		webhooks admissionregistrationv1.MutatingWebhookConfigurationList
	)
	if err := c.Client.List(ctx, &webhooks, ours); err != nil {
		return nil, err //nolint:wrapcheck // the result is the error
	}
	for _, configuration := range webhooks.Items {
		for _, webhook := range configuration.Webhooks {
			one := caller{"webhook " + webhook.Name, roleManager, "", webhook.ClientConfig.CABundle}
			if service := webhook.ClientConfig.Service; service != nil {
				if service.Namespace != c.Namespace {
					continue
				}
				one.host = service.Name + "." + service.Namespace + ".svc"
			}
			found = append(found, one)
		}
	}
	configs := extensionConfigs()
	if err := c.Client.List(ctx, configs, maxList); err != nil {
		return found, nil //nolint:nilerr // CodeHooks reports it
	}
	for _, config := range configs.Items {
		namespace, _, _ := unstructured.NestedString(config.Object, "spec", "clientConfig", "service", "namespace")
		if !c.isOurs(&config) || namespace != "" && namespace != c.Namespace {
			continue
		}
		text, _, _ := unstructured.NestedString(config.Object, "spec", "clientConfig", "caBundle")
		bundle, _ := base64.StdEncoding.DecodeString(text) // the API server refuses anything else
		one := caller{"ExtensionConfig " + config.GetName(), roleHooks, "", bundle}
		name, _, _ := unstructured.NestedString(config.Object, "spec", "clientConfig", "service", "name")
		if name != "" {
			one.host = name + "." + c.Namespace + ".svc"
		}
		found = append(found, one)
	}
	return found, nil
}

// certificates checks that those who call the product trust the certificate that it serves.
func (c *checker) certificates(ctx context.Context) Result {
	callers, err := c.callers(ctx)
	if err != nil {
		return unread(err)
	}
	if len(callers) == 0 {
		return skipped("neither webhooks nor hooks are installed")
	}
	leaves := map[string]*x509.Certificate{}
	for _, one := range callers {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(one.bundle) {
			return failed("%s has no CA bundle, so nothing can call it", one.name)
		}
		leaf := leaves[one.role]
		if leaf == nil {
			if leaf, err = c.serving(ctx, one.role); err != nil {
				return unread(err)
			}
			leaves[one.role] = leaf
		}
		if leaf == nil {
			return failed("the %s has no certificate: its Secret does not exist, or has none",
				strings.TrimPrefix(one.role, "controller-"))
		}
		left := leaf.NotAfter.Sub(c.Now())
		if left <= 0 {
			return failed("the certificate for %s expired on %s", one.name, leaf.NotAfter.UTC().Format(time.DateOnly))
		}
		_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: one.host, CurrentTime: c.Now()})
		if err != nil {
			return failed("%s does not trust the certificate that is served: %v", one.name, err)
		}
		if left < expiry {
			return warning("the certificate for %s expires in %s", one.name, duration.HumanDuration(left))
		}
	}
	return ok("%d callers trust the certificates that are served", len(callers))
}

// serving returns the certificate that a Deployment serves, nil if there is none that can be read.
func (c *checker) serving(ctx context.Context, role string) (*x509.Certificate, error) {
	deployments, err := c.deployments(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range deployments {
		for _, volume := range d.Spec.Template.Spec.Volumes {
			if d.Labels[roleLabel] != role || volume.Secret == nil {
				continue
			}
			secret := &corev1.Secret{}
			err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: volume.Secret.SecretName}, secret)
			if err != nil {
				return nil, client.IgnoreNotFound(err) //nolint:wrapcheck // the result is the error
			}
			block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
			if block == nil {
				return nil, nil //nolint:nilnil // there is no certificate
			}
			leaf, _ := x509.ParseCertificate(block.Bytes)
			return leaf, nil
		}
	}
	return nil, nil //nolint:nilnil // there is no certificate
}

// probe is the name of the object that is created as a dry run.
const probe = contract.Name + "-check"

// admission creates a bootstrap object of a labelled Cluster as a dry run. Entries of the product in the answer are the
// only proof from outside that the API server reaches the webhooks.
func (c *checker) admission(ctx context.Context) Result {
	var webhooks admissionregistrationv1.MutatingWebhookConfigurationList
	if err := c.Client.List(ctx, &webhooks, ours); err == nil && len(webhooks.Items) == 0 {
		deployments, err := c.deployments(ctx)
		if err == nil && slices.ContainsFunc(deployments, func(d appsv1.Deployment) bool {
			return flagOf(d, "webhook-cert-dir") != ""
		}) {
			result := failed("the manager serves webhooks, and no MutatingWebhookConfiguration calls them")
			result.Do = "apply the release again"
			return result
		}
		result := warning("the webhooks are not installed")
		result.Do = "nothing if you chose config/without-webhooks; else apply the release again"
		return result
	}
	cluster, err := c.witness(ctx)
	switch {
	case err != nil:
		return unread(err)
	case cluster == nil:
		return skipped("no labelled Cluster without a ClusterClass has the proxy; one is needed to see the webhooks work")
	}
	config := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"preKubeadmCommands": []any{"true"}}, // without a spec there is nothing to patch
	}}
	config.SetGroupVersionKind(bootstrapv1.GroupVersion.WithKind(plan.KindConfig))
	config.SetNamespace(cluster.Namespace)
	config.SetName(probe)
	config.SetLabels(map[string]string{clusterv1.ClusterNameLabel: cluster.Name})
	err = c.Client.Create(ctx, config)
	commands, _, _ := unstructured.NestedStringSlice(config.Object, "spec", "preKubeadmCommands")
	switch {
	case apierrors.IsForbidden(err):
		return unread(err)
	case err != nil && strings.Contains(err.Error(), "webhook"):
		return failed("a test KubeadmConfig of Cluster %s is refused: %v", client.ObjectKeyFromObject(cluster), err)
	case err != nil:
		return unread(err)
	case !slices.ContainsFunc(commands, isManaged):
		return failed("webhooks do not answer: a test KubeadmConfig of Cluster %s was not patched",
			client.ObjectKeyFromObject(cluster))
	}
	return ok("webhooks answer: a test KubeadmConfig of Cluster %s was patched", client.ObjectKeyFromObject(cluster))
}

// isManaged reports whether a command is the product's.
func isManaged(command string) bool { return strings.HasSuffix(command, "# "+contract.Name) }

// witness returns a labelled Cluster whose new bootstrap objects get the proxy, nil if there is none. The one of the
// options is preferred.
func (c *checker) witness(ctx context.Context) (*clusterv1.Cluster, error) {
	var clusters clusterv1.ClusterList
	if err := c.Client.List(ctx, &clusters, labelled, maxList); err != nil {
		return nil, err //nolint:wrapcheck // the result is the error
	}
	var found *clusterv1.Cluster
	for i := range clusters.Items {
		cluster := &clusters.Items[i]
		configured := slices.ContainsFunc(cluster.Status.Conditions, func(condition metav1.Condition) bool {
			return condition.Type == contract.ConditionProxyConfigured && condition.Status == metav1.ConditionTrue
		})
		if cluster.Spec.Topology.IsDefined() || !configured || ptr.Deref(cluster.Spec.Paused, false) ||
			cluster.Spec.ControlPlaneRef.Kind != plan.KindControlPlane || !cluster.DeletionTimestamp.IsZero() {
			continue
		}
		if found == nil || client.ObjectKeyFromObject(cluster) == c.Cluster {
			found = cluster
		}
	}
	return found, nil
}

// hooks checks that Cluster API calls the hooks.
func (c *checker) hooks(ctx context.Context) Result {
	configs := extensionConfigs()
	if err := c.Client.List(ctx, configs, maxList); err != nil {
		return unread(err)
	}
	for _, config := range configs.Items {
		if !c.isOurs(&config) {
			continue
		}
		if status, reason, message := condition(&config, "Discovered"); status != "True" {
			return failed("ExtensionConfig %s is not discovered: %s %s", config.GetName(), reason, message)
		}
		return ok("ExtensionConfig %s is discovered", config.GetName())
	}
	classes, err := c.topologies(ctx)
	if err == nil && len(classes) > 0 {
		return c.ofClusters("a labelled Cluster has ClusterClass %s, and no ExtensionConfig registers the hooks", classes[0])
	}
	return skipped("no ExtensionConfig registers the hooks; only Clusters with a ClusterClass need one")
}

// clusters checks what all labelled Clusters have in common.
func (c *checker) clusters() []one {
	return []one{{CodeClasses, c.classes}, {CodeSecrets, c.secrets}}
}

// classes checks the ClusterClasses of labelled Clusters.
func (c *checker) classes(ctx context.Context) Result {
	keys, err := c.topologies(ctx)
	if err != nil {
		return unread(err)
	}
	var wrong []string
	do := ""
	for _, key := range keys {
		class := &clusterv1.ClusterClass{}
		if err := c.Client.Get(ctx, key, class); apierrors.IsNotFound(err) {
			wrong = append(wrong, "ClusterClass "+key.String()+" of a labelled Cluster does not exist")
			do = "apply it, or correct spec.topology.classRef of the Cluster"
			continue
		} else if err != nil {
			return unread(err)
		}
		i := slices.IndexFunc(class.Status.Conditions, func(condition metav1.Condition) bool {
			return condition.Type == clusterv1.ClusterClassVariablesReadyCondition
		})
		if i < 0 || class.Status.Conditions[i].Status != metav1.ConditionTrue {
			why := "Cluster API has not reported it yet"
			if i >= 0 {
				why = class.Status.Conditions[i].Reason + " " + class.Status.Conditions[i].Message
			}
			wrong = append(wrong, "ClusterClass "+key.String()+" is not VariablesReady: "+why)
		}
	}
	switch {
	case len(wrong) > 0:
		result := c.ofClusters("%d of %d: %s", len(wrong), len(keys), finding.Few(wrong))
		result.Do = do
		return result
	case len(keys) == 0 && c.Cluster.Name != "":
		return skipped("the Cluster is not labelled, or has no ClusterClass")
	case len(keys) == 0:
		return skipped("no labelled Cluster has a ClusterClass")
	}
	return ok("VariablesReady: %d", len(keys))
}

// secrets counts the Clusters that have no proxy, or whose proxy Secret has no label, so that changes of it are noticed
// late. They belong to others: none of them can fail. The Cluster of the options has checks of its own.
func (c *checker) secrets(ctx context.Context) Result {
	read, err := c.Rows(ctx, client.ObjectKey{})
	if err != nil {
		return unread(err)
	}
	var without, warned []string
	for _, row := range read.Rows {
		name := row.Namespace + "/" + row.Name
		task := contract.ReasonOf(row.Reason).Task
		switch {
		case name == c.Cluster.String():
		case row.Paused || task == contract.TaskWait || task == contract.TaskRollOut:
		case row.Reason != "" && !row.IsTrue():
			without = append(without, name)
		case row.Warning == unlabelled:
			warned = append(warned, name)
		}
	}
	switch {
	case len(without) > 0:
		return warning("%d of %d labelled Clusters do not have the proxy: %s", len(without), len(read.Rows),
			finding.Few(without))
	case len(warned) > 0:
		return warning("the proxy Secret of %d Clusters has no label, so changes take effect only at the next resync: %s",
			len(warned), finding.Few(warned))
	case len(read.Rows) == 0:
		return skipped("no Cluster has label %s", contract.LabelEnabled)
	case read.NoSecrets:
		return skipped("missing right: list secrets")
	}
	return ok("labelled Clusters: %d", len(read.Rows))
}
