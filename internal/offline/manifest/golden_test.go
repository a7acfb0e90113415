package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
)

// TestGolden patches every bootstrap spec in testdata/<case>/in.yaml; want.yaml is the whole outcome. The same must
// come out with Windows line breaks.
func TestGolden(t *testing.T) {
	t.Parallel()
	ins, err := filepath.Glob("testdata/*/in.yaml")
	if err != nil || len(ins) < 8 {
		t.Fatalf("%d cases, %v", len(ins), err)
	}
	for _, in := range ins {
		t.Run(filepath.Base(filepath.Dir(in)), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(in)
			if err != nil {
				t.Fatal(err)
			}
			got := patch(t, string(data))
			golden.Equal(t, filepath.Join(filepath.Dir(in), "want.yaml"), got)
			crlf := func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
			if d := cmp.Diff(crlf(got), patch(t, crlf(string(data)))); d != "" {
				t.Errorf("with Windows line breaks: %s", d)
			}
		})
	}
}

// patch returns a stream with proxyEdits in all bootstrap specs, made at once. One edit after the other must have the
// same result.
func patch(t *testing.T, data string) string {
	t.Helper()
	s, err := Parse("in.yaml", []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	changes := patches(s)
	if err := s.Apply(changes); err != nil {
		t.Fatal(err)
	}
	single, err := Parse("in.yaml", []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range patches(single) {
		for _, e := range c.Edits {
			if err := c.Object.Apply([]Edit{e}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if d := cmp.Diff(string(single.Bytes()), string(s.Bytes())); d != "" {
		t.Errorf("edits at once differ from single ones: %s", d)
	}
	return string(s.Bytes())
}

// patches returns proxyEdits of all bootstrap specs.
func patches(s *Stream) []Change {
	var changes []Change
	for _, o := range s.Objects() {
		if specPath(o) != nil {
			changes = append(changes, Change{o, proxyEdits(o)})
		}
	}
	return changes
}

// TestApply_InsertAndRemoveIsIdentity takes the edits of TestGolden back. The other cases write lists as {} or null.
func TestApply_InsertAndRemoveIsIdentity(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"compact", "windows", "addons", "variables", "exotic"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(filepath.Join("testdata", name, "in.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			roundTrip(t, name, data)
			roundTrip(t, name+" with Windows line breaks", []byte(strings.ReplaceAll(string(data), "\n", "\r\n")))
			roundTrip(t, name+" with a byte order mark", append([]byte("\uFEFF"), data...))
			if name == "addons" {
				return // Its last scalar is a block scalar, which a line after it would change.
			}
			roundTrip(t, name+" without the last line break", []byte(strings.TrimRight(string(data), "\n")))
		})
	}
}

// TestApply_LeavesLargeScalarsAlone edits an object beside a ConfigMap of a ClusterResourceSet.
func TestApply_LeavesLargeScalarsAlone(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cni\ndata:\n  cni.yaml: |\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "    ---\n    kind: KubeadmConfig # %d\n    spec: {{ .Values }}\n\n    spec:\n      files: []\n", i)
	}
	b.WriteString(
		"---\napiVersion: bootstrap.cluster.x-k8s.io/v1beta2\nkind: KubeadmConfig\nmetadata:\n  name: a\nspec:\n")
	patched := roundTrip(t, "cni.yaml", []byte(b.String()+"  format: cloud-config\n"))
	if !strings.HasPrefix(string(patched), strings.TrimSuffix(b.String(), "spec:\n")) {
		t.Error("the ConfigMap changes")
	}
}

// TestApply_TakesFourThousandItems edits both ends and the middle of a long list.
func TestApply_TakesFourThousandItems(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("kind: KubeadmConfig\nmetadata:\n  name: a\nspec:\n  preKubeadmCommands:\n")
	for i := range 4000 {
		fmt.Fprintf(&b, "  # %d\n  - echo %d\n\n", i, i)
	}
	roundTrip(t, "long.yaml", []byte(b.String()))
}
