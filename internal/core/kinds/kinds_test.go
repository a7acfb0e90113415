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

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
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
			got := newObject(kind)
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
// types do not know, or is absent: a patch either fails, or loses none of them. It fails only for an object of a cache.
func TestOperations_KeepWhatTheTypesDoNotKnow(t *testing.T) {
	t.Parallel()
	recipe, err := patch.NewRecipe(patch.Options{Targets: contract.Targets(), SecretName: "s"})
	if err != nil {
		t.Fatal(err)
	}
	done, refused := 0, 0
	check := func(kind, text string) {
		for _, reader := range []string{"controller", "webhook", "hook"} {
			applied, ok := ensureAndRemove(t, kind, text, recipe, reader)
			switch {
			case ok:
				done++
			case reader == "controller":
				refused++
			default:
				t.Errorf("the patch of the %s for %s is refused", reader, text)
			}
			if ok && strings.Count(applied, unknown) != strings.Count(text, unknown) {
				t.Errorf("the %s loses an unknown field of %s: %s", reader, text, applied)
			}
		}
	}
	for _, kind := range []string{
		"KubeadmControlPlane", "KubeadmControlPlaneTemplate", "KubeadmConfigTemplate", "KubeadmConfig",
	} {
		path := kinds.PathOf(newObject(kind))
		for depth := range len(path) + 1 { // how many parents there are
			for marks := range 1 << (depth + 1) { // which of them have an unknown field
				for _, metadata := range []string{
					`"metadata":{},`, `"metadata":{` + unknown + `},`, `"metadata":{"annotations":{"a":"b"},` + unknown + `},`,
				} {
					for _, inner := range []string{
						``, `"verbosity":1`, `"preKubeadmCommands":["own"]`, `"files":[{"path":"/a",` + unknown + `}]`,
					} {
						if inner == "" || depth == len(path) {
							check(kind, strings.Replace("{"+metadata+objectOf(path[:depth], marks, inner)[1:], ",}", "}", 1))
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

// unknown is a field of a later version.
const unknown = `"unknown":{"in":1}`

func newObject(kind string) kinds.BootstrapObject {
	if kind == "KubeadmControlPlaneTemplate" {
		return &controlplanev1.KubeadmControlPlaneTemplate{}
	}
	return kinds.NewBootstrapObject(kind)
}

// objectOf returns nested objects. Those whose bit is set have an unknown field.
func objectOf(path []string, marks int, inner string) string {
	text := inner
	for depth := len(path); depth >= 0; depth-- {
		if depth < len(path) {
			text = `"` + path[depth] + `":` + text
		}
		if marks&(1<<depth) != 0 {
			text = strings.Trim(text+","+unknown, ",")
		}
		text = "{" + text + "}"
	}
	return text
}

// ensureAndRemove adds entries and an annotation to an object and removes them, with the patches that the controller
// makes of an object of a cache, the webhook of one in JSON, and the hook, which has no metadata. It reports whether all
// could be applied.
func ensureAndRemove(t *testing.T, kind, text string, recipe patch.Recipe, reader string) (string, bool) {
	t.Helper()
	for i, edits := range []func(patch.Spec) []patch.Edit{
		func(spec patch.Spec) []patch.Edit {
			ensured, err := patch.Ensure(spec, recipe)
			if err != nil {
				t.Fatal(err)
			}
			return ensured.Edits
		},
		patch.Remove,
	} {
		object := newObject(kind)
		if err := kinds.Decode([]byte(text), object); err != nil {
			t.Fatal(err)
		}
		known := []byte(text)
		if reader == "controller" {
			known = nil
			if _, err := kinds.Trim(object); err != nil {
				t.Fatal(err)
			}
		}
		at, spec := kinds.Locate(object, known), kinds.View(object)
		var annotations []patch.Operation
		if reader == "hook" {
			at.Alone = 0
		} else {
			annotations = plan.AnnotationOperations(object.GetAnnotations(), map[string]string{"ours/x": []string{"1", ""}[i]})
		}
		encoded, err := patch.EncodePatch(append(patch.Operations(at, spec, edits(spec)), annotations...))
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
