// Package settings answers one question: what do a proxy Secret and a Cluster ask for. It validates the Secret
// (proxy.go, url.go, certificate.go) and reads the label, annotations and topology variable of the Cluster
// (cluster_settings.go, options.go, pool.go). Resolver selects the Secret of a Cluster or pool, through an interface,
// and composes NO_PROXY from the Cluster's network (resolve.go, noproxy.go).
//
// It is pure: controller, webhooks, hooks and offline commands share it, so that all of them read the same. It never
// prints a value: Proxy and URL format themselves redacted.
package settings

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// Secret is a proxy Secret as a SecretReader returns it.
type Secret struct {
	Name types.NamespacedName
	// Data may be a cache's: nobody changes it.
	Data map[string][]byte
	// Watched reports whether a change of the Secret is noticed at once: it has contract.LabelProxySecret.
	Watched bool
	// Where names the Secret in messages if its name alone is not enough, for example with its file.
	Where string
}

// String names the Secret for messages.
func (s Secret) String() string { return s.where() }

func (s Secret) where() string {
	if s.Where != "" {
		return s.Where
	}
	return s.named()
}

func (s Secret) named() string { return "Secret " + display(s.Name) }

// display is a name with its namespace, which a Secret in a manifest may not have.
func display(name types.NamespacedName) string {
	if name.Namespace == "" {
		return name.Name
	}
	return name.String()
}

// SecretReader reads one Secret. It returns nil, and no error, if the Secret does not exist.
type SecretReader interface {
	ReadSecret(ctx context.Context, name types.NamespacedName) (*Secret, error)
}

// InfrastructureReader reads the facts of the infrastructure cluster object of a Cluster.
type InfrastructureReader interface {
	Facts(ctx context.Context, cluster Cluster) (infrastructure.Memory, error)
}

// Resolver finds proxy Secrets and composes NO_PROXY.
type Resolver struct {
	Secrets SecretReader
	// Infrastructure reads infrastructure cluster objects. Nil means that Clusters have their facts already.
	Infrastructure InfrastructureReader
	// Default is the installation-wide Secret. Its zero value means that there is none.
	Default Installation
	// Profile is the kind of programs that read NO_PROXY; its zero value is that of nodes.
	Profile noproxy.Profile
	// Now is the clock by which trusted certificates expire. Without it there are no warnings about them.
	Now func() time.Time
	// Parsed remembers the Secret that was parsed last; nil remembers none.
	Parsed *Parsed
	// WarnUnlabelled warns of Secrets that are not watched. It is for a manager, and for manifests that go to one.
	WarnUnlabelled bool
	// Object names the pool whose annotation names its own Secret, for messages; "" for the Cluster itself.
	Object string
}

// Installation is the installation-wide proxy Secret. Its noProxy is merged into every Cluster's. Its URLs and
// credentials serve Clusters without a proxy Secret of their own, but only in the namespaces that it serves: everybody
// who can read Secrets there can read the password.
type Installation struct {
	// Secret is the name of the Secret; the zero value means that there is none.
	Secret types.NamespacedName
	// Namespaces selects the namespaces that it serves. Required with a Secret.
	Namespaces NamespaceSelector
}

// NamespaceSelector selects namespaces.
type NamespaceSelector interface {
	// Selects reports whether a namespace is selected. A namespace that does not exist is not.
	Selects(ctx context.Context, namespace string) (bool, error)
	// String describes what is selected, for messages: a label selector.
	String() string
}

// EveryNamespace is the selector of commands that operators run on their own files.
type EveryNamespace struct{}

// Selects implements NamespaceSelector.
func (EveryNamespace) Selects(context.Context, string) (bool, error) { return true, nil }

func (EveryNamespace) String() string { return "" }

// Resolution has the proxy settings of a Cluster or of one of its pools.
type Resolution struct {
	// Secret is the proxy Secret.
	Secret Secret
	// Settings are its validated values.
	Settings Proxy
	// NoProxy is the composed value with its origins.
	NoProxy noproxy.Result
	// Warnings are the findings about the Secret and about NO_PROXY, in this order.
	Warnings []finding.Finding
	// Infrastructure has the facts of the infrastructure cluster object; nil if Resolver.Infrastructure is nil.
	Infrastructure *infrastructure.Memory
	// Complete reports whether the control-plane endpoint is known, or the user left it out.
	Complete bool
	// Files are the data of a generated Secret that nodes read, nil if there is none. Nobody changes them.
	Files map[string][]byte

	// documents are the names of Secrets by Secret.Where.
	documents map[string]string
}

