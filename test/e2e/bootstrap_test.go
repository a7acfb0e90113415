//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/infra"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/nodedata"
)

// motd is the file that the template has of its user.
const motd = "50% of this \"node\" is $HOME.\n"

// want is what the bootstrap data of a Machine has to be.
type want struct {
	// proxy is the value of HTTP_PROXY; empty for a Machine without proxy.
	proxy string
	// plain is set for a pool whose template has no entries of the user.
	plain bool
	// entries have to be in NO_PROXY beside those that every Cluster has.
	entries []string
	// setupMode is the mode of the setup script, if it is not that of the recipe.
	setupMode string
	// nextScript is set for a Machine that has to have the setup script of the next product.
	nextScript bool
	// trusted is set for a Machine whose proxy Secret has certificates.
	trusted bool
}

// checkBoots checks the boots of the cluster that select reports true for, of which there have to be count.
func (c *cluster) checkBoots(t *testing.T, count int, w want, selected func(infra.Boot) bool) {
	t.Helper()
	var checked int
	for _, b := range c.boots() {
		if !selected(b) {
			continue
		}
		checked++
		bw := w
		bw.plain = w.plain || c.ofPool(1)(b.Machine)
		if err := c.checkBoot(t, b, bw); err != nil {
			t.Errorf("%s: %v", b.Machine, err)
		}
	}
	if checked != count {
		t.Errorf("%d Machines came up, want %d", checked, count)
	}
}

func everyBoot(infra.Boot) bool { return true }

// since selects boots of Machines that are not in before.
func since(before ...identity) func(infra.Boot) bool {
	return func(b infra.Boot) bool {
		return !slices.ContainsFunc(before, func(i identity) bool { return i[b.Machine] == b.UID })
	}
}

// hasProxy reports whether bootstrap data has anything of the product.
func hasProxy(b infra.Boot) bool { return strings.Contains(string(b.Data), contract.Name) }

// checkBoot holds the bootstrap data that a Machine came up with against what it has to be: every file of the recipe
// with its bytes and mode, every command in its place, and what is the user's as it was.
func (c *cluster) checkBoot(t *testing.T, b infra.Boot, w want) error {
	t.Helper()
	node, err := nodedata.Decode(b.Format, b.Data)
	if err != nil {
		return err
	}
	kubeadm := node.Kubeadm()
	if kubeadm < 0 {
		return fmt.Errorf("no command runs kubeadm: %q", node.Commands)
	}
	before, after := node.Commands[:kubeadm], slices.DeleteFunc(slices.Clone(node.Commands[kubeadm+1:]), isSentinel)
	command := node.Commands[kubeadm : kubeadm+1]
	var user struct{ before, after []string }
	if !w.plain {
		user.before, user.after = []string{"echo before kubeadm"}, []string{"echo after kubeadm"}
		if f, _ := node.File("/etc/motd"); f.Content != motd || f.Mode != 0o644 {
			return fmt.Errorf("the file of the user is %+v", f)
		}
	}
	if w.proxy == "" {
		if hasProxy(b) {
			return fmt.Errorf("it has something of the product: %q", before)
		}
		return differs("commands", slices.Concat(user.before, command, user.after), slices.Concat(before, command, after))
	}
	recipe, secret, err := c.recipe(t, node, b, w)
	if err != nil {
		return err
	}
	for i := range recipe.Files {
		if recipe.Files[i].Path == contract.PathSetup && w.setupMode != "" {
			recipe.Files[i].Permissions = w.setupMode
		}
	}
	wantBefore := slices.Concat(recipe.First, user.before, recipe.Last)
	wantAfter := user.after
	if len(user.after) > 0 {
		wantAfter = slices.Concat(recipe.Post, user.after)
	}
	if err := differs("commands", slices.Concat(wantBefore, command, wantAfter),
		slices.Concat(before, command, after)); err != nil {
		return err
	}
	return checkFiles(node, recipe, secret)
}

// isSentinel reports whether a command is one that Cluster API runs after kubeadm in Ignition.
func isSentinel(command string) bool {
	return strings.Contains(command, "/run/cluster-api") || strings.Contains(command, "/etc/kubeadm.yml") ||
		strings.HasPrefix(command, "mv ")
}

