package check_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/check"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

// add adds an object of YAML as its type.
func (w *world) add(t *testing.T, text string) {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	object := decoded(t, text)
	typed, err := scheme.New(object.GetObjectKind().GroupVersionKind())
	if err != nil {
		w.objects[text] = object // as an ExtensionConfig
		return
	}
	if err := yaml.Unmarshal([]byte(text), typed); err != nil {
		t.Fatal(err)
	}
	w.objects[text], _ = typed.(client.Object)
}

// TestPreDelete_NamesWhatIsLeft has a world that nothing of the product is left in, and adds one thing.
func TestPreDelete_NamesWhatIsLeft(t *testing.T) {
	t.Parallel()
	const (
		bootstrap = "{apiVersion: bootstrap.cluster.x-k8s.io/v1beta2, "
		ours      = "preKubeadmCommands: [\"sh " + contract.PathSetup + " || : # capi-proxy-patcher\"]"
		others    = "preKubeadmCommands: [x]"
		class     = "{apiVersion: cluster.x-k8s.io/v1beta2, kind: ClusterClass, metadata: {name: c, namespace: ns}, " +
			"spec: {patches: [{name: a}, {name: b, external: {generatePatchesExtension: generate-patches."
		extension = "{apiVersion: runtime.cluster.x-k8s.io/v1beta2, kind: ExtensionConfig, metadata: {name: x}, " +
			"spec: {clientConfig: {service: {namespace: sys, name: capi-proxy-patcher-hooks}}}}"
	)
	cluster := func(metadata string) string {
		return "{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: c, namespace: ns, " + metadata + "}}"
	}
	controlPlane := func(metadata, spec string) string {
		return "{apiVersion: controlplane.cluster.x-k8s.io/v1beta2, kind: KubeadmControlPlane, metadata: {name: c, namespace: ns" +
			metadata + "}, spec: {kubeadmConfigSpec: {" + spec + "}}}"
	}
	config := func(owner string) string {
		return bootstrap + "kind: KubeadmConfig, metadata: {name: c, namespace: ns, ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, " +
			"name: o, uid: u, controller: true, kind: " + owner + "}]}, spec: {" + ours + "}}"
	}
	for name, test := range map[string]struct {
		add, check string
		want       check.Status
		message    string
	}{
		"nothing":            {"", "", check.OK, ""},
		"a labelled Cluster": {cluster(`labels: {capi-proxy-patcher.io/enabled: "true"}`), "still-labelled", check.Failed, "Cluster ns/c has label"},
		"a bad label":        {cluster("labels: {capi-proxy-patcher.io/enabled: yess}"), "still-labelled", check.Failed, "Cluster ns/c has label"},
		"a disabled Cluster": {cluster(`labels: {capi-proxy-patcher.io/enabled: "false"}`), "", check.OK, ""},
		"objects in the workload cluster": {
			cluster(`annotations: {capi-proxy-patcher.io/applied: "true"}`), "workload-objects-left", check.Failed, "Cluster ns/c has objects",
		},
		"a control plane":               {controlPlane("", ours), "entries-left", check.Failed, "KubeadmControlPlane ns/c has entries"},
		"a control plane of others":     {controlPlane("", others), "", check.OK, ""},
		"a control plane that waits":    {controlPlane(", annotations: {cluster.x-k8s.io/paused: capi-proxy-patcher.io/waiting-to-be-patched}", others), "entries-left", check.Failed, "KubeadmControlPlane ns/c"},
		"a control plane of a user":     {controlPlane(`, annotations: {cluster.x-k8s.io/paused: ""}`, others), "", check.OK, ""},
		"a template":                    {bootstrap + "kind: KubeadmConfigTemplate, metadata: {name: t, namespace: ns}, spec: {template: {spec: {" + ours + "}}}}", "entries-left", check.Failed, "KubeadmConfigTemplate ns/t has entries"},
		"the KubeadmConfig of a pool":   {config("MachinePool"), "entries-left", check.Failed, "KubeadmConfig ns/c has entries"},
		"that of a Machine which runs":  {config("Machine"), "", check.OK, ""},
		"a class without the extension": {class + "other}}]}}", "", check.OK, ""},
		"the registration":              {extension, "hooks-registered", check.Failed, "ExtensionConfig x calls the hooks"},
		"the registration and a class":  {extension + "\n" + class + "x}}]}}", "hooks-registered", check.Failed, "ClusterClass ns/c, ExtensionConfig x calls the hooks"},
		"that of another extension":     {strings.Replace(extension, "capi-proxy-patcher-hooks", "others", 1), "", check.OK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.cluster().Labels = nil
			for text := range strings.Lines(test.add) {
				w.add(t, text)
			}
			report := check.PreDelete(t.Context(), w.options(t))
			if report.Status != test.want {
				t.Errorf("got %+v", report)
			}
			for code, got := range resultsOf(report) {
				want := check.OK
				if code == test.check {
					want = test.want
				}
				if got.Status != want || want == check.Failed && (!strings.HasPrefix(got.Message, test.message) || got.Do == "" ||
					!strings.HasSuffix(got.Link, "/docs/troubleshooting.md#"+code)) {
					t.Errorf("%s: got %+v, want %s, %s", code, got, want, test.message)
				}
			}
		})
	}
}

// TestPreDelete_IsNotSureWithoutTheRights must not say that nothing is left to somebody who cannot see it.
func TestPreDelete_IsNotSureWithoutTheRights(t *testing.T) {
	t.Parallel()
	for kind, code := range map[string]string{
		"Cluster": "still-labelled", "KubeadmConfigTemplate": "entries-left", "KubeadmControlPlane": "entries-left",
	} {
		w := newWorld(t)
		w.cluster().Labels = nil
		w.forbidden = kind
		if got := check.PreDelete(t.Context(), w.options(t)); got.Status != check.Unknown || resultsOf(got)[code].Status != check.Unknown {
			t.Errorf("%s: got %+v", kind, got)
		}
	}
}

func TestMain(m *testing.M) {
	contract.Add(contract.Capability{
		Name: "test", Applied: []string{contract.Domain + "/applied"}, Conditions: []string{contract.Domain + "/Tested"},
		Reasons: []contract.Reason{{Name: "CannotTest", Task: contract.TaskAct}, {Name: "Testing", Task: contract.TaskWait}},
	})
	m.Run()
}
