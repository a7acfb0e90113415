package envtest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

// observed sets condition Paused of the control plane as Cluster API does when it works on it, or has noticed that it
// must not.
func (c classic) observed(paused metav1.ConditionStatus) {
	c.t.Helper()
	controlPlane := c.controlPlane()
	before := controlPlane.DeepCopy()
	meta.SetStatusCondition(&controlPlane.Status.Conditions,
		metav1.Condition{Type: clusterv1.PausedCondition, Status: paused, Reason: "Observed"})
	if err := shared.client.Status().Patch(c.t.Context(), controlPlane, client.MergeFrom(before)); err != nil {
		c.t.Fatal(err)
	}
}

// wantControlPlane checks whether the control plane carries the proxy, and with which value it is paused.
func (c classic) wantControlPlane(patched bool, paused string) {
	c.t.Helper()
	controlPlane := c.controlPlane()
	if got := patch.IsPatched(api.Spec(&controlPlane.Spec.KubeadmConfigSpec)); got != patched {
		c.t.Errorf("the control plane carries the proxy: %v, want %v", got, patched)
	}
	if got := controlPlane.Annotations[clusterv1.PausedAnnotation]; got != paused {
		c.t.Errorf("the control plane is paused with %q, want %q", got, paused)
	}
}

func TestPause_PrecedesChangesOfAControlPlaneWithoutMachines(t *testing.T) {
	t.Parallel()
	for _, rollout := range []string{contract.RolloutOnNextRollout, contract.RolloutImmediate} {
		t.Run(rollout, func(t *testing.T) {
			ns := namespace(t)
			proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
			c := newCluster(t, ns, "one", with(withoutLabel), with(annotated(contract.AnnotationRollout, rollout)))
			before := c.specs()
			c.observed(metav1.ConditionFalse)
			c.edit(labelled)
			c.eventuallyReports(contract.ReasonConfiguring, "KubeadmControlPlane "+ns+"/one is paused by annotation")
			c.wantControlPlane(false, contract.PausedForPatch)
			staysQuiet(t, ns)
			c.observed(metav1.ConditionTrue)
			c.eventuallyReports(contract.ReasonConfigured)
			c.wantControlPlane(true, "")

			// The way back is the same.
			c.observed(metav1.ConditionFalse)
			c.edit(withoutLabel)
			c.eventuallyReports(contract.ReasonConfiguring)
			c.wantControlPlane(true, contract.PausedForPatch)
			c.observed(metav1.ConditionTrue)
			c.eventuallyReports(noCondition)
			c.wantControlPlane(false, "")
			if diff := cmp.Diff(before, c.specs()); diff != "" {
				t.Errorf("bootstrap specs (-before +after):\n%s", diff)
			}
		})
	}
}

func TestPause_EndsIfTheControlPlaneCannotBePatched(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", with(withoutLabel))
	c.observed(metav1.ConditionFalse)
	c.edit(labelled)
	c.eventuallyReports(contract.ReasonConfiguring)
	c.wantControlPlane(false, contract.PausedForPatch)
	change(t, c.controlPlane(), func(o *controlplanev1.KubeadmControlPlane) {
		o.Spec.KubeadmConfigSpec.Files = append(o.Spec.KubeadmConfigSpec.Files,
			bootstrapv1.File{Path: contract.PathProxyEnv, Content: "x"})
	})
	c.eventuallyReports(contract.ReasonConflictingFile)
	c.wantControlPlane(false, "")
	staysQuiet(t, ns)
}

func TestPause_LeavesObjectsAlone(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", func(o client.Object) {
		switch object := o.(type) {
		case *clusterv1.Cluster:
			object.Spec.Paused = new(true)
		case *controlplanev1.KubeadmControlPlane:
			object.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}
	})
	before := c.snapshot()
	c.staysAsIs(before)
	staysQuiet(t, ns)
	c.edit(func(cluster *clusterv1.Cluster) { cluster.Spec.Paused = nil })
	c.eventuallyReports(contract.ReasonPaused, "KubeadmControlPlane "+ns+"/one is paused and is not patched; remove annotation cluster.x-k8s.io/paused to continue")
	c.wantPatched(t, "template", "KubeadmConfig")
	change(t, c.controlPlane(), func(o *controlplanev1.KubeadmControlPlane) { o.Annotations = nil })
	c.eventuallyReports(contract.ReasonConfigured)

	// A paused object still refers to the generated Secret, which still follows its sources.
	change(t, c.controlPlane(), func(o *controlplanev1.KubeadmControlPlane) {
		o.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	})
	change(t, fetch(t, ns, "one-http-proxy", &corev1.Secret{}),
		func(s *corev1.Secret) { s.Data["httpProxy"] = []byte("http://other.example.com:1") })
	c.eventuallyHas(`HTTP_PROXY="http://other.example.com:1"`)
}
