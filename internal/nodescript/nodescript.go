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
	"regexp"
	"slices"
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

//go:embed endpoints.sh
var endpoints string

var (
	setup = sync.OnceValue(func() string { return render(source) })    //nolint:gochecknoglobals // a constant
	ask   = sync.OnceValue(func() string { return render(endpoints) }) //nolint:gochecknoglobals // a constant
)

// header are the beginnings of lines that stay: the interpreter, and whose file it is.
var header = regexp.MustCompile(`^#(!| Managed by )`)

// render leaves the comments out of a script, because user data of clouds is limited: their home is setup.sh.
func render(script string) string {
	var b strings.Builder
	b.Grow(len(script))
	for line := range strings.Lines(script) {
		if header.MatchString(line) || !strings.HasPrefix(strings.TrimLeft(line, "\t"), "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Setup returns the script without its comments. It is ASCII, and has nothing that cloud-init would read as a template.
func Setup() string { return setup() }

// SetupAsking is Setup for a node that asks endpoints when it boots: scheme and host of each URL. The rest of a URL may
// hold a token, and every user of a node can read the script.
func SetupAsking(endpoints []string) string {
	var origins []string
	for _, endpoint := range endpoints {
		scheme, rest, _ := strings.Cut(endpoint, "://")
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			rest = rest[:i]
		}
		if scheme != "http" && scheme != "https" || rest == "" || strings.Trim(rest, hostCharacters) != "" {
			continue
		}
		if origin := scheme + "://" + rest; !slices.Contains(origins, origin) {
			origins = append(origins, origin)
		}
	}
	if len(origins) == 0 {
		return setup()
	}
	return setup() + "endpoints='" + strings.Join(origins, " ") + "' last=$?\n" + ask()
}

// hostCharacters are those of a host and a port that need no quoting.
const hostCharacters = "abcdefghijklmnopqrstuvwxyz0123456789.:-_[]"
