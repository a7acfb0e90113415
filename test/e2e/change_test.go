//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/infra"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

func TestChangedSecret_ReachesNewMachinesOnly(t *testing.T) {
	t.Parallel()
	c := newCluster(t, start(t), options{controlPlanes: 1, workers: 1})
	c.apply(t)
	machines := c.waitRunning(t, 3)
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	specs := vocabulary.Generations(c.specified(t)...)

	changed := strings.ReplaceAll(proxySecret, "proxy.corp.example:3128", "other.corp.example:3129")
	changedURL := strings.ReplaceAll(proxyURL, "proxy.corp.example:3128", "other.corp.example:3129")
	wantPlan(t, c.plan(t, changed), nil, machines)
	c.kubectl(t, changed, "apply", "-f", "-")
	c.waitBehind(t, 3)
	c.staysCalm(t, machines)
	if listed := c.listed(t); !slices.Equal(listed, sorted(machines)) {
		t.Errorf("status lists %v as behind, want %v", listed, sorted(machines))
	}
	if diff := cmp.Diff(specs, vocabulary.Generations(c.specified(t)...)); diff != "" {
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

// TestPools_WithTheirOwnProxy has pools with another proxy and with none, and upgrades Kubernetes: each Machine is replaced
// once, by one that has what its pool has.
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
	check := func(boots int) {
		t.Helper()
		of := func(selected func(string) bool) func(infra.Boot) bool {
			return func(b infra.Boot) bool { return selected(b.Machine) }
		}
		c.checkBoots(t, boots, want{proxy: proxyURL}, of(c.ofControlPlane))
		c.checkBoots(t, boots, want{proxy: strings.ReplaceAll(proxyURL, "proxy.corp.example:3128", "pool.corp.example:8080")},
			of(c.ofPool(0)))
		c.checkBoots(t, boots, want{}, of(c.ofPool(1)))
	}
	check(1)

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
	check(2)
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

// specs returns the stored bootstrap specs of the cluster, and the output versions that their objects record.
func (c *cluster) specs(t *testing.T) []string {
	t.Helper()
	version := "{.metadata.annotations." + strings.ReplaceAll(contract.AnnotationOutputVersion, ".", `\.`) + "}"
	return []string{
		c.kubectl(t, "", "get", "kubeadmcontrolplane", c.controlPlaneName(), "-o", "jsonpath={.spec.kubeadmConfigSpec}"+version),
		c.kubectl(t, "", "get", "kubeadmconfigtemplate", c.poolName(0), "-o", "jsonpath={.spec}"+version),
		c.kubectl(t, "", "get", "kubeadmconfigtemplate", c.poolName(1), "-o", "jsonpath={.spec}"+version),
	}
}

func TestClientOfTheOldAPIVersion(t *testing.T) {
	t.Parallel()
	c := newCluster(t, start(t), options{controlPlanes: 1, workers: 1, from: "testdata/cluster-template-v1beta1.yaml"})
	c.apply(t)
	machines := c.waitRunning(t, 3)
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	c.checkBoots(t, 3, want{proxy: proxyURL}, everyBoot)
	generations := vocabulary.Generations(c.specified(t)...)
	c.apply(t) // again, as it was
	c.staysCalm(t, machines)
	if diff := cmp.Diff(generations,
		vocabulary.Generations(c.specified(t)...)); diff != "" {
		t.Errorf("generations (-before +after the same manifest again):\n%s", diff)
	}
	old := c.kubectl(t, "", "get", "kubeadmcontrolplanes.v1beta1.controlplane.cluster.x-k8s.io", c.controlPlaneName(),
		"-o", "jsonpath={.spec.kubeadmConfigSpec.files[*].path}")
	if !strings.Contains(old, contract.PathProxyEnv) {
		t.Errorf("a client of v1beta1 sees files %q", old)
	}
}

// TestMachinePool adds a MachinePool, and then a MachineDeployment with a template of its own, to a Cluster.
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
	c.staysCalm(t, c.waitRunning(t, 4))
	c.checkBoots(t, 5, want{proxy: proxyURL}, everyBoot)
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
}
