//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/infra"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

func TestChangedSecret_ReachesNewMachinesOnly(t *testing.T) {
	t.Parallel()
	c := newCluster(t, start(t), options{controlPlanes: 1, workers: 1})
	c.apply(t)
	machines := c.waitRunning(t, 3)
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	specs := vocabulary.Generations(c.controlPlane(t), c.template(t, 0), c.template(t, 1))

	changed := strings.ReplaceAll(proxySecret, "proxy.corp.example:3128", "other.corp.example:3129")
	changedURL := strings.ReplaceAll(proxyURL, "proxy.corp.example:3128", "other.corp.example:3129")
	wantPlan(t, c.plan(t, changed), nil, machines)
	c.kubectl(t, changed, "apply", "-f", "-")
	c.waitBehind(t, 3)
	c.staysCalm(t, machines)
	if listed := c.listed(t); !slices.Equal(listed, sorted(machines)) {
		t.Errorf("status lists %v as behind, want %v", listed, sorted(machines))
	}
	if diff := cmp.Diff(specs, vocabulary.Generations(c.controlPlane(t), c.template(t, 0), c.template(t, 1))); diff != "" {
		t.Errorf("a spec changed with the Secret (-before +after):\n%s", diff)
	}
	c.kubectl(t, "", "scale", "machinedeployment", c.poolName(0), "--replicas=2")
	scaled := c.waitRunning(t, 4)
	c.checkBoots(t, 1, want{proxy: changedURL}, since(machines))
	c.roll(t, "kubeadmcontrolplane/"+c.controlPlaneName())
	c.waitReplaced(t, scaled, 4, c.ofControlPlane)
	c.checkBoots(t, 1, want{proxy: changedURL}, since(machines, scaled))
	c.waitBehind(t, 2)
	c.checkGenerated(t)
}

func TestPools_WithTheirOwnProxy(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := newCluster(t, w, options{controlPlanes: 1, workers: 1, edit: func(manifest string) string {
		manifest = annotated("MachineDeployment", "work-md-0", contract.AnnotationSecret+": pool")(manifest)
		return annotated("MachineDeployment", "work-md-1", contract.AnnotationSecret+": "+contract.SecretNone)(manifest)
	}})
	pool := strings.NewReplacer("name: http-proxy", "name: pool", "proxy.corp.example:3128",
		"pool.corp.example:8080").Replace(proxySecret)
	c.kubectl(t, pool, "apply", "-f", "-")
	c.apply(t)
	machines := c.waitRunning(t, 3)
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	c.staysCalm(t, machines)
	of := func(selected func(string) bool) func(infra.Boot) bool {
		return func(b infra.Boot) bool { return selected(b.Machine) }
	}
	c.checkBoots(t, 1, want{proxy: proxyURL}, of(c.ofControlPlane))
	c.checkBoots(t, 1, want{proxy: strings.ReplaceAll(proxyURL, "proxy.corp.example:3128", "pool.corp.example:8080")},
		of(c.ofPool(0)))
	c.checkBoots(t, 1, want{}, of(c.ofPool(1)))
}

func TestScaleUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t, start(t), options{controlPlanes: 1, workers: 1})
	c.apply(t)
	machines := c.waitRunning(t, 3)
	c.kubectl(t, "", "scale", "kubeadmcontrolplane", c.controlPlaneName(), "--replicas=3")
	c.kubectl(t, "", "scale", "machinedeployment", c.poolName(0), c.poolName(1), "--replicas=3")
	scaled := c.waitRunning(t, 9)
	for name, uid := range machines {
		if scaled[name] != uid {
			t.Errorf("Machine %s was replaced", name)
		}
	}
	c.checkBoots(t, 9, want{proxy: proxyURL}, everyBoot)
	c.waitBehind(t, 0)
}

