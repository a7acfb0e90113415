package specread_test

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/jsonread"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/specread"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
)

func kinds() []string { return []string{plan.KindControlPlane, plan.KindTemplate, plan.KindConfig} }

func read(text []byte, kind string, whole bool, like *specread.Object) (*specread.Object, error) {
	parents := plan.Parents(kind)
	o := &specread.Object{
		At: patch.Location{Parents: parents, Missing: len(parents)}, Readable: true, Whole: whole,
	}
	r := jsonread.New(text)
	for name := range r.Members {
		if string(name) == "spec" {
			o.Read(r, like)
		}
	}
	return o, r.End()
}

// wanted is what an object that encoding/json has decoded says.
func wanted(kind string, object map[string]any) specread.Object {
	want := specread.Object{At: patch.Location{Parents: plan.Parents(kind)}, Readable: true}
	parent := object
	for i, pointer := range want.At.Parents {
		value := parent[path.Base(pointer)]
		next, found := value.(map[string]any)
		if !found {
			want.At.Missing, want.At.Alone, want.Readable = len(want.At.Parents)-i, 0, value == nil
			return want
		}
		parent = next
		want.At.Alone++
		for key := range parent {
			if i == len(want.At.Parents)-1 || key != path.Base(want.At.Parents[i+1]) {
				list, _ := parent[key].([]any)
				isList := slices.Contains([]string{"files", "preKubeadmCommands", "postKubeadmCommands"}, key)
				if i < len(want.At.Parents)-1 || !isList || len(list) == 0 {
					want.At.Alone = 0
				}
			}
		}
	}
	for _, list := range []patch.List{patch.ListFiles, patch.ListPre, patch.ListPost} {
		if _, is := parent[string(list)].([]any); parent[string(list)] != nil && !is {
			want.Readable = false
		}
	}
	want.Spec = patch.SpecOfMap(parent)
	return want
}

// check compares what is read with what package patch reads of the same text through encoding/json.
func check(t *testing.T, text []byte, kind string, whole bool) {
	t.Helper()
	got, err := read(text, kind, whole, nil)
	if (err == nil) != json.Valid(text) {
		t.Fatalf("%s: %v", text, err)
	}
	var object map[string]any
	if err != nil || json.Unmarshal(text, &object) != nil {
		return
	}
	want := wanted(kind, object)
	if whole {
		again, err := read(text, kind, whole, got)
		if diff := cmp.Diff(got, again); err != nil || diff != "" {
			t.Fatalf("%s beside itself (%v, -alone +beside):\n%s", text, err, diff)
		}
	}
	if patch.Unsupported(want.Spec) != patch.Unsupported(got.Spec) {
		t.Fatalf("%s: unsupported as %q, want as %q", text, patch.Unsupported(got.Spec), patch.Unsupported(want.Spec))
	}
	want.Spec.CRISockets, want.Spec.KubeletArgs, got.Spec.CRISockets, got.Spec.KubeletArgs = nil, nil, nil, nil
	for i, file := range want.Spec.Files {
		if !whole && !patch.ReadsContent(file.Path) {
			want.Spec.Files[i].Content = ""
		}
	}
	ignored := cmpopts.IgnoreFields(specread.Object{}, "Text", "Whole")
	if diff := cmp.Diff(want, *got, cmpopts.EquateEmpty(), ignored); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", text, diff)
	}
}

