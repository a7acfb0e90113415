package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// gitops is a user who applies the same manifests again and again: those of the first Cluster of a fleet on the side of
// the client, those of the second on the side of the server.
type gitops struct {
	*fleet

	kubeconfig string
	manifests  [2]string
}

func newGitops(f *fleet) *gitops {
	f.t.Helper()
	g := &gitops{fleet: f, kubeconfig: filepath.Join(f.t.TempDir(), "kubeconfig")}
	if err := mgmt.WriteKubeconfig(g.kubeconfig, shared.cluster.Config()); err != nil {
		f.t.Fatal(err)
	}
	for i := range g.manifests {
		for _, object := range f.objects(f.names[i], enabled) {
			kind, err := shared.client.GroupVersionKindFor(object)
			if err != nil {
				f.t.Fatal(err)
			}
			object.GetObjectKind().SetGroupVersionKind(kind)
			text, err := json.Marshal(object)
			if err != nil {
				f.t.Fatal(err)
			}
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(text); err != nil {
				f.t.Fatal(err)
			}
			unstructured.RemoveNestedField(u.Object, "status")
			unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
			if text, err = u.MarshalJSON(); err != nil {
				f.t.Fatal(err)
			}
			g.manifests[i] += string(text) + "\n"
		}
	}
	return g
}

// apply applies the manifests of a Cluster and returns what kubectl says.
func (g *gitops) apply(i int, more ...string) (string, error) {
	g.t.Helper()
	args := append([]string{"--kubeconfig", g.kubeconfig, "apply", "-f", "-"}, more...)
	if i == 1 {
		args = append(args, "--server-side", "--field-manager=gitops", "--force-conflicts")
	}
	command := exec.CommandContext(g.t.Context(), filepath.Join(os.Getenv(mgmt.AssetsVariable), "kubectl"), args...)
	command.Stdin = strings.NewReader(g.manifests[i])
	text, err := command.CombinedOutput()
	return string(text), err
}

// controlPlane returns the KubeadmControlPlane of a Cluster, and how many commands of ours it has.
func (g *gitops) controlPlane(i int) (*controlplanev1.KubeadmControlPlane, int) {
	g.t.Helper()
	object := &controlplanev1.KubeadmControlPlane{}
	if err := shared.client.Get(g.t.Context(), g.key(g.names[i]), object); err != nil {
		g.t.Fatal(err)
	}
	return object, strings.Count(strings.Join(object.Spec.KubeadmConfigSpec.PreKubeadmCommands, "\n"), "# capi-proxy-patcher")
}

// guard returns the guard of config/default, for the namespace of f. Kustomize gives it a namespace, which it cannot have.
func (f *fleet) guard() (objects []*unstructured.Unstructured) {
	f.t.Helper()
	all, err := mgmt.Kustomize("../../config/default")
	if err != nil {
		f.t.Fatal(err)
	}
	for _, object := range all {
		if !strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") {
			continue
		}
		object.SetName(f.ns)
		if object.GetKind() == "ValidatingAdmissionPolicyBinding" {
			object.Object["spec"].(map[string]any)["policyName"] = f.ns
			object.Object["spec"].(map[string]any)["matchResources"] = map[string]any{
				"namespaceSelector": map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: f.ns}},
			}
		}
		if object.GetLabels()[clusterv1.ProviderNameLabel] == "" {
			f.t.Errorf("clusterctl does not delete %s with the product", object.GetKind())
		}
		objects = append(objects, object)
	}
	return objects
}

// installGuard installs the guard.
func (f *fleet) installGuard() {
	f.t.Helper()
	if err := mgmt.Apply(f.t.Context(), shared.client, f.guard()); err != nil {
		f.t.Fatal(err)
	}
}

// removeGuard deletes the guard, as uninstalling the product does.
func (f *fleet) removeGuard() {
	f.t.Helper()
	for _, object := range f.guard() {
		if err := shared.client.Delete(f.t.Context(), object); err != nil {
			f.t.Fatal(err)
		}
	}
}

