package patch_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/cloudinit"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/ignition"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// userData is the content of a node's user data, and its files by their paths. It passes through Cluster API's own
// renderers and has to come out as the same bytes.
func userData(t *testing.T) (base cloudinit.BaseUserData, want map[string]string) {
	t.Helper()
	vars := []systemd.Var{
		{Name: "HTTPS_PROXY", Value: `http://us$er:p%40"\` + "`" + `'@[fd00::1]:3128`},
		{Name: "NO_PROXY", Value: strings.Repeat("n.example.com,10.0.0.0/8,", 2000) + "прокси.рф, # : - | > & * !"},
	}
	env := mustBytes(t)(systemd.EnvironmentFile(vars))
	want = map[string]string{
		contract.PathSetup:                  patch.Setup(),
		contract.PathTrustedCA:              "# none\n",
		"/etc/capi-proxy-patcher/proxy.env": env,
		systemd.DropInPath("containerd"):    mustBytes(t)(systemd.EnvironmentFileDropIn("/etc/capi-proxy-patcher/proxy.env")),
		systemd.DropInPath("kubelet"):       mustBytes(t)(systemd.EnvironmentDropIn(vars)),
	}
	for path, content := range want {
		base.AdditionalFiles = append(base.AdditionalFiles, bootstrapv1.File{
			Path: path, Content: content, Owner: "root:root",
			Permissions: "0644",
		})
	}
	base.PreKubeadmCommands = []string{
		`eval "false; $(sh ` + contract.PathSetup + ` export)" || exit 1`, "sh " + contract.PathSetup + " install-ca || exit 1",
	}
	return base, want
}

func TestBootstrapData_CarriesTheBytesAsCloudInit(t *testing.T) {
	t.Parallel()
	base, want := userData(t)
	input := &cloudinit.NodeInput{BaseUserData: base, JoinConfiguration: "kind: JoinConfiguration"}
	data, err := cloudinit.NewNode(input)
	if err != nil {
		t.Fatal(err)
	}
	for _, template := range []string{"{{", "{%", "{#"} {
		if strings.Contains(string(data), template) {
			t.Errorf("user-data contains %s", template)
		}
	}
	var parsed struct {
		WriteFiles []struct{ Path, Content string } `json:"write_files"`
		RunCmd     []string                         `json:"runcmd"`
	}
	if err := yaml.Unmarshal(data, &parsed); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, file := range parsed.WriteFiles {
		if _, ours := want[file.Path]; ours {
			got[file.Path] = file.Content
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(base.PreKubeadmCommands, parsed.RunCmd[:len(base.PreKubeadmCommands)]); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}

func TestBootstrapData_CarriesTheBytesAsIgnition(t *testing.T) {
	t.Parallel()
	base, want := userData(t)
	input := &ignition.NodeInput{NodeInput: &cloudinit.NodeInput{
		BaseUserData:      base,
		JoinConfiguration: "kind: JoinConfiguration",
	}}
	data, warnings, err := ignition.NewNode(input)
	if err != nil || warnings != "" {
		t.Fatal(err, warnings)
	}
	var parsed struct {
		Storage struct {
			Files []struct {
				Path     string
				Contents struct{ Source string }
			}
		}
	}
	if err := json.Unmarshal(data, &parsed); err != nil {
		t.Fatal(err)
	}
	got, script := map[string]string{}, ""
	for _, file := range parsed.Storage.Files {
		content, err := url.PathUnescape(strings.TrimPrefix(file.Contents.Source, "data:,"))
		if err != nil {
			t.Fatal(err)
		}
		switch _, ours := want[file.Path]; {
		case ours:
			got[file.Path] = content
		case file.Path == "/etc/kubeadm.sh":
			script = content
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if commands := strings.Join(base.PreKubeadmCommands, "\n"); !strings.Contains(script, commands+"\n") {
		t.Errorf("kubeadm.sh lacks %q:\n%s", commands, script)
	}
}

func mustBytes(t *testing.T) func([]byte, error) string {
	t.Helper()
	return func(content []byte, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
}
