package envtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// admitted makes the API server call webhooks for a namespace, by a value of webhookLabel.
func admitted(t *testing.T, name, webhooks string) string {
	t.Helper()
	change(t, fetch(t, "", name, &corev1.Namespace{}), func(ns *corev1.Namespace) { ns.Labels[webhookLabel] = webhooks })
	// The API server selects by namespace from a cache: wait until it knows.
	probe := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: name, Name: "probe",
		Labels: map[string]string{contract.LabelEnabled: contract.LabelEnabledValue},
	}}
	probe.Spec.ControlPlaneRef = vocabulary.Ref("controlplane.cluster.x-k8s.io", plan.KindControlPlane, "probe")
	probe.Spec.InfrastructureRef = vocabulary.Ref("infrastructure.cluster.x-k8s.io", "DockerCluster", "probe")
	create(t, probe)
	eventually(t, "webhooks of namespace "+name, func() string {
		controlPlane := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "probe"}}
		controlPlane.Spec.Version = "v1.36.3"
		controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef = vocabulary.Ref("infrastructure.cluster.x-k8s.io",
			"DemoMachineTemplate", "probe")
		if err := shared.client.Create(t.Context(), controlPlane, client.DryRunAll); err != nil {
			return err.Error()
		}
		if !patch.IsPatched(api.Spec(&controlPlane.Spec.KubeadmConfigSpec)) {
			return "they are not called"
		}
		return ""
	})
	if err := shared.client.Delete(t.Context(), probe); err != nil {
		t.Fatal(err)
	}
	return name
}

// admittedCluster is a Cluster, still to be created, in a namespace with its proxy Secret for which webhooks are called.
func admittedCluster(t *testing.T, ns, webhooks string) classic {
	t.Helper()
	admitted(t, ns, webhooks)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	return classic{t: t, ns: ns, name: "one"}
}

// kubectl runs kubectl as the user and returns what it prints.
func kubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(),
		filepath.Join(os.Getenv(mgmt.AssetsVariable), "kubectl"),
		append([]string{"--kubeconfig", shared.kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// mustKubectl fails the test if kubectl does.
func mustKubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := kubectl(t, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// manifest writes objects as a user keeps them in git.
func manifest(t *testing.T, objects ...client.Object) string {
	t.Helper()
	var b strings.Builder
	for _, object := range objects {
		kinds, _, err := shared.client.Scheme().ObjectKinds(object)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		fields["apiVersion"], fields["kind"] = kinds[0].GroupVersion().String(), kinds[0].Kind
		delete(fields, "status")
		document, err := yaml.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString("---\n")
		b.Write(document)
	}
	return b.String()
}

// runControlPlane creates a control-plane Machine, so that a change of the control plane would replace it. As Cluster
// API does, it creates a KubeadmConfig first; that shows it while the cache does not have the Machine yet.
func (c classic) runControlPlane() {
	c.t.Helper()
	labels := map[string]string{clusterv1.ClusterNameLabel: c.name, clusterv1.MachineControlPlaneLabel: ""}
	create(c.t, &bootstrapv1.KubeadmConfig{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.ns, Name: c.name + "-0", Labels: labels,
			OwnerReferences: ownedBy("Machine", c.name+"-0"),
		},
		Spec: bootstrapv1.KubeadmConfigSpec{JoinConfiguration: bootstrapv1.JoinConfiguration{NodeRegistration: bootstrapv1.NodeRegistrationOptions{Name: "own"}}},
	})
	create(c.t, &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: c.name + "-0", Labels: labels},
		Spec:       c.machine("KubeadmConfig", c.name+"-0"),
	})
}

// strip removes our entries from a control plane, as a manifest without them does.
func strip(o *controlplanev1.KubeadmControlPlane) {
	o.Spec.KubeadmConfigSpec.Files = []bootstrapv1.File{{Path: "/etc/motd", Content: "hello", Permissions: "0644"}}
	o.Spec.KubeadmConfigSpec.PreKubeadmCommands = []string{"echo own"}
	o.Spec.KubeadmConfigSpec.PostKubeadmCommands = []string{"echo done"}
}

func hasProxy(o *controlplanev1.KubeadmControlPlane) bool {
	return patch.IsPatched(api.Spec(&o.Spec.KubeadmConfigSpec))
}

