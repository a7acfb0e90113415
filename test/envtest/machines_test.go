package envtest

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/fleet"
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

const pause = 1100 * time.Millisecond // longer than the resolution of times in the API

// TestImmediate_UsesTheLeverOfClusterAPI has workers that are behind. Package reconcile, the model and e2e hold when
// Machines are replaced, and how often.
func TestImmediate_UsesTheLeverOfClusterAPI(t *testing.T) {
	c := oneCluster(t, with(withoutLabel))
	c.joined("one-md-a", c.template().Spec.Template.Spec, c.worker())
	c.edit(func(cluster *clusterv1.Cluster) {
		labelled(cluster)
		annotated(contract.AnnotationRollout, contract.RolloutImmediate)(cluster)
	})
	eventually(t, "spec.rollout.after of the MachineDeployment", func() string {
		if c.deployment().Spec.Rollout.After.IsZero() {
			return "it is not set"
		}
		return ""
	})
}

// gate runs the gate before an old password is withdrawn, for one namespace.
func (c classic) gate() (status int, table string) {
	c.t.Helper()
	var out bytes.Buffer
	status = cli.Main(c.t.Context(), []string{
		"status", "-n", c.ns, "--fail-on", "behind", "--kubeconfig", shared.kubeconfig,
		"--default-proxy-secret", defaultSecretNamespace + "/" + defaultSecretName,
	},
		kit.Streams{In: strings.NewReader(""), Out: &out, Err: &out}, fleet.New())
	return status, out.String()
}

// TestChangedPassword_OpensTheGateOnlyWhenNoNodeHasTheOldOne is the procedure of docs/operations.md, with a Secret that
// nobody watches.
func TestChangedPassword_OpensTheGateOnlyWhenNoNodeHasTheOldOne(t *testing.T) {
	ns := namespace(t)
	secret := proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL, "username": "u", "password": "old"})
	change(t, secret, func(s *corev1.Secret) { s.Labels = nil })
	c := newCluster(t, ns, "one")
	c.eventuallyConfigured("it has no label capi-proxy-patcher.io/proxy")
	c.joined("one-md-a", c.template().Spec.Template.Spec, c.worker())
	opens := func(why string) {
		t.Helper()
		eventually(t, "gate", func() string {
			if status, table := c.gate(); status != 0 {
				return fmt.Sprintf("%s: exit status %d\n%s", why, status, table)
			}
			return ""
		})
	}
	opens("nothing has changed")
	time.Sleep(pause)
	change(t, secret, func(s *corev1.Secret) { s.Data["password"] = []byte("new") })
	for { // until the manager has noticed it, and for ever after
		status, table := c.gate()
		if status != 3 {
			t.Fatalf("the gate opens with exit status %d while a node has the old password:\n%s", status, table)
		}
		if !strings.Contains(table, "still to come: update Secret one-proxy-files") {
			if !strings.Contains(table, "1 Machine of MachineDeployment one-md has outdated proxy settings: one-md-a") {
				t.Fatalf("the gate does not say why:\n%s", table)
			}
			break
		}
	}
	c.gone("one-md-a")
	time.Sleep(pause) // times have a resolution of one second
	c.joined("one-md-b", c.template().Spec.Template.Spec, c.worker())
	opens("all Machines are new")

	// Labels and annotations of the Secret change its version, and nothing else.
	for _, labels := range []map[string]string{{contract.LabelProxySecret: ""}, nil, {contract.LabelProxySecret: "", "own": "1"}} {
		change(t, secret, func(s *corev1.Secret) { s.Labels = labels })
		opens(fmt.Sprintf("the Secret has labels %q", labels))
	}
	// A field that nobody reads changes the generation.
	c.edit(func(cluster *clusterv1.Cluster) {
		cluster.Spec.AvailabilityGates = []clusterv1.ClusterAvailabilityGate{{ConditionType: "Own"}}
	})
	opens("the spec has changed")
	staysQuiet(t, ns)

	// A typo in the next password is no proof that nobody has the old one.
	change(t, secret, func(s *corev1.Secret) { s.Data["pasword"] = []byte("newer") })
	c.eventuallyReports(contract.ReasonInvalidSettings, `key "pasword": unknown key`)
	if status, table := c.gate(); status != 3 {
		t.Errorf("the gate opens with exit status %d although the settings cannot be used:\n%s", status, table)
	}
}
