package patch

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// OutputVersion is the version of the rendered bytes. It is raised when equal input renders other bytes, because other
// bytes in a bootstrap spec replace Machines. NewRecipe continues to render earlier versions.
const OutputVersion = 1

// Limits of a KubeadmConfigSpec in v1beta2.
const (
	maxFiles    = 200
	maxCommands = 1000
)

// Recipe has the entries of the bootstrap spec of a Linux node: files, and commands around the user's own.
type Recipe struct {
	// Version is the output version that made the recipe.
	Version int
	// Files are the managed files, in order.
	Files []File
	// First are the commands before the user's preKubeadmCommands, Last those after them.
	First, Last []string
	// Post are the commands before the user's postKubeadmCommands, if the user has any.
	Post []string
	// Targets and TargetsIn are those of Options.
	Targets   []contract.Target
	TargetsIn string
}

// Options choose a recipe.
type Options struct {
	// Version is the output version to render. Zero means OutputVersion.
	Version int
	// Targets are the parts of a node to configure.
	Targets []contract.Target
	// TargetsIn is the place where the user sets them. Empty means the annotation of the Cluster.
	TargetsIn string
	// SecretName is the generated Secret that files refer to.
	SecretName string
}

// NewRecipe returns the recipe for o. Its error is for the user: an output version that this program does not know.
func NewRecipe(o Options) (Recipe, error) {
	if o.Version == 0 {
		o.Version = OutputVersion
	}
	if o.Version != 1 {
		return Recipe{}, fmt.Errorf("output version %d is not known to this version of %s; use a newer one",
			o.Version, contract.Name)
	}
	return builder{Options: o}.recipe(), nil
}

// TargetsPlace says where the user sets targets. in is Options.TargetsIn.
func TargetsPlace(in string) string {
	return cmp.Or(in, "annotation "+contract.AnnotationTargets+" of the Cluster")
}

// builder makes a recipe of output version 1.
type builder struct{ Options }

func (b builder) targets(some ...contract.Target) bool {
	return slices.ContainsFunc(some, func(t contract.Target) bool { return slices.Contains(b.Targets, t) })
}

// managedFile is a file in a spec.
type managedFile struct {
	path string
	mode fs.FileMode
	// key is the key of the generated Secret from which it comes, content what it has if it does not come from there.
	key, content string
	// targets are the targets that need it.
	targets []contract.Target
}

// managedFiles returns the files of output version 1, in order.
var managedFiles = sync.OnceValue(func() []managedFile { //nolint:gochecknoglobals // a constant
	all := contract.AllTargets()
	isTrust := func(t contract.Target) bool { return t == contract.TargetTrust }
	variables := slices.DeleteFunc(contract.AllTargets(), isTrust)
	files := []managedFile{{contract.PathProxyEnv, 0o600, contract.KeyProxyEnv, "", variables}}
	for _, u := range Units() {
		files = append(files, managedFile{u.DropIn(), 0o644, "", dropIn(u), []contract.Target{u.Target}})
	}
	return append(files,
		managedFile{contract.PathTrustedCA, 0o644, contract.KeyTrustedCABundle, "", []contract.Target{contract.TargetTrust}},
		managedFile{contract.PathSetup, 0o755, contract.KeySetup, "", all})
})

// dropIn is the content of the drop-in of a unit, whatever the settings are. A missing file stops no unit.
func dropIn(u Unit) string {
	if u.Starts {
		return systemd.EnvironmentFileDropIn("/bin/sh "+contract.PathSetup+" own-addresses", contract.PathProxyEnv,
			contract.PathNodeEnv)
	}
	return systemd.EnvironmentFileDropIn("", contract.PathProxyEnv)
}