func TestWebhook_PatchesObjectsOfOneApplyAtCreation(t *testing.T) {
	t.Parallel()
	// as objects returns them
	const cluster, controlPlane, infrastructure, template, deployment, config, pool, count = 0, 1, 2, 3, 4, 5, 6, 7
	// each pool before its bootstrap object
	orders := [][]int{{cluster, controlPlane, infrastructure, deployment, template, pool, config}}
	for range 3 {
		orders = append(orders, rand.Perm(count)) //nolint:gosec // an order, not a secret
	}
	for _, order := range orders {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			c := admittedCluster(t, namespace(t), webhooksLive)
			all := c.objects()
			var objects []client.Object
			for _, i := range order {
				objects = append(objects, all[i])
			}
			mustKubectl(t, manifest(t, objects...), "apply", "-f", "-")

			c.eventuallyReports(contract.ReasonConfigured)
			c.wantPatched(t, everyObject...)
			came := func(i int) int { return slices.Index(order, i) }
			want := map[string]int64{"control plane": 2, "template": 2, "KubeadmConfig": 2} // patched by the controller, later
			for name, known := range map[string]bool{
				"control plane": came(cluster) < came(controlPlane),
				"template":      max(came(cluster), came(infrastructure), came(deployment)) < came(template),
				"KubeadmConfig": max(came(cluster), came(infrastructure), came(pool)) < came(config),
			} {
				if known {
					want[name] = 1
				}
			}
			if diff := cmp.Diff(want, c.generations()); diff != "" {
				t.Errorf("generations (-want +got):\n%s", diff)
			}
			for _, object := range []client.Object{c.controlPlane(), c.template(), c.config()} {
				if got := object.GetAnnotations()[contract.AnnotationOutputVersion]; got != "1" {
					t.Errorf("%T has output version %q", object, got)
				}
			}
		})
	}
}

func TestApply_OfAnUnpatchedManifestChangesNothing(t *testing.T) {
	t.Parallel()
	says := map[string]string{"client-side": "configured", "server-side": "serverside-applied"} // docs/gitops.md
	for name, flags := range map[string][]string{
		"client-side": nil,
		"server-side": {"--server-side", "--force-conflicts"},
	} {
		t.Run(name, func(t *testing.T) {
			c := admittedCluster(t, namespace(t), webhooksLive)
			text := manifest(t, c.objects()...) // the template comes before its pool: the controller patches it
			apply := append([]string{"apply", "-f", "-"}, flags...)
			mustKubectl(t, text, apply...)
			c.eventuallyReports(contract.ReasonConfigured)
			mustKubectl(t, text, apply...) // now everything is known
			for _, running := range []bool{false, true} {
				if running {
					c.runControlPlane()
				}
				before, generations := c.snapshot(), c.generations()
				for range 2 {
					if out := mustKubectl(t, text, apply...); !strings.Contains(out, "/one "+says[name]+"\n") {
						t.Errorf("kubectl prints %q, docs/gitops.md says %q", out, says[name])
					}
				}
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
			c.wantPatched(t, everyObject...)
		})
	}
}

func TestWebhook_PatchesAControlPlaneForARolloutInTheFuture(t *testing.T) {
	c := admittedCluster(t, namespace(t), webhooksLive)
	c.runControlPlane()
	for _, object := range c.objects() {
		create(t, object)
	}
	c.eventuallyReports(contract.ReasonWaitingForRollout)
	due := time.Now().Add(4 * time.Second).Truncate(time.Second) //nolint:forbidigo // a test lives in real time
	change(t, c.controlPlane(), func(o *controlplanev1.KubeadmControlPlane) { o.Spec.Rollout.After = metav1.NewTime(due) })
	if hasProxy(c.controlPlane()) {
		t.Error("patched before the user's time")
	}
	c.eventuallyReports(contract.ReasonConfigured)
	if time.Now().Before(due) { //nolint:forbidigo // as above
		t.Error("patched before the user's time")
	}
}

func TestWebhook_RestoresEntriesOfARunningControlPlane(t *testing.T) {
	ns := admitted(t, namespace(t), webhooksLive)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonConfigured)
	c.runControlPlane()
	before, generation := c.snapshot(), c.controlPlane().Generation
	for name, edit := range map[string]func(*controlplanev1.KubeadmControlPlane){
		"all":             strip,
		"and the version": func(o *controlplanev1.KubeadmControlPlane) { strip(o); o.Annotations = nil },
		"the files": func(o *controlplanev1.KubeadmControlPlane) {
			o.Spec.KubeadmConfigSpec.Files = o.Spec.KubeadmConfigSpec.Files[:1]
		},
		"the order": func(o *controlplanev1.KubeadmControlPlane) {
			slices.Reverse(o.Spec.KubeadmConfigSpec.Files)
			slices.Reverse(o.Spec.KubeadmConfigSpec.PreKubeadmCommands)
		},
	} {
		change(t, c.controlPlane(), edit)
		if diff := cmp.Diff(before, c.snapshot()); diff != "" {
			t.Errorf("%s (-before +after):\n%s", name, diff)
		}
	}
	if got := c.controlPlane().Generation; got != generation {
		t.Errorf("generation %d, want %d", got, generation)
	}
}