// TestGuard_RefusesManifestsThatTakeTheProxyOut applies manifests while no webhook answers, which without the guard would
// change the specs.
func TestGuard_RefusesManifestsThatTakeTheProxyOut(t *testing.T) {
	f := newFleet(t, 2)
	t.Parallel()
	f.poolless = true
	g := newGitops(f)
	webhooks, flags := f.serveWebhooks("../../config/default")
	p := manager(t, f.ns, append(flags, noResync)...)
	for i := range g.manifests {
		if text, err := g.apply(i); err != nil {
			t.Fatal(text)
		}
	}
	f.eventuallyReports(contract.ReasonConfigured)
	p.stop()
	f.uninstall(webhooks)
	before := f.generations()

	refused := func(i int) bool {
		text, err := g.apply(i, "--dry-run=server")
		return err != nil && strings.Contains(text, "webhook is not responding")
	}
	for i := range g.manifests {
		text, err := g.apply(i, "--dry-run=server", "-o",
			`jsonpath={.items[?(@.kind=="KubeadmControlPlane")].spec.kubeadmConfigSpec.preKubeadmCommands}`)
		if err != nil || strings.Contains(text, "# capi-proxy-patcher") {
			t.Fatalf("nothing is to be guarded from: %v", text)
		}
	}
	f.installGuard()
	eventually(t, "a refusal", func() string {
		if !refused(0) {
			return "applied"
		}
		return ""
	})
	f.removeGuard()
	eventually(t, "an apply after the product is uninstalled", func() string {
		text, err := g.apply(0, "--dry-run=server")
		if err != nil {
			return text
		}
		return ""
	})
	f.installGuard()
	for i := range g.manifests {
		eventually(t, "a refusal", func() string {
			if !refused(i) {
				return "applied"
			}
			return ""
		})
		if text, err := g.apply(i); err == nil || !strings.Contains(text, "remove annotation capi-proxy-patcher.io/output-version") {
			t.Errorf("manifest %d: %s", i, text)
		}
		if _, ours := g.controlPlane(i); ours == 0 {
			t.Errorf("manifest %d has taken the proxy out", i)
		}
	}
	g.checkWrites()

	for _, configuration := range webhooks.Configurations {
		configuration.ResourceVersion = ""
	}
	if err := shared.cluster.Install(t.Context(), webhooks.Configurations...); err != nil {
		t.Fatal(err)
	}
	manager(t, f.ns, append(flags, noResync)...)
	for i, name := range f.names {
		if text, err := g.apply(i); err != nil {
			t.Errorf("manifest %d: %s", i, text)
		}
		if key := "KubeadmControlPlane/" + name; before[key] == 0 || f.generations()[key] != before[key] {
			t.Errorf("%s has changed", key)
		}
	}
	f.label(false)
	f.eventuallyReports(noCondition)
	for i := range g.manifests {
		if object, ours := g.controlPlane(i); ours > 0 || object.Annotations[contract.AnnotationOutputVersion] != "" {
			t.Errorf("the product cannot give back: %v", object)
		}
	}
}

// checkWrites writes in ways that take the proxy out, and in ways that do not.
func (g *gitops) checkWrites() {
	g.t.Helper()
	const annotation = `"metadata":{"annotations":{"` + contract.AnnotationOutputVersion + `":null}}`
	object, _ := g.controlPlane(0)
	ours := func(field string, list any) string {
		text, err := json.Marshal(list)
		if err != nil {
			g.t.Fatal(err)
		}
		return fmt.Sprintf(`{"spec":{"kubeadmConfigSpec":{%q:%s}}}`, field, text)
	}
	spec := object.Spec.KubeadmConfigSpec
	for name, test := range map[string]struct {
		patch   string
		refused bool
	}{
		"no files":                   {`{"spec":{"kubeadmConfigSpec":{"files":null}}}`, true},
		"files of the user":          {`{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/etc/motd","content":"# Managed by me"}]}}}`, true},
		"no commands":                {`{"spec":{"kubeadmConfigSpec":{"preKubeadmCommands":null}}}`, true},
		"commands of the user":       {`{"spec":{"kubeadmConfigSpec":{"preKubeadmCommands":["true # of capi-proxy-patcher?"]}}}`, true},
		"no configuration":           {`{"spec":{"kubeadmConfigSpec":null}}`, true},
		"by another version":         {`{"spec":{"version":"v1.36.9","kubeadmConfigSpec":{"files":null}}}`, true},
		"ours alone":                 {ours("files", spec.Files[len(spec.Files)-2:]), false},
		"one command more":           {ours("preKubeadmCommands", append(spec.PreKubeadmCommands, "true")), false},
		"a command after kubeadm":    {`{"spec":{"kubeadmConfigSpec":{"postKubeadmCommands":["true"]}}}`, true},
		"none after kubeadm":         {`{"spec":{"kubeadmConfigSpec":{"postKubeadmCommands":null}}}`, false},
		"another version":            {`{"spec":{"version":"v1.36.9"}}`, false},
		"replicas":                   {`{"spec":{"replicas":3}}`, false},
		"a label":                    {`{"metadata":{"labels":{"a":"b"}}}`, false},
		"the record":                 {`{` + annotation + `}`, false},
		"the record and the entries": {`{` + annotation + `,"spec":{"kubeadmConfigSpec":{"files":null,"preKubeadmCommands":null}}}`, false},
	} {
		err := shared.client.Patch(g.t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(test.patch)),
			client.DryRunAll, client.FieldOwner("gitops"))
		if refused := err != nil && strings.Contains(err.Error(), "webhook is not responding"); refused != test.refused ||
			err != nil && !refused {
			g.t.Errorf("%s: %v, want it refused: %v", name, err, test.refused)
		}
	}
}
