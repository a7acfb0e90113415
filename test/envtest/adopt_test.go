package envtest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// withDropIns gives bootstrap objects the drop-ins that people write by hand, one of them in the folder for packages.
func withDropIns(o client.Object) {
	files := []bootstrapv1.File{
		{
			Path: "/etc/systemd/system/containerd.service.d/http-proxy.conf", Owner: "root:root", Append: new(true),
			Content: "[Service]\nEnvironment=\"HTTP_PROXY=http://u:p%25`'$x@old.example.com:3128/\"\n\n",
		},
		{Path: "/etc/issue", Content: "between"},
		{Path: "/usr/lib/systemd/system/kubelet.service.d/http-proxy.conf", Permissions: "0600", Encoding: bootstrapv1.Base64, Content: "W1NlcnZpY2VdCg=="},
	}
	switch object := o.(type) {
	case *controlplanev1.KubeadmControlPlane:
		object.Spec.KubeadmConfigSpec.Files = append(files, object.Spec.KubeadmConfigSpec.Files...)
	case *bootstrapv1.KubeadmConfigTemplate:
		object.Spec.Template.Spec.Files = files
	case *bootstrapv1.KubeadmConfig:
		object.Spec.Files = files
	}
}

func adopting(annotations map[string]string) func(*clusterv1.Cluster) {
	return func(cluster *clusterv1.Cluster) {
		cluster.Annotations = map[string]string{contract.AnnotationAdopt: contract.AdoptValue}
		maps.Copy(cluster.Annotations, annotations)
	}
}

func TestAdoption_TakesAndRestoresHandWrittenDropIns(t *testing.T) {
	t.Parallel()
	for name, delivery := range map[string]string{
		"Reference": contract.DeliveryReference,
		"Inline":    contract.DeliveryInline,
	} {
		t.Run(name, func(t *testing.T) {
			ns := namespace(t)
			proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
			c := newCluster(t, ns, "one", withDropIns, func(o client.Object) {
				if cluster, ok := o.(*clusterv1.Cluster); ok {
					cluster.Annotations = map[string]string{contract.AnnotationDelivery: delivery}
				}
			})
			c.eventuallyReports(contract.ReasonConflictingFile,
				`set annotation capi-proxy-patcher.io/adopt of the Cluster to "true" to let the product take over such files`)
			c.wantPatched(t, noObject...)
			before := c.snapshot()

			c.edit(adopting(map[string]string{contract.AnnotationDelivery: delivery}))
			c.eventuallyReports(contract.ReasonConfigured, "KubeadmControlPlane "+ns+"/one: "+
				"your files that /etc/systemd/system/containerd.service.d/http-proxy.conf, "+
				"/etc/systemd/system/kubelet.service.d/http-proxy.conf replace are saved in Secret one-proxy-files and restored when ")
			c.wantPatched(t, everyObject...)
			for _, spec := range c.specs() {
				for _, f := range spec.Files {
					if strings.Contains(f.Content, "old.example.com") || strings.HasPrefix(f.Path, "/usr/lib/systemd") {
						t.Errorf("%s of the user is still there", f.Path)
					}
				}
			}
			if text := string(c.generated()[contract.KeyAdoptedFiles]); strings.Count(text, "old.example.com") != 3 {
				t.Errorf("the originals of three objects are not all kept:\n%s", text)
			}
			staysQuiet(t, ns)

			c.edit(func(cluster *clusterv1.Cluster) { cluster.Labels = nil })
			c.eventuallyAsBefore(t, before)
		})
	}
}

