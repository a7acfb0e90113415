package envtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/status"
)

// joined creates a Machine as Cluster API leaves it behind once its bootstrap data is made of spec. The manager would
// patch a KubeadmConfig that has no data yet, if it came in between, so it does not learn before whose the
// KubeadmConfig is.
func (c classic) joined(name string, spec bootstrapv1.KubeadmConfigSpec, labels map[string]string) {
	c.t.Helper()
	config := &bootstrapv1.KubeadmConfig{ObjectMeta: c.meta(name), Spec: spec}
	if len(config.Spec.Files) == 0 && config.Spec.JoinConfiguration.NodeRegistration.Name == "" {
		config.Spec.JoinConfiguration.NodeRegistration.Name = "own"
	}
	create(c.t, config)
	config.Status.DataSecretName = name
	config.Status.Conditions = []metav1.Condition{{
		Type: bootstrapv1.KubeadmConfigDataSecretAvailableCondition, Status: metav1.ConditionTrue, Reason: "Available",
		LastTransitionTime: metav1.Now(),
	}}
	if err := shared.client.Status().Update(c.t.Context(), config); err != nil {
		c.t.Fatal(err)
	}
	machine := &clusterv1.Machine{ObjectMeta: c.meta(name), Spec: c.machine("KubeadmConfig", name)}
	machine.Labels = map[string]string{clusterv1.ClusterNameLabel: c.name}
	maps.Copy(machine.Labels, labels)
	create(c.t, machine)
	change(c.t, config, func(config *bootstrapv1.KubeadmConfig) {
		config.Labels, config.OwnerReferences = machine.Labels, ownedBy("Machine", name)
	})
}

// ownedBy is the owner reference by which Cluster API controls an object. Nothing here collects what has no owner.
func ownedBy(kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Name: name, UID: "1", Controller: new(true),
	}}
}

// worker and controlPlaneNode are the labels of Machines.
func (c classic) worker() map[string]string {
	return map[string]string{clusterv1.MachineDeploymentNameLabel: c.name + "-md"}
}

func controlPlaneNode() map[string]string {
	return map[string]string{clusterv1.MachineControlPlaneLabel: ""}
}

