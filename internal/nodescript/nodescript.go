// Package nodescript holds the one script that runs on a node.
//
// The script adds the node's own addresses to NO_PROXY, trusts the
// certificates of a bundle, reloads systemd, restarts containerd, and prints
// what a shell evaluates to set and unset the variables, each as a verb of its
// own, so that the commands in a bootstrap spec stay short and constant:
//
//	sh /etc/capi-proxy-patcher/setup.sh install-ca || exit 1
//
// It is written for POSIX sh and runs unchanged in dash, bash and busybox
// sh. It knows the trust stores of Debian and Ubuntu, of RHEL, Fedora, Rocky,
// Alma, Oracle, Amazon and Azure Linux, of SUSE, of Arch, of Photon and of
// Flatcar.
package nodescript

import (
	_ "embed"
	"strings"
	"sync"
)

const (
	// Path is the path of the script on a node, with mode 0755.
	Path = "/etc/capi-proxy-patcher/setup.sh"
	// TrustedCAPath is the bundle of PEM certificates that the verb
	// install-ca reads. A bundle without any certificate is allowed.
	TrustedCAPath = "/etc/capi-proxy-patcher/trusted-ca.pem"
)

//go:embed setup.sh
var source string

var setup = sync.OnceValue(func() string { return render(source) }) //nolint:gochecknoglobals // a constant

// headerLines are the interpreter, and the line that says whose file it is.
const headerLines = 2

// render leaves the comments out of a script, because user data of clouds is limited: their home is setup.sh.
func render(script string) string {
	var b strings.Builder
	b.Grow(len(script))
	number := 0
	for line := range strings.Lines(script) {
		number++
		if number <= headerLines || !strings.HasPrefix(strings.TrimLeft(line, "\t"), "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Setup returns the script without its comments. It is ASCII, and has nothing that cloud-init would read as a template.
func Setup() string { return setup() }