func TestAdoption_StaysWhenTheFileIsAppliedAgain(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"client-side": nil,
		"server-side": {"--server-side", "--force-conflicts"},
	} {
		t.Run(name, func(t *testing.T) {
			ns := admitted(t, namespace(t), webhooksLive)
			proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
			c := classic{t: t, ns: ns, name: "one"}
			objects := c.objects()
			for _, o := range objects {
				withDropIns(o)
				if cluster, ok := o.(*clusterv1.Cluster); ok {
					adopting(nil)(cluster)
				}
			}
			text := manifest(t, objects...)
			apply := append([]string{"apply", "-f", "-"}, flags...)
			mustKubectl(t, text, apply...)
			c.eventuallyReports(contract.ReasonConfigured)
			c.wantPatched(t, everyObject...)
			mustKubectl(t, text, apply...) // bookkeeping of kubectl
			for _, running := range []bool{false, true} {
				if running {
					c.runControlPlane()
				}
				before, generations := c.snapshot(), c.generations()
				mustKubectl(t, text, apply...)
				if diff := cmp.Diff(generations, c.generations()); diff != "" {
					t.Errorf("running %v: generations (-before +after):\n%s", running, diff)
				}
				if diff := cmp.Diff(before, c.snapshot()); diff != "" {
					t.Errorf("running %v: objects (-before +after):\n%s", running, diff)
				}
				if out, err := kubectl(t, text, append([]string{"diff", "-f", "-"}, flags...)...); err != nil || out != "" {
					t.Errorf("running %v: kubectl diff: %v\n%s", running, err, out)
				}
			}

			// What waits for a rollout continues to wait: the file that comes again is no change of the user.
			c.edit(func(o *clusterv1.Cluster) { o.Annotations[contract.AnnotationTargets] = "containerd,kubelet" })
			c.eventuallyReports(contract.ReasonWaitingForRollout)
			generation := c.controlPlane().Generation
			mustKubectl(t, text, apply...)
			if got := c.controlPlane().Generation; got != generation {
				t.Errorf("applying the manifest again rolls the control plane: generation %d, want %d", got, generation)
			}

			// A file that is not the original any more is the user's again, and a conflict until it is adopted too.
			change(t, c.template(), func(o *bootstrapv1.KubeadmConfigTemplate) {
				for i := range o.Spec.Template.Spec.Files {
					if strings.Contains(o.Spec.Template.Spec.Files[i].Path, "containerd.service.d") {
						o.Spec.Template.Spec.Files[i] = bootstrapv1.File{
							Path:    o.Spec.Template.Spec.Files[i].Path,
							Content: "[Service]\n# new.example.com\n",
						}
					}
				}
			})
			eventually(t, "the new original", func() string {
				if text := string(c.generated()[contract.KeyAdoptedFiles]); !strings.Contains(text, "new.example.com") {
					return text
				}
				return c.patchedOtherThan(everyObject...)
			})
		})
	}
}

func TestAdoption_HappensInTheRequestThatRollsAControlPlane(t *testing.T) {
	ns := admitted(t, namespace(t), webhooksLive)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	classic{t: t, ns: ns, name: "one"}.runControlPlane()
	c := newCluster(t, ns, "one", withDropIns, func(o client.Object) {
		if cluster, ok := o.(*clusterv1.Cluster); ok {
			adopting(nil)(cluster)
		}
	})
	c.eventuallyReports(contract.ReasonWaitingForRollout)
	c.wantPatched(t, "template", "KubeadmConfig")
	staysQuiet(t, ns)
	before := c.controlPlane().Spec.KubeadmConfigSpec
	generation := c.controlPlane().Generation
	change(t, c.controlPlane(), func(o *controlplanev1.KubeadmControlPlane) { o.Spec.Version = "v1.37.0" })
	if controlPlane := c.controlPlane(); !hasProxy(controlPlane) || controlPlane.Generation != generation+1 {
		t.Errorf("patched %v at generation %d, want true at %d", hasProxy(controlPlane),
			controlPlane.Generation, generation+1)
	}
	c.eventuallyReports(contract.ReasonConfigured)

	c.edit(func(cluster *clusterv1.Cluster) { cluster.Labels = nil })
	c.eventuallyReports(contract.ReasonRemovalWaiting)
	change(t, c.controlPlane(), func(o *controlplanev1.KubeadmControlPlane) { o.Spec.Version = "v1.38.0" })
	if diff := cmp.Diff(before, c.controlPlane().Spec.KubeadmConfigSpec); diff != "" {
		t.Errorf("after removal (-before +after):\n%s", diff)
	}
	c.eventuallyReports(noCondition)
	if c.generated() != nil {
		t.Error("the generated Secret is still there")
	}
}

func TestAdoption_PatchesAMachineThatMissedIt(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", withDropIns)
	c.eventuallyReports(contract.ReasonConflictingFile)
	waiting := &bootstrapv1.KubeadmConfig{ObjectMeta: c.meta("waiting"), Spec: c.template().Spec.Template.Spec}
	waiting.Labels = c.worker()
	waiting.Labels[clusterv1.ClusterNameLabel] = "one"
	waiting.OwnerReferences = ownedBy("Machine", "waiting")
	create(t, waiting)
	c.edit(adopting(nil))
	c.eventuallyReports(contract.ReasonConfigured)
	eventually(t, "KubeadmConfig", func() string {
		if !patch.IsPatched(patch.SpecOf(&fetch(t, ns, "waiting", &bootstrapv1.KubeadmConfig{}).Spec)) {
			return "is not patched"
		}
		return ""
	})
	if text := string(c.generated()[contract.KeyAdoptedFiles]); strings.Contains(text, "waiting") {
		t.Errorf("the original of a Machine is kept:\n%s", text)
	}
}

