package kinds_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

func read[T any](t *testing.T, text string) *T {
	t.Helper()
	into := new(T)
	if err := kinds.Decode([]byte(text), into); err != nil {
		t.Fatal(err)
	}
	return into
}

// TestView_IsTheSameInBothVersions has a spec with everything that decisions read, and more.
func TestView_IsTheSameInBothVersions(t *testing.T) {
	t.Parallel()
	const object = `{"apiVersion": "%s", "kind": "%s", "metadata": {"name": "a"}, "spec": %s}`
	const spec = `{
		"files": [
			{"path": "/etc/a", "owner": "root:root", "permissions": "0600", "content": "%%n $(id)\n{{ x }}"},
			{"path": "/etc/b", "contentFrom": {"secret": {"name": "s", "key": "k"}}, "append": true}
		],
		"preKubeadmCommands": ["echo \"1\""], "postKubeadmCommands": ["echo '2'"], "format": "ignition", "verbosity": 3,
		"clusterConfiguration": {"imageRepository": "r.example.com/k"},
		"joinConfiguration": {"nodeRegistration": {"criSocket": "npipe:////./pipe/x", "kubeletExtraArgs": %s}}
	}`
	want := patch.Spec{
		Files: []patch.File{
			{Path: "/etc/a", Owner: "root:root", Permissions: "0600", Content: "%n $(id)\n{{ x }}"},
			{Path: "/etc/b", ContentFrom: patch.SecretKey{Name: "s", Key: "k"}, Other: true},
		},
		PreKubeadmCommands: []string{`echo "1"`}, PostKubeadmCommands: []string{`echo '2'`}, Format: "ignition",
		CRISockets: []string{"", "npipe:////./pipe/x"}, KubeletArgs: []string{"b=c", "v=1"},
	}
	for version, args := range map[string]string{
		"v1beta1": `{"v": "1", "b": "c"}`,
		"v1beta2": `[{"name": "b", "value": "c"}, {"name": "v", "value": "1"}]`,
	} {
		spec := fmt.Sprintf(spec, args)
		for kind, in := range map[string]string{
			"KubeadmControlPlane":         `{"kubeadmConfigSpec": ` + spec + `}`,
			"KubeadmControlPlaneTemplate": `{"template": {"spec": {"kubeadmConfigSpec": ` + spec + `}}}`,
			"KubeadmConfigTemplate":       `{"template": {"spec": ` + spec + `}}`,
			"KubeadmConfig":               spec,
		} {
			group := "bootstrap.cluster.x-k8s.io/"
			if strings.HasPrefix(kind, "KubeadmControlPlane") {
				group = "controlplane.cluster.x-k8s.io/"
			}
			got := kinds.NewBootstrapObject(kind)
			if kind == "KubeadmControlPlaneTemplate" {
				got = &controlplanev1.KubeadmControlPlaneTemplate{}
			}
			if err := kinds.Decode(fmt.Appendf(nil, object, group+version, kind, in), got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, kinds.View(got)); diff != "" {
				t.Errorf("%s of %s (-want +got):\n%s", kind, version, diff)
			}
			if gvk := got.GetObjectKind().GroupVersionKind(); gvk.Version != version || gvk.Kind != kind || got.GetName() != "a" {
				t.Errorf("%s %s", gvk, got.GetName())
			}
			if hosts := kinds.Hosts(kinds.SpecOf(got)); len(hosts) != 1 || hosts[0].URL != "https://r.example.com" {
				t.Errorf("%s of %s names %+v", kind, version, hosts)
			}
		}
	}
}

// TestDecode_FillsInWhatItCan has fields of other types than those of the API.
func TestDecode_FillsInWhatItCan(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1beta1", "v1beta2"} {
		var got bootstrapv1.KubeadmConfig
		err := kinds.Decode([]byte(`{"apiVersion": "bootstrap.cluster.x-k8s.io/`+version+`", "spec": {"files": {}, "Format": "x",
			"joinConfiguration": {"nodeRegistration": {"criSocket": 5}}, "preKubeadmCommands": ["a", 5]}}`), &got)
		if view := kinds.View(&got); err == nil || !slices.Equal(view.PreKubeadmCommands, []string{"a", ""}) || view.Format != "" {
			t.Errorf("%s: %+v, %v", version, view, err)
		}
	}
}

