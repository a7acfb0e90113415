package render_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
)

// members is a Cluster with a control plane and two pools, of which the first is as given.
func members(controlPlane, configRef, annotations, format string) string {
	text := withPods(scene("c", "KubeadmControlPlane cp", "MachineDeployment md", "KubeadmConfigTemplate md",
		"MachineDeployment other", "KubeadmConfigTemplate other"))
	text = strings.Replace(text, "kind: KubeadmControlPlane, name: cp", controlPlane, 1)
	text = strings.Replace(text, "configRef: {kind: KubeadmConfigTemplate, name: md}", configRef, 1)
	text = strings.Replace(text, "metadata: {name: md}", "metadata: {name: md, annotations: {"+annotations+"}}", 1)
	text = strings.Replace(text, "metadata: {name: md}\nspec: {template: {spec: {",
		"metadata: {name: md}\nspec: {template: {spec: {"+format, 1)
	return strings.Replace(text,
		"name: other}\nspec: {clusterName: c, template: {spec: {bootstrap: {configRef: {kind: KubeadmConfigTemplate, name: md", "name: other}\nspec: {clusterName: c, template: {spec: {bootstrap: {configRef: {kind: KubeadmConfigTemplate, name: other", 1)
}

func TestRender_PatchesTheRestIfAnObjectCannotBePatched(t *testing.T) {
	t.Parallel()
	const (
		kubeadm = "kind: KubeadmControlPlane, name: cp"
		own     = "configRef: {kind: KubeadmConfigTemplate, name: md}"
		none    = "capi-proxy-patcher.io/secret: none"
		machine = "---\napiVersion: cluster.x-k8s.io/v1beta2\nkind: Machine\nmetadata: {name: cp-1, labels: {cluster.x-k8s.io/control-plane: \"\"}}\n" +
			"spec: {clusterName: c, bootstrap: {dataSecretName: cp-1}}\n"
	)
	foreign := func(kind string) string { return "configRef: {kind: " + kind + ", name: md}" }
	for name, test := range map[string]struct {
		manifests string
		// note is a part of what is said; warnings is how much of it --strict counts.
		note     string
		warnings int
	}{
		"nothing":                 {members(kubeadm, own, "", ""), "", 0},
		"an RKE2 pool":            {members(kubeadm, foreign("RKE2ConfigTemplate"), "", ""), "MachineDeployment md: warning: spec.template.spec.bootstrap.configRef.kind: RKE2ConfigTemplate cannot be patched, only KubeadmConfigTemplate", 1},
		"a k3s pool":              {members(kubeadm, foreign("KThreesConfigTemplate"), "", ""), "KThreesConfigTemplate cannot be patched", 1},
		"a k0s pool":              {members(kubeadm, foreign("K0sWorkerConfigTemplate"), "", ""), "K0sWorkerConfigTemplate cannot be patched", 1},
		"a Talos pool":            {members(kubeadm, foreign("TalosConfigTemplate"), "", ""), "TalosConfigTemplate cannot be patched", 1},
		"an EKS pool":             {members(kubeadm, foreign("NodeadmConfigTemplate"), "", ""), "NodeadmConfigTemplate cannot be patched", 1},
		"a pool without a kind":   {members(kubeadm, "configRef: {name: md}", "", ""), "MachineDeployment md: warning: spec.template.spec.bootstrap.configRef.kind: an empty kind cannot be patched", 1},
		"an RKE2 pool without":    {members(kubeadm, foreign("RKE2ConfigTemplate"), none, ""), "", 0},
		"an RKE2 control plane":   {members("kind: RKE2ControlPlane, name: cp", own, "", ""), "Cluster c: RKE2ControlPlane cp is not a KubeadmControlPlane and is not patched; its Machines, if it has any, get no proxy", 0},
		"and its Machine":         {members("kind: RKE2ControlPlane, name: cp", own, "", "") + machine, "Cluster c: warning: RKE2ControlPlane cp is not a KubeadmControlPlane and its Machines are not patched", 1},
		"both":                    {members("kind: RKE2ControlPlane, name: cp", foreign("RKE2ConfigTemplate"), "", ""), "RKE2ConfigTemplate cannot be patched", 1},
		"own bootstrap data":      {members(kubeadm, "dataSecretName: md", "", ""), "MachineDeployment md: has its own bootstrap data and is not patched", 0},
		"Bottlerocket":            {members(kubeadm, own, "", "format: bottlerocket"), `KubeadmConfigTemplate md: it is of format "bottlerocket", not cloud-config or ignition, and is not patched`, 0},
		"text like its own name":  {members(kubeadm, own, "", "format: KubeadmConfigTemplate md-2"), `KubeadmConfigTemplate md: it is of format "KubeadmConfigTemplate md-2", not cloud-config or ignition, and is not patched`, 0},
		"Ignition":                {members(kubeadm, own, "", "format: ignition"), "", 0},
		"a variable for a format": {members(kubeadm, own, "", `format: "${FORMAT:=cloud-config}"`), "", 0},
		"rollout elsewhere":       {strings.Replace(members(kubeadm, own, "", ""), "metadata: {name: cp}", "metadata: {name: cp, annotations: {capi-proxy-patcher.io/rollout: Immediate}}", 1), "KubeadmControlPlane cp: warning: unknown-name: annotation capi-proxy-patcher.io/rollout: unknown annotation, ignored; set it as an annotation of the Cluster", 1},
		"a paused Cluster":        {strings.Replace(members(kubeadm, own, "", ""), "spec: {cluster", "spec: {paused: true, cluster", 1), "Cluster c: is paused and patched here all the same; the controller changes nothing until it is unpaused", 0},
		"a Cluster with paused":   {strings.Replace(members(kubeadm, own, "", ""), "labels: {", "annotations: {cluster.x-k8s.io/paused: ''}, labels: {", 1), "Cluster c: is paused", 0},
		"Windows":                 {members(kubeadm, own, "", "files: [{path: 'c:/a', content: x}]"), "KubeadmConfigTemplate md: it is for Windows nodes (a file path with a drive letter, c:/a) and is not patched", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := run(t, of(test.manifests))
			notes := strings.Join(result.Notes, "\n")
			if !strings.Contains(notes, test.note) || test.note == "" && strings.Contains(notes, "patched") {
				t.Errorf("want %q in the notes:\n%s", test.note, notes)
			}
			if n := strings.Count(notes, ": warning: "); result.Warnings != test.warnings || n != test.warnings {
				t.Errorf("%d warnings are counted and %d shown, want %d:\n%s", result.Warnings, n, test.warnings, notes)
			}
			patched := map[string]bool{}
			for _, o := range manifests(t, string(result.Output)).Objects() {
				patched[o.String()] = o.Annotations()["capi-proxy-patcher.io/output-version"] != ""
			}
			if !patched["KubeadmConfigTemplate other"] {
				t.Errorf("the other pool is not patched:\n%s", result.Output)
			}
			if want := test.note == ""; patched["KubeadmConfigTemplate md"] != want && !strings.Contains(test.manifests, none) &&
				!strings.Contains(test.note, "Cluster c: ") && !strings.Contains(test.note, "unknown-name") {
				t.Errorf("the pool is patched: %t, want %t", !want, want)
			}
		})
	}
}

