//go:build node

package node_test

import (
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/machine"
)

const (
	generatedSecret = "test-proxy-files"
	// needle is in every user and password here, and nowhere else.
	needle = "Kx9Rude"
	// username and password hold every character that some reader on the way treats in its own way.
	username = "us%er" + needle
	password = " p%40@\"'$\\&#{{ x }}{% y %}{# z #}`$(id)%C3:/?;!~*[" + needle + "]é中\\n%% "
	// encodedUser and encodedPassword are the same, percent-encoded by hand.
	encodedUser     = "us%25er" + needle
	encodedPassword = "%20p%2540%40%22%27%24%5C%26%23%7B%7B%20x%20%7D%7D%7B%25%20y%20%25%7D%7B%23%20z%20%23%7D%60%24%28id%29%25C3" +
		"%3A%2F%3F%3B%21~%2A%5B" + needle + "%5D%C3%A9%E4%B8%AD%5Cn%25%25%20"
	// rawUserinfo is legal in a URL as it stands and rude to every shell.
	rawUserinfo = "us$HOME" + needle + ":a'b&c$(id)!;*,=%22%5C%60%24x"
)

// sight is which of the variables a process sees.
type sight int

const (
	nothing sight = iota
	everything
)

// scenario is one node.
type scenario struct {
	name string
	// secret is the proxy Secret, without the certificates, and httpProxy the URL that nodes get for it.
	secret    map[string]string
	httpProxy string
	targets   []contract.Target
	// removed removes the product from the spec again before the node boots.
	removed  bool
	ignition bool
	// files and remove change the root file system, commands are those of the user.
	files    map[string]machine.File
	remove   []string
	commands []string
	// services and users are what containerd and kubelet, and the user's commands see. kubeadm sees nothing.
	services, users sight
	// starts is how often containerd is started in the first boot; 2 if not set, by systemd and by the product.
	starts int
	// problem is what could not be done when the node was prepared; empty if all could. It stops nothing.
	problem string
	// managed are the files of the product on the node, with mode and owner.
	managed []string
	checks  []check
}

func rudeSecret() map[string]string {
	return map[string]string{
		contract.KeyHTTPProxy: "http://proxy.example.com:3128", contract.KeyUsername: username,
		contract.KeyPassword: password,
		contract.KeyNoProxy:  "registry.example.com, 192.0.2.0/24",
	}
}

func plainSecret() map[string]string {
	return map[string]string{contract.KeyHTTPProxy: "http://[2001:db8::1]:3128", contract.KeyNoProxy: "*.example.com"}
}

func rawSecret() map[string]string {
	return map[string]string{contract.KeyHTTPProxy: "http://" + rawUserinfo + "@proxy.example.com:3128"}
}

const (
	rudeURL  = "http://" + encodedUser + ":" + encodedPassword + "@proxy.example.com:3128"
	plainURL = "http://[2001:db8::1]:3128"
	rawURL   = "http://" + rawUserinfo + "@proxy.example.com:3128"
)

func allManaged() []string {
	return []string{
		"600 root:root /etc/capi-proxy-patcher/node.env",
		"600 root:root /etc/capi-proxy-patcher/proxy.env",
		"644 root:root /etc/capi-proxy-patcher/trusted-ca.pem",
		"644 root:root /etc/capi-proxy-patcher/trusts",
		"644 root:root /etc/systemd/system/containerd.service.d/http-proxy.conf",
		"644 root:root /etc/systemd/system/kubelet.service.d/http-proxy.conf",
		"755 root:root /etc/capi-proxy-patcher/setup.sh",
	}
}

// withProblem are the managed files of a node with a problem.
func withProblem(managed []string) []string {
	return slices.Insert(managed, 2, "644 root:root /etc/capi-proxy-patcher/problems")
}

func scenarios() []scenario { return slices.Concat(cloudInitScenarios(), ignitionScenarios()) }

func text(content string) machine.File { return machine.File{Mode: 0o644, Content: []byte(content)} }

