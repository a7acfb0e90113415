package main

import (
	"encoding/base64"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
)

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// TestNodesPage_ShowsWhatRenderMakes compares every file and command of docs/nodes.md with what render makes of the
// objects on that page, and their order.
func TestNodesPage_ShowsWhatRenderMakes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/nodes.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := fence.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 2 || blocks[0][1] != "yaml" {
		t.Fatalf("the page has %d blocks", len(blocks))
	}
	spec, data := renderedSpec(t, blocks[0][2])
	want := []string{blocks[0][2]}
	rest := string(text)
	for _, f := range spec.Files {
		content := f.Content
		if key := f.ContentFrom.Secret.Key; key != "" {
			decoded, err := base64.StdEncoding.DecodeString(data[key])
			if err != nil {
				t.Fatal(err)
			}
			content = string(decoded)
		}
		section, after, found := strings.Cut(rest, "### `"+f.Path+"`\n\nMode "+f.Permissions)
		if !found {
			t.Errorf("file %s of mode %s has no section, or not in this order, after %d bytes", f.Path, f.Permissions,
				len(section))
			continue
		}
		if rest = after; !strings.HasSuffix(f.Path, ".sh") {
			want = append(want, content)
		}
	}
	want = append(want, strings.Join(spec.PreKubeadmCommands, "\n")+"\n", strings.Join(spec.PostKubeadmCommands, "\n")+"\n")
	var shown []string
	for _, block := range blocks {
		shown = append(shown, block[2])
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("blocks of the page (-render +page):\n%s", diff)
	}
}

type bootstrapSpec struct {
	Files []struct {
		Path, Permissions, Content string
		ContentFrom                struct{ Secret struct{ Key string } } `yaml:"contentFrom"`
	}
	PreKubeadmCommands  []string `yaml:"preKubeadmCommands"`
	PostKubeadmCommands []string `yaml:"postKubeadmCommands"`
}

// renderedSpec returns the bootstrap spec of the control plane and the data of the generated Secret.
func renderedSpec(t *testing.T, manifests string) (spec bootstrapSpec, data map[string]string) {
	t.Helper()
	status, out, problems := run(t, manifests, "render", "-f", "-", "--include-secrets")
	if status != kit.ExitDone {
		t.Fatalf("exit status %d: %s", status, problems)
	}
	for decoder := yaml.NewDecoder(strings.NewReader(out)); ; {
		var object struct {
			Kind     string
			Metadata struct{ Name string }
			Data     map[string]string
			Spec     struct {
				KubeadmConfigSpec bootstrapSpec `yaml:"kubeadmConfigSpec"`
			}
		}
		switch err := decoder.Decode(&object); {
		case errors.Is(err, io.EOF):
			return spec, data
		case err != nil:
			t.Fatal(err)
		case object.Kind == "KubeadmControlPlane":
			spec = object.Spec.KubeadmConfigSpec
		case object.Metadata.Name == "prod-proxy-files":
			data = object.Data
		}
	}
}
