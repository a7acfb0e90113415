package patch

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"
)

//go:embed setup.sh
var setupSource string

//go:embed endpoints.sh
var endpointsSource string

var (
	setupScript     = sync.OnceValue(func() string { return compact(setupSource) })     //nolint:gochecknoglobals // a constant
	endpointsScript = sync.OnceValue(func() string { return compact(endpointsSource) }) //nolint:gochecknoglobals // a constant
)

// scriptHeader matches the comments that stay: the interpreter, and whose file it is.
var scriptHeader = regexp.MustCompile(`^#(!| Managed by )`)

// compact removes comments, empty lines and indentation, because user data of clouds is limited and Ignition's is not
// compressed. The scripts have no string and no here-document that goes over lines.
func compact(script string) string {
	var b strings.Builder
	for line := range strings.Lines(script) {
		line = strings.TrimLeft(line, "\t")
		if scriptHeader.MatchString(line) || !strings.HasPrefix(line, "#") && line != "\n" {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Setup returns the one script that runs on a node: it adds the node's own addresses to NO_PROXY, trusts the
// certificates of a bundle, makes systemd read the drop-ins and restarts containerd, by what it finds in its folder. It
// stops no bootstrap; what it cannot do is a line in the log, on the console and in contract.PathProblems.
//
// It runs unchanged in dash, bash and busybox sh. It knows the trust stores of Debian and Ubuntu, of RHEL, Fedora,
// Rocky, Alma, Oracle, Amazon and Azure Linux, of SUSE, of Arch, of Photon and of Flatcar. It is ASCII, and has nothing
// that cloud-init would read as a template.
func Setup() string { return setupScript() }

// SetupWithEndpoints is Setup for a node that asks endpoints when it boots: scheme and host of each URL. The rest may
// hold a token, and every user of a node can read the script.
func SetupWithEndpoints(endpoints []string) string {
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
		return setupScript()
	}
	return setupScript() + "endpoints='" + strings.Join(origins, " ") + "'\n" + endpointsScript()
}

// hostCharacters are those of a host and a port that need no quoting.
const hostCharacters = "abcdefghijklmnopqrstuvwxyz0123456789.:-_[]"