type location struct{ missing, alone int }

// TestLocate_IsThatOfTheObject removes parents only if nothing else is in them, also nothing that is not read.
func TestLocate_IsThatOfTheObject(t *testing.T) {
	t.Parallel()
	template, config, controlPlane := &bootstrapv1.KubeadmConfigTemplate{}, &bootstrapv1.KubeadmConfig{}, &controlplanev1.KubeadmControlPlane{}
	older := &bootstrapv1.KubeadmConfigTemplate{}
	older.APIVersion = "bootstrap.cluster.x-k8s.io/v1beta1"
	for name, test := range map[string]struct {
		object kinds.BootstrapObject
		text   string
		want   location
	}{
		"no spec":             {template, `{}`, location{3, 0}},
		"an empty spec":       {template, `{"spec": {}}`, location{2, 0}},
		"a spec that is null": {template, `{"spec": null}`, location{3, 0}},
		"an empty template":   {template, `{"spec": {"template": {}}}`, location{1, 0}},
		"metadata alone":      {template, `{"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}`, location{1, 0}},
		"commands alone":      {template, `{"spec": {"template": {"spec": {"preKubeadmCommands": ["a"]}}}}`, location{0, 3}},
		"commands, metadata":  {template, `{"spec": {"template": {"metadata": {}, "spec": {"files": [{"path": "a"}]}}}}`, location{0, 1}},
		"a field beside":      {template, `{"spec": {"x": 1, "template": {"spec": {"files": [{"path": "a"}]}}}}`, location{0, 2}},
		"an empty list":       {template, `{"spec": {"template": {"spec": {"files": []}}}}`, location{0, 0}},
		"a list that is null": {template, `{"spec": {"template": {"spec": {"files": null}}}}`, location{0, 0}},
		"another field":       {template, `{"spec": {"template": {"spec": {"x": {}, "files": [{"path": "a"}]}}}}`, location{0, 0}},
		"v1beta1":             {older, `{"spec": {"template": {"spec": {"files": [{"path": "a"}]}}}}`, location{0, 0}},
		"no config":           {config, `{"status": {}}`, location{1, 0}},
		"a config":            {config, `{"spec": {"files": [{"path": "a"}]}}`, location{0, 1}},
		"a control plane":     {controlPlane, `{"spec": {"kubeadmConfigSpec": {"files": [{"path": "a"}]}}}`, location{0, 1}},
		"one without a spec":  {controlPlane, `{"spec": {"version": "v1"}}`, location{1, 0}},
		"a template of one":   {&controlplanev1.KubeadmControlPlaneTemplate{}, `{"spec": {"template": {}}}`, location{2, 0}},
	} {
		at := kinds.Locate(test.object, []byte(test.text))
		if got := (location{at.Missing, at.Alone}); got != test.want || at.Decoded {
			t.Errorf("%s: missing and alone are %v, want %v", name, got, test.want)
		}
	}
}

// TestOperations_KeepWhatTheTypesDoNotKnow writes every path against objects of which any part holds a field that the
// types do not know, or is absent: a patch either fails, or loses none of them.
func TestOperations_KeepWhatTheTypesDoNotKnow(t *testing.T) {
	t.Parallel()
	recipe, err := patch.NewRecipe(patch.Options{Targets: contract.Targets(), SecretName: "s"})
	if err != nil {
		t.Fatal(err)
	}
	const unknown = `"unknown": {"in": %d}`
	done, refused := 0, 0
	for _, kind := range []string{"KubeadmControlPlane", "KubeadmConfigTemplate", "KubeadmConfig"} {
		path := kinds.PathOf(kinds.NewBootstrapObject(kind))
		for depth := range len(path) + 1 { // how many parents there are
			for marks := range 1 << (depth + 1) { // which of them have an unknown field
				for _, inner := range []string{``, `"verbosity": 1`, `"preKubeadmCommands": ["own"]`} {
					if inner != "" && depth < len(path) {
						continue
					}
					text := objectOf(path[:depth], marks, unknown, inner)
					for _, raw := range []bool{false, true} {
						applied, ok := ensureAndRemove(t, kind, text, recipe, raw)
						if raw && !ok {
							t.Errorf("the patch of %s is refused", text)
						}
						if !ok {
							refused++
							continue
						}
						done++
						for i := range depth + 1 {
							mark := fmt.Sprintf(unknown, i)
							if strings.Contains(text, mark) && !strings.Contains(strings.ReplaceAll(applied, " ", ""), strings.ReplaceAll(mark, " ", "")) {
								t.Errorf("%s (raw %t) lost %s: %s", text, raw, mark, applied)
							}
						}
					}
				}
			}
		}
	}
	if done == 0 || refused == 0 {
		t.Errorf("%d done, %d refused", done, refused)
	}
}