// gone deletes Machines with their KubeadmConfigs.
func (c classic) gone(names ...string) {
	c.t.Helper()
	for _, name := range names {
		for _, object := range []client.Object{
			&clusterv1.Machine{ObjectMeta: c.meta(name)},
			&bootstrapv1.KubeadmConfig{ObjectMeta: c.meta(name)},
		} {
			if err := shared.client.Delete(c.t.Context(), object); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

func (c classic) deployment() *clusterv1.MachineDeployment {
	return fetch(c.t, c.ns, c.name+"-md", &clusterv1.MachineDeployment{})
}

// eventuallyRollsOut waits until spec.rollout.after of the control plane and of the MachineDeployment are set as
// wanted.
func (c classic) eventuallyRollsOut(controlPlane, deployment bool) {
	c.t.Helper()
	eventually(c.t, "spec.rollout.after", func() string {
		if got := !c.controlPlane().Spec.Rollout.After.IsZero(); got != controlPlane {
			return "of the control plane is set: " + map[bool]string{true: "yes", false: "no"}[got]
		}
		if got := !c.deployment().Spec.Rollout.After.IsZero(); got != deployment {
			return "of the MachineDeployment is set: " + map[bool]string{true: "yes", false: "no"}[got]
		}
		return ""
	})
}

const pause = 1100 * time.Millisecond // longer than the resolution of times in the API

func TestMachines_BehindAreCountedAndNamed(t *testing.T) {
	ns := namespace(t)
	secret := proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", func(o client.Object) { delete(o.GetLabels(), contract.LabelEnabled) })
	for _, name := range []string{"one-md-a", "one-md-b", "one-md-c", "one-md-d", "one-md-e"} {
		c.joined(name, c.template().Spec.Template.Spec, c.worker())
	}
	c.joined("one-cp-a", c.controlPlane().Spec.KubeadmConfigSpec, controlPlaneNode())
	c.edit(func(cluster *clusterv1.Cluster) {
		cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	})
	c.eventuallyReports(contract.ReasonWaitingForRollout,
		"1 Machines of KubeadmControlPlane one are behind the current configuration: one-cp-a",
		"5 Machines of MachineDeployment one-md are behind the current configuration: one-md-a, one-md-b, one-md-c and 2 more")
	staysQuiet(t, ns)
	c.wantRecord("KubeadmControlPlane one: 1", "MachineDeployment one-md: 5")

	// The user replaces the workers.
	c.gone("one-md-a", "one-md-b", "one-md-c", "one-md-d")
	c.joined("one-md-f", c.template().Spec.Template.Spec, c.worker())
	c.eventuallyReports(contract.ReasonWaitingForRollout,
		"1 Machines of MachineDeployment one-md are behind the current configuration: one-md-e")

	// A change of the values leaves those behind that are there.
	c.gone("one-md-e", "one-cp-a")
	c.eventuallyReports(contract.ReasonConfigured)
	c.joined("one-cp-b", c.controlPlane().Spec.KubeadmConfigSpec, controlPlaneNode())
	time.Sleep(pause)
	change(t, secret, func(s *corev1.Secret) {
		s.StringData = map[string]string{"httpProxy": "http://proxy-2.example.com:3128"}
	})
	c.eventuallyHas(`HTTP_PROXY="http://proxy-2.example.com:3128"`)
	c.eventuallyReports(contract.ReasonConfigured,
		"1 Machines of KubeadmControlPlane one are behind the current configuration: one-cp-b",
		"1 Machines of MachineDeployment one-md are behind the current configuration: one-md-f")
	c.eventuallyRollsOut(false, false)
	time.Sleep(pause)
	c.joined("one-md-g", c.template().Spec.Template.Spec, c.worker())
	c.gone("one-md-f", "one-cp-b")
	eventually(t, "condition", func() string {
		if got := c.condition().Message; strings.Contains(got, "behind") {
			return got
		}
		return ""
	})
	staysQuiet(t, ns)
	c.wantRecord()

	// A Secret that says the same in other words leaves nobody behind.
	change(t, secret, func(s *corev1.Secret) {
		s.StringData = map[string]string{"httpProxy": "http://proxy-2.example.com:3128", "noProxy": "10.244.0.0/16"}
	})
	staysQuietButFor(t, ns, "secrets")
	if got := c.condition().Message; strings.Contains(got, "behind") {
		t.Error(got)
	}
}

// wantRecord fails unless the Cluster has a record of these groups of Machines that are behind, or of none.
func (c classic) wantRecord(want ...string) {
	c.t.Helper()
	text, recorded := c.cluster().Annotations[contract.AnnotationMachinesBehind]
	behind, err := status.ParseRecord(text)
	if err != nil {
		c.t.Fatal(err)
	}
	var got []string
	for _, group := range behind {
		got = append(got, fmt.Sprintf("%s %s: %d", group.Kind, group.Name, group.Machines))
	}
	if !slices.Equal(got, want) || recorded != (len(want) > 0) {
		c.t.Errorf("the record has %q, want %q: %s", got, want, text)
	}
}

func TestImmediate_ReplacesMachinesOnce(t *testing.T) {
	ns := namespace(t)
	secret := proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", func(o client.Object) { delete(o.GetLabels(), contract.LabelEnabled) })
	c.joined("one-md-a", c.template().Spec.Template.Spec, c.worker())
	c.joined("one-cp-a", c.controlPlane().Spec.KubeadmConfigSpec, controlPlaneNode())
	time.Sleep(pause)
	c.edit(func(cluster *clusterv1.Cluster) {
		cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
		cluster.Annotations = map[string]string{contract.AnnotationRollout: contract.RolloutImmediate}
	})
	// The control plane is replaced for its new entries, the workers by the lever of Cluster API.
	c.eventuallyRollsOut(false, true)
	c.eventuallyReports(contract.ReasonConfigured,
		"1 Machines of MachineDeployment one-md are behind the current configuration: one-md-a")
	c.wantPatched(t, everyObject...)
	first := c.deployment().Spec.Rollout.After
	staysQuiet(t, ns)

	time.Sleep(pause)
	c.gone("one-md-a", "one-cp-a")
	c.joined("one-md-b", c.template().Spec.Template.Spec, c.worker())
	c.joined("one-cp-b", c.controlPlane().Spec.KubeadmConfigSpec, controlPlaneNode())
	staysQuietButFor(t, ns, "clusters")
	if got := c.deployment().Spec.Rollout.After; !got.Equal(&first) {
		t.Errorf("current Machines were rolled out again, at %v after %v", got, first)
	}

	// A change of the values rolls both, once.
	time.Sleep(pause)
	change(t, secret, func(s *corev1.Secret) {
		s.StringData = map[string]string{"httpProxy": "http://proxy-2.example.com:3128"}
	})
	c.eventuallyRollsOut(true, true)
	eventually(t, "second rollout", func() string {
		if after := c.deployment().Spec.Rollout.After; !after.After(first.Time) {
			return "the MachineDeployment is not rolled out again"
		}
		return ""
	})
	c.eventuallyReports(contract.ReasonConfigured,
		"1 Machines of MachineDeployment one-md are behind the current configuration: one-md-b")
	staysQuiet(t, ns)
	second := c.deployment().Spec.Rollout.After

	// Without the label Machines with the proxy go.
	time.Sleep(pause)
	c.gone("one-md-b", "one-cp-b")
	c.joined("one-md-c", c.template().Spec.Template.Spec, c.worker())
	time.Sleep(pause)
	c.edit(func(cluster *clusterv1.Cluster) { cluster.Labels = nil })
	c.eventuallyReports(noCondition)
	if after := c.deployment().Spec.Rollout.After; !after.After(second.Time) {
		t.Error("workers with the proxy are not replaced")
	}
	c.wantRecord()
	c.wantPatched(t, noObject...)
}

func TestImmediate_WaitsForSettingsThatCanBeUsed(t *testing.T) {
	ns := namespace(t)
	c := newCluster(t, ns, "one", func(o client.Object) { delete(o.GetLabels(), contract.LabelEnabled) })
	c.joined("one-md-a", c.template().Spec.Template.Spec, c.worker())
	c.joined("one-cp-a", c.controlPlane().Spec.KubeadmConfigSpec, controlPlaneNode())
	c.edit(func(cluster *clusterv1.Cluster) {
		cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
		cluster.Annotations = map[string]string{contract.AnnotationRollout: contract.RolloutImmediate}
	})
	c.eventuallyReports(contract.ReasonSettingsNotFound)
	staysQuiet(t, ns)
	c.wantPatched(t, "template", "KubeadmConfig")
	if after := c.deployment().Spec.Rollout.After; !after.IsZero() {
		t.Errorf("Machines are replaced by others that wait for a proxy Secret: %v", after)
	}

	time.Sleep(pause) // rollout.after has seconds
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c.eventuallyRollsOut(false, true)
	c.eventuallyReports(contract.ReasonConfigured)
	c.wantPatched(t, everyObject...)
}

func TestImmediate_DoesNotBringAPlannedRolloutForward(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	planned := metav1.NewTime(time.Now().Add(24 * time.Hour).Truncate(time.Second)) //nolint:forbidigo // the API server compares with the time of day
	c := newCluster(t, ns, "one", func(o client.Object) {
		delete(o.GetLabels(), contract.LabelEnabled)
		if deployment, ok := o.(*clusterv1.MachineDeployment); ok {
			deployment.Spec.Rollout.After = planned
		}
	})
	c.joined("one-md-a", c.template().Spec.Template.Spec, c.worker())
	c.edit(func(cluster *clusterv1.Cluster) {
		cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
		cluster.Annotations = map[string]string{contract.AnnotationRollout: contract.RolloutImmediate}
	})
	c.eventuallyReports(contract.ReasonConfigured, "1 Machines of MachineDeployment one-md are behind")
	if got := c.deployment().Spec.Rollout.After; !got.Equal(&planned) {
		t.Errorf("spec.rollout.after is %v, want %v", got, planned)
	}
}

func TestMachines_OfAPoolThatLeavesTheProxyAreCounted(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonConfigured)
	c.joined("one-md-a", c.template().Spec.Template.Spec, c.worker())
	change(t, c.deployment(), func(deployment *clusterv1.MachineDeployment) {
		deployment.Annotations = map[string]string{contract.AnnotationSecret: contract.SecretNone}
	})
	c.eventuallyReports(contract.ReasonConfigured,
		"1 Machines of MachineDeployment one-md are behind the current configuration: one-md-a")
	if c.isPatched("template") {
		t.Error("the template still has the proxy")
	}
	if !patch.IsPatched(patch.SpecOf(&fetch(t, ns, "one-md-a", &bootstrapv1.KubeadmConfig{}).Spec)) {
		t.Error("the KubeadmConfig of a Machine with bootstrap data was written")
	}
}

func TestImmediate_OfATopologyIsSetOnTheCluster(t *testing.T) {
	ns := namespace(t)
	secret := proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", topologyCluster, with(annotated(contract.AnnotationRollout, contract.RolloutImmediate)))
	c.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`)
	// without entries: the topology controller replaces it
	c.joined("one-md-old", c.template().Spec.Template.Spec, c.worker())
	c.carried()
	c.eventuallyReports(contract.ReasonConfigured,
		"1 Machines of MachineDeployment one-md are behind the current configuration: one-md-old")
	c.joined("one-md-a", c.template().Spec.Template.Spec, c.worker())
	c.joined("one-cp-a", c.controlPlane().Spec.KubeadmConfigSpec, controlPlaneNode())
	c.gone("one-md-old")
	staysQuietButFor(t, ns, "clusters")
	if topology := c.cluster().Spec.Topology; !topology.ControlPlane.Rollout.After.IsZero() ||
		!topology.Workers.MachineDeployments[0].Rollout.After.IsZero() {
		t.Fatalf("rolled without a reason: %+v", topology)
	}

	time.Sleep(pause)
	change(t, secret, func(s *corev1.Secret) {
		s.StringData = map[string]string{"httpProxy": "http://proxy-2.example.com:3128"}
	})
	eventually(t, "rollout.after in the topology", func() string {
		topology := c.cluster().Spec.Topology
		if topology.ControlPlane.Rollout.After.IsZero() || topology.Workers.MachineDeployments[0].Rollout.After.IsZero() {
			return "is not set for both"
		}
		return ""
	})
	c.eventuallyRollsOut(false, false) // the topology controller writes it into the objects
	staysQuiet(t, ns)
}