// Note returns a note for people about the kind of settings, or "".
func (r Resolution) Note() string {
	if !r.Settings.IsTrustOnly() {
		return ""
	}
	return fmt.Sprintf("%s has only key %s: nodes trust its certificates and get no proxy variables", r.Secret,
		contract.KeyTrustedCA)
}

// CheckSecretName rejects a name that no Secret can have. Object is the pool with the annotation, "" is the Cluster.
func CheckSecretName(name, object string) error {
	if len(validation.IsDNS1123Subdomain(name)) == 0 {
		return nil
	}
	return finding.Errors{finding.Rejection(CodeBadAnnotation, finding.Annotation(contract.AnnotationSecret).Of(object),
		fmt.Sprintf("%q cannot be the name of a Secret", name),
		"name a Secret in the Cluster's namespace, without the namespace")}
}

// Resolve finds the proxy Secret of a Cluster, or the one that override names for one of its pools, and composes
// what nodes get. Only Secrets of the Cluster's own namespace are read, and the installation-wide one.
//
// It returns finding.Errors if the user has to change something, one with contract.ReasonSettingsNotFound if no Secret
// exists, and other errors as they come from the SecretReader. Warnings follow the rejections, so that a user mends
// both in one round; usual ones (noproxy.IsUsual) are left out.
func (r Resolver) Resolve(ctx context.Context, cluster Cluster, options Options,
	override string,
) (Resolution, error) {
	candidates := SecretCandidates(cluster, override)
	named := len(candidates) == 1
	if named {
		if err := CheckSecretName(candidates[0].Name, r.Object); err != nil {
			return Resolution{}, err
		}
	}
	var (
		found        *Secret
		installation *Secret
	)
	for _, name := range candidates {
		secret, err := r.Secrets.ReadSecret(ctx, name)
		if err != nil {
			return Resolution{}, fmt.Errorf("reading Secret %s: %w", display(name), err)
		}
		if secret != nil {
			found = secret
			break
		}
	}
	if r.Default.Secret != (types.NamespacedName{}) {
		secret, err := r.Secrets.ReadSecret(ctx, r.Default.Secret)
		if err != nil {
			return Resolution{}, fmt.Errorf("reading Secret %s: %w", r.Default.Secret, err)
		}
		if secret == nil {
			return Resolution{}, missing("the installation-wide Secret %s does not exist; "+
				"create it or start the manager without --default-proxy-secret", r.Default.Secret)
		}
		installation = secret
	}
	if found == nil && installation != nil && !named {
		selected, err := r.Default.Namespaces.Selects(ctx, cluster.Namespace)
		if err != nil {
			return Resolution{}, fmt.Errorf("reading Namespace %s: %w", cluster.Namespace, err)
		}
		if !selected {
			return Resolution{}, r.notServed(candidates)
		}
		found = installation
	}
	if found == nil {
		return Resolution{}, r.notFound(candidates)
	}
	var facts *infrastructure.Memory
	if r.Infrastructure != nil {
		memory, err := r.Infrastructure.Facts(ctx, cluster)
		if err != nil {
			return Resolution{}, fmt.Errorf("reading the infrastructure of Cluster %s/%s: %w", cluster.Namespace,
				cluster.Name, err)
		}
		facts = &memory
		if cluster.Facts = memory.Facts; cluster.EndpointHost == "" {
			cluster.EndpointHost = memory.Facts.EndpointHost
		}
	}
	resolution, err := r.compose(cluster, options, found, installation)
	var unlabelled []finding.Finding
	if r.WarnUnlabelled {
		unlabelled = Unlabelled(found, installation)
	}
	if rejected := finding.Of(err); len(rejected) > 0 {
		return resolution, append(slices.Clip(rejected), unlabelled...)
	}
	resolution.Warnings = append(unlabelled, resolution.Warnings...)
	resolution.Infrastructure = facts
	return resolution, err
}

