package envtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

// There is no topology controller here: the tests make the objects that it makes and change them as it does on the word
// of the hook. What the hook says is tested in internal/core/hooks.

const (
	oldVersion = "v1.36.3"
	newVersion = "v1.37.0"
)

// topologyCluster changes the objects of a classic Cluster into what the topology controller makes of a ClusterClass.
// The MachineDeployment is called batch in the topology and the MachinePool pool.
func topologyCluster(o client.Object) {
	owned := map[string]string{clusterv1.ClusterTopologyOwnedLabel: ""}
	switch object := o.(type) {
	case *clusterv1.Cluster:
		object.Spec.Topology.ClassRef.Name = "quick-start"
		object.Spec.Topology.Version = oldVersion
		object.Spec.Topology.Workers.MachineDeployments = []clusterv1.MachineDeploymentTopology{{
			Class: "worker",
			Name:  "batch",
		}}
		object.Spec.Topology.Workers.MachinePools = []clusterv1.MachinePoolTopology{{Class: "worker", Name: "pool"}}
		return
	case *clusterv1.MachineDeployment:
		owned[clusterv1.ClusterTopologyMachineDeploymentNameLabel] = "batch"
		object.Spec.Template.Spec.Version = oldVersion
	case *clusterv1.MachinePool:
		owned[clusterv1.ClusterTopologyMachinePoolNameLabel] = "pool"
		object.Spec.Template.Spec.Version = oldVersion
	case *bootstrapv1.KubeadmConfigTemplate:
		object.Spec.Template.Spec.JoinConfiguration.NodeRegistration.Name = "own"
	}
	owned[clusterv1.ClusterNameLabel] = strings.TrimSuffix(strings.TrimSuffix(o.GetName(), "-md"), "-mp")
	o.SetLabels(owned)
}

// with changes the Cluster among the objects.
func with(edit func(*clusterv1.Cluster)) func(client.Object) {
	return func(o client.Object) {
		if cluster, ok := o.(*clusterv1.Cluster); ok {
			edit(cluster)
		}
	}
}

// withVariable sets the variable of the Cluster, and of its MachineDeployment if there is a second value.
func withVariable(values ...string) func(client.Object) {
	return with(func(cluster *clusterv1.Cluster) {
		variable := func(value string) []clusterv1.ClusterVariable {
			return []clusterv1.ClusterVariable{{Name: contract.VariableName, Value: apiextensionsv1.JSON{Raw: []byte(value)}}}
		}
		cluster.Spec.Topology.Variables = variable(values[0])
		if len(values) > 1 {
			cluster.Spec.Topology.Workers.MachineDeployments[0].Variables.Overrides = variable(values[1])
		}
	})
}

// withoutLabel leaves the Cluster alone.
func withoutLabel(cluster *clusterv1.Cluster) { delete(cluster.Labels, contract.LabelEnabled) }

func labelled(cluster *clusterv1.Cluster) {
	cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
}

// annotated gives an annotation of a Cluster a value, or takes it away.
func annotated(key, value string) func(*clusterv1.Cluster) {
	return func(cluster *clusterv1.Cluster) {
		cluster.Annotations = maps.Clone(cluster.Annotations)
		if cluster.Annotations == nil {
			cluster.Annotations = map[string]string{}
		}
		cluster.Annotations[key] = value
		if value == "" {
			delete(cluster.Annotations, key)
		}
	}
}

// initialized marks the control plane as running.
func (c classic) initialized() {
	c.t.Helper()
	for {
		cluster := c.cluster()
		cluster.Status.Initialization.ControlPlaneInitialized = new(true)
		err := shared.client.Status().Update(c.t.Context(), cluster)
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) { // with the manager, which reports
			c.t.Fatal(err)
		}
	}
}

// specOf is the bootstrap spec of an object.
func specOf(o client.Object) (string, *bootstrapv1.KubeadmConfigSpec) {
	switch object := o.(type) {
	case *controlplanev1.KubeadmControlPlane:
		return plan.KindControlPlane, &object.Spec.KubeadmConfigSpec
	case *bootstrapv1.KubeadmConfigTemplate:
		return plan.KindTemplate, &object.Spec.Template.Spec
	case *bootstrapv1.KubeadmConfig:
		return plan.KindConfig, &object.Spec
	}
	return "", &bootstrapv1.KubeadmConfigSpec{}
}

