package systemd_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
)

func TestDropInOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, path, unit string
		want             bool
	}{
		{"where kubeadm packages put drop-ins", "/usr/lib/systemd/system/kubelet.service.d/http-proxy.conf", "kubelet", true},
		{"the old name of that folder", "/lib/systemd/system/kubelet.service.d/http-proxy.conf", "kubelet", true},
		{"what an administrator installed", "/usr/local/lib/systemd/system/kubelet.service.d/http-proxy.conf", "kubelet", true},
		{"until the next boot", "/run/systemd/system/containerd.service.d/http-proxy.conf", "containerd", true},
		{"written by systemctl set-property", "/etc/systemd/system.control/containerd.service.d/http-proxy.conf", "containerd", true},
		{"of a portable service", "/etc/systemd/system.attached/containerd.service.d/http-proxy.conf", "containerd", true},
		{"for all services", "/etc/systemd/system/service.d/http-proxy.conf", "containerd", true},
		{"for all services with a prefix", "/etc/systemd/system/a-b-.service.d/http-proxy.conf", "a-b-c", true},
		{"for all services with a shorter prefix", "/etc/systemd/system/a-.service.d/http-proxy.conf", "a-b-c", true},
		{"a path that is not clean", "//etc/systemd/./system/x/../kubelet.service.d//http-proxy.conf", "kubelet", true},
		{"a prefix without its dash", "/etc/systemd/system/a.service.d/http-proxy.conf", "a-b-c", false},
		{"a prefix of another service", "/etc/systemd/system/kube-.service.d/http-proxy.conf", "kubelet", false},
		{"another service", "/etc/systemd/system/kubelet.service.d/http-proxy.conf", "containerd", false},
		{"another file name", "/etc/systemd/system/kubelet.service.d/10-proxy.conf", "kubelet", false},
		{"a longer file name", "/etc/systemd/system/kubelet.service.d/20-http-proxy.conf", "kubelet", false},
		{"not in a drop-in folder", "/etc/systemd/system/http-proxy.conf", "kubelet", false},
		{"one folder too deep", "/etc/systemd/system/kubelet.service.d/x/http-proxy.conf", "kubelet", false},
		{"the unit itself", "/etc/systemd/system/kubelet.service", "kubelet", false},
		{"another type of unit", "/etc/systemd/system/kubelet.socket.d/http-proxy.conf", "kubelet", false},
		{"units of users", "/etc/systemd/user/kubelet.service.d/http-proxy.conf", "kubelet", false},
		{"not below systemd", "/opt/etc/systemd/system/kubelet.service.d/http-proxy.conf", "kubelet", false},
		{"a relative path", "etc/systemd/system/kubelet.service.d/http-proxy.conf", "kubelet", false},
		{"nothing", "", "kubelet", false},
		{"the root", "/", "kubelet", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := systemd.DropInOf(test.path, test.unit) == systemd.DropInName; got != test.want {
				t.Errorf("DropInOf(%q, %q) = %t", test.path, test.unit, got)
			}
		})
	}
}

// The installed systemd knows best where it looks.
func TestDropInOf_KnowsEveryFolderOfSystemd(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "unit-paths", "--system").Output()
	if err != nil {
		t.Fatal(err)
	}
	folders := strings.Fields(string(out))
	if len(folders) < 8 {
		t.Fatalf("systemd-analyze unit-paths: %q", out)
	}
	for _, folder := range folders {
		if systemd.DropInOf(folder+"/kubelet.service.d/http-proxy.conf", "kubelet") != systemd.DropInName {
			t.Errorf("%s is not known", folder)
		}
	}
}

func TestEnvironmentDropIn_Golden(t *testing.T) {
	t.Parallel()
	got, err := systemd.EnvironmentDropIn([]systemd.Var{
		{Name: "HTTP_PROXY", Value: "http://asdf"},
		{Name: "https_proxy", Value: `http://us$er:p%40"\'@[fd00::1]:3128`},
		{Name: "NO_PROXY", Value: "localhost,127.0.0.1,.svc"},
	})
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "testdata/environment.conf", got)
}

func TestEnvironmentFileDropIn(t *testing.T) {
	t.Parallel()
	const files = "# Managed by capi-proxy-patcher\n[Service]\nEnvironmentFile=-/etc/a.env\nEnvironmentFile=-/etc/b.env\n"
	if got := systemd.EnvironmentFileDropIn("", "/etc/a.env", "/etc/b.env"); got != files {
		t.Errorf("got %q", got)
	}
	if got := systemd.EnvironmentFileDropIn("/bin/sh /a b", "/etc/a.env", "/etc/b.env"); got != files+"ExecStartPre=-/bin/sh /a b\n" {
		t.Errorf("with a command: %q", got)
	}
}

func FuzzEnvironmentDropIn(f *testing.F) {
	for _, v := range rudeVars() {
		if len(v.Value) < 1000 { // the fuzzer is slow on long ones
			f.Add("HTTP_PROXY", v.Value)
		}
	}
	f.Add("A\nExecStartPre", "x\ny")
	f.Add("A B", "{%")
	f.Fuzz(func(t *testing.T, name, value string) {
		content, err := systemd.EnvironmentDropIn([]systemd.Var{
			{Name: "FIRST"},
			{Name: name, Value: value},
			{Name: "LAST", Value: `\`},
		})
		if err != nil {
			printable := !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) && len(value) < 100_000
			if isEnvName(name) && name != "FIRST" && name != "LAST" && printable && !strings.Contains(value, "{") {
				t.Fatalf("EnvironmentDropIn(%q, %q): %v", name, value, err)
			}
			return
		}
		text := string(content)
		if strings.Count(text, "\n") != 5 || strings.Contains(text, "{{") || strings.Contains(text, "{%") ||
			strings.Contains(text, "{#") {
			t.Errorf("not five lines free of templates: %q", text)
		}
		got, err := readLikeSystemd(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if diff := cmp.Diff(map[string]string{"FIRST": "", name: value, "LAST": `\`}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