// objectOf returns nested objects. Those whose bit is set have an unknown field with their depth.
func objectOf(path []string, marks int, unknown, inner string) string {
	text := inner
	for depth := len(path); depth >= 0; depth-- {
		if depth < len(path) {
			text = `"` + path[depth] + `": ` + text
		}
		if marks&(1<<depth) != 0 {
			text = strings.Trim(text+", "+fmt.Sprintf(unknown, depth), ", ")
		}
		text = "{" + text + "}"
	}
	return text
}

// ensureAndRemove adds the entries to an object and removes them, with patches by the object in JSON or as a cache has
// it. It reports whether both could be applied.
func ensureAndRemove(t *testing.T, kind, text string, recipe patch.Recipe, raw bool) (string, bool) {
	t.Helper()
	for _, edits := range []func(patch.Spec) []patch.Edit{
		func(spec patch.Spec) []patch.Edit {
			ensured, err := patch.Ensure(spec, recipe)
			if err != nil {
				t.Fatal(err)
			}
			return ensured.Edits
		},
		patch.Remove,
	} {
		object := kinds.NewBootstrapObject(kind)
		if err := kinds.Decode([]byte(text), object); err != nil {
			t.Fatal(err)
		}
		var known []byte
		if raw {
			known = []byte(text)
		} else if _, err := kinds.Trim(object); err != nil {
			t.Fatal(err)
		}
		spec := kinds.View(object)
		encoded, err := patch.EncodePatch(patch.Operations(kinds.Locate(object, known), spec, edits(spec)))
		if err != nil {
			t.Fatal(err)
		}
		operations, err := jsonpatch.DecodePatch(encoded)
		if err != nil {
			t.Fatal(err)
		}
		applied, err := operations.Apply([]byte(text))
		if err != nil {
			return "", false
		}
		text = string(applied)
	}
	return text, true
}

// full has a value in each field that a rule reads, and in those that a cache drops.
const full = `"metadata": {"name": "a", "annotations": {"` + corev1.LastAppliedConfigAnnotation + `": "{}"},
	"managedFields": [{"manager": "x"}], "finalizers": ["f"], "labels": {"a": "b"}}`