func FuzzRead(f *testing.F) {
	q, err := hookrequests.Generate(hookrequests.Options{Pools: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(q.Items[3].Object.Raw)
	for _, spec := range []string{
		`{}`, `null`, `[1]`, `""`, `{"files":[],"preKubeadmCommands":null,"postKubeadmCommands":["a"]}`,
		`{"files":{},"preKubeadmCommands":"x","postKubeadmCommands":0}`, `{"files":[{}],"files":[]}`, `{"files":1,"files":[{}]}`,
		`{"files":[{"path":"/etc/capi-proxy-patcher/setup.sh","content":"#!/bin/sh\n# Managed by capi-proxy-patcher\n"}]}`,
		`{"files":[{"path":"a","path":"b","content":1,"contentFrom":{"secret":{"name":"x"},"secret":{"key":"y"}}},null,[],1]}`,
		`{"files":[{"owner":"root:root","permissions":"0640"},{"owner":"r` + "\xff" + `","permissions":640}]}`,
		`{"joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":{"windows-a":"b"},"criSocket":"npipe:x"}}}`,
		`{"initConfiguration":{"nodeRegistration":{"criSocket":"\u006epipe:x"}},"format":"ignition","format":null}`,
		`{"preKubeadmCommands":["set -a; . /etc/capi-proxy-patcher/proxy.env; set +a # capi-proxy-patcher","x\u0000","{{y}}","$(z)",1e999]}`,
	} {
		for _, around := range []string{
			`{"spec":%}`, `{"spec":{"template":{"spec":%}}}`, `{"spec":{"kubeadmConfigSpec":%,"replicas":1}}`,
			`{"spec":{"kubeadmConfigSpec":%},"spec":{"kubeadmConfigSpec":null}}`,
			`{"spec":{"template":{"spec":%,"metadata":{}},"template":{"spec":%}}}`, `{"spec":{"template":{"spec":%},"template":[]}}`,
		} {
			f.Add([]byte(strings.ReplaceAll(around, "%", spec)))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, kind := range kinds() {
			check(t, text, kind, false)
			check(t, text, kind, true)
		}
	})
}

func TestRead_FindsWhatIsMissing(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]patch.Location{
		`{}`:                                {Missing: 3},
		`{"spec":{}}`:                       {Missing: 2},
		`{"spec":{"template":{"spec":{}}}}`: {Alone: 3},
		`{"spec":{"template":{"spec":{"files":[{}],"postKubeadmCommands":["x"]}}}}`:     {Alone: 3},
		`{"spec":{"template":{"spec":{"files":[{}]},"metadata":{"labels":{"a":"b"}}}}}`: {Alone: 1},
		`{"spec":{"template":{"spec":{"files":[{}]}},"future":1}}`:                      {Alone: 2},
		`{"spec":{"template":{"spec":{"files":[{}],"format":"ignition"}}}}`:             {},
		`{"spec":{"template":{"spec":{"files":[{}],"preKubeadmCommands":[]}}}}`:         {},
		`{"spec":[1]}`: {Missing: 3},
	} {
		got, err := read([]byte(text), plan.KindTemplate, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		want.Parents = plan.Parents(plan.KindTemplate)
		if diff := cmp.Diff(want, got.At); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestRead_SharesTheSpecOfTheSameText(t *testing.T) {
	t.Parallel()
	const spec = `{"files":[{"path":"/a","content":"%\"'` + "`" + `$"}],"preKubeadmCommands":["x"]}`
	for name, test := range map[string]struct {
		text   string
		shares bool
	}{
		"another number of replicas": {`{"spec":{"replicas":5,"kubeadmConfigSpec":` + spec + `}}`, true},
		"another command":            {`{"spec":{"kubeadmConfigSpec":` + strings.Replace(spec, `"x"`, `"y"`, 1) + `}}`, false},
		"no spec":                    {`{"spec":{}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			like, err := read([]byte(`{"spec":{"kubeadmConfigSpec":`+spec+`}}`), plan.KindControlPlane, true, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := read([]byte(test.text), plan.KindControlPlane, true, like)
			if err != nil {
				t.Fatal(err)
			}
			alone, err := read([]byte(test.text), plan.KindControlPlane, true, nil)
			if diff := cmp.Diff(alone, got); err != nil || diff != "" {
				t.Errorf("it reads something else (%v, -alone +beside):\n%s", err, diff)
			}
			if shares := len(got.Spec.Files) > 0 && &got.Spec.Files[0] == &like.Spec.Files[0]; shares != test.shares {
				t.Errorf("shares is %t", shares)
			}
		})
	}
}
