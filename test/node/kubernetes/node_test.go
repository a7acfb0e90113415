//go:build node

package kubernetes_test

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/lab"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/machine"
)

var (
	//go:embed testdata/node
	nodeFiles embed.FS
	//go:embed testdata/kubeadm-pull
	kubeadmPull []byte
)

const (
	version     = "v1.36.3"
	etcdVersion = "v3.6.14"
	// bootstrapLimit is how long a node may take to boot and to run kubeadm.
	bootstrapLimit = 10 * time.Minute
	registryHost   = "registry.k8s.io"
	pauseImage     = "registry.k8s.io/pause:3.10.2"
	probeImage     = "registry.k8s.io/probe:v1"
)

// image is what nodes and the lab are made of.
type image struct {
	root, programs, squid, registry, probe, capi, product string
}

// node is a machine of the Cluster.
type node struct {
	*machine.Machine
	// name identifies a node of a test; host is the name of the Machine and of the Node.
	name, host, address string
}

// nodeOptions say which node to boot.
type nodeOptions struct {
	name    string
	address string
	pods    string // the network of its Pods
	boot    booted
	// pulls replaces kubeadm by something that pulls one image.
	pulls bool
	// files are added to those of the image.
	files map[string]machine.File
}

// node prepares a node, which lives as long as the test, and does not start it.
func (s *suite) node(t *testing.T, o nodeOptions) node {
	t.Helper()
	files := map[string]machine.File{
		"/etc/systemd/system/multi-user.target.wants/kubelet.service":      {Link: "/lib/systemd/system/kubelet.service"},
		"/usr/lib/systemd/system/sysinit.target.wants/node-kernel.service": {Link: "/lib/systemd/system/node-kernel.service"},
		"/etc/cni/net.d/10-bridge.conflist":                                {Mode: 0o644, Content: []byte(bridgeConfig(o.pods))},
		"/var/lib/node-test":                                               {Mode: fs.ModeDir | 0o700},
		"/var/lib/cloud/seed/nocloud/meta-data":                            {Mode: 0o644, Content: fmt.Appendf(nil, "instance-id: %s\nlocal-hostname: %s\n", o.boot.instanceID, o.boot.machine)},
		"/var/lib/cloud/seed/nocloud/user-data":                            {Mode: 0o600, Content: o.boot.data},
	}
	err := fs.WalkDir(nodeFiles, "testdata/node", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := nodeFiles.ReadFile(path)
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(string(content), "#!") {
			mode = 0o755
		}
		files[strings.TrimPrefix(path, "testdata/node")] = machine.File{Mode: mode, Content: content}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if o.pulls {
		files["/usr/local/bin/kubeadm"] = machine.File{Mode: 0o755, Content: kubeadmPull}
	}
	maps.Copy(files, o.files)
	binds := map[string]string{"/usr/local/bin/probe": s.probe, "/usr/local/bin/capi-proxy-patcher": s.product}
	for _, program := range []string{"kubeadm", "kubelet", "kubectl"} {
		binds["/usr/bin/"+program] = filepath.Join(s.programs, program)
	}
	binds["/usr/local/bin/cripull"] = filepath.Join(s.programs, "cripull")
	return node{name: o.name, host: o.boot.machine, address: o.address, Machine: machine.New(t, machine.Config{
		Root: s.root, Files: files, Binds: binds, Network: s.lab.Network(o.address), Containers: true,
	})}
}

// bridgeConfig is the simplest network of Pods that there is: one bridge on each node.
func bridgeConfig(pods string) string {
	return `{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "ipam": {
    "type": "host-local", "ranges": [[{"subnet": "` + pods + `"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
`
}

// waitForBootstrap waits until the bootstrap has ended, well or not, and returns the errors that cloud-init reports.
func (n node) waitForBootstrap(t *testing.T) []string {
	t.Helper()
	n.WaitFor(t, bootstrapLimit, "test", "-e", "/run/cloud-init/result.json")
	var result struct{ V1 struct{ Errors []string } }
	if err := json.Unmarshal([]byte(n.ReadFile(t, "/run/cloud-init/result.json")), &result); err != nil {
		t.Fatal(err)
	}
	return result.V1.Errors
}

// mustBootstrap is waitForBootstrap for a bootstrap that has to succeed.
func (n node) mustBootstrap(t *testing.T) {
	t.Helper()
	if errs := n.waitForBootstrap(t); len(errs) > 0 {
		t.Fatalf("cloud-init: %q\n%s\n%s", errs, n.ReadFile(t, "/var/log/cloud-init-output.log"),
			n.MustRun(t, "journalctl", "--no-pager", "--lines=30", "--unit=kubelet", "--unit=containerd"))
	}
}

// kubectl runs a command of kubectl's on a control-plane node, as its administrator.
func (n node) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return n.MustRun(t, append([]string{"kubectl", "--kubeconfig=/etc/kubernetes/admin.conf"}, args...)...)
}

// apply applies a manifest as kubectl does.
func (n node) apply(t *testing.T, manifest string) {
	t.Helper()
	argv := []string{"kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "apply", "-f", "-"}
	if _, err := n.Do(machine.Command{Argv: argv, Input: manifest}); err != nil {
		t.Fatal(err)
	}
}

// images are what the registry has: all that kubeadm asks for, and probe, from scratch.
func images(t *testing.T, i image) []lab.Image {
	t.Helper()
	at := func(name string) string { return filepath.Join(i.programs, name) }
	list := []lab.Image{
		{Repository: "pause", Tag: "3.10.2", Files: map[string]string{"/pause": at("pause")}, Entrypoint: []string{"/pause"}},
		{Repository: "probe", Tag: "v1", Files: map[string]string{"/probe": i.probe}, Entrypoint: []string{"/probe"}},
		{Repository: "capi-proxy-patcher", Tag: "v1", Files: map[string]string{"/capi-proxy-patcher": i.product}, Entrypoint: []string{"/capi-proxy-patcher"}},
		{Repository: "etcd", Tag: etcdVersion, Files: map[string]string{"/usr/local/bin/etcd": at("etcd")}},
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		files := map[string]string{"/usr/local/bin/" + name: at(name)}
		if name == "kube-proxy" {
			maps.Copy(files, withLibraries(t, i.root, "/usr/sbin/nft"))
		}
		list = append(list, lab.Image{Repository: name, Tag: version, Files: files})
	}
	return list
}

// withLibraries are a program of a root file system and what it is linked with.
func withLibraries(t *testing.T, root, program string) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "chroot", root, "ldd", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{program: filepath.Join(root, program)}
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "/") {
			files[word] = filepath.Join(root, word)
		}
	}
	return files
}
