package hooks

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
)

func generated(t *testing.T, o hookrequests.Options) *runtimehooksv1.GeneratePatchesRequest {
	t.Helper()
	q, err := hookrequests.Generate(o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func encoded(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// respond answers a request for GeneratePatches.
func respond(t *testing.T, h *Handlers,
	q *runtimehooksv1.GeneratePatchesRequest,
) *runtimehooksv1.GeneratePatchesResponse {
	t.Helper()
	response := &runtimehooksv1.GeneratePatchesResponse{}
	h.GeneratePatches(t.Context(), q, response)
	return response
}

// validate answers the request for ValidateTopology that belongs to one for GeneratePatches.
func validate(t *testing.T, h *Handlers,
	q *runtimehooksv1.GeneratePatchesRequest,
) *runtimehooksv1.ValidateTopologyResponse {
	t.Helper()
	response := &runtimehooksv1.ValidateTopologyResponse{}
	h.ValidateTopology(t.Context(), hookrequests.Validate(q), response)
	return response
}

// apply carries out an answer as Cluster API does, and returns the templates by the UID of their items.
func apply(t *testing.T, q *runtimehooksv1.GeneratePatchesRequest,
	response *runtimehooksv1.GeneratePatchesResponse,
) map[string][]byte {
	t.Helper()
	if response.Status != runtimehooksv1.ResponseStatusSuccess {
		t.Fatalf("%s: %s", response.Status, response.Message)
	}
	objects := map[string][]byte{}
	for _, it := range q.Items {
		objects[string(it.UID)] = it.Object.Raw
	}
	for _, it := range response.Items {
		decoded, err := jsonpatch.DecodePatch(it.Patch)
		if err != nil {
			t.Fatal(err)
		}
		before, found := objects[string(it.UID)]
		if !found {
			t.Fatalf("a patch for %s, which is no item", it.UID)
		}
		if objects[string(it.UID)], err = decoded.Apply(before); err != nil {
			t.Fatalf("%v: %s", err, it.Patch)
		}
	}
	return objects
}

func object(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var o map[string]any
	if err := yaml.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// specAt returns the bootstrap spec of a template, nil if there is none.
func specAt(o map[string]any, parents []string) map[string]any {
	for _, parent := range parents {
		o, _ = o[filepath.Base(parent)].(map[string]any)
	}
	return o
}

// wrap returns a template around a bootstrap spec.
func wrap(t *testing.T, kind string, spec any) []byte {
	t.Helper()
	if kind == "KubeadmControlPlaneTemplate" {
		return encoded(t, map[string]any{
			"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": kind,
			"spec": map[string]any{
				"template": map[string]any{"spec": map[string]any{"kubeadmConfigSpec": spec}},
			},
		})
	}
	return encoded(t, map[string]any{
		"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "kind": kind,
		"spec": map[string]any{
			"template": map[string]any{"spec": spec},
		},
	})
}

// with returns a request for one Cluster with one pool, with other templates.
func with(t *testing.T, o hookrequests.Options, controlPlane, worker []byte) *runtimehooksv1.GeneratePatchesRequest {
	t.Helper()
	o.Pools = 1
	q := generated(t, o)
	q.Items[1].Object.Raw = controlPlane
	q.Items[3].Object.Raw = worker
	return q
}

// TestGenerate_AnswersTheGoldenFilesOfClassicClusters holds the hook to the bytes that controller and webhooks write.
func TestGenerate_AnswersTheGoldenFilesOfClassicClusters(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../patch/testdata/reference*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("golden files %v: %v", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			golden = bytes.ReplaceAll(golden, []byte("test-proxy-files"), []byte("cluster-0000-proxy-files"))
			want := object(t, golden)
			own := patch.Own(want)
			var targets []string
			for _, target := range contract.Targets() {
				only, isOnly := strings.CutPrefix(name, "reference-only-")
				if without := strings.TrimPrefix(name, "reference-without-"); (!isOnly || only == string(target)) &&
					without != string(target) {
					targets = append(targets, string(target))
				}
			}
			o := hookrequests.Options{Variable: string(encoded(t, map[string]any{"targets": targets}))}
			q := with(t, o, wrap(t, "KubeadmControlPlaneTemplate", own), wrap(t, "KubeadmConfigTemplate", own))
			patched := apply(t, q, respond(t, &Handlers{}, q))
			controlPlane, worker := patched[string(q.Items[1].UID)], patched[string(q.Items[3].UID)]
			for _, got := range []map[string]any{
				specAt(object(t, controlPlane), controlPlaneParents()), specAt(object(t, worker), poolParents()),
			} {
				wantText, _ := yaml.Marshal(want)
				text, err := yaml.Marshal(got)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(wantText), string(text)); diff != "" {
					t.Errorf("(-golden +got):\n%s", diff)
				}
				if diff := cmp.Diff(own, patch.Own(got)); diff != "" {
					t.Errorf("removed (-before +after):\n%s", diff)
				}
			}
			q = with(t, o, controlPlane, worker)
			if again := respond(t, &Handlers{}, q); len(again.Items) > 0 {
				t.Errorf("a patched request gets %d more patches", len(again.Items))
			}
			q = with(t, hookrequests.Options{Unlabelled: true}, controlPlane, worker)
			if again := respond(t, &Handlers{}, q); len(again.Items) > 0 {
				t.Errorf("an unlabelled Cluster gets %d patches", len(again.Items))
			}
		})
	}
}

// references returns the generated Secret that each kubeadm template of a request refers to after the answer, "" for
// none.
func references(t *testing.T, h *Handlers, q *runtimehooksv1.GeneratePatchesRequest) []string {
	t.Helper()
	objects := apply(t, q, respond(t, h, q))
	var secrets []string
	for _, it := range q.Items {
		o := object(t, objects[string(it.UID)])
		var spec map[string]any
		switch o["kind"] {
		case "KubeadmControlPlaneTemplate":
			spec = specAt(o, controlPlaneParents())
		case "KubeadmConfigTemplate":
			spec = specAt(o, poolParents())
		default:
			continue
		}
		secret := ""
		for _, f := range api.Spec(spec).Files {
			if f.Path == contract.PathProxyEnv {
				secret = f.ContentFrom.Name
			}
		}
		secrets = append(secrets, secret)
	}
	return secrets
}

func TestGenerate_ChoosesTemplatesAndSecrets(t *testing.T) {
	t.Parallel()
	const own, version = "cluster-0000-proxy-files", hookrequests.Version
	hold := func(value string) map[string]string { return map[string]string{contract.AnnotationTopologyHold: value} }
	for name, test := range map[string]struct {
		options hookrequests.Options
		want    []string // control plane, pools
	}{
		"a labelled Cluster":        {hookrequests.Options{Pools: 2, MachinePools: 1}, []string{own, own, own, own}},
		"an unlabelled Cluster":     {hookrequests.Options{Pools: 1, Unlabelled: true}, []string{"", ""}},
		"an annotation is no label": {hookrequests.Options{Pools: 1, Unlabelled: true, Annotations: map[string]string{contract.LabelEnabled: "true"}}, []string{"", ""}},
		"the label says false":      {hookrequests.Options{Pools: 1, Label: "false"}, []string{"", ""}},
		"a value after true":        {hookrequests.Options{Pools: 1, Label: "yes", Annotations: map[string]string{contract.AnnotationEnabledBefore: "true"}}, []string{own, own}},
		"a value after false":       {hookrequests.Options{Pools: 1, Label: "yes", Annotations: map[string]string{contract.AnnotationEnabledBefore: "false"}}, []string{"", ""}},
		"false remembers nothing":   {hookrequests.Options{Pools: 1, Label: "false", Annotations: map[string]string{contract.AnnotationEnabledBefore: "true"}}, []string{"", ""}},
		"a value after true, held without": {hookrequests.Options{Pools: 1, Label: "yes", Annotations: map[string]string{
			contract.AnnotationEnabledBefore: "true", contract.AnnotationTopologyHold: "disabled@" + version,
		}}, []string{"", ""}},
		"held without":                        {hookrequests.Options{Pools: 1, Annotations: hold("disabled@" + version)}, []string{"", ""}},
		"held without at an older version":    {hookrequests.Options{Pools: 1, Annotations: hold("disabled@v1.35.0")}, []string{own, own}},
		"held with":                           {hookrequests.Options{Pools: 1, Unlabelled: true, Annotations: hold("enabled@" + version)}, []string{own, own}},
		"held with at an older version":       {hookrequests.Options{Pools: 1, Unlabelled: true, Annotations: hold("enabled@v1.35.0")}, []string{"", ""}},
		"a pool with another Secret":          {hookrequests.Options{Pools: 2, Overrides: map[int]string{1: `{"secretName":"other"}`}}, []string{own, own, "cluster-0000.pool-001.tmd.proxy-files"}},
		"pools with the same other Secret":    {hookrequests.Options{Pools: 1, MachinePools: 1, EverySecond: `{"secretName":"o"}`, Overrides: map[int]string{0: `{"secretName":"o"}`}}, []string{own, "cluster-0000.pool-000.tmd.proxy-files", "cluster-0000.pool-001.tmp.proxy-files"}},
		"a pool without the proxy":            {hookrequests.Options{Pools: 2, Overrides: map[int]string{0: `{"secretName":"none"}`}}, []string{own, "", own}},
		"a pool annotated":                    {hookrequests.Options{MachinePools: 2, PoolAnnotations: map[int]map[string]string{0: {contract.AnnotationSecret: "x"}, 1: {contract.AnnotationSecret: "none"}}}, []string{own, "cluster-0000.pool-000.tmp.proxy-files", ""}},
		"a Secret of the Cluster's":           {hookrequests.Options{Pools: 1, Variable: `{"secretName":"corp"}`}, []string{own, own}},
		"a recorded output version":           {hookrequests.Options{Pools: 1, Annotations: map[string]string{contract.AnnotationOutputVersion: "1"}}, []string{own, own}},
		"targets that need no variables file": {hookrequests.Options{Pools: 1, Variable: `{"targets":["trust"]}`}, []string{"", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, references(t, &Handlers{}, generated(t, test.options))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownLabelValue_FailsWithoutAFormerValue(t *testing.T) {
	t.Parallel()
	const want = `label capi-proxy-patcher.io/enabled: unknown value "True", which changes nothing; use "true" or "false"`
	for _, before := range []string{"", "True"} {
		q := generated(t,
			hookrequests.Options{
				Pools: 1, Label: "True",
				Annotations: map[string]string{contract.AnnotationEnabledBefore: before},
			})
		if response := respond(t, &Handlers{}, q); response.Status != runtimehooksv1.ResponseStatusFailure ||
			response.Message != want {
			t.Errorf("GeneratePatches: %s: %s", response.Status, response.Message)
		}
		validated := validate(t, &Handlers{}, q)
		if validated.Status != runtimehooksv1.ResponseStatusFailure || validated.Message != want {
			t.Errorf("ValidateTopology: %s: %s", validated.Status, validated.Message)
		}
	}
}

func TestGenerate_UsesTheVersionOfTheTemplateThatUpgrades(t *testing.T) {
	t.Parallel()
	q := generated(t,
		hookrequests.Options{Pools: 2, Annotations: map[string]string{contract.AnnotationTopologyHold: "disabled@" +
			hookrequests.Version}})
	upgraded := func(i int) {
		raw := &q.Items[i].Variables[0].Value.Raw
		*raw = bytes.Replace(*raw, []byte(hookrequests.Version), []byte("v1.37.0"), 1)
	}
	upgraded(1) // the control plane is first
	upgraded(5)
	if diff := cmp.Diff([]string{"cluster-0000-proxy-files", "", "cluster-0000-proxy-files"},
		references(t, &Handlers{}, q)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestGenerate_LeavesTemplatesAlone(t *testing.T) {
	t.Parallel()
	file := func(path string) map[string]any { return map[string]any{"path": path, "content": "x"} }
	const worker = "KubeadmConfigTemplate"
	for name, template := range map[string][]byte{
		"another kind of the same group":    bytes.Replace(wrap(t, worker, map[string]any{}), []byte(worker), []byte("OtherTemplate"), 1),
		"the same kind of another group":    bytes.Replace(wrap(t, worker, map[string]any{}), []byte("bootstrap.cluster.x-k8s.io"), []byte("bootstrap.example.com"), 1),
		"a Windows socket":                  wrap(t, worker, map[string]any{"joinConfiguration": map[string]any{"nodeRegistration": map[string]any{"criSocket": "npipe:////./pipe/containerd"}}}),
		"the same in v1beta1":               wrap(t, worker, map[string]any{"joinConfiguration": map[string]any{"nodeRegistration": map[string]any{"kubeletExtraArgs": map[string]any{"windows-service": "true"}}}}),
		"the same in escape sequences":      bytes.ReplaceAll(wrap(t, worker, map[string]any{"joinConfiguration": map[string]any{"nodeRegistration": map[string]any{"criSocket": "npipe:x"}}}), []byte("npipe"), []byte(`\u006e\u0070\u0069\u0070\u0065`)),
		"a format that is not ours":         wrap(t, worker, map[string]any{"format": "bottlerocket"}),
		"the last of two formats":           bytes.Replace(wrap(t, worker, map[string]any{"format": "bottlerocket"}), []byte(`"format"`), []byte(`"format":"ignition","format"`), 1),
		"a file of the user's in our place": wrap(t, worker, map[string]any{"files": []any{file("/etc/systemd/system/kubelet.service.d/http-proxy.conf")}}),
		"no object":                         []byte(`[]`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := with(t, hookrequests.Options{}, []byte(`{}`), template)
			if response := respond(t, &Handlers{}, q); len(response.Items) > 0 ||
				response.Status != runtimehooksv1.ResponseStatusSuccess {
				t.Errorf("%s %s %s", response.Status, response.Message, response.Items)
			}
		})
	}
}

func TestGenerate_LeavesPoolsOfWindowsMachineTemplatesAlone(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{
		`{"template":{"spec":{"osDisk":{"osType":"Windows"}}}}`,
		`{"template":{"spec":{"\u006fs":"windows"}}}`,
	} {
		q := generated(t, hookrequests.Options{Pools: 2})
		q.Items[6].Object.Raw = []byte(`{"kind":"DemoMachineTemplate","spec":` + spec + `}`)
		if diff := cmp.Diff([]string{"cluster-0000-proxy-files", "cluster-0000-proxy-files", ""},
			references(t, &Handlers{}, q)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", spec, diff)
		}
	}
}

func TestGenerate_CreatesMissingParents(t *testing.T) {
	t.Parallel()
	for _, rest := range []string{
		``, `,"spec":null`, `,"spec":{}`, `,"spec":{"template":{}}`,
		`,"spec":{"template":{"spec":null}}`, `,"spec":{"template":{"spec":{"files":[]}}}`,
	} {
		q := with(t, hookrequests.Options{}, []byte(`{}`),
			[]byte(`{"apiVersion":"bootstrap.cluster.x-k8s.io/v1beta1","kind":"KubeadmConfigTemplate"`+rest+`}`))
		if got := references(t, &Handlers{}, q); got[len(got)-1] != "cluster-0000-proxy-files" {
			t.Errorf("%s: %v", rest, got)
		}
	}
}

// TestGenerate_KeepsUnknownFields forbids decoding into Go types, as topologymutation.WalkTemplates does: fields that
// they do not know would be lost.
func TestGenerate_KeepsUnknownFields(t *testing.T) {
	t.Parallel()
	q := generated(t, hookrequests.Options{Pools: 1})
	for uid, text := range apply(t, q, respond(t, &Handlers{}, q)) {
		if strings.Contains(string(text), "Kubeadm") && !bytes.Contains(text, []byte("fieldFromTheFuture")) {
			t.Errorf("item %s: %s", uid, text)
		}
	}
	for _, it := range respond(t, &Handlers{}, q).Items {
		var operations []struct{ Op, Path string }
		if err := json.Unmarshal(it.Patch, &operations); err != nil {
			t.Fatal(err)
		}
		for _, operation := range operations {
			list := strings.Split(operation.Path, "/")
			if operation.Op != "add" || !slices.Contains([]string{"files", "preKubeadmCommands", "postKubeadmCommands"},
				list[len(list)-2]) {
				t.Errorf("%s %s is not an entry of a list", operation.Op, operation.Path)
			}
		}
	}
}

// patchesOf returns the patches of an answer by the UID of their items.
func patchesOf(response *runtimehooksv1.GeneratePatchesResponse) map[string]string {
	patches := map[string]string{}
	for _, it := range response.Items {
		patches[string(it.UID)] = string(it.Patch)
	}
	return patches
}

func TestGenerate_PatchesEachTemplateAsIfItWereAlone(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]hookrequests.Options{
		"alike":     {Pools: 5, MachinePools: 2},
		"overrides": {Pools: 5, EverySecond: `{"secretName":"x"}`},
		"distinct":  {Pools: 5, Distinct: true},
	} {
		q := generated(t, o)
		// A template that both a control plane and pools have: it is not of the kind of a control plane.
		q.Items[1].Object = q.Items[3].Object
		together, alone := patchesOf(respond(t, &Handlers{}, q)), map[string]string{}
		for i := range q.Items {
			one := *q
			one.Items = q.Items[i : i+1]
			maps.Copy(alone, patchesOf(respond(t, &Handlers{}, &one)))
		}
		if diff := cmp.Diff(alone, together); diff != "" || len(alone) != o.Pools+o.MachinePools {
			t.Errorf("%s: %d patches (-alone +together):\n%s", name, len(alone), diff)
		}
	}
}

func TestGenerate_AnswersTheSameRequestWithTheSameBytes(t *testing.T) {
	t.Parallel()
	q := generated(t, hookrequests.Options{Pools: 30, Distinct: true, EverySecond: `{"secretName":"x"}`})
	h := &Handlers{}
	first := encoded(t, respond(t, h, q))
	for range 20 {
		if !bytes.Equal(first, encoded(t, respond(t, h, q))) {
			t.Fatal("another answer")
		}
	}
	// Cluster API sends pools in the order of a map: the patch of each must not depend on it.
	before := patchesOf(respond(t, h, q))
	slices.Reverse(q.Items)
	if diff := cmp.Diff(before, patchesOf(respond(t, h, q))); diff != "" || len(before) != 31 {
		t.Errorf("%d patches; in another order:\n%s", len(before), diff)
	}
}

func TestGenerate_MessagesDoNotDependOnTheOrderOfPools(t *testing.T) {
	t.Parallel()
	q := generated(t, hookrequests.Options{
		Pools: 3, Overrides: map[int]string{0: `{"noProxy":["a"]}`, 1: `{"x":1}`, 2: `{"targets":[]}`},
	})
	h := &Handlers{}
	first, validated := respond(t, h, q), validate(t, h, q)
	slices.Reverse(q.Items)
	second, again := respond(t, h, q), validate(t, h, q)
	if first.Message == "" || first.Message != second.Message || first.Status != runtimehooksv1.ResponseStatusFailure ||
		strings.Contains(first.Message, "\n") {
		t.Errorf("%q and %q", first.Message, second.Message)
	}
	if validated.Message != again.Message {
		t.Errorf("%q and %q", validated.Message, again.Message)
	}
}

func TestGenerate_FailsOnRequestsThatCannotBeAnswered(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options hookrequests.Options
		want    string
	}{
		"an unusable variable":      {hookrequests.Options{Variable: `{"targets":["x"]}`}, `spec.topology.variables[capiProxyPatcher].targets[0]: "x" is not a target; use containerd, kubelet, commands, trust and static-pods`},
		"an output version to come": {hookrequests.Options{Annotations: map[string]string{contract.AnnotationOutputVersion: "7"}}, "output version 7 is not known to this version of capi-proxy-patcher; use a newer one"},
		"an output version of rubbish": {
			hookrequests.Options{Annotations: map[string]string{contract.AnnotationOutputVersion: "new"}},
			"annotation capi-proxy-patcher.io/output-version of the Cluster: not an output version",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := respond(t, &Handlers{}, generated(t, test.options))
			if response.Status != runtimehooksv1.ResponseStatusFailure || response.Message != test.want ||
				len(response.Items) > 0 {
				t.Errorf("%s %q, want %q", response.Status, response.Message, test.want)
			}
		})
	}
	for _, body := range []string{
		`{}`, `{"items":null,"variables":null}`, `{"items":[null,{"object":1,"holderReference":null}]}`,
	} {
		var q runtimehooksv1.GeneratePatchesRequest
		if err := json.Unmarshal([]byte(body), &q); err != nil {
			t.Fatal(err)
		}
		if response := respond(t, &Handlers{}, &q); response.Status != runtimehooksv1.ResponseStatusSuccess {
			t.Errorf("%s: %s", body, response.Message)
		}
	}
}

func TestVariable_IsInNoMessageAndNoAnswer(t *testing.T) {
	t.Parallel()
	q := generated(t, hookrequests.Options{Variable: `{"noProxy":["http://user:s3cret@x"]}`})
	if response := respond(t, &Handlers{}, q); response.Status != runtimehooksv1.ResponseStatusFailure ||
		strings.Contains(response.Message, "s3cret") {
		t.Errorf("%s", response.Message)
	}
	o := map[string]string{contract.AnnotationSecret: "corp"}
	for _, it := range respond(t, &Handlers{},
		generated(t, hookrequests.Options{Pools: 1, Annotations: o, Variable: `{"noProxy":["a.example.com"]}`})).Items {
		if bytes.Contains(it.Patch, []byte("corp")) || bytes.Contains(it.Patch, []byte("a.example.com")) {
			t.Errorf("a computed value is in the patch %s", it.Patch)
		}
	}
}

// Where bootstrap specs are in templates.
func controlPlaneParents() []string {
	return []string{"/spec", "/spec/template", "/spec/template/spec", "/spec/template/spec/kubeadmConfigSpec"}
}

func poolParents() []string { return []string{"/spec", "/spec/template", "/spec/template/spec"} }