func TestAdoption_WorksBeforeTheEndpointIsKnown(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", withDropIns, func(o client.Object) {
		if cluster, ok := o.(*clusterv1.Cluster); ok {
			adopting(nil)(cluster)
			cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
		}
	})
	c.eventuallyReports(contract.ReasonWaitingForEndpoint)
	eventually(t, "adoption", func() string {
		return c.patchedOtherThan(everyObject...)
	})
	if _, early := c.generated()[contract.KeyProxyEnv]; early {
		t.Error("the generated Secret holds values without the endpoint")
	}
	// A Machine that comes now waits for values in a Secret that is there already.
	waiting := &bootstrapv1.KubeadmConfig{ObjectMeta: c.meta("waiting"), Spec: c.template().Spec.Template.Spec}
	waiting.Labels = c.worker()
	waiting.Labels[clusterv1.ClusterNameLabel] = "one"
	waiting.OwnerReferences = ownedBy("Machine", "waiting")
	create(t, waiting)
	staysQuiet(t, ns)
	c.endpointComes()
	c.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`)
	c.eventuallyNudged("waiting")
	c.eventuallyReports(contract.ReasonConfigured)
	staysQuiet(t, ns)
}

func TestAdoption_DoesNotGuessDamagedOriginals(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", withDropIns)
	c.eventuallyReports(contract.ReasonConflictingFile)
	before := c.snapshot()
	c.edit(adopting(nil))
	c.eventuallyReports(contract.ReasonConfigured)
	patched := c.snapshot()

	const name = "one-proxy-files"
	kept := fetch(t, ns, name, &corev1.Secret{}).Data[contract.KeyAdoptedFiles]
	damage := func(text string) {
		change(t, fetch(t, ns, name, &corev1.Secret{}),
			func(o *corev1.Secret) { o.Data[contract.KeyAdoptedFiles] = []byte(text) })
	}
	damage(`{"version":`)
	c.edit(func(cluster *clusterv1.Cluster) { cluster.Labels = nil })
	c.eventuallyReports(contract.ReasonInvalidSettings, "key adopted-files.json of Secret "+ns+"/"+name+": ")
	if strings.Contains(c.condition().Message, "old.example.com") {
		t.Errorf("a value of the user's in %s", c.condition().Message)
	}
	staysQuiet(t, ns)
	if diff := cmp.Diff(patched, c.snapshot()); diff != "" {
		t.Errorf("something was taken out (-before +after):\n%s", diff)
	}

	damage(string(kept))
	c.eventuallyReports(noCondition)
	if diff := cmp.Diff(before, c.snapshot()); diff != "" {
		t.Errorf("after removal (-before +after):\n%s", diff)
	}
}

// TestMigration_OfAHandWrittenFileIsOneChange does with a running control plane what docs/migration.md says: the label
// first, which is a conflict and changes nothing, then a manifest without the file.
func TestMigration_OfAHandWrittenFileIsOneChange(t *testing.T) {
	ns := admitted(t, namespace(t), webhooksLive)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := classic{t: t, ns: ns, name: "one"}
	c.runControlPlane()
	for _, object := range c.objects() {
		withDropIns(object)
		create(t, object)
	}
	c.eventuallyReports(contract.ReasonConflictingFile)
	if generation := c.controlPlane().Generation; generation != 1 || hasProxy(c.controlPlane()) {
		t.Fatalf("the label has changed the control plane, generation %d", generation)
	}
	change(t, c.controlPlane(), func(o *controlplanev1.KubeadmControlPlane) {
		o.Spec.KubeadmConfigSpec.Files = slices.DeleteFunc(o.Spec.KubeadmConfigSpec.Files,
			func(f bootstrapv1.File) bool { return strings.HasSuffix(f.Path, "/http-proxy.conf") })
	})
	if generation := c.controlPlane().Generation; generation != 2 || !hasProxy(c.controlPlane()) {
		t.Errorf("generation %d, has the proxy: %v; want one change with both", generation, hasProxy(c.controlPlane()))
	}
	change(t, c.template(), func(o *bootstrapv1.KubeadmConfigTemplate) { o.Spec.Template.Spec.Files = nil })
	change(t, c.config(), func(o *bootstrapv1.KubeadmConfig) { o.Spec.Files = nil })
	c.eventuallyReports(contract.ReasonConfigured)
	if generation := c.controlPlane().Generation; generation != 2 {
		t.Errorf("generation %d: the control plane rolls twice", generation)
	}
}
