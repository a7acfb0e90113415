package envtest

import (
	"strings"
	"testing"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// adoptedCluster returns a Cluster whose drop-ins, those of withDropIns, are adopted, and what its objects were before.
func adoptedCluster(t *testing.T, ns string) (c classic, before string) {
	t.Helper()
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c = newCluster(t, ns, "one", withDropIns)
	c.eventuallyReports(contract.ReasonConflictingFile)
	before = c.snapshot()
	c.edit(adopting(nil))
	c.eventuallyReports(contract.ReasonConfigured)
	return c, before
}

// filesWith counts the user's and our files of the Cluster's objects whose path ends with suffix.
func (c classic) filesWith(suffix string) (own, managed int) {
	c.t.Helper()
	for _, spec := range c.specs() {
		for _, f := range spec.Files {
			switch {
			case !strings.HasSuffix(f.Path, suffix):
			case patch.IsManagedFile(f):
				managed++
			default:
				own++
			}
		}
	}
	return own, managed
}

func TestGiveback_RestoresFilesWhoeverRemovesOurs(t *testing.T) {
	t.Parallel()
	const kubelet = "kubelet.service.d/http-proxy.conf"
	for name, annotations := range map[string]map[string]string{
		"narrower targets":      {contract.AnnotationTargets: "containerd"},
		"Inline without a unit": {contract.AnnotationTargets: "kubeadm", contract.AnnotationDelivery: contract.DeliveryInline},
	} {
		t.Run(name, func(t *testing.T) {
			ns := namespace(t)
			c, before := adoptedCluster(t, ns)
			waiting := &bootstrapv1.KubeadmConfig{ObjectMeta: c.meta("waiting"), Spec: c.template().Spec.Template.Spec}
			waiting.Labels = c.worker()
			waiting.Labels[clusterv1.ClusterNameLabel] = "one"
			waiting.Annotations = map[string]string{clusterv1.TemplateClonedFromNameAnnotation: c.template().Name}
			waiting.OwnerReferences = ownedBy("Machine", "waiting")
			create(t, waiting)

			c.edit(adopting(annotations))
			c.eventuallyReports(contract.ReasonConfigured,
				"/usr/lib/systemd/system/kubelet.service.d/http-proxy.conf, because annotations capi-proxy-patcher.io/targets and ")
			if own, managed := c.filesWith(kubelet); own != 3 || managed != 0 {
				t.Errorf("%d files of the user's and %d of ours, want 3 and 0", own, managed)
			}
			eventually(t, "the KubeadmConfig that waits for its data", func() string {
				spec := patch.SpecOf(&fetch(t, ns, "waiting", &bootstrapv1.KubeadmConfig{}).Spec)
				if patch.PlaceOf(spec, "/etc/systemd/system/"+kubelet) != patch.Back {
					return "does not have the file of its template"
				}
				return ""
			})
			if text := string(c.generated()[contract.KeyAdoptedFiles]); strings.Contains(text, "/usr/lib/systemd") {
				t.Errorf("originals that are back are still kept:\n%s", text)
			}
			staysQuiet(t, ns)

			c.edit(adopting(nil)) // and wide again
			eventually(t, "adoption", func() string {
				if own, managed := c.filesWith(kubelet); own != 0 || managed != 3 {
					return "is not complete"
				}
				return ""
			})
			c.edit(adopting(annotations))
			c.eventuallyReports(contract.ReasonConfigured, "kept your own /")
			c.edit(func(cluster *clusterv1.Cluster) { cluster.Labels = nil })
			c.eventuallyAsBefore(t, before)
		})
	}
}

// TestGiveback_KeepsTheSecretUntilOriginalsAreRestored removes our files from a control plane that waits for its
// rollout, without a webhook.
func TestGiveback_KeepsTheSecretUntilOriginalsAreRestored(t *testing.T) {
	ns := namespace(t)
	c, _ := adoptedCluster(t, ns)
	c.runControlPlane()
	c.edit(func(cluster *clusterv1.Cluster) { cluster.Labels = nil })
	c.eventuallyReports(contract.ReasonRemovalWaiting)
	own := c.controlPlane().Spec.KubeadmConfigSpec
	change(t, c.controlPlane(), strip)
	c.eventuallyReports(contract.ReasonConflictingFile, "KubeadmControlPlane "+ns+"/one: your file that "+
		"/etc/systemd/system/containerd.service.d/http-proxy.conf replaced is missing; the original is in key adopted-files.json of Secret one-proxy-files")
	staysQuiet(t, ns)
	if text := string(c.generated()[contract.KeyAdoptedFiles]); strings.Count(text, "old.example.com") != 1 ||
		!strings.Contains(text, plan.OriginalsKey(plan.KindControlPlane, "one")) {
		t.Fatalf("want only the originals of the control plane:\n%s", text)
	}

	change(t, c.controlPlane(), func(o *controlplanev1.KubeadmControlPlane) {
		withDropIns(client.Object(o))
		o.Spec.KubeadmConfigSpec.PreKubeadmCommands = own.PreKubeadmCommands[:0]
	})
	c.eventuallyReports(noCondition)
	if c.generated() != nil {
		t.Error("the generated Secret is still there")
	}
}
