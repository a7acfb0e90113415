package patch_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/cloudinit"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/ignition"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
)

// bootstrapInput is what the kubeadm bootstrap provider hands to its renderers for a worker with a patched spec, with
// the content of files that come from the generated Secret filled in.
func bootstrapInput(t *testing.T, s proxyconfig.Settings) *cloudinit.NodeInput {
	t.Helper()
	d := ensure(t, parse(t, ownUser), recipe(t, patch.Options{}))
	encoded, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var spec bootstrapv1.KubeadmConfigSpec
	if err := json.Unmarshal(encoded, &spec); err != nil {
		t.Fatal(err)
	}
	data, err := resolve.Files(s, noProxy)
	if err != nil {
		t.Fatal(err)
	}
	for i := range spec.Files {
		if spec.Files[i].ContentFrom.IsDefined() {
			spec.Files[i].Content = string(data[spec.Files[i].ContentFrom.Secret.Key])
			spec.Files[i].ContentFrom = bootstrapv1.FileSource{}
		}
	}
	return &cloudinit.NodeInput{
		BaseUserData: cloudinit.BaseUserData{
			AdditionalFiles: spec.Files, PreKubeadmCommands: spec.PreKubeadmCommands,
			PostKubeadmCommands: spec.PostKubeadmCommands,
		},
		JoinConfiguration: "kind: JoinConfiguration",
	}
}

func TestBootstrapData_IsGolden(t *testing.T) {
	t.Parallel()
	rude := settings(t, map[string]string{
		"httpProxy": "http://proxy.example.com:3128", "username": `DOM\user`, "password": "p%4@:/\"'$`\\ {{x}}{%#", "trustedCA": testCA,
	})
	t.Run("as cloud-config", func(t *testing.T) {
		t.Parallel()
		checkCloudConfig(t, rude)
	})
	t.Run("as Ignition", func(t *testing.T) {
		t.Parallel()
		checkIgnition(t, rude)
	})
}

func checkCloudConfig(t *testing.T, s proxyconfig.Settings) {
	t.Helper()
	text, err := cloudinit.NewNode(bootstrapInput(t, s))
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "testdata/bootstrap-reference.cloud-config", text)
	var config struct {
		Files []struct {
			Path, Content, Permissions, Owner string
		} `json:"write_files"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatalf("cloud-init could not read it: %v", err)
	}
	files := map[string]string{}
	for _, f := range config.Files {
		files[f.Path] = f.Content
	}
	checkFiles(t, files, s)
	// Only the user's own command may be a template: all of user-data goes through Jinja.
	for line := range strings.Lines(strings.TrimPrefix(string(text), "## template: jinja\n")) {
		if strings.Contains(line, "hostnamectl") {
			continue
		}
		for _, template := range []string{"{{", "{%", "{#"} {
			if strings.Contains(line, template) {
				t.Errorf("Jinja would take %q for a template", line)
			}
		}
	}
}

func checkIgnition(t *testing.T, s proxyconfig.Settings) {
	t.Helper()
	text, warnings, err := ignition.NewNode(&ignition.NodeInput{NodeInput: bootstrapInput(t, s)})
	if err != nil || warnings != "" {
		t.Fatalf("error %v, warnings %q", err, warnings)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, text, "", "  "); err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "testdata/bootstrap-reference.ign", append(pretty.Bytes(), '\n'))
	var config struct {
		Storage struct {
			Files []struct {
				Path     string
				Mode     *int
				Contents struct{ Source string }
			}
		}
	}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range config.Storage.Files {
		if f.Mode == nil {
			t.Errorf("%s has no mode", f.Path)
		}
		content, err := url.PathUnescape(strings.TrimPrefix(f.Contents.Source, "data:,"))
		if err != nil {
			t.Fatal(err)
		}
		files[f.Path] = content
	}
	checkFiles(t, files, s)
}

// checkFiles compares what a renderer made of the managed files with what was meant.
func checkFiles(t *testing.T, files map[string]string, s proxyconfig.Settings) {
	t.Helper()
	data, err := resolve.Files(s, noProxy)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range recipe(t, patch.Options{}).Files {
		want := f.Content
		if want == "" {
			want = string(data[f.ContentFrom.Key])
		}
		if files[f.Path] != want {
			t.Errorf("%s is\n%s\nwant\n%s", f.Path, fmt.Sprintf("%q", files[f.Path]), fmt.Sprintf("%q", want))
		}
	}
}