func (b builder) recipe() Recipe {
	recipe := Recipe{
		Version: b.Version, Targets: b.Targets,
		TargetsIn: TargetsPlace(b.TargetsIn),
	}
	for _, f := range managedFiles() {
		if !b.targets(f.targets...) {
			continue
		}
		file := File{Path: f.path, Owner: "root:root", Permissions: fmt.Sprintf("%04o", f.mode), Content: f.content}
		if f.key != "" {
			file.ContentFrom = SecretKey{Name: b.SecretName, Key: f.key}
		}
		recipe.Files = append(recipe.Files, file)
	}
	if len(recipe.Files) > 0 {
		recipe.First = []string{commandPrepare}
	}
	switch {
	case b.targets(contract.TargetStaticPods):
		recipe.Last = []string{commandUnsetCredentials}
	case b.targets(contract.TargetCommands):
		recipe.Last = []string{commandUnset}
	default:
		return recipe
	}
	recipe.First, recipe.Post = append(recipe.First, commandExport), []string{commandExport}
	return recipe
}

// Managed commands of output version 1. Each runs in cloud-init's sh without set -e and in Ignition's bash with it, and
// none stops the bootstrap. People read them, so that none is longer than 100 characters.
const (
	// commandPrepare ends with an error only if there is no script.
	commandPrepare = "sh " + contract.PathSetup + " || :" + mark
	// commandExport exports the variables of the files that there are. It does not source them: a shell ends if it
	// cannot find a file that it is told to source. A shell with set -x of the user traces to its standard error, so that
	// this has none.
	commandExport = `{ set -a; eval "$(cd /etc/capi-proxy-patcher && cat proxy.env node.env)"; set +a; }` +
		` 2>/dev/null` + mark
	// commandUnset unsets every *_proxy variable, in any spelling, because kubeadm copies them into static Pods and
	// kube-proxy. It evaluates one command for each name, so that neither the user's IFS nor a variable that cannot be
	// unset keeps another; "command" lets such a one not end the shell. In the locale C bytes that are no text match, too.
	commandUnset = `eval "$(env|LC_ALL=C sed -nE 's/^(\w*_proxy)=.*/command unset \1||:/Ip')"` + mark
	// commandUnsetCredentials is commandUnset for variables whose value has an at sign, as a URL with a user has.
	commandUnsetCredentials = `eval "$(env|LC_ALL=C sed -nE 's/^(\w*_proxy)=.*@.*/command unset \1||:/Ip')"` + mark
)

// isManagedCommand reports whether any version of this product writes command.
func isManagedCommand(command string) bool {
	switch command {
	case commandPrepare, commandExport, commandUnset, commandUnsetCredentials:
		return true
	}
	return false
}

// IsProxyVariable reports whether name is a variable that the product sets.
func IsProxyVariable(name string) bool {
	switch name {
	case "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy":
		return true
	}
	return false
}

// trustedCABundle returns the content of contract.PathTrustedCA: the certificates of the proxy Secret in PEM, or a
// comment that there are none. Without certificates nodes get the comment, so that adding the first certificate changes
// the Secret and no spec.
func trustedCABundle(certificates [][]byte) []byte {
	bundle := []byte(managedHeader + "\n")
	if len(certificates) == 0 {
		return append(bundle, "# The proxy Secret has no "+contract.KeyTrustedCA+".\n"...)
	}
	return slices.Concat(append([][]byte{bundle}, certificates...)...)
}

var setup = []byte(Setup()) //nolint:gochecknoglobals // a constant

// SecretData returns the data of the generated Secret: the content of every managed file that comes from it, whatever
// the targets are. vars are the variables, which may hold credentials of the proxy, certificates those of the trust
// store in PEM, readiness the URLs that a node asks before it starts. Nobody may change the values.
func SecretData(vars []systemd.Var, certificates [][]byte, readiness []string) (map[string][]byte, error) {
	env, err := systemd.EnvironmentFile(vars)
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", contract.PathProxyEnv, err)
	}
	script := setup
	if len(readiness) > 0 {
		script = []byte(SetupWithEndpoints(readiness))
	}
	return map[string][]byte{
		contract.KeyProxyEnv:        env,
		contract.KeyTrustedCABundle: trustedCABundle(certificates),
		contract.KeySetup:           script,
	}, nil
}

// HasOnlyCertificates reports whether data is that of a generated Secret for settings without a proxy URL.
func HasOnlyCertificates(data map[string][]byte) bool {
	return string(data[contract.KeyProxyEnv]) == systemd.EnvironmentFileHeader+"\n"
}