// TestTrim_LosesNothingThatIsRead keeps that there are annotations, too: a patch that adds the first one would replace
// those that were trimmed.
func TestTrim_LosesNothingThatIsRead(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("lorem ipsum\\n", 500)
	spec := `{"format": "cloud-config", "verbosity": 3, "preKubeadmCommands": ["a"], "clusterConfiguration": {
			"apiServer": {"extraArgs": [{"name": "authentication-config", "value": "/etc/kubernetes/auth.yaml"}]}},
		"files": [
			{"path": "/etc/mine", "content": "` + long + `"},
			{"path": "` + contract.PathProxyEnv + `", "content": "theirs"},
			{"path": "/etc/systemd/system/kubelet.service.d/a.conf", "content": "eA==", "encoding": "base64"},
			{"path": "/opt/x.sh", "content": "cp a /etc/systemd/system/kubelet.service.d/zz.conf"},
			{"path": "/etc/containerd/certs.d/docker.io/hosts.toml", "content": "[host.\"https://m.example.com\"]"},
			{"path": "/etc/kubernetes/auth.yaml", "content": "kubeConfigFile: /etc/webhook.conf"},
			{"path": "/etc/webhook.conf", "content": "server: https://w.example.com"}
		], "ignition": {"containerLinuxConfig": {"additionalConfig": "storage: {files: [{path: ` + contract.PathProxyEnv + `}]}"}}}`
	conditions := func(types ...string) string {
		var list []string
		for _, of := range append(types, "Other") {
			list = append(list, `{"type": "`+of+`", "status": "True", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}`)
		}
		return `[` + strings.Join(list, ",") + `]`
	}
	for kind, test := range map[string]struct {
		object client.Object
		text   string
		keeps  []string
	}{
		"KubeadmControlPlane": {
			&controlplanev1.KubeadmControlPlane{}, `"spec": {"version": "v1", "kubeadmConfigSpec": ` + spec + `},
				"status": {"replicas": 1, "conditions": ` + conditions("RollingOut", "Paused") + `}`, []string{"RollingOut", "Paused"},
		},
		"KubeadmConfigTemplate": {&bootstrapv1.KubeadmConfigTemplate{}, `"spec": {"template": {"spec": ` + spec + `}}`, nil},
		"KubeadmConfig": {
			&bootstrapv1.KubeadmConfig{}, `"spec": ` + spec + `, "status": {"dataSecretName": "d",
				"conditions": ` + conditions("DataSecretAvailable") + `}`, []string{"DataSecretAvailable"},
		},
	} {
		for range 2 { // a transform may see what it made
			if len(test.text) > 0 {
				if err := kinds.Decode([]byte("{"+full+","+test.text+"}"), test.object); err != nil {
					t.Fatal(err)
				}
			}
			whole, _ := test.object.DeepCopyObject().(client.Object)
			if _, err := kinds.Trim(test.object); err != nil {
				t.Fatal(err)
			}
			if _, err := kinds.Trim(test.object); err != nil {
				t.Fatal(err)
			}
			checkMetadata(t, kind, test.object)
			got, want := kinds.View(test.object), kinds.View(whole)
			if content := got.Files[0].Content; patch.FileSize(got.Format, got.Files[0]) != patch.FileSize(want.Format, want.Files[0]) ||
				strings.Contains(content, "lorem") {
				t.Errorf("%s: %d bytes of a content", kind, len(content))
			}
			got.Files[0].Content = want.Files[0].Content
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", kind, diff)
			}
			hosts := kinds.Hosts(kinds.SpecOf(test.object))
			if diff := cmp.Diff(kinds.Hosts(kinds.SpecOf(whole)), hosts); diff != "" || len(hosts) != 2 {
				t.Errorf("%s: %d hosts (-want +got):\n%s", kind, len(hosts), diff)
			}
			text, err := json.Marshal(test.object)
			if err != nil {
				t.Fatal(err)
			}
			for _, condition := range append(test.keeps, "Other") {
				if kept := strings.Contains(string(text), `"type":"`+condition+`"`); kept != (condition != "Other") {
					t.Errorf("%s keeps condition %s: %t", kind, condition, kept)
				}
			}
		}
	}
}

func checkMetadata(t *testing.T, kind string, object client.Object) {
	t.Helper()
	if object.GetManagedFields() != nil || object.GetAnnotations() == nil || len(object.GetAnnotations()) > 0 ||
		object.GetName() != "a" || object.GetLabels()["a"] != "b" || object.GetFinalizers()[0] != "f" {
		t.Errorf("%s has metadata %+v", kind, object)
	}
}

// TestTrim_KeepsOneVariable has it in each list of a topology.
func TestTrim_KeepsOneVariable(t *testing.T) {
	t.Parallel()
	const variables = `[{"name": "` + contract.VariableName + `", "value": {"secretName": "s"}}, {"name": "other", "value": "secret"}]`
	cluster := read[clusterv1.Cluster](t, `{`+full+`, "spec": {"topology": {"version": "v1", "variables": `+variables+`,
		"controlPlane": {"variables": {"overrides": `+variables+`}}, "workers": {
			"machineDeployments": [{"variables": {"overrides": `+variables+`}}],
			"machinePools": [{"variables": {"overrides": `+variables+`}}]}}}}`)
	if _, err := kinds.Trim(cluster); err != nil {
		t.Fatal(err)
	}
	checkMetadata(t, "Cluster", cluster)
	topology := cluster.Spec.Topology
	for i, v := range [][]clusterv1.ClusterVariable{
		topology.Variables, topology.ControlPlane.Variables.Overrides,
		topology.Workers.MachineDeployments[0].Variables.Overrides, topology.Workers.MachinePools[0].Variables.Overrides,
	} {
		if string(v[0].Value.Raw) != `{"secretName": "s"}` || v[1].Value.Raw != nil || v[1].Name != "other" {
			t.Errorf("variables of list %d are %s", i, v)
		}
	}
}