func TestKubernetesUpgrade(t *testing.T) {
	t.Parallel()
	c := newCluster(t, start(t), options{controlPlanes: 1, workers: 1})
	c.apply(t)
	machines := c.waitRunning(t, 3)
	c.kubectl(t, "", "patch", "kubeadmcontrolplane", c.controlPlaneName(), "--type", "merge", "-p", `{"spec":{"version":"`+
		nextVersion+`"}}`)
	upgraded := c.waitReplaced(t, machines, 3, c.ofControlPlane)
	c.waitControlPlaneStable(t)
	for pool := range 2 {
		c.kubectl(t, "", "patch", "machinedeployment", c.poolName(pool), "--type", "merge",
			"-p", `{"spec":{"template":{"spec":{"version":"`+nextVersion+`"}}}}`)
	}
	upgraded = c.waitReplaced(t, upgraded, 3, func(name string) bool { return !c.ofControlPlane(name) })
	c.staysCalm(t, upgraded)
	// Each Machine was replaced once, for the upgrade.
	c.checkBoots(t, 6, want{proxy: proxyURL}, everyBoot)
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
}

// waitControlPlaneStable waits until the control plane has nothing left to do.
func (c *cluster) waitControlPlaneStable(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		controlPlane := c.controlPlane(t)
		if !meta.IsStatusConditionFalse(controlPlane.Status.Conditions, clusterv1.RollingOutCondition) {
			return fmt.Errorf("the control plane is rolling out: %+v", controlPlane.Status.Conditions)
		}
		return nil
	})
}

func TestLabelRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t, start(t), options{controlPlanes: 1, workers: 1, edit: func(manifest string) string {
		return heldEndpoint(unlabelled(manifest))
	}})
	c.apply(t)
	eventually(t, func() error {
		if !meta.IsStatusConditionPresentAndEqual(c.controlPlane(t).Status.Conditions, clusterv1.PausedCondition,
			metav1.ConditionFalse) {
			return fmt.Errorf("Cluster API has not looked at the control plane yet")
		}
		return nil
	})
	applied := c.specs(t)
	c.label(t)
	c.waitCondition(t, metav1.ConditionUnknown, contract.ReasonWaitingForEndpoint)
	c.releaseEndpoint(t)
	machines := c.waitRunning(t, 3)
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	c.checkBoots(t, 3, want{proxy: proxyURL}, everyBoot)
	if cmp.Equal(applied, c.specs(t)) {
		t.Fatal("the label changed nothing")
	}

	c.unlabel(t)
	c.waitCondition(t, metav1.ConditionFalse, contract.ReasonRemovalWaiting)
	c.staysCalm(t, machines)
	c.roll(t, "kubeadmcontrolplane/"+c.controlPlaneName())
	c.waitReplaced(t, machines, 3, c.ofControlPlane)
	c.checkBoots(t, 1, want{}, since(machines))
	if diff := cmp.Diff(applied, c.specs(t)); diff != "" {
		t.Errorf("specs are not what they were (-applied +now):\n%s", diff)
	}
	eventually(t, func() error {
		err := c.client.Get(t.Context(), c.key(c.name+contract.GeneratedSecretSuffix), &corev1.Secret{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the generated Secret is there: %w", err)
		}
		if condition, err := c.condition(t); err != nil || condition.Reason != vocabulary.NoCondition {
			return fmt.Errorf("the condition is there: %+v, %w", condition, err)
		}
		return nil
	})
}

// specs returns the stored bootstrap specs of the cluster, and the annotations of their objects.
func (c *cluster) specs(t *testing.T) []string {
	t.Helper()
	return []string{
		c.kubectl(t, "", "get", "kubeadmcontrolplane", c.controlPlaneName(), "-o", "jsonpath={.spec.kubeadmConfigSpec}"),
		c.kubectl(t, "", "get", "kubeadmconfigtemplate", c.poolName(0), "-o", "jsonpath={.spec}"),
		c.kubectl(t, "", "get", "kubeadmconfigtemplate", c.poolName(1), "-o", "jsonpath={.spec}"),
	}
}

// leastRounds is how often a manifest is applied again if a minute is too short for it.
const leastRounds = 30