func TestWebhook_WarnsOfConflicts(t *testing.T) {
	ns := admitted(t, namespace(t), webhooksLive)
	c := classic{t: t, ns: ns, name: "one"}
	objects := c.objects()
	create(t, objects[0])
	controlPlane, ok := objects[1].(*controlplanev1.KubeadmControlPlane)
	if !ok {
		t.Fatalf("%T", objects[1])
	}
	controlPlane.Spec.KubeadmConfigSpec.Files = []bootstrapv1.File{{Path: "/etc/systemd/system/kubelet.service.d/http-proxy.conf", Content: "[Service]"}}
	out := mustKubectl(t, manifest(t, controlPlane), "apply", "-f", "-")
	want := "Warning: capi-proxy-patcher: KubeadmControlPlane " + ns +
		"/one: files[0]: already writes /etc/systemd/system/kubelet.service.d/http-proxy.conf"
	if !strings.Contains(out, want) {
		t.Errorf("kubectl printed %q, want %q", out, want)
	}
	if hasProxy(c.controlPlane()) {
		t.Error("patched in spite of the conflict")
	}
}

func TestWebhook_PatchesALargeObject(t *testing.T) {
	ns := admitted(t, namespace(t), webhooksLive)
	c := newCluster(t, ns, "one", func(o client.Object) {
		if controlPlane, ok := o.(*controlplanev1.KubeadmControlPlane); ok {
			for i := range 130 {
				controlPlane.Spec.KubeadmConfigSpec.Files = append(controlPlane.Spec.KubeadmConfigSpec.Files, bootstrapv1.File{
					Path: fmt.Sprintf("/opt/file-%d", i), Content: strings.Repeat("x", 9000),
				})
			}
		}
	})
	if !hasProxy(c.controlPlane()) {
		t.Fatal("not patched at creation")
	}
	generation := c.controlPlane().Generation
	change(t, c.controlPlane(), func(o *controlplanev1.KubeadmControlPlane) {
		o.Spec.KubeadmConfigSpec.Files = slices.DeleteFunc(o.Spec.KubeadmConfigSpec.Files, func(f bootstrapv1.File) bool {
			return strings.Contains(f.Path, "http-proxy.conf")
		})
	})
	if controlPlane := c.controlPlane(); controlPlane.Generation != generation {
		t.Errorf("generation %d, want %d", controlPlane.Generation, generation)
	}
}

func TestWebhook_IsAskedAgainAfterAnotherWebhook(t *testing.T) {
	c := admittedCluster(t, namespace(t), webhooksTwo)
	text := manifest(t, c.objects()...)
	mustKubectl(t, text, "apply", "-f", "-")
	c.eventuallyReports(contract.ReasonConfigured)
	c.runControlPlane()
	count := func() (other, managed int) {
		for _, f := range api.Spec(&c.controlPlane().Spec.KubeadmConfigSpec).Files {
			switch {
			case f.Path == secondFile:
				other++
			case patch.IsManagedFile(f):
				managed++
			}
		}
		return other, managed
	}
	if other, managed := count(); other != 1 || managed != 5 {
		t.Fatalf("%d files of the other webhook and %d managed ones, want 1 and 5", other, managed)
	}
	before, generation := c.snapshot(), c.controlPlane().Generation
	mustKubectl(t, text, "apply", "-f", "-")
	if diff := cmp.Diff(before, c.snapshot()); diff != "" || c.controlPlane().Generation != generation {
		t.Errorf("applying again (-before +after):\n%s", diff)
	}
	if out, err := kubectl(t, text, "diff", "-f", "-"); err != nil || out != "" {
		t.Errorf("kubectl diff: %v\n%s", err, out)
	}
}