// topologyWrites applies a recipe to an object, as the topology controller does for the hook. Without options it
// removes the proxy.
func topologyWrites(t *testing.T, o client.Object, options ...patch.Options) {
	t.Helper()
	kind, typed := specOf(o)
	spec := api.Spec(typed)
	edits := patch.Remove(spec)
	for _, option := range options {
		recipe, err := patch.NewRecipe(option)
		if err != nil {
			t.Fatal(err)
		}
		brought, err := patch.Ensure(spec, recipe)
		if err != nil {
			t.Fatal(err)
		}
		edits = brought.Edits
	}
	if len(edits) == 0 {
		return
	}
	data, err := json.Marshal(patch.Operations(patch.Location{Parents: api.Parents(kind)}, spec, edits))
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.client.Patch(t.Context(), o, client.RawPatch(types.JSONPatchType, data)); err != nil {
		t.Fatal(err)
	}
}

// reference is what a template gets.
func reference(secret string) patch.Options {
	return patch.Options{Targets: contract.Targets(), SecretName: secret}
}

// carried writes the proxy into all objects in place of the topology controller.
func (c classic) carried() {
	c.t.Helper()
	for _, o := range []client.Object{c.controlPlane(), c.template(), c.config()} {
		topologyWrites(c.t, o, reference(c.name+"-proxy-files"))
	}
}

func (c classic) hold() string { return c.cluster().Annotations[contract.AnnotationTopologyHold] }

// eventuallyHolds waits for a value of the hold.
func (c classic) eventuallyHolds(want string) {
	c.t.Helper()
	eventually(c.t, "hold of Cluster "+c.name, func() string {
		if got := c.hold(); got != want {
			return fmt.Sprintf("%q, want %q", got, want)
		}
		return ""
	})
}

// upgradedControlPlane and upgradedWorkers have the topology controller upgrade Kubernetes.
func (c classic) upgradedControlPlane() {
	c.t.Helper()
	change(c.t, c.controlPlane(), func(o *controlplanev1.KubeadmControlPlane) { o.Spec.Version = newVersion })
}

func (c classic) upgradedWorkers() {
	c.t.Helper()
	change(c.t, c.deployment(), func(o *clusterv1.MachineDeployment) { o.Spec.Template.Spec.Version = newVersion })
	change(c.t, fetch(c.t, c.ns, c.name+"-mp", &clusterv1.MachinePool{}),
		func(o *clusterv1.MachinePool) { o.Spec.Template.Spec.Version = newVersion })
}

