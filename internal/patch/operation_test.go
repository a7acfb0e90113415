package patch_test

import (
	"encoding/json"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

// operationsTest is about the operations of edits on an object with a spec.
type operationsTest struct {
	object, spec string
	at           patch.Location
	edits        []patch.Edit
	// want is the object after the patch, and operations how many operations it takes.
	want       string
	operations int
}

// addOurs adds an entry of ours to the front of a list.
func addOurs(list patch.List) patch.Edit {
	if list == patch.ListFiles {
		return patch.Edit{List: list, Op: patch.OpAdd, File: patch.File{Path: "/ours"}}
	}
	return patch.Edit{List: list, Op: patch.OpAdd, Command: "ours"}
}

func remove(list patch.List, index int) patch.Edit {
	return patch.Edit{List: list, Op: patch.OpRemove, Index: index}
}

func TestOperations(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]operationsTest{
		"a list that is created is written at once": {
			`{"spec":{"x":1}}`, `{}`,
			patch.Location{},
			[]patch.Edit{addOurs(patch.ListPre), addOurs(patch.ListPre), addOurs(patch.ListFiles)},
			`{"spec":{"x":1,"files":[{"path":"/ours"}],"preKubeadmCommands":["ours","ours"]}}`, 2,
		},
		"a list that is created and emptied again leaves nothing": {
			`{"spec":{"x":1}}`, `{}`, patch.Location{}, []patch.Edit{addOurs(patch.ListPost), remove(patch.ListPost, 0)}, `{"spec":{"x":1}}`, 0,
		},
		"a list that is emptied and filled again stays": {
			`{"spec":{"preKubeadmCommands":["a"]}}`, `{"preKubeadmCommands":["a"]}`,
			patch.Location{Alone: 1},
			[]patch.Edit{remove(patch.ListPre, 0), addOurs(patch.ListPre)},
			`{"spec":{"preKubeadmCommands":["ours"]}}`, 2,
		},
		"a list that is emptied is removed": {
			`{"spec":{"x":1,"files":[{"path":"/a"},{"path":"/b"}]}}`, `{"files":[{"path":"/a"},{"path":"/b"}]}`,
			patch.Location{},
			[]patch.Edit{remove(patch.ListFiles, 1), remove(patch.ListFiles, 0)},
			`{"spec":{"x":1}}`, 1,
		},
		"an entry of the user's is never written": {
			`{"spec":{"files":[{"path":"/a","future":12345678901234567890}]}}`, `{"files":[{"path":"/a"}]}`,
			patch.Location{},
			[]patch.Edit{addOurs(patch.ListFiles)},
			`{"spec":{"files":[{"path":"/ours"},{"path":"/a","future":12345678901234567890}]}}`, 1,
		},
		"what is above an emptied spec and holds nothing else goes with it": {
			`{"kind":"x","spec":{"preKubeadmCommands":["a"]}}`, `{"preKubeadmCommands":["a"]}`,
			patch.Location{Alone: 1},
			[]patch.Edit{remove(patch.ListPre, 0)},
			`{"kind":"x"}`, 3,
		},
		"an emptied spec that may be empty stays": {
			`{"spec":{"preKubeadmCommands":["a"]}}`, `{"preKubeadmCommands":["a"]}`, patch.Location{}, []patch.Edit{remove(patch.ListPre, 0)}, `{"spec":{}}`, 1,
		},
		"a field that nobody knows is not removed with an emptied spec": {
			`{"spec":{"future":1,"preKubeadmCommands":["a"]}}`, `{"preKubeadmCommands":["a"]}`,
			patch.Location{Alone: 1},
			[]patch.Edit{remove(patch.ListPre, 0)},
			"", 3,
		},
		"parents that are missing are created": {
			`{}`, `{}`, patch.Location{Missing: 1}, []patch.Edit{addOurs(patch.ListPre)}, `{"spec":{"preKubeadmCommands":["ours"]}}`, 2,
		},
		"parents are not created for nothing": {
			`{}`, `{}`, patch.Location{Missing: 1}, []patch.Edit{addOurs(patch.ListPre), remove(patch.ListPre, 0)}, `{}`, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.at.Parents = []string{"/spec"}
			operations := patch.Operations(test.at, api.Spec(parse(t, test.spec)), test.edits)
			text, err := json.Marshal(operations)
			if err != nil {
				t.Fatal(err)
			}
			if len(operations) != test.operations {
				t.Errorf("%d operations, want %d: %s", len(operations), test.operations, text)
			}
			decoded, err := jsonpatch.DecodePatch([]byte(strings.Replace(string(text), "null", "[]", 1)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := decoded.Apply([]byte(test.object))
			if err != nil && test.want != "" || err == nil && !jsonpatch.Equal([]byte(test.want), got) {
				t.Errorf("%s leaves %s (%v), want %s", text, got, err, test.want)
			}
		})
	}
}

func TestEncodePatch_WritesTheFormOfClusterAPI(t *testing.T) {
	t.Parallel()
	for want, operations := range map[string][]patch.Operation{
		`[]`: nil,
		`[{"op":"add","path":"/spec","value":{}},{"op":"remove","path":"/spec/files"}]`: {
			{Op: "add", Path: "/spec", Value: struct{}{}}, {Op: "remove", Path: "/spec/files"},
		},
		`[{"op":"add","path":"/f","value":[{"path":"/y","owner":"o","permissions":"p","contentFrom":{"secret":{"name":"n","key":"k"}}}]}]`: {
			{Op: "add", Path: "/f", Value: []patch.File{{Path: "/y", Owner: "o", Permissions: "p", ContentFrom: patch.SecretKey{Name: "n", Key: "k"}}}},
		},
		`[{"op":"add","path":"/f","value":{"path":"/\u003cx\u003e","owner":"o","permissions":"p","content":"a\"b\n\u2028é\\$` + "`" + `'%"}}]`: {
			{Op: "add", Path: "/f", Value: &patch.File{Path: "/<x>", Owner: "o", Permissions: "p", Content: "a\"b\n\u2028é\\$`'%"}},
		},
	} {
		if got, err := patch.EncodePatch(operations); err != nil || string(got) != want {
			t.Errorf("got %s (%v), want %s", got, err, want)
		}
	}
}