func TestRender_SaysOnceWhatIsTrueForManyClusters(t *testing.T) {
	t.Parallel()
	many := func(n int, secret string) string {
		text := ""
		for i := range n {
			text += strings.NewReplacer("name: c,", fmt.Sprintf("name: c%d,", i), "name: cp}", fmt.Sprintf("name: cp%d}", i)).
				Replace(withPods(scene("c", "KubeadmControlPlane cp"))) + "---\n"
		}
		one, _, _ := strings.Cut(text, "---\n")
		text = one + "---\n" + strings.ReplaceAll(text, one, "")
		return strings.Replace(strings.TrimSuffix(text, "---\n"), "stringData: {", "stringData: {"+secret, 1)
	}
	for name, test := range map[string]struct {
		clusters int
		secret   string
		want     string
		warnings int
	}{
		"one Cluster": {1, `noProxy: "*.a.example.com", `, `written as .name; write .name`, 1},
		"two":         {2, `noProxy: "*.a.example.com", `, `write .name (also Cluster c1)`, 2},
		"a thousand":  {1000, `noProxy: "*.a.example.com", `, `write .name (also Cluster c1, Cluster c2, Cluster c3 and 996 more)`, 1000},
		"a rejection": {1000, `noProxy: "10.0.0.0/33", `, `(bad-cidr); write address/length (also Cluster c1, Cluster c2, Cluster c3 and 996 more)`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := render.Render(t.Context(), of(many(test.clusters, test.secret)))
			said := strings.Join(result.Notes, "\n")
			if err != nil {
				said = err.Error()
			}
			if !strings.HasSuffix(said, test.want) || strings.Contains(said, "\n") || result.Warnings != test.warnings {
				t.Errorf("want one line that ends with %q, and %d warnings; got %d warnings:\n%.2000s",
					test.want, test.warnings, result.Warnings, said)
			}
		})
	}
}