// checkFiles holds the files of a node against those of a recipe.
func checkFiles(node nodedata.Node, recipe patch.Recipe, secret map[string][]byte) error {
	for _, f := range recipe.Files {
		content := f.Content
		if f.ContentFrom.Name != "" {
			value, ok := secret[f.ContentFrom.Key]
			if !ok {
				return fmt.Errorf("the generated Secret has no key %s", f.ContentFrom.Key)
			}
			content = string(value)
		}
		found := slices.DeleteFunc(slices.Clone(node.Files), func(n nodedata.File) bool { return n.Path != f.Path })
		if len(found) != 1 {
			return fmt.Errorf("%s is written %d times", f.Path, len(found))
		}
		if mode := fmt.Sprintf("0%o", found[0].Mode); mode != f.Permissions {
			return fmt.Errorf("%s has mode %s, want %s", f.Path, mode, f.Permissions)
		}
		if err := differs("content of "+f.Path, content, found[0].Content); err != nil {
			return err
		}
	}
	return nil
}

// recipe returns what a node has to have, and the data of the Secret that it refers to. The variables are checked by
// value: the proxy, and the entries of NO_PROXY that nobody can do without.
func (c *cluster) recipe(t *testing.T, node nodedata.Node, b infra.Boot, w want) (patch.Recipe,
	map[string][]byte, error,
) {
	t.Helper()
	f, _ := node.File(contract.PathProxyEnv)
	variables := assignments(f.Content)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		if variables[name] != w.proxy {
			return patch.Recipe{}, nil, fmt.Errorf("%s is %q, want %q", name, variables[name], w.proxy)
		}
	}
	if variables["NO_PROXY"] != variables["no_proxy"] {
		return patch.Recipe{}, nil, fmt.Errorf("NO_PROXY is %q, no_proxy is %q", variables["NO_PROXY"], variables["no_proxy"])
	}
	entries := strings.Split(variables["NO_PROXY"], ",")
	needed := slices.Concat(w.entries, []string{
		c.endpoint(t), "10.244.0.0/16", "10.128.0.0/16", ".svc", "localhost", "127.0.0.1",
		"registry.corp.example", "10.20.0.0/16",
	})
	for _, entry := range needed {
		if !slices.Contains(entries, entry) {
			return patch.Recipe{}, nil, fmt.Errorf("NO_PROXY lacks %q: %q", entry, entries)
		}
	}
	// What a file was made of is what the Machine booted with, not what the Secret holds by now.
	secret := map[string][]byte{}
	for key, path := range generatedFiles() {
		f, ok := node.File(path)
		if !ok {
			return patch.Recipe{}, nil, fmt.Errorf("%s is not written", path)
		}
		secret[key] = []byte(f.Content)
	}
	if script := string(secret[contract.KeySetup]); script != patch.Setup()+nextScript &&
		(w.nextScript || script != patch.Setup()) {
		return patch.Recipe{}, nil, fmt.Errorf("the script is %q", script)
	}
	if bundle := string(secret[contract.KeyTrustedCABundle]); strings.Contains(bundle, "BEGIN CERTIFICATE") != w.trusted {
		return patch.Recipe{}, nil, fmt.Errorf("has certificates: %t, want %t: %q", !w.trusted, w.trusted, bundle)
	}
	recipe, err := patch.NewRecipe(patch.Options{
		Targets: contract.Targets(), SecretName: b.Cluster.Name + contract.GeneratedSecretSuffix,
	})
	return recipe, secret, err
}

// generatedFiles are the paths of a node's files by their keys in the generated Secret.
func generatedFiles() map[string]string {
	return map[string]string{
		contract.KeyProxyEnv: contract.PathProxyEnv, contract.KeyTrustedCABundle: contract.PathTrustedCA,
		contract.KeySetup: contract.PathSetup,
	}
}

// checkGenerated holds the generated Secret against what the last Machine that came up has.
func (c *cluster) checkGenerated(t *testing.T) {
	t.Helper()
	boots := c.boots()
	if len(boots) == 0 {
		t.Fatal("no Machine came up")
	}
	last := boots[len(boots)-1]
	node, err := nodedata.Decode(last.Format, last.Data)
	if err != nil {
		t.Fatal(err)
	}
	secret := get[corev1.Secret](t, c, c.name+contract.GeneratedSecretSuffix)
	for key, path := range generatedFiles() {
		f, _ := node.File(path)
		if diff := cmp.Diff(string(secret.Data[key]), f.Content); diff != "" {
			t.Errorf("%s is not what the generated Secret has (-secret +machine):\n%s", path, diff)
		}
	}
}

// assignments reads lines NAME="VALUE" as a shell does.
func assignments(text string) map[string]string {
	variables := map[string]string{}
	unescape := strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\$`, `$`, "\\`", "`")
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, found := strings.Cut(line, "="); found && !strings.HasPrefix(line, "#") {
			variables[name] = unescape.Replace(strings.TrimSuffix(strings.TrimPrefix(value, `"`), `"`))
		}
	}
	return variables
}

func differs[T any](what string, want, got T) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("%s differ (-want +got):\n%s", what, diff)
	}
	return nil
}
