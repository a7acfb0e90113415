package kinds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

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
