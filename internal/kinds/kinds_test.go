package kinds_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

// spec formats a bootstrap spec that decisions read everything of, and more.
const spec = `{
	"files": [
		{"path": "/etc/a", "owner": "root:root", "permissions": "0600", "content": "%%n $(id)\n{{ x }}"},
		{"path": "/etc/b", "contentFrom": {"secret": {"name": "s", "key": "k"}}, "append": true}
	],
	"preKubeadmCommands": ["echo \"1\""], "postKubeadmCommands": ["echo '2'"], "format": "ignition", "verbosity": 3,
	"joinConfiguration": {"nodeRegistration": {"criSocket": "npipe:////./pipe/x", "kubeletExtraArgs": %s}}
}`

func read[T any](t *testing.T, text string) *T {
	t.Helper()
	into := new(T)
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
	return into
}

func TestBootstrap_IsTheSameInBothVersions(t *testing.T) {
	t.Parallel()
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
		got := read[kinds.Bootstrap](t, fmt.Sprintf(spec, args))
		if diff := cmp.Diff(want, got.View()); diff != "" || got.Alone {
			t.Errorf("%s, alone %t (-want +got):\n%s", version, got.Alone, diff)
		}
	}
}

// FuzzBootstrap compares what is read of a spec with what Cluster API's own type has.
func FuzzBootstrap(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(spec, `[{"name": "b", "value": "c"}]`)))
	for _, text := range []string{
		`{}`, `null`, `{"files": [], "preKubeadmCommands": null}`, `{"Files": [{"path": "a"}], "files": [{"Path": "b"}]}`,
		`{"files": [{"path": "a"}], "files": [{"path": "b", "content": "\\ud800"}]}`, `{"initConfiguration": null}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var typed bootstrapv1.KubeadmConfigSpec
		var got kinds.Bootstrap
		if kinds.Decode(text, &typed) != nil || kinds.Decode(text, &got) != nil {
			return
		}
		want := api.Spec(&typed)
		for i := range want.Files {
			want.Files[i].Other = got.Files[i].Other || want.Files[i].Other
		}
		if diff := cmp.Diff(want, got.View(), cmpopts.EquateEmpty()); diff != "" && string(text) != "null" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	})
}

func TestBootstrap_NamesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"files": {}}`:                  "files: ",
		`{"files": [{"path": 1}]}`:       "files: json: cannot unmarshal number",
		`{"preKubeadmCommands": "echo"}`: "preKubeadmCommands: ",
		`{"initConfiguration": []}`:      "initConfiguration: ",
		`{"postKubeadmCommands": [{}]}`:  "postKubeadmCommands: ",
		`[]`:                             "cannot unmarshal array",
		// The same error at every retry.
		`{"format": 1, "postKubeadmCommands": 1, "files": 1, "preKubeadmCommands": 1}`: "files: ",
	} {
		err := new(kinds.Bootstrap).UnmarshalJSON([]byte(text))
		if err == nil || !strings.HasPrefix(strings.TrimPrefix(err.Error(), "json: "), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestBootstrap_IsNeverWrittenWhole fails if an object that was read in part can be sent to the API server.
func TestBootstrap_IsNeverWrittenWhole(t *testing.T) {
	t.Parallel()
	object := read[kinds.KubeadmControlPlane](t, `{"spec": {"kubeadmConfigSpec": {"files": [{"path": "a"}]}}}`)
	if text, err := json.Marshal(object); err == nil {
		t.Errorf("written as %s", text)
	}
}

// TestLocation_IsThatOfTheObject removes parents only if nothing else is in them, also nothing that is not read.
func TestLocation_IsThatOfTheObject(t *testing.T) {
	t.Parallel()
	type location struct{ missing, alone int }
	template := func(text string) kinds.BootstrapObject { return read[kinds.KubeadmConfigTemplate](t, text) }
	config := func(text string) kinds.BootstrapObject { return read[kinds.KubeadmConfig](t, text) }
	controlPlane := func(text string) kinds.BootstrapObject { return read[kinds.KubeadmControlPlane](t, text) }
	for name, test := range map[string]struct {
		object kinds.BootstrapObject
		want   location
	}{
		"no spec":             {template(`{}`), location{3, 0}},
		"an empty spec":       {template(`{"spec": {}}`), location{2, 0}},
		"an empty template":   {template(`{"spec": {"template": {}}}`), location{1, 0}},
		"metadata alone":      {template(`{"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}`), location{1, 0}},
		"commands alone":      {template(`{"spec": {"template": {"spec": {"preKubeadmCommands": ["a"]}}}}`), location{0, 3}},
		"commands, metadata":  {template(`{"spec": {"template": {"metadata": {}, "spec": {"files": [{"path": "a"}]}}}}`), location{0, 1}},
		"an empty list":       {template(`{"spec": {"template": {"spec": {"files": []}}}}`), location{0, 0}},
		"a list that is null": {template(`{"spec": {"template": {"spec": {"files": null}}}}`), location{0, 0}},
		"another field":       {template(`{"spec": {"template": {"spec": {"x": {}, "files": [{"path": "a"}]}}}}`), location{0, 0}},
		"v1beta1":             {template(`{"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "spec": {"template": {"spec": {"files": [{"path": "a"}]}}}}`), location{0, 0}},
		"no config":           {config(`{"status": {}}`), location{1, 0}},
		"a config":            {config(`{"spec": {"files": [{"path": "a"}]}}`), location{0, 1}},
		"a control plane": {
			controlPlane(`{"spec": {"version": "v1", "kubeadmConfigSpec": {"files": [{"path": "a"}]}}}`), location{0, 1},
		},
		"a control plane without": {controlPlane(`{"spec": {"version": "v1"}}`), location{1, 0}},
	} {
		at := test.object.Location()
		if got := (location{at.Missing, at.Alone}); got != test.want {
			t.Errorf("%s: missing and alone are %v, want %v", name, got, test.want)
		}
	}
}

func TestBootstrap_OfAControlPlaneTemplateMayBeAbsent(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{}`, `{"spec": {}}`, `{"spec": {"template": {}}}`, `{"spec": {"template": {"spec": {}}}}`} {
		if got := read[kinds.KubeadmControlPlaneTemplate](t, text).Bootstrap(); got != nil {
			t.Errorf("%s has %+v", text, got)
		}
	}
}

// TestTrim_LosesNothingThatIsRead keeps that there are annotations, too: a patch that adds the first one would replace
// those that were trimmed.
func TestTrim_LosesNothingThatIsRead(t *testing.T) {
	t.Parallel()
	text := `{"metadata": {"name": "a", "annotations": {"` + corev1.LastAppliedConfigAnnotation + `": "{}"},
		"managedFields": [{"manager": "x"}], "finalizers": ["f"], "labels": {"a": "b"}},
		"spec": {"files": [
			{"path": "/etc/mine", "content": "` + strings.Repeat("x", 5000) + `"},
			{"path": "` + contract.PathProxyEnv + `", "content": "theirs"},
			{"path": "/etc/systemd/system/kubelet.service.d/a.conf", "content": "eA==", "encoding": "base64"},
			{"path": "/opt/x.sh", "content": "cp a /etc/systemd/system/kubelet.service.d/zz.conf"}
		], "ignition": {"containerLinuxConfig": {"additionalConfig": "storage: {files: [{path: ` + contract.PathProxyEnv + `}]}"}}}}`
	got := read[kinds.KubeadmConfig](t, text)
	want := got.DeepCopy()
	want.ManagedFields, want.Annotations, want.Spec.Files[0].Content = nil, map[string]string{}, ""
	want.Spec.Files[0].Dropped = len("\n-   path: /etc/mine\n    content: |\n      ") + 5000
	if _, err := kinds.Trim(got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const variables = `[{"name": "` + contract.VariableName + `", "value": {"secretName": "s"}}, {"name": "other", "value": "secret"}]`
	cluster := read[kinds.Cluster](t, `{"spec": {"topology": {"version": "v1", "variables": `+variables+`,
		"controlPlane": {"variables": {"overrides": `+variables+`}}, "workers": {
			"machineDeployments": [{"variables": {"overrides": `+variables+`}}],
			"machinePools": [{"variables": {"overrides": `+variables+`}}]}}}}`)
	if _, err := kinds.Trim(cluster); err != nil {
		t.Fatal(err)
	}
	topology := cluster.Spec.Topology
	for i, v := range [][]kinds.Variable{
		topology.Variables, topology.ControlPlane.Variables.Overrides,
		topology.Workers.MachineDeployments[0].Variables.Overrides, topology.Workers.MachinePools[0].Variables.Overrides,
	} {
		if string(v[0].Value) != `{"secretName": "s"}` || v[1].Value != nil {
			t.Errorf("variables of list %d are %s", i, v)
		}
	}
}

// TestKinds_HaveTheFieldsOfClusterAPI fails if a field is misspelled, or is none of Cluster API's.
func TestKinds_HaveTheFieldsOfClusterAPI(t *testing.T) {
	t.Parallel()
	program, err := api.NewProgramScheme()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	v1beta1 := map[string]bool{"class": true, "classNamespace": true, "machineTemplate.infrastructureRef": true}
	for gvk, ours := range program.AllKnownTypes() {
		if !strings.HasSuffix(gvk.Group, "cluster.x-k8s.io") || ours.PkgPath() != reflect.TypeFor[kinds.Cluster]().PkgPath() {
			continue
		}
		fields(t, gvk.Kind, ours, theirs.AllKnownTypes()[gvk], v1beta1)
	}
}

func fields(t *testing.T, path string, ours, theirs reflect.Type, older map[string]bool) {
	t.Helper()
	ours, theirs = element(ours), element(theirs)
	if ours.Kind() != reflect.Struct || ours == theirs || ours == reflect.TypeFor[kinds.Bootstrap]() {
		return
	}
	if theirs.Kind() != reflect.Struct {
		t.Errorf("%s is %s, want a struct", path, theirs)
		return
	}
	for field := range ours.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || older[name] || older[path[strings.LastIndexByte(path, '.')+1:]+"."+name] {
			continue
		}
		found := false
		for their := range theirs.Fields() {
			if other, _, _ := strings.Cut(their.Tag.Get("json"), ","); other == name {
				found = true
				fields(t, path+"."+name, field.Type, their.Type, older)
			}
		}
		if !found {
			t.Errorf("%s has no field %s", path, name)
		}
	}
}

func element(of reflect.Type) reflect.Type {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	return of
}
