package patch_test

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/cloudinit"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/ignition"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
)

// bootstrapCase is what comes to a node, and the name of the golden file of its bootstrap data, or "".
type bootstrapCase struct {
	settings        settings.Proxy
	noProxy, golden string
}

// input is what the kubeadm bootstrap provider hands to its renderers for a worker with a patched spec, with
// the content of files that come from the generated Secret filled in.
func (b bootstrapCase) input(t *testing.T) *cloudinit.NodeInput {
	t.Helper()
	spec := typed(t, ensure(t, parse(t, ownUser), recipe(t, patch.Options{})))
	data, err := settings.Files(b.settings, b.noProxy)
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

func TestBootstrapData_CarriesTheBytes(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]bootstrapCase{
		"that are golden": {settingsOf(t, map[string]string{
			"httpProxy": "http://proxy.example.com:3128", "username": `DOM\user`, "password": "p%4@:/\"'$`\\ {{x}}{%#", "trustedCA": testCA,
		}), noProxy, "testdata/bootstrap-reference"},
		"of a very long list": {
			settingsOf(t, map[string]string{"httpsProxy": "http://[fd00::1]:3128", "username": "us$er", "password": "p@\"\\`'"}),
			strings.Repeat("n.example.com,10.0.0.0/8,", 2000) + "прокси.рф, # : - | > & * !", "",
		},
	} {
		t.Run(name+", as cloud-config", func(t *testing.T) {
			t.Parallel()
			checkCloudConfig(t, b)
		})
		t.Run(name+", as Ignition", func(t *testing.T) {
			t.Parallel()
			checkIgnition(t, b)
		})
	}
}

func checkCloudConfig(t *testing.T, b bootstrapCase) {
	t.Helper()
	input := b.input(t)
	text, err := cloudinit.NewNode(input)
	if err != nil {
		t.Fatal(err)
	}
	if b.golden != "" {
		golden.Equal(t, b.golden+".cloud-config", text)
	}
	var config struct {
		Files []struct {
			Path, Content, Permissions, Owner string
		} `json:"write_files"`
		Commands []string `json:"runcmd"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatalf("cloud-init could not read it: %v", err)
	}
	files := map[string]string{}
	for _, f := range config.Files {
		files[f.Path] = f.Content
	}
	checkFiles(t, files, b)
	if diff := cmp.Diff(input.PreKubeadmCommands, config.Commands[:len(input.PreKubeadmCommands)]); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
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

func checkIgnition(t *testing.T, b bootstrapCase) {
	t.Helper()
	input := b.input(t)
	text, warnings, err := ignition.NewNode(&ignition.NodeInput{NodeInput: input})
	if err != nil || warnings != "" {
		t.Fatalf("error %v, warnings %q", err, warnings)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, text, "", "  "); err != nil {
		t.Fatal(err)
	}
	if b.golden != "" {
		golden.Equal(t, b.golden+".ign", append(pretty.Bytes(), '\n'))
	}
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
	checkFiles(t, files, b)
	commands, script := strings.Join(input.PreKubeadmCommands, "\n"), files["/etc/kubeadm.sh"]
	if !strings.Contains(script, commands+"\n") {
		t.Errorf("kubeadm.sh lacks %q:\n%s", commands, script)
	}
}

// checkFiles compares what a renderer made of the managed files with what was meant.
func checkFiles(t *testing.T, files map[string]string, b bootstrapCase) {
	t.Helper()
	data, err := settings.Files(b.settings, b.noProxy)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range recipe(t, patch.Options{}).Files {
		want := f.Content
		if want == "" {
			want = string(data[f.ContentFrom.Key])
		}
		if files[f.Path] != want {
			t.Errorf("%s is\n%q\nwant\n%q", f.Path, files[f.Path], want)
		}
	}
}
