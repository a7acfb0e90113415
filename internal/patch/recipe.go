package patch

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
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
	return builder{Options: o}.recipe()
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
	path, mode string
	// key is the key of the generated Secret from which it comes, "" if it is in the spec.
	key string
	// targets are the targets that need it.
	targets []contract.Target
}

// managedFiles are the files of output version 1, in order.
var managedFiles = []managedFile{ //nolint:gochecknoglobals // a constant
	{
		contract.PathProxyEnv, "0600", contract.KeyProxyEnv,
		[]contract.Target{
			contract.TargetContainerd, contract.TargetKubelet, contract.TargetCommands, contract.TargetStaticPods,
		},
	},
	{systemd.DropInPath(string(contract.TargetContainerd)), "0644", "", []contract.Target{contract.TargetContainerd}},
	{systemd.DropInPath(string(contract.TargetKubelet)), "0644", "", []contract.Target{contract.TargetKubelet}},
	{contract.PathTrustedCA, "0644", contract.KeyTrustedCABundle, []contract.Target{contract.TargetTrust}},
	{
		contract.PathSetup, "0755", contract.KeySetup,
		[]contract.Target{
			contract.TargetContainerd, contract.TargetKubelet, contract.TargetCommands, contract.TargetTrust,
			contract.TargetStaticPods,
		},
	},
}

// dropIn is the content of drop-ins, whatever the settings are.
var dropIn = sync.OnceValues(func() (string, error) { //nolint:gochecknoglobals // a constant
	content, err := systemd.EnvironmentFileDropIn(contract.PathProxyEnv, contract.PathNodeEnv)
	return string(content), err
})

func (b builder) recipe() (Recipe, error) {
	recipe := Recipe{
		Version: b.Version, Targets: b.Targets,
		TargetsIn: TargetsPlace(b.TargetsIn),
	}
	content, err := dropIn()
	if err != nil {
		return Recipe{}, fmt.Errorf("rendering drop-in: %w", err)
	}
	recipe.Files = make([]File, 0, len(managedFiles))
	for _, f := range managedFiles {
		if !b.targets(f.targets...) {
			continue
		}
		file := File{Path: f.path, Owner: "root:root", Permissions: f.mode}
		if f.key == "" {
			file.Content = content
		} else {
			file.ContentFrom = SecretKey{Name: b.SecretName, Key: f.key}
		}
		recipe.Files = append(recipe.Files, file)
	}
	shell := b.targets(contract.TargetCommands, contract.TargetStaticPods)
	own := shell || b.targets(contract.TargetContainerd, contract.TargetKubelet)
	if own {
		recipe.First = append(recipe.First, commandOwnAddresses)
	}
	if shell {
		recipe.First, recipe.Post = append(recipe.First, commandExport), []string{commandExport}
	}
	for _, c := range []struct {
		command string
		targets []contract.Target
	}{
		{commandInstallCA, []contract.Target{contract.TargetTrust}},
		{commandDaemonReload, []contract.Target{contract.TargetContainerd, contract.TargetKubelet}},
		{commandRestartContainerd, []contract.Target{contract.TargetContainerd, contract.TargetTrust}},
	} {
		if b.targets(c.targets...) {
			recipe.First = append(recipe.First, c.command)
		}
	}
	if own && b.targets(contract.TargetKubelet, contract.TargetCommands, contract.TargetStaticPods) {
		recipe.Last = []string{commandRefreshAddresses} // the user's commands may have added addresses
	}
	switch {
	case b.targets(contract.TargetStaticPods):
		recipe.Last = append(recipe.Last, commandUnsetCredentials)
	case b.targets(contract.TargetCommands):
		recipe.Last = append(recipe.Last, commandUnset)
	}
	return recipe, nil
}

// Managed commands of output version 1. Each runs in cloud-init's sh without set -e and in Ignition's bash with it.
// People read them, so that none is longer than 100 characters. Of those that evaluate what the script prints, false is
// the status if the script fails or prints nothing.
const (
	commandOwnAddresses      = "sh " + contract.PathSetup + " own-addresses || :" + mark
	commandRefreshAddresses  = "sh " + contract.PathSetup + " refresh-addresses || :" + mark
	commandExport            = `eval "false; $(sh ` + contract.PathSetup + ` export)" || exit 1` + mark
	commandInstallCA         = "sh " + contract.PathSetup + " install-ca || exit 1" + mark
	commandDaemonReload      = "sh " + contract.PathSetup + " daemon-reload || exit 1" + mark
	commandRestartContainerd = "sh " + contract.PathSetup + " restart-containerd || exit 1" + mark
	// commandUnset unsets every *_proxy variable, in any spelling, because kubeadm copies them into static Pods and
	// kube-proxy. It stops the bootstrap if one stays: a missing tool, a readonly variable or a name that a shell cannot
	// unset stops it.
	commandUnset = `eval "false; $(sh ` + contract.PathSetup + ` unset)" || exit 1` + mark
	// commandUnsetCredentials is commandUnset for variables whose value has an at sign, as a URL with a user has.
	commandUnsetCredentials = `eval "false; $(sh ` + contract.PathSetup + ` unset-userinfo)" || exit 1` + mark
)

// isManagedCommand reports whether any version of this product writes command.
func isManagedCommand(command string) bool {
	switch command {
	case commandOwnAddresses, commandExport, commandInstallCA, commandDaemonReload, commandRestartContainerd,
		commandRefreshAddresses, commandUnset, commandUnsetCredentials:
		return true
	}
	return false
}

// isProxyVariable reports whether name is a variable that the product sets.
func isProxyVariable(name string) bool {
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
		script = []byte(SetupAsking(readiness))
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