func TestGitOpsLoop(t *testing.T) {
	t.Parallel()
	c := newCluster(t, start(t), options{controlPlanes: 1, workers: 1})
	c.serverSideApply(t)
	machines := c.waitRunning(t, 3)
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	specs := c.specs(t)
	generations := vocabulary.Generations(c.controlPlane(t), c.template(t, 0), c.template(t, 1))
	end := time.Now().Add(time.Minute) //nolint:forbidigo // of the test
	rounds := 0
	for rounds < leastRounds || time.Now().Before(end) { //nolint:forbidigo // of the test
		c.serverSideApply(t)
		rounds++
		if diff := cmp.Diff(generations,
			vocabulary.Generations(c.controlPlane(t), c.template(t, 0), c.template(t, 1))); diff != "" {
			if c.missedWebhook(t, c.controlPlane(t), c.template(t, 0), c.template(t, 1)) {
				t.Skip("the machine is too busy: the API server wrote without the webhook, which was too slow")
			}
			t.Fatalf("generations after %d rounds (-before +after):\n%s", rounds, diff)
		}
		pause(t, time.Second)
	}
	c.staysCalm(t, machines)
	if diff := cmp.Diff(specs, c.specs(t)); diff != "" {
		t.Errorf("specs (-before +after):\n%s", diff)
	}
	c.checkBoots(t, 3, want{proxy: proxyURL}, everyBoot)
	results.note("GitOps loop: %d server-side applies of the original manifest, generations %d, no Machine replaced",
		rounds, slices.Sorted(maps.Values(generations)))
}

// serverSideApply applies the manifest as GitOps tools do.
func (c *cluster) serverSideApply(t *testing.T) {
	t.Helper()
	for document := range strings.SplitSeq(c.manifest, "---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), object); err != nil {
			t.Fatal(err)
		}
		err := c.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("gitops"),
			client.ForceOwnership)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNewPoolOnARunningCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, start(t), options{controlPlanes: 1, workers: 1})
	c.apply(t)
	machines := c.waitRunning(t, 3)
	// One apply, the pool before its template: what is looked up at admission may not be there.
	documents := slices.DeleteFunc(strings.Split(c.manifest, "---\n"), func(document string) bool {
		return !strings.Contains(document, "\n  name: "+c.poolName(0)+"\n")
	})
	if len(documents) != 3 {
		t.Fatalf("pool 0 has %d documents", len(documents))
	}
	slices.Reverse(documents)
	pool := strings.ReplaceAll(strings.Join(documents, "---\n"), c.poolName(0), c.poolName(2))
	c.kubectl(t, pool, "apply", "-f", "-")
	grown := c.waitRunning(t, 4)
	c.staysCalm(t, grown)
	c.checkBoots(t, 1, want{proxy: proxyURL}, since(machines))
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
}

func TestClientOfTheOldAPIVersion(t *testing.T) {
	t.Parallel()
	c := newCluster(t, start(t), options{controlPlanes: 1, workers: 1, from: "testdata/cluster-template-v1beta1.yaml"})
	c.apply(t)
	machines := c.waitRunning(t, 3)
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	c.checkBoots(t, 3, want{proxy: proxyURL}, everyBoot)
	generations := vocabulary.Generations(c.controlPlane(t), c.template(t, 0), c.template(t, 1))
	c.apply(t) // again, as it was
	c.staysCalm(t, machines)
	if diff := cmp.Diff(generations,
		vocabulary.Generations(c.controlPlane(t), c.template(t, 0), c.template(t, 1))); diff != "" {
		t.Errorf("generations (-before +after the same manifest again):\n%s", diff)
	}
	old := c.kubectl(t, "", "get", "kubeadmcontrolplanes.v1beta1.controlplane.cluster.x-k8s.io", c.controlPlaneName(),
		"-o", "jsonpath={.spec.kubeadmConfigSpec.files[*].path}")
	if !strings.Contains(old, contract.PathProxyEnv) {
		t.Errorf("a client of v1beta1 sees files %q", old)
	}
}

func TestMachinePool(t *testing.T) {
	t.Parallel()
	c := newCluster(t, start(t), options{controlPlanes: 1, workers: 1})
	c.apply(t)
	c.kubectl(t, "", "apply", "-f", "testdata/machine-pool.yaml")
	machines := c.waitRunning(t, 3)
	eventually(t, func() error {
		pool := get[clusterv1.MachinePool](t, c, c.name+"-pool")
		if pool.Status.Phase != string(clusterv1.MachinePoolPhaseRunning) || len(pool.Status.NodeRefs) != 2 {
			return fmt.Errorf("the pool is %s with %d Nodes", pool.Status.Phase, len(pool.Status.NodeRefs))
		}
		return nil
	})
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	c.staysCalm(t, machines)
	c.checkBoots(t, 4, want{proxy: proxyURL}, everyBoot)
}
