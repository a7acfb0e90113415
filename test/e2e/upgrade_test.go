//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/management"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const (
	// nextSetupMode is by what the next output version differs from this one.
	nextSetupMode = "0711"
	// nextScript ends the setup script of the next product.
	nextScript = "# next\n"
)

// nextProduct changes internal/patch/recipe.go into that of a release to come, whose output version is the next one,
// and whose setup script is another one.
func nextProduct(recipe string) (string, error) {
	const mode, script = "Permissions: fmt.Sprintf(\"%04o\", f.mode)", "var setup = []byte(Setup()"
	this := fmt.Sprintf("OutputVersion = %d\n", patch.OutputVersion)
	next := fmt.Sprintf("OutputVersion = %d\n", patch.OutputVersion+1)
	for _, change := range []struct{ from, to string }{
		{this, next},
		{"o.Version != 1 ", "o.Version < 1 || o.Version > OutputVersion "},
		{mode, fmt.Sprintf("Permissions: map[bool]string{false: fmt.Sprintf(\"%%04o\", f.mode), true: %q}[f.path == contract.PathSetup && b.Version == OutputVersion]", nextSetupMode)},
		{script, script + fmt.Sprintf(" + %q", nextScript)},
	} {
		if strings.Count(recipe, change.from) != 1 {
			return "", fmt.Errorf("%q is not there once", change.from)
		}
		recipe = strings.Replace(recipe, change.from, change.to, 1)
	}
	return recipe, nil
}

// TestProductUpgrade replaces the product by a release with another output version, in the middle of a rollout. It has
// a management cluster of its own.
func TestProductUpgrade(t *testing.T) {
	t.Parallel()
	other := start(t)
	takeTurn(t)
	w := newTarget(t, other)
	if err := w.installHooks(t.Context()); err != nil {
		t.Fatal(err)
	}
	binary, err := management.BuildChanged(t.Context(), root, t.TempDir(), "internal/patch/recipe.go", nextProduct)
	if err != nil {
		t.Fatal(err)
	}
	rolling := newCluster(t, w, options{controlPlanes: 3, workers: 1})
	rolling.apply(t)
	calm := &cluster{world: w, namespace: rolling.namespace, name: "calm"}
	calm.manifest = calm.generate(t, calm.name, options{controlPlanes: 1, workers: 1})
	calm.apply(t)
	topology := &cluster{world: w, namespace: rolling.namespace, name: "topology"}
	topology.manifest = topology.generate(t, topology.name, classy(options{controlPlanes: 1, workers: 1}))
	topology.applyClass(t, "proxied", nil)
	topology.apply(t)
	before, calmMachines, topologyMachines := rolling.waitRunning(t, 5), calm.waitRunning(t, 3), topology.waitRunning(t, 2)
	for _, c := range []*cluster{rolling, calm, topology} {
		c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	}
	topology.waitTopology(t)
	generations := func() []map[string]int64 {
		return []map[string]int64{
			vocabulary.Generations(calm.specified(t)...),
			vocabulary.Generations(rolling.template(t, 0), rolling.template(t, 1)), vocabulary.Generations(topology.owned(t)...),
		}
	}
	were := generations()

	rolling.roll(t, "kubeadmcontrolplane/"+rolling.controlPlaneName())
	eventually(t, func() error {
		if len(rolling.boots()) < 6 {
			return errors.New("the rollout has not begun")
		}
		return nil
	})
	if version := outputVersion(rolling.controlPlane(t)); version != "1" {
		t.Errorf("this product has recorded output version %q", version)
	}
	w.replaceProduct(t, binary)

	t.Log("A rollout goes on with the version it began with.")
	rolled := rolling.waitReplaced(t, before, 5, rolling.ofControlPlane)
	rolling.waitControlPlaneStable(t)
	rolling.staysCalm(t, rolled)
	rolling.checkBoots(t, 8, want{proxy: proxyURL}, everyBoot)
	rolling.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)

	t.Log("What runs stays as it is.")
	calm.staysCalm(t, calmMachines)
	topology.staysCalm(t, topologyMachines)
	if diff := cmp.Diff(were, generations()); diff != "" {
		t.Errorf("generations (-before +after):\n%s", diff)
	}
	for _, c := range []*cluster{calm, topology} {
		c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	}

	calm.getsNextProduct(t, calmMachines)

	t.Log("A new cluster has the new version.")
	created := &cluster{world: w, namespace: rolling.namespace, name: "created"}
	created.manifest = created.generate(t, created.name, options{controlPlanes: 1, workers: 1})
	created.apply(t)
	created.staysCalm(t, created.waitRunning(t, 3))
	created.checkBoots(t, 3, want{proxy: proxyURL, setupMode: nextSetupMode, nextScript: true}, everyBoot)
}

// replaceProduct stops the hooks and the manager and starts another program in their place.
func (w *world) replaceProduct(t *testing.T, binary string) {
	t.Helper()
	for _, p := range []*management.Process{w.hooks, w.product.Process} {
		p.Stop()
		p.Replace(binary)
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// getsNextProduct scales a pool, which gets the new script with the version that it has, and then rolls the control
// plane, which gets the new version.
func (c *cluster) getsNextProduct(t *testing.T, machines identity) {
	t.Helper()
	t.Log("A pool grows by what it has, with the new script.")
	eventually(t, func() error {
		secret := get[corev1.Secret](t, c, c.name+contract.GeneratedSecretSuffix)
		return differs("the script", patch.Setup()+nextScript, string(secret.Data[contract.KeySetup]))
	})
	c.kubectl(t, "", "scale", "machinedeployment", c.poolName(0), "--replicas=2")
	grown := c.waitRunning(t, 4)
	c.checkBoots(t, 4, want{proxy: proxyURL}, everyBoot)
	c.checkBoots(t, 1, want{proxy: proxyURL, nextScript: true}, since(machines))
	machines = grown

	t.Log("A control plane that its user rolls gets the new version with it.")
	c.roll(t, "kubeadmcontrolplane/"+c.controlPlaneName())
	rolled := c.waitReplaced(t, machines, 4, c.ofControlPlane)
	c.waitControlPlaneStable(t)
	c.staysCalm(t, rolled)
	c.checkBoots(t, 1, want{proxy: proxyURL, setupMode: nextSetupMode, nextScript: true}, since(machines))
	if version := outputVersion(c.controlPlane(t)); version != "2" {
		t.Errorf("the next product has recorded output version %q", version)
	}
}

func outputVersion(object client.Object) string {
	return object.GetAnnotations()[contract.AnnotationOutputVersion]
}