func TestTopology_GetsSecretsAndNoOtherWrite(t *testing.T) {
	ns := namespace(t)
	corp := proxySecret(t, ns, "corp", map[string]string{"httpProxy": proxyURL, "username": "user", "password": "p%40ss"})
	other := proxySecret(t, ns, "other", map[string]string{"httpProxy": "http://other.example.com:3128"})
	c := newCluster(t, ns, "one", topologyCluster, withVariable(`{"secretName": "corp", "noProxy": ["extra.example.com"]}`,
		`{"secretName": "other"}`),
		with(func(cluster *clusterv1.Cluster) {
			cluster.Spec.Topology.Workers.MachinePools[0].Metadata.Annotations = map[string]string{contract.AnnotationSecret: contract.SecretNone}
		}))
	before := c.snapshot()
	const lines = "{name: capi-proxy-patcher, external: {generatePatchesExtension: generate-patches.capi-proxy-patcher, " +
		"validateTopologyExtension: validate-topology.capi-proxy-patcher, discoverVariablesExtension: discover-variables.capi-proxy-patcher}}"
	c.eventuallyReports(contract.ReasonWaitingForObjects, "the topology controller has not patched KubeadmControlPlane "+
		ns+"/one, KubeadmConfigTemplate "+ns+"/one-md yet")
	c.eventuallyReports(contract.ReasonTemplateNotSupported, "KubeadmControlPlane "+ns+"/one, KubeadmConfigTemplate "+ns+
		"/one-md; the last item of spec.patches of ClusterClass "+ns+"/quick-start must be "+lines)
	c.staysAsIs(before)

	c.eventuallyHas(`HTTP_PROXY="http://user:p%2540ss@proxy.example.com:3128"`)
	if env := string(c.generated()[contract.KeyProxyEnv]); !strings.Contains(env, ",extra.example.com") {
		t.Errorf("NO_PROXY lacks the entry of the variable:\n%s", env)
	}
	if origins := string(c.generated()[contract.KeyNoProxyOrigins]); !strings.Contains(origins,
		"variable capiProxyPatcher.noProxy") {
		t.Errorf("the origins do not name the variable:\n%s", origins)
	}
	if env := string(c.secret("one.batch.tmd.proxy-files")[contract.KeyProxyEnv]); !strings.Contains(env,
		`HTTP_PROXY="http://other.example.com:3128"`) {
		t.Errorf("Secret of the pool:\n%s", env)
	}
	for _, name := range []string{"one.pool.tmp.proxy-files", "one.one-md.md.proxy-files"} {
		if c.secret(name) != nil {
			t.Errorf("Secret %s exists", name)
		}
	}

	topologyWrites(t, c.controlPlane(), reference("one-proxy-files"))
	topologyWrites(t, c.template(), reference("one-proxy-files"))
	c.eventuallyReports(contract.ReasonWaitingForObjects, "the topology controller has not updated KubeadmConfigTemplate "+
		ns+"/one-md to the current settings yet")
	topologyWrites(t, c.template(), reference("one.batch.tmd.proxy-files"))
	c.eventuallyReports(contract.ReasonConfigured,
		fmt.Sprintf("2 of 3 pools and control planes have the proxy (1 Secret %s/corp, 1 Secret %s/other)", ns, ns))

	change(t, corp, func(s *corev1.Secret) { s.Data["httpProxy"] = []byte("http://moved.example.com:3128") })
	c.eventuallyHas(`HTTPS_PROXY="http://user:p%2540ss@moved.example.com:3128"`)
	change(t, other, func(s *corev1.Secret) { s.Data["httpProxy"] = []byte("http://elsewhere.example.com:3128") })
	eventually(t, "Secret of the pool", func() string {
		if env := string(c.secret("one.batch.tmd.proxy-files")[contract.KeyProxyEnv]); !strings.Contains(env,
			"elsewhere.example.com") {
			return env
		}
		return ""
	})
	c.eventuallyReports(contract.ReasonConfigured)
	if annotations := c.cluster().Annotations; len(annotations) != 0 {
		t.Errorf("annotations of the Cluster: %v", annotations)
	}
	staysQuiet(t, ns)
}

