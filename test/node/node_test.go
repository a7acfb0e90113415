//go:build node

// Package node_test boots real nodes from bootstrap data that the product has patched: Debian with systemd, cloud-init
// and containerd, in namespaces of its own, and the same with Ignition. Cluster API's own packages render the bootstrap
// data.
//
// Only kubeadm and kubelet are stand-ins: the first records what it is given and starts the second, a systemd unit that
// does nothing.
package node_test

import (
	_ "embed"
	"io/fs"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/machine"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/rootfs"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

var (
	//go:embed testdata/kubeadm
	kubeadmProgram []byte
	//go:embed testdata/kubelet.service
	kubeletUnit []byte
	//go:embed testdata/10-kubeadm.conf
	kubeletDropIn []byte
)

// ownAddress is an address of every node. A node here has no network and no right to make one, so its program ip shows
// the address beside what there is; nodes of test/node/kubernetes have a real one.
const (
	ownAddress = "10.77.0.10"
	ipProgram  = "#!/bin/sh\n/bin/ip \"$@\" || exit\n" +
		"[ \"$*\" != '-o addr show scope global' ] || echo '2: eth0    inet " + ownAddress + "/24 brd 10.77.0.255 scope global eth0'\n"
)

// bootLimit is how long a node may take to boot and to bootstrap.
const bootLimit = 5 * time.Minute

func TestNode(t *testing.T) {
	results := report.New(t, "all together",
		"Not proven here: what of Flatcar is not Ignition, such as its trust store and its read-only /usr.")
	host := hostState(t)

	programs := t.TempDir()
	var root, program, probe string
	if !t.Run("what nodes are made of", func(t *testing.T) {
		results.Step(t, "root file system, ignition, probe")
		machine.Require(t)
		root, program, probe = rootfs.Dir(t), rootfs.Ignition(t), rootfs.Build(t, "probe", programs)
	}) || root == "" || program == "" {
		return
	}
	authorities := newCertificates(t)
	t.Run("a machine that is cut off in the middle of its boot leaves nothing on the host", func(t *testing.T) {
		results.Step(t, "a machine cut off in the middle of its boot")
		m := machine.New(t, machine.Config{Root: root})
		m.Start(t)
		if remains := remains(t); len(remains) == 0 {
			t.Error("Remains does not see a machine that runs")
		}
		m.Kill(t)
		if remains := remains(t); len(remains) > 0 {
			t.Errorf("left: %s", remains)
		}
	})
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			results.Step(t, s.name)
			run(t, s, environment{root: root, program: program, probe: probe, certificates: authorities, report: results})
		})
	}
	t.Run("nothing is left on the host", func(t *testing.T) {
		if remains := remains(t); len(remains) > 0 {
			t.Errorf("left: %s", remains)
		}
		if now := hostState(t); now != host {
			t.Errorf("before:\n%s\nafter:\n%s", host, now)
		}
	})
}

// environment is what all nodes are made of.
type environment struct {
	root, program, probe string
	certificates         certificates
	report               *report.Report
}

// node is a machine that bootstraps, and what is expected of it.
type node struct {
	*machine.Machine
	scenario
	values map[string]string // of all six variables
	report *report.Report
}

// saw notes in the report what a test has seen, unless it failed.
func (n *node) saw(t *testing.T, format string, args ...any) {
	t.Helper()
	if !t.Failed() {
		n.report.Saw(t, n.name, format, args...)
	}
}

// run boots one node and checks it.
func run(t *testing.T, s scenario, e environment) {
	t.Helper()
	n := &node{scenario: s, report: e.report}
	data := n.bootstrapData(t, e.certificates)
	config := machine.Config{Root: e.root, Remove: s.remove, Files: n.rootFiles(t, e)}
	if s.ignition {
		config.IgnitionProgram, config.IgnitionConfig = e.program, data
	} else {
		config.Files["/var/lib/cloud/seed/nocloud/user-data"] = machine.File{Mode: 0o600, Content: data}
	}
	n.Machine = machine.New(t, config)
	n.Start(t)
	n.waitForBootstrap(t)
	succeeded(t, n)
	said(t, n)
	common(t, n)
	for _, c := range s.checks {
		c(t, n)
	}
	n.Stop(t)
}