// Unlabelled warns of proxy Secrets that are not watched. Nil stands for none.
func Unlabelled(secrets ...*Secret) (found []finding.Finding) {
	for i, s := range secrets {
		if s != nil && !s.Watched && (i == 0 || secrets[0] == nil || secrets[0].Name != s.Name) {
			found = append(found, finding.Finding{
				Code: CodeUnlabelledSecret, Place: finding.Place{Object: s.where()},
				Message: fmt.Sprintf("it has no label %s, so changes take up to 10 minutes (--sync-period) to take effect",
					contract.LabelProxySecret),
				Advice: strings.TrimSuffix(fmt.Sprintf("label it: kubectl label secret %s %s= -n %s", s.Name.Name,
					contract.LabelProxySecret, s.Name.Namespace), " -n "),
			})
		}
	}
	return found
}

// notServed reports that the proxy Secrets of a Cluster are missing, and that the installation-wide Secret does not
// serve its namespace.
func (r Resolver) notServed(candidates []types.NamespacedName) error {
	return missing("%s; or ask an operator to let Namespace %s use the installation-wide Secret, "+
		"which serves namespaces by their labels (%s)", r.notFound(candidates), candidates[0].Namespace, r.Default.Namespaces)
}

// missing returns the finding about a Secret that does not exist.
func missing(format string, args ...any) error {
	return finding.Errors{{
		Reason: contract.ReasonSettingsNotFound, Code: CodeSecretNotFound, Message: fmt.Sprintf(format, args...),
	}}
}

func (r Resolver) notFound(candidates []types.NamespacedName) error {
	names := make([]string, len(candidates))
	for i, name := range candidates {
		names[i] = display(name)
	}
	if len(names) == 1 {
		return missing("Secret %s does not exist; create it or change %s", names[0],
			finding.Annotation(contract.AnnotationSecret).Of(r.Object))
	}
	return missing("neither Secret %s exists; create one of them or name another in %s",
		strings.Join(names, " nor "), finding.Annotation(contract.AnnotationSecret))
}

func (r Resolver) compose(cluster Cluster, options Options, found, installation *Secret) (Resolution, error) {
	resolution := Resolution{Secret: *found}
	proxy, unusable := r.Parsed.parse(found.Data)
	resolution.Settings = proxy
	resolution.Warnings = append(resolution.Warnings, of(found.where(), proxy.Warnings)...)
	if r.Now != nil {
		resolution.Warnings = append(resolution.Warnings, of(found.where(), proxy.TrustedCAWarnings(r.Now()))...)
	}

	if unusable == nil && proxy.IsTrustOnly() { // there is no NO_PROXY, so nothing of the network has to be known
		resolution.Complete = true
		return resolution, resolution.render()
	}
	layer := func(s *Secret) noproxy.Layer {
		if s.Where != "" {
			if resolution.documents == nil {
				resolution.documents = map[string]string{}
			}
			resolution.documents[s.Where] = s.named()
		}
		text := string(s.Data[contract.KeyNoProxy])
		if text == tooLarge { // which is reported
			text = ""
		}
		return noproxy.Layer{Place: finding.Key(contract.KeyNoProxy).Of(s.where()), Text: text}
	}
	input := NoProxyInput(cluster, options)
	input.Profile = r.Profile
	if installation != nil {
		input.Installation = layer(installation)
	}
	if installation == nil || installation.Name != found.Name {
		input.User = layer(found)
	}
	if options.NoProxy != "" {
		input.Variable = noproxy.Layer{
			Place: finding.Field("variable "+contract.VariableName, contract.VariableNoProxy),
			Text:  options.NoProxy,
		}
	}
	result, err := noproxy.Compose(input)
	if rejected := append(of(found.where(), finding.Of(unusable)), finding.Of(err)...); len(rejected) > 0 {
		warnings := slices.DeleteFunc(append(resolution.Warnings, result.Warnings...),
			func(w finding.Finding) bool { return noproxy.IsUsual(w.Code) })
		return Resolution{}, append(rejected, warnings...)
	}
	if err != nil {
		return Resolution{}, err
	}
	resolution.NoProxy = result
	if err := resolution.render(); err != nil {
		return Resolution{}, err
	}
	resolution.Warnings = append(resolution.Warnings, result.Warnings...)
	if resolution.ReachesNodes(options) && !result.HasNodeNetwork {
		resolution.Warnings = append(resolution.Warnings, noNodeNetwork())
	}
	resolution.Warnings = append(resolution.Warnings, resolution.useless(options)...)
	if kind := cluster.Infrastructure.Kind; kind != "" && !infrastructure.IsKnown(kind) && !result.HasNodeNetwork {
		resolution.Warnings = append(resolution.Warnings, finding.Finding{
			Code: noproxy.CodeInfrastructureKind, Place: finding.Field("spec", "infrastructureRef"),
			Message: fmt.Sprintf("%s is a kind without known facts, so NO_PROXY has link-local addresses and neither networks "+
				"of the nodes nor internal hosts", finding.Line(kind, 253)),
			Advice: "add these to noProxy",
		})
	}
	resolution.Complete = cluster.EndpointHost != "" || slices.Contains(options.OmitGroups, noproxy.GroupEndpoint)
	return resolution, nil
}