func TestTopologyHold_KeepsTemplatesWhenTheLabelIsSet(t *testing.T) {
	ns := admitted(t, namespace(t), webhooksLive)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", topologyCluster, with(withoutLabel))
	label := func(value string, arguments ...string) string {
		return mustKubectl(t, "",
			append([]string{"label", "--overwrite", "cluster", "one", "-n", ns, contract.LabelEnabled + value}, arguments...)...)
	}
	label("=true")
	if c.hold() != "" {
		t.Error("a Cluster that does not run is held")
	}
	label("-")
	c.initialized()
	const warning = "Warning: capi-proxy-patcher: Machines that run Kubernetes v1.36.3 get the proxy with their next upgrade, or when annotation capi-proxy-patcher.io/rollout is Immediate"
	if out := label("=true", "--dry-run=server"); !strings.Contains(out, warning) || c.hold() != "" {
		t.Errorf("a dry run printed %q and left hold %q", out, c.hold())
	}
	if out := label("=true"); !strings.Contains(out, warning) {
		t.Errorf("kubectl printed %q, want %q", out, warning)
	}
	if got, want := c.hold(), "disabled@"+oldVersion; got != want {
		t.Fatalf("hold %q, want %q", got, want)
	}
	c.eventuallyReports(contract.ReasonWaitingForRollout, "KubeadmControlPlane "+ns+
		"/one waits for the next upgrade of Kubernetes from v1.36.3, because changing it now would replace its Machines; "+
		"to roll it now set annotation capi-proxy-patcher.io/rollout=Immediate on the Cluster")
	c.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`) // for the objects that do not wait
	staysQuiet(t, ns)

	// A manifest without the annotation does not end it, and neither does a user who takes it off.
	cluster := c.cluster()
	cluster.Annotations, cluster.ManagedFields, cluster.ResourceVersion = nil, nil, ""
	mustKubectl(t, manifest(t, cluster), "replace", "-f", "-")
	mustKubectl(t, "", "annotate", "cluster", "one", "-n", ns, contract.AnnotationTopologyHold+"-")
	if got, want := c.hold(), "disabled@"+oldVersion; got != want {
		t.Errorf("hold %q, want %q", got, want)
	}
	label("-")
	if c.hold() != "" {
		t.Error("the label is gone again and the Cluster still held")
	}
	label("=true")
	c.eventuallyReports(contract.ReasonWaitingForRollout)

	// The user upgrades.
	c.edit(func(o *clusterv1.Cluster) { o.Spec.Topology.Version = newVersion })
	c.upgradedControlPlane()
	topologyWrites(t, c.controlPlane(), reference("one-proxy-files"))
	c.eventuallyReports(contract.ReasonWaitingForRollout, "KubeadmConfigTemplate "+ns+"/one-md waits for ")
	if strings.Contains(c.condition().Message, "KubeadmControlPlane") {
		t.Errorf("the control plane still waits: %s", c.condition().Message)
	}
	c.eventuallyHolds("disabled@" + oldVersion)
	c.upgradedWorkers()
	c.carried()
	c.eventuallyReports(contract.ReasonConfigured)
	c.eventuallyHolds("")
	staysQuiet(t, ns)
}

func TestClusterWebhook_BlocksOnlyTheWritesThatNeedIt(t *testing.T) {
	ns := namespace(t)
	away := shared.webhooks.Configurations[0].DeepCopy()
	away.ObjectMeta = metav1.ObjectMeta{Name: "away-" + ns}
	away.Webhooks = slices.DeleteFunc(away.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
		return w.Name != "cluster.capi-proxy-patcher.io"
	})
	if len(away.Webhooks) != 1 || *away.Webhooks[0].FailurePolicy != admissionregistrationv1.Fail {
		t.Fatalf("webhooks %v", away.Webhooks)
	}
	nobody := "https://127.0.0.1:1/"
	away.Webhooks[0].ClientConfig.URL = &nobody
	away.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}}
	create(t, away)
	t.Cleanup(func() {
		if err := shared.client.Delete(context.WithoutCancel(t.Context()), away); err != nil {
			t.Error(err)
		}
	})
	c := newCluster(t, ns, "one", topologyCluster, with(withoutLabel))
	plain := newCluster(t, ns, "plain", with(withoutLabel))
	c.initialized()
	plain.initialized()
	write := func(c classic, edit func(*clusterv1.Cluster), options ...client.UpdateOption) error {
		cluster := c.cluster()
		edit(cluster)
		return shared.client.Update(t.Context(), cluster, append(options, client.DryRunAll)...)
	}
	refused := func(err error) bool {
		return err != nil && !apierrors.IsConflict(err) && strings.Contains(err.Error(), "cluster.capi-proxy-patcher.io")
	}
	eventually(t, "the webhook that is away", func() string {
		if !refused(write(c, labelled)) {
			return "a label on a Cluster that runs is admitted"
		}
		return ""
	})
	for name, err := range map[string]error{
		"a change of the topology":                 write(c, func(o *clusterv1.Cluster) { o.Spec.Topology.Version = newVersion }),
		"another label":                            write(c, func(o *clusterv1.Cluster) { o.Labels = map[string]string{"a": "b"} }),
		"the label with a value that says nothing": write(c, func(o *clusterv1.Cluster) { o.Labels = map[string]string{contract.LabelEnabled: "false"} }),
		"the manager's own":                        write(c, labelled, client.FieldOwner(contract.Name)),
		"a Cluster without a ClusterClass":         write(plain, labelled),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	held := newCluster(t, ns, "held", topologyCluster, with(func(o *clusterv1.Cluster) {
		o.Spec.Paused = new(true) // the controller would end it
		annotated(contract.AnnotationTopologyHold, "disabled@"+oldVersion)(o)
	}))
	if err := write(held, func(o *clusterv1.Cluster) { o.Spec.Topology.Version = newVersion }); err != nil {
		t.Errorf("a Cluster that is held: %v", err)
	}
	for name, edit := range map[string]func(*clusterv1.Cluster){
		"a label that means nothing": func(o *clusterv1.Cluster) { o.Labels[contract.LabelEnabled] = "True" },
		"the hold is taken off":      annotated(contract.AnnotationTopologyHold, ""),
		"the hold is changed":        annotated(contract.AnnotationTopologyHold, "enabled@"+oldVersion),
		"Immediate":                  annotated(contract.AnnotationRollout, contract.RolloutImmediate),
	} {
		if err := write(held, edit); !refused(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
