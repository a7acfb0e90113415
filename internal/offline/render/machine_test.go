package render_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// holder is a MachineSet or a Machine m of Cluster c with its bootstrap object.
func holder(kind, metadata, configRef string) string {
	const name = "m"
	spec := "{clusterName: c, template: {spec: {clusterName: c, bootstrap: {configRef: " + configRef +
		"}, infrastructureRef: {kind: DemoMachineTemplate, name: " + name + "}}}}"
	bootstrap := "kind: KubeadmConfigTemplate\nmetadata: {name: " + name +
		"}\nspec: {template: {spec: {preKubeadmCommands: [\"echo 100% {{ '$HOME'\"]}}}\n"
	if kind == "Machine" {
		spec = "{clusterName: c, bootstrap: {configRef: " + configRef +
			"}, infrastructureRef: {kind: DemoMachine, name: " + name + "}}"
		bootstrap = "kind: KubeadmConfig\nmetadata: {name: " + name +
			"}\nspec: {preKubeadmCommands: [\"echo 100% {{ '$HOME'\"]}\n"
	}
	return "---\napiVersion: cluster.x-k8s.io/v1beta2\nkind: " + kind + "\nmetadata: {name: " + name + metadata +
		"}\nspec: " + spec + "\n" +
		"---\napiVersion: bootstrap.cluster.x-k8s.io/v1beta2\n" + bootstrap
}

func TestRender_PatchesMachinesAndMachineSets(t *testing.T) {
	t.Parallel()
	const (
		owner   = ", ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineSet, name: s, uid: u, controller: true}]"
		control = `, labels: {cluster.x-k8s.io/control-plane: ""}`
		windows = "---\napiVersion: infrastructure.cluster.x-k8s.io/v1\nkind: DemoMachine\nmetadata: {name: m}\nspec: {osDisk: {osType: Windows}}\n"
	)
	template, config := "{kind: KubeadmConfigTemplate, name: m}", "{kind: KubeadmConfig, name: m}"
	for name, test := range map[string]struct {
		manifests string
		patched   bool
		note      string
	}{
		"a MachineSet":                        {holder("MachineSet", "", template), true, ""},
		"a Machine":                           {holder("Machine", "", config), true, ""},
		"a Machine of a MachineSet":           {holder("Machine", owner, config), false, ""},
		"a MachineSet of a MachineDeployment": {holder("MachineSet", owner, template), false, ""},
		"a control-plane Machine": {
			holder("Machine", control, config), false,
			"Machine m: warning: belongs to the control plane; KubeadmConfig m is not patched, only a KubeadmControlPlane is",
		},
		"a Machine with an annotation of pools": {holder("Machine", ", annotations: {capi-proxy-patcher.io/secret: none}", config), true, ""},
		"a Machine of another provider":         {holder("Machine", "", "{kind: RKE2Config, name: m}"), false, "Machine m: warning: spec.bootstrap.configRef.kind: RKE2Config cannot be patched, only KubeadmConfig"},
		"a MachineSet of another provider":      {holder("MachineSet", "", "{kind: RKE2ConfigTemplate, name: m}"), false, "MachineSet m: warning: spec.template.spec.bootstrap.configRef.kind: RKE2ConfigTemplate cannot be patched, only KubeadmConfigTemplate"},
		"a Windows Machine":                     {holder("Machine", "", config) + windows, false, "KubeadmConfig m: it is for Windows nodes (spec.osDisk.osType of DemoMachine m) and is not patched"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := of(withPods(scene("c", "KubeadmControlPlane cp")) + test.manifests)
			before := options.Inputs[0].Data
			result := run(t, options)
			_, after, _ := strings.Cut(string(result.Output), "kind: Machine")
			if got := strings.Contains(after, "/etc/capi-proxy-patcher/proxy.env"); got != test.patched {
				t.Errorf("patched: %t, want %t:\n%s", got, test.patched, after)
			}
			if notes := strings.Join(result.Notes, "\n"); !strings.Contains(notes, test.note) || test.note == "" &&
				result.Warnings > 0 {
				t.Errorf("want %q in the notes:\n%s", test.note, notes)
			}
			options.Inputs[0].Data = bytes.ReplaceAll(result.Output, []byte("capi-proxy-patcher.io/enabled:"),
				[]byte("not-enabled:"))
			removed := run(t, options)
			_, want, _ := strings.Cut(string(before), "kind: Machine")
			_, got, _ := strings.Cut(string(removed.Output), "kind: Machine")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("without the label (-before +after):\n%s", diff)
			}
		})
	}
}

// TestRender_NamesNodesThatOthersAskThroughTheProxy has a Machine among the manifests, as kubectl prints it.
func TestRender_NamesNodesThatOthersAskThroughTheProxy(t *testing.T) {
	t.Parallel()
	const machine = "---\napiVersion: cluster.x-k8s.io/v1beta2\nkind: Machine\nmetadata: {name: far, labels: {cluster.x-k8s.io/control-plane: ''}}\n" +
		"spec: {clusterName: c, bootstrap: {configRef: {kind: KubeadmConfig, name: far}}}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.9}]}\n"
	for annotations, want := range map[string]bool{"": false, ", annotations: {capi-proxy-patcher.io/targets: 'kubelet,static-pods'}": true} {
		scene := strings.Replace(withPods(scene("c", "KubeadmControlPlane cp")), `enabled: "true"}`, `enabled: "true"}`+annotations, 1)
		result := run(t, of(scene+machine))
		notes := strings.Join(result.Notes, "\n")
		if got := strings.Contains(notes, "Machine far at 192.0.2.9, which NO_PROXY does not have"); got != want {
			t.Errorf("%q: %t in the notes:\n%s", annotations, got, notes)
		}
	}
}
