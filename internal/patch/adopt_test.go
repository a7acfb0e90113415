package patch_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// handWritten is a bootstrap spec with hand-written drop-ins, one of them in the folder for packages, and with fields
// that this program does not read.
const handWritten = `{
  "files": [
    {"path": "/etc/motd", "content": "hello\n", "encoding": "base64"},
    {"path": "/etc/systemd/system/containerd.service.d/http-proxy.conf", "owner": "root:root", "content": "[Service]\nEnvironment=\"HTTP_PROXY=http://u:p%25@old:3128/{{ x }}\"\n", "append": true, "unknown": {"a": ["'", "\\", 1]}},
    {"path": "/etc/hosts.allow", "content": "x"},
    {"path": "/usr/lib/systemd/system/kubelet.service.d/http-proxy.conf", "permissions": "0600", "contentFrom": {"secret": {"name": "mine", "key": "k"}}}
  ],
  "preKubeadmCommands": ["echo own"]
}`

func specOfJSON(t *testing.T, text string) (patch.Spec, []any) {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	files, _ := object["files"].([]any)
	return patch.SpecOfMap(object), files
}

func applied(t *testing.T, text string, edits []patch.Edit) string {
	t.Helper()
	spec, _ := specOfJSON(t, text)
	operations, err := json.Marshal(patch.Operations(patch.Location{Parents: []string{"/spec"}}, spec, edits))
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		t.Fatal(err)
	}
	document, err := decoded.Apply([]byte(`{"spec":` + text + `}`))
	if err != nil {
		t.Fatalf("%v\n%s", err, operations)
	}
	return strings.TrimSuffix(strings.TrimPrefix(string(document), `{"spec":`), "}")
}

func canonical(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestAdopt_RestoresFilesAsTheyWere(t *testing.T) {
	t.Parallel()
	wanted := recipe(t, patch.Options{Delivery: contract.DeliveryReference, SecretName: "one-proxy-files"})
	spec, files := specOfJSON(t, handWritten)
	if _, err := patch.Ensure(spec, wanted); err == nil {
		t.Fatal("the files are no conflict")
	}
	adopted := patch.Adopt(spec, wanted, func(int) bool { return true })
	if len(adopted) != 2 || adopted[0].Index != 1 || adopted[1].Index != 3 {
		t.Fatalf("adopted %+v, want entries 1 and 3", adopted)
	}
	originals := map[string]json.RawMessage{}
	for _, edit := range adopted {
		text, err := json.Marshal(files[edit.Index])
		if err != nil {
			t.Fatal(err)
		}
		originals[edit.File.Path] = text
		if !patch.SameEntry(files[edit.Index], text) || patch.SameEntry(files[0], text) {
			t.Errorf("entry %d is not told from another", edit.Index)
		}
	}
	brought, err := patch.Ensure(patch.Apply(spec, adopted), wanted)
	if err != nil {
		t.Fatal(err)
	}
	patched := applied(t, handWritten, append(adopted, brought.Edits...))
	if strings.Contains(patched, "old:3128") || strings.Contains(patched, "/usr/lib/systemd") {
		t.Errorf("a file of the user is still there:\n%s", patched)
	}

	// The originals survive being written down.
	text, err := patch.Originals{"KubeadmControlPlane/one": originals}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	kept, err := patch.ParseOriginals(text)
	if err != nil {
		t.Fatal(err)
	}
	after, _ := specOfJSON(t, patched)
	restored := applied(t, patched, patch.Take(after, kept["KubeadmControlPlane/one"]))
	if diff := cmp.Diff(canonical(t, handWritten), canonical(t, restored)); diff != "" {
		t.Errorf("not what it was (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(patch.Remove(after), patch.Take(after, nil)); diff != "" {
		t.Errorf("without originals Take is not Remove:\n%s", diff)
	}
}

func TestEnsureOrAdopt(t *testing.T) {
	t.Parallel()
	wanted := recipe(t, patch.Options{Delivery: contract.DeliveryReference, SecretName: "one-proxy-files"})
	spec, _ := specOfJSON(t, handWritten)
	if edits, err := patch.EnsureOrAdopt(spec, wanted, false); len(edits) > 0 || err == nil {
		t.Errorf("got %+v, %v without adoption, want the conflict of Ensure", edits, err)
	} else if _, conflict := errors.AsType[*patch.ConflictError](err); !conflict {
		t.Errorf("got %v, want a conflict", err)
	}
	marked, _ := specOfJSON(t, strings.Replace(handWritten, "echo own", "echo own # capi-proxy-patcher", 1))
	if edits, err := patch.EnsureOrAdopt(marked, wanted, true); len(edits) > 0 || err == nil {
		t.Errorf("got %+v, %v beside a conflict that is no file, want nothing adopted", edits, err)
	}
	edits, err := patch.EnsureOrAdopt(spec, wanted, true)
	if err != nil {
		t.Fatal(err)
	}
	after := patch.Apply(spec, edits)
	if left, err := patch.EnsureOrAdopt(after, wanted, true); len(left) > 0 || err != nil {
		t.Errorf("got %+v, %v for what is adopted already", left, err)
	}
	if strings.Contains(applied(t, handWritten, edits), "old:3128") {
		t.Error("a file of the user is still there")
	}
}

func TestAdopt_TakesOnlyWhatItMay(t *testing.T) {
	t.Parallel()
	wanted := recipe(t, patch.Options{Delivery: contract.DeliveryReference, SecretName: "one-proxy-files"})
	spec, _ := specOfJSON(t, handWritten)
	if edits := patch.Adopt(spec, wanted, func(index int) bool { return index == 3 }); len(edits) != 1 ||
		edits[0].Index != 3 {
		t.Errorf("got %+v, want entry 3 only", edits)
	}
	// Of two files that conflict with one managed file the second stays, and stays a conflict.
	twice, _ := specOfJSON(t,
		strings.Replace(handWritten, "/etc/hosts.allow", "/run/systemd/system/kubelet.service.d/http-proxy.conf", 1))
	edits := patch.Adopt(twice, wanted, func(int) bool { return true })
	if _, err := patch.Ensure(patch.Apply(twice, edits), wanted); err == nil {
		t.Error("two files were taken over for one")
	}
	// What is managed already is not adopted again.
	done := patch.Apply(spec, patch.Adopt(spec, wanted, func(int) bool { return true }))
	if edits := patch.Adopt(done, wanted, func(int) bool { return true }); len(edits) > 0 {
		t.Errorf("got %+v for a spec without a conflict", edits)
	}
}

func TestParseOriginals(t *testing.T) {
	t.Parallel()
	if originals, err := patch.ParseOriginals(nil); err != nil || len(originals) != 0 {
		t.Errorf("got %v, %v for nothing", originals, err)
	}
	for _, text := range []string{
		"[]", "{", `{"a": 1}`, "null null", `{"a": {"b": 1}}`, `{"a": {"b": {"content": "x"}}}`,
		`{"a": {"b": null}}`,
	} {
		if _, err := patch.ParseOriginals([]byte(text)); err == nil {
			t.Errorf("no error for %s", text)
		}
	}
}