// useless warns of what has no effect: static Pods get no credentials, and no node reaches a Service or a Pod before
// its Cluster exists.
func (r Resolution) useless(options Options) (found []finding.Finding) {
	if slices.Contains(options.Targets, contract.TargetStaticPods) && r.Settings.HasCredentials() {
		found = append(found, finding.Finding{
			Code: noproxy.CodeStaticPodsCredentials, Place: finding.Annotation(contract.AnnotationTargets),
			Message: "target static-pods has no effect, because the proxy has credentials, which kubeadm would copy into Pods",
			Advice:  "use a proxy without credentials, or leave the target out",
		})
	}
	own := []noproxy.Group{noproxy.GroupPods, noproxy.GroupServices, noproxy.GroupServiceDomain}
	for _, proxy := range []struct {
		key string
		url URL
	}{{contract.KeyHTTPProxy, r.Settings.HTTPProxy}, {contract.KeyHTTPSProxy, r.Settings.HTTPSProxy}} {
		host, _ := proxy.url.HostPort()
		inside := func(e noproxy.Entry) bool { return slices.Contains(own, e.Group) && e.Covers(host) }
		if slices.ContainsFunc(r.NoProxy.Entries, inside) && len(r.Secret.Data[proxy.key]) > 0 {
			found = append(found, finding.Finding{
				Code: noproxy.CodeProxyInCluster, Place: finding.Key(proxy.key).Of(r.Secret.where()),
				Message: "the proxy is in the Pod or Service networks of the Cluster, or has the name of a Service, and nodes " +
					"need it before the Cluster has any",
				Advice: "name the host by which nodes reach a proxy outside of the Cluster",
			})
		}
	}
	return found
}

// noNodeNetwork warns of static Pods, and of kubeadm, that reach nodes through the proxy.
func noNodeNetwork() finding.Finding {
	return finding.Finding{
		Code: noproxy.CodeNoNodeNetwork, Place: finding.Annotation(contract.AnnotationTargets),
		Message: "kubeadm and static Pods get the proxy variables and NO_PROXY has no network of the nodes, so " +
			"kube-apiserver asks kubelets (port 10250) through the proxy, and kubeadm join etcd of the other control-plane " +
			"nodes (port 2379): kubectl logs, exec and port-forward do not work, and no further control-plane Machine joins",
		Advice: "add the networks in which nodes have their addresses to noProxy, or leave out target " +
			string(contract.TargetStaticPods),
	}
}

// render renders the data of a generated Secret that nodes read.
func (r *Resolution) render() (err error) {
	r.Files, err = Files(r.Settings, r.NoProxy.Value)
	return err
}

// of returns findings about an object.
func of(object string, found []finding.Finding) finding.Errors {
	placed := make(finding.Errors, len(found))
	for i, f := range found {
		f.Place = f.Place.Of(object)
		placed[i] = f
	}
	return placed
}