func cloudInitScenarios() []scenario {
	return []scenario{
		{
			name:   "cloud-init: a password with every rude character reaches its readers and nobody else",
			secret: rudeSecret(), httpProxy: rudeURL,
			services: everything, users: everything, managed: allManaged(),
			checks: []check{credentialsInCloudInit, trustOrder, trustedServer, validUserData, secondBoot},
		},
		{
			name:   "cloud-init: a proxy without credentials",
			secret: plainSecret(), httpProxy: plainURL,
			services: everything, users: everything, managed: allManaged(),
		},
		{
			name:   "cloud-init: the user's own commands install containerd",
			secret: rawSecret(), httpProxy: rawURL,
			remove: []string{
				"/lib/systemd/system/containerd.service",
				"/etc/systemd/system/multi-user.target.wants/containerd.service",
			},
			files: map[string]machine.File{
				"/usr/share/node-test/containerd.service": text("[Service]\nType=notify\nExecStart=/usr/bin/containerd\nDelegate=yes\n[Install]\nWantedBy=multi-user.target\n"),
			},
			commands: []string{
				"cp /usr/share/node-test/containerd.service /lib/systemd/system/",
				"systemctl enable --now containerd",
			},
			services: everything, users: everything, managed: allManaged(), starts: 1,
		},
		{
			name:   "cloud-init: containerd that does not start again stops nothing",
			secret: rudeSecret(), httpProxy: rudeURL,
			files:    map[string]machine.File{"/etc/systemd/system/containerd.service.d/00-stub.conf": onceOnly},
			services: everything, users: everything, managed: withProblem(allManaged()),
			problem: "containerd did not restart: see journalctl -u containerd",
		},
		{
			name:   "cloud-init: a system without a command for its trust store stops nothing",
			secret: rudeSecret(), httpProxy: rudeURL,
			remove:   []string{"/usr/sbin/update-ca-certificates"},
			services: everything, users: everything, problem: noTrustStore,
			managed: withProblem(slices.DeleteFunc(allManaged(), func(f string) bool { return strings.HasSuffix(f, "/trusts") })),
			checks:  []check{untrustedServer},
		},
		{
			name:   "cloud-init: without the target commands no command sees a variable",
			secret: rawSecret(), httpProxy: rawURL,
			targets:  []contract.Target{contract.TargetContainerd, contract.TargetKubelet, contract.TargetTrust},
			services: everything, users: nothing, managed: allManaged(),
			checks: []check{trustedServer},
		},
		{
			name:   "cloud-init: a spec that the product was taken out of leaves nothing on the node",
			secret: rudeSecret(), httpProxy: rudeURL, removed: true,
			services: nothing, users: nothing, starts: 1,
			checks: []check{untrustedServer},
		},
	}
}

func ignitionScenarios() []scenario {
	return []scenario{
		{
			name:   "Ignition: a password with every rude character reaches its readers and nobody else",
			secret: rudeSecret(), httpProxy: rudeURL, ignition: true,
			services: everything, users: everything, managed: allManaged(),
			checks: []check{credentialsInIgnition, trustOrder, trustedServer, secondBoot},
		},
		{
			name:   "Ignition: userinfo that is rude to bash, in the URL itself",
			secret: rawSecret(), httpProxy: rawURL, ignition: true,
			services: everything, users: everything, managed: allManaged(),
		},
		{
			name:   "Ignition: a system without a command for its trust store stops nothing",
			secret: rawSecret(), httpProxy: rawURL, ignition: true,
			remove:   []string{"/usr/sbin/update-ca-certificates"},
			services: everything, users: everything, problem: noTrustStore,
			managed: withProblem(slices.DeleteFunc(allManaged(), func(f string) bool { return strings.HasSuffix(f, "/trusts") })),
		},
	}
}

const noTrustStore = "certificates are not trusted: this system has no command for it"

// onceOnly is a drop-in with which containerd starts once in a boot.
var onceOnly = text("[Service]\nExecStartPre=/bin/mkdir /run/started\nRestart=no\n")