// bootstrapData returns what the bootstrap provider would hand to the machine, and sets the values that are expected
// there.
func (n *node) bootstrapData(t *testing.T, authorities certificates) []byte {
	t.Helper()
	secret := map[string][]byte{contract.KeyTrustedCA: authorities.authorities}
	for key, value := range n.secret {
		secret[key] = []byte(value)
	}
	proxy, err := settings.ParseSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	noProxy := composeNoProxy(t, proxy)
	n.values = vocabulary.Environment(n.httpProxy, n.httpProxy, noProxy)
	options := patch.Options{Targets: n.targets, SecretName: generatedSecret}
	if options.Targets == nil {
		options.Targets = contract.Targets()
	}
	recipe, err := patch.NewRecipe(options)
	if err != nil {
		t.Fatal(err)
	}
	generated, err := settings.Files(proxy, noProxy)
	if err != nil {
		t.Fatal(err)
	}
	return userData(t, patched(t, userSpec(n.commands), recipe, n.removed), generated, n.ignition)
}

// rootFiles are the files that a node image would have and those of the test.
func (n *node) rootFiles(t *testing.T, e environment) map[string]machine.File {
	t.Helper()
	probe, err := os.ReadFile(e.probe)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]machine.File{
		"/usr/bin/kubeadm":                                            {Mode: 0o755, Content: kubeadmProgram},
		"/usr/lib/systemd/system/kubelet.service":                     {Mode: 0o644, Content: kubeletUnit},
		"/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf":   {Mode: 0o644, Content: kubeletDropIn},
		"/etc/systemd/system/multi-user.target.wants/kubelet.service": {Link: "/lib/systemd/system/kubelet.service"},
		"/usr/local/bin/ip":                                           {Mode: 0o755, Content: []byte(ipProgram)},
		"/usr/local/bin/probe":                                        {Mode: 0o755, Content: probe},
		"/usr/share/node-test/server.pem":                             {Mode: 0o644, Content: e.certificates.server},
		"/usr/share/node-test/server.key":                             {Mode: 0o600, Content: e.certificates.key},
		"/var/lib/node-test":                                          {Mode: fs.ModeDir | 0o700},
		"/var/lib/cloud/seed/nocloud/meta-data":                       {Mode: 0o644, Content: []byte("instance-id: i-1\nlocal-hostname: node\n")},
	}
	if n.ignition {
		files["/etc/cloud/cloud-init.disabled"] = machine.File{Mode: 0o644}
		// Makes systemd enable units by preset, as at the first boot of a Flatcar image.
		files["/etc/machine-id"] = machine.File{Mode: 0o444, Content: []byte("uninitialized\n")}
		// So that the restart can be counted: containerd has been started by then. Templates for Flatcar have both lines.
		files["/etc/systemd/system/kubeadm.service.d/after.conf"] = machine.File{
			Mode:    0o644,
			Content: []byte("[Unit]\nRequires=containerd.service\nAfter=containerd.service\n"),
		}
	}
	maps.Copy(files, n.files)
	return files
}

// waitForBootstrap waits until the bootstrap has ended, well or not.
func (n *node) waitForBootstrap(t *testing.T) {
	t.Helper()
	if n.ignition {
		n.WaitFor(t, bootLimit, "sh", "-c", `[ "$(systemctl show -p ExecMainExitTimestampMonotonic --value kubeadm)" -gt 0 ]`)
		return
	}
	n.WaitFor(t, bootLimit, "test", "-e", "/run/cloud-init/result.json")
}

func remains(t *testing.T) []string {
	t.Helper()
	found, err := machine.Remains()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// hostState is what a system manager that got out of its machine would change: the cgroups of the first process and of
// this one.
func hostState(t *testing.T) string {
	t.Helper()
	var state strings.Builder
	for _, path := range []string{"/proc/1/cgroup", "/proc/self/cgroup"} {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		state.Write(content)
	}
	return state.String()
}
