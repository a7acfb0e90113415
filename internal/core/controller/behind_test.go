package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// TestLagging_StaysCurrentAfterAnUpdateInPlace is the same before and after a restart, and whatever the Cluster asks for
// by then: it is the KubeadmConfig that says which content the node has.
func TestLagging_StaysCurrentAfterAnUpdateInPlace(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	recipe := patch.Recipe{First: []string{"sh /etc/capi-proxy-patcher/setup.sh || : # capi-proxy-patcher"}}
	for name, test := range map[string]struct {
		updated string
		changed time.Time
		behind  int
	}{
		"no update":                       {"", noon, 1},
		"an update to the content":        {"2026-01-01T12:00:00Z", noon, 0},
		"an update in another zone":       {"2026-01-01T13:00:00+01:00", noon, 0},
		"a Secret that has changed since": {"2026-01-01T12:00:00Z", noon.Add(time.Second), 1},
		"a Secret that never changed":     {"", time.Time{}, 0},
		"what nobody of us wrote":         {"yesterday %s\n\"$(id)`", noon, 1},
	} {
		config := &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{
			Name: "m", UID: "u", CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)),
			OwnerReferences: []metav1.OwnerReference{{Kind: "Machine", Name: "m", Controller: new(true)}},
			Annotations:     map[string]string{contract.AnnotationUpdatedAt: test.updated},
		}}
		config.Spec.PreKubeadmCommands = recipe.First
		o := Reconciled{Object: Object{BootstrapObject: &bootstrapv1.KubeadmConfigTemplate{}, Kind: plan.KindTemplate}, Recipe: &recipe}
		got := lagging(&world.Memory{}, []*bootstrapv1.KubeadmConfig{config}, o, "MachineDeployment", "md", test.changed)
		if len(got.Machines) != test.behind {
			t.Errorf("%s: behind are %+v", name, got.Machines)
		}
	}
}
