package faults

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// joined creates a Machine of the MachineDeployment of a Cluster as Cluster API leaves it behind once its bootstrap
// data is made of the template.
func (f *fleet) joined(cluster, name string) {
	f.t.Helper()
	labels := map[string]string{clusterv1.ClusterNameLabel: cluster, clusterv1.MachineDeploymentNameLabel: cluster + "-md"}
	object := &clusterv1.Machine{
		ObjectMeta: f.meta(name),
		Spec:       vocabulary.MachineSpec(cluster, infrastructureName, "KubeadmConfig", name),
	}
	object.Labels = labels
	template := &bootstrapv1.KubeadmConfigTemplate{}
	if err := shared.client.Get(f.t.Context(), f.key(cluster+"-md"), template); err != nil {
		f.t.Fatal(err)
	}
	config := &bootstrapv1.KubeadmConfig{ObjectMeta: f.meta(name), Spec: template.Spec.Template.Spec}
	config.Labels = labels
	config.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: "1", Controller: new(true),
	}}
	create(f.t, object, config)
	made := config.DeepCopy()
	made.Status.DataSecretName = name
	made.Status.Conditions = []metav1.Condition{{
		Type: bootstrapv1.KubeadmConfigDataSecretAvailableCondition, Status: metav1.ConditionTrue, Reason: "Available",
		LastTransitionTime: metav1.Now(),
	}}
	if err := shared.client.Status().Patch(f.t.Context(), made, client.MergeFrom(config)); err != nil {
		f.t.Fatal(err)
	}
}

// remove deletes a Secret.
func (f *fleet) remove(name string) {
	f.t.Helper()
	if err := shared.client.Delete(f.t.Context(), &corev1.Secret{ObjectMeta: f.meta(name)}); err != nil {
		f.t.Fatal(err)
	}
}

// staysAsIs fails if the objects become others than they were within a second, the named ones left out.
func (f *fleet) staysAsIs(before objects, but ...string) {
	f.t.Helper()
	without := func(o objects) objects {
		o = maps.Clone(o)
		for _, name := range but {
			delete(o, name)
		}
		return o
	}
	for range 10 {
		if diff := cmp.Diff(without(before), without(f.state())); diff != "" {
			f.t.Fatalf("objects changed (-before +after):\n%s", diff)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// eventuallyTells waits until the condition of the only Cluster is True and its message reports Machines that are
// behind, or does not.
func (f *fleet) eventuallyTells(behind bool) {
	f.t.Helper()
	const phrase = "1 Machine of MachineDeployment c000-md has outdated proxy settings: c000-md-a"
	eventually(f.t, "condition", func() string {
		condition := f.conditions()["c000"]
		if condition.Reason != contract.ReasonConfigured || strings.Contains(condition.Message, phrase) != behind {
			return condition.Reason + ": " + condition.Message
		}
		return ""
	})
}

func TestSecrets_AreDeletedAndCreatedAgain(t *testing.T) {
	const proxySecret, generated = contract.DefaultSecretName, "c000" + contract.GeneratedSecretSuffix
	// Resolution of times in the API.
	const tick = 1100 * time.Millisecond
	f := newFleet(t, 1)
	t.Parallel()
	f.create(enabled)
	election := []string{"--leader-elect", "--leader-elect-namespace", f.ns}
	p := manager(t, f.ns, append(election, noResync)...)
	f.eventuallyAsRendered()
	f.joined("c000", "c000-md-a")
	f.eventuallyTells(false)
	before, from := f.state(), setMark(t, f.ns)

	t.Log("The proxy Secret goes and comes back as it was.")
	f.remove(proxySecret)
	f.eventuallyReports(contract.ReasonSettingsNotFound)
	f.staysAsIs(before, "Secret/"+proxySecret)
	create(t, f.proxySecret(proxyURL))
	f.eventuallyTells(false)
	f.staysAsIs(before)
	time.Sleep(tick)

	t.Log("The generated Secret goes while the proxy Secret is there.")
	f.remove(generated)
	eventually(t, "generated Secret", func() string { return cmp.Diff(before, f.state()) })
	f.eventuallyTells(false)

	t.Log("Both go, and come back as they were.")
	f.remove(proxySecret)
	f.eventuallyReports(contract.ReasonSettingsNotFound)
	f.remove(generated)
	f.staysAsIs(before, "Secret/"+proxySecret, "Secret/"+generated)
	create(t, f.proxySecret(proxyURL))
	eventually(t, "generated Secret", func() string { return cmp.Diff(before, f.state()) })
	f.eventuallyTells(false)
	time.Sleep(tick)

	t.Log("The proxy Secret goes and comes back with another content.")
	f.remove(proxySecret)
	f.eventuallyReports(contract.ReasonSettingsNotFound)
	f.staysAsIs(before, "Secret/"+proxySecret)
	create(t, f.proxySecret(otherProxyURL))
	f.eventuallyTells(true)
	f.staysAsIs(before, "Secret/"+proxySecret, "Secret/"+generated)

	if writes := from.since(request.isOfSpec); len(writes) > 0 {
		t.Errorf("%d writes of specs, which do not change, the first of them %+v", len(writes), writes[0])
	}
	f.eventuallyRecorded()
	p.stop()
	staysQuiet(t, f.ns, election...)
}

// TestSecrets_WithoutTheLabelAreNoticedAtAResync has a Cluster wait for a Secret that only its name gives away.
func TestSecrets_WithoutTheLabelAreNoticedAtAResync(t *testing.T) {
	f := newFleet(t, 1)
	t.Parallel()
	f.create(enabled)
	manager(t, f.ns, shortResync)
	f.eventuallyAsRendered()
	f.remove(contract.DefaultSecretName)
	f.eventuallyReports(contract.ReasonSettingsNotFound)
	secret := f.proxySecret(proxyURL)
	secret.Labels = nil
	create(t, secret)
	f.eventuallyReports(contract.ReasonConfigured)
	f.remove(contract.DefaultSecretName)
	f.eventuallyReports(contract.ReasonSettingsNotFound)
}
