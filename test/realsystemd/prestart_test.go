package realsystemd_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/realsystemd"
)

const (
	folder = "/etc/systemd/system/kubelet.service.d/"
	// kubeadm is its own drop-in, with another program than kubelet.
	kubeadm = "[Service]\nEnvironment=\"KUBELET_KUBECONFIG_ARGS=--kubeconfig=x\"\n" +
		"EnvironmentFile=-/etc/kubeadm-flags.env\nEnvironmentFile=-/etc/default/kubelet\n" +
		"ExecStart=\nExecStart=/bin/cat /proc/self/environ\n"
)

// preStart is what is on a node beside the product's files, and what becomes of kubelet.
type preStart struct {
	files   map[string]string
	refused bool
	// hasOwn says that NO_PROXY has the node's own host name, noProxy what it is if not.
	hasOwn  bool
	noProxy string
	more    map[string]string
}

// Whatever becomes of the script before it, kubelet starts, and with what the script has written. Only a script that
// hangs stops it: systemd's limit of time counts whatever a minus says.
func TestStart_OfKubeletAfterTheScript(t *testing.T) {
	t.Parallel()
	recipe, err := patch.NewRecipe(patch.Options{Targets: contract.Targets()})
	if err != nil {
		t.Fatal(err)
	}
	dropIn := recipe.Files[slices.IndexFunc(recipe.Files, func(f patch.File) bool { return f.Path == systemd.DropInPath("kubelet") })]
	for name, test := range map[string]preStart{
		"an old node.env is replaced before it is read": {
			files: map[string]string{contract.PathNodeEnv: "NO_PROXY=\"old\"\nno_proxy=\"old\"\n"}, hasOwn: true,
		},
		"the script is missing": {files: map[string]string{contract.PathSetup: ""}, noProxy: "boot"},
		"the script fails":      {files: map[string]string{contract.PathSetup: "exit 1\n"}, noProxy: "boot"},
		"the script is none":    {files: map[string]string{contract.PathSetup: "if (\n"}, noProxy: "boot"},
		"the script is killed":  {files: map[string]string{contract.PathSetup: "kill -9 $$\n"}, noProxy: "boot"},
		"the script hangs": {
			files:   map[string]string{contract.PathSetup: "exec sleep 60\n", folder + "z.conf": "[Service]\nTimeoutStartSec=1\n"},
			refused: true,
		},
		"kubeadm's drop-in, and variables of its files": {
			files: map[string]string{
				"/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": kubeadm,
				"/etc/kubeadm-flags.env":                                    "KUBELET_KUBEADM_ARGS=a\n",
				"/etc/default/kubelet":                                      "KUBELET_EXTRA_ARGS=b\nNO_PROXY=theirs\nHTTP_PROXY=theirs\n",
			}, hasOwn: true,
			more: map[string]string{"KUBELET_KUBEADM_ARGS": "a", "KUBELET_EXTRA_ARGS": "b", "KUBELET_KUBECONFIG_ARGS": "--kubeconfig=x"},
		},
		"a later drop-in takes the script away": {files: map[string]string{folder + "z.conf": "[Service]\nExecStartPre=\n"}, noProxy: "boot"},
		"no files of variables, no script": {
			files: map[string]string{contract.PathSetup: "", contract.PathProxyEnv: "", contract.PathNodeEnv: ""},
			more:  map[string]string{"HTTP_PROXY": ""},
		},
		"another command before it fails": {
			files: map[string]string{folder + "a.conf": "[Service]\nExecStartPre=/bin/false\n"}, refused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string][]byte{
				dropIn.Path: []byte(dropIn.Content), contract.PathSetup: []byte(patch.Setup()),
				contract.PathProxyEnv: []byte("# Managed by capi-proxy-patcher\nHTTP_PROXY=\"http://u:s3cr%25t@p:3128\"\n" +
					"NO_PROXY=\"localhost\"\nno_proxy=\"localhost\"\n"),
				contract.PathNodeEnv: []byte("NO_PROXY=\"boot\"\nno_proxy=\"boot\"\n"),
			}
			for path, content := range test.files {
				if files[path] = []byte(content); content == "" {
					delete(files, path)
				}
			}
			checkPreStart(t, test, realsystemd.Start(t, "kubelet", files))
		})
	}
}

func checkPreStart(t *testing.T, test preStart, got realsystemd.Result) {
	t.Helper()
	if got.Started == test.refused {
		t.Errorf("started %t\n%s", got.Started, got.Log)
	}
	if test.refused {
		return
	}
	want := map[string]string{"HTTP_PROXY": "http://u:s3cr%25t@p:3128", "NO_PROXY": test.noProxy, "no_proxy": test.noProxy}
	if test.hasOwn {
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"NO_PROXY", "no_proxy"} {
			if want[name] = got.Environ[name]; !strings.Contains(want[name], strings.ToLower(host)+",") || !strings.HasSuffix(want[name], ",localhost") {
				t.Errorf("%s is %q", name, want[name])
			}
		}
	}
	maps.Copy(want, test.more)
	for name, value := range want {
		if got.Environ[name] != value {
			t.Errorf("%s is %q, want %q\n%s", name, got.Environ[name], value, got.Log)
		}
	}
}
