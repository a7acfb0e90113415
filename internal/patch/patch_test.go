package patch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
)

const (
	noProxy = "localhost,127.0.0.1,10.244.0.0/16,.svc,.cluster.local"
	// ownUser is what a user has in a spec before the product comes.
	ownUser = `
files:
- path: /etc/kubernetes/audit.yaml
  owner: root:root
  permissions: "0600"
  content: |
    apiVersion: audit.k8s.io/v1
  fieldFromTheFuture: kept
preKubeadmCommands:
- hostnamectl set-hostname "{{ ds.meta_data.hostname }}"
- apt-get install -y containerd
postKubeadmCommands:
- curl https://example.com/done
clusterConfiguration:
  clusterName: test
`
)

func settingsOf(t *testing.T, data map[string]string) settings.Proxy {
	t.Helper()
	raw := map[string][]byte{}
	for key, value := range data {
		raw[key] = []byte(value)
	}
	parsed, err := settings.ParseSecret(raw)
	if err != nil {
		t.Fatalf("parsing settings: %v", err)
	}
	return parsed
}

func plain(t *testing.T) settings.Proxy {
	t.Helper()
	return settingsOf(t, map[string]string{
		"httpProxy":  "http://proxy.example.com:3128",
		"httpsProxy": "http://proxy.example.com:3129",
	})
}

func recipe(t *testing.T, o patch.Options) patch.Recipe {
	t.Helper()
	if o.Targets == nil {
		o.Targets = contract.Targets()
	}
	if o.SecretName == "" {
		o.SecretName = "test-proxy-files"
	}
	r, err := patch.NewRecipe(o)
	if err != nil {
		t.Fatalf("making recipe: %v", err)
	}
	return r
}

// document is a bootstrap spec in the form in which callers have it.
type document map[string]any

func parse(t *testing.T, text string) document {
	t.Helper()
	var d document
	if err := yaml.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("parsing spec: %v", err)
	}
	return d
}

// apply carries out edits the way the controller does: as a JSON patch of an object that holds the spec.
func apply(t *testing.T, d document, edits []patch.Edit) document {
	t.Helper()
	spec := api.Spec(d)
	at := patch.Location{Parents: []string{"/spec"}, Alone: 1}
	object := map[string]any{"spec": d}
	if len(d) == 0 {
		at.Missing = 1
		object = map[string]any{}
	}
	for key := range d {
		if !slices.Contains([]string{"files", "preKubeadmCommands", "postKubeadmCommands"}, key) {
			at.Alone = 0
		}
	}
	before, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	operations := patch.Operations(at, spec, edits)
	if len(operations) == 0 {
		operations = []patch.Operation{}
	}
	encoded, err := json.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := jsonpatch.DecodePatch(encoded)
	if err != nil {
		t.Fatal(err)
	}
	after, err := decoded.Apply(before)
	if err != nil {
		t.Fatalf("applying %s: %v", encoded, err)
	}
	var result struct {
		Spec document `json:"spec"`
	}
	if err := json.Unmarshal(after, &result); err != nil {
		t.Fatal(err)
	}
	return result.Spec
}

func ensure(t *testing.T, d document, r patch.Recipe) document {
	t.Helper()
	plan, err := patch.Ensure(api.Spec(d), r)
	if err != nil {
		t.Fatalf("Ensure: %v", err)
	}
	return apply(t, d, plan.Edits)
}

func TestRecipe_IsGolden(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]patch.Options{
		"reference":                    {},
		"reference-without-commands":   {Targets: []contract.Target{"containerd", "kubelet", "trust"}},
		"reference-without-trust":      {Targets: []contract.Target{"containerd", "kubelet", "commands"}},
		"reference-without-containerd": {Targets: []contract.Target{"kubelet", "commands", "trust"}},
		"reference-without-kubelet":    {Targets: []contract.Target{"containerd", "commands", "trust"}},
		"reference-only-containerd":    {Targets: []contract.Target{"containerd"}},
		"reference-only-commands":      {Targets: []contract.Target{"commands"}},
		"reference-only-trust":         {Targets: []contract.Target{"trust"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := ensure(t, parse(t, ownUser), recipe(t, options))
			got, err := yaml.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, "testdata/"+name+".yaml", got)
			if again, err := patch.Ensure(api.Spec(d), recipe(t, options)); err != nil || len(again.Edits) > 0 {
				t.Errorf("a second Ensure has edits %v, error %v", again.Edits, err)
			}
			if diff := cmp.Diff(parse(t, ownUser), apply(t, d, patch.Remove(api.Spec(d)))); diff != "" {
				t.Errorf("Remove after Ensure leaves a difference (-want +got):\n%s", diff)
			}
		})
	}
}

// choices are all sets of targets, the empty one among them.
func choices() [][]contract.Target {
	sets := [][]contract.Target{{}}
	for _, target := range contract.AllTargets() {
		for _, set := range sets {
			sets = append(sets, append(slices.Clone(set), target))
		}
	}
	return sets
}

func TestEnsure_TwiceIsOnceAndRemoveUndoesItForEveryChoice(t *testing.T) {
	t.Parallel()
	for _, targets := range choices() {
		r := recipe(t, patch.Options{Targets: targets})
		for _, own := range []string{ownUser, "{}", "postKubeadmCommands: [echo own]"} {
			once := ensure(t, parse(t, own), r)
			if again, err := patch.Ensure(api.Spec(once), r); err != nil || len(again.Edits) > 0 {
				t.Errorf("%v: a second Ensure has edits %v, error %v", targets, again.Edits, err)
			}
			if patch.IsPatched(api.Spec(once)) != (len(targets) > 0) {
				t.Errorf("%v: IsPatched is wrong of %v", targets, once)
			}
			if diff := cmp.Diff(parse(t, own), apply(t, once, patch.Remove(api.Spec(once))), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%v: Remove leaves (-want +got):\n%s", targets, diff)
			}
			all := ensure(t, parse(t, own), recipe(t, patch.Options{Targets: contract.AllTargets()}))
			if diff := cmp.Diff(once, ensure(t, all, r), cmpopts.EquateEmpty()); len(targets) > 0 && diff != "" {
				t.Errorf("%v: after all targets (-want +got):\n%s", targets, diff)
			}
		}
	}
}

// What is in the Secret with certificates is in the golden bootstrap data.
func TestSecretData_WithoutCertificatesIsGolden(t *testing.T) {
	t.Parallel()
	data, err := settings.Files(plain(t), noProxy)
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "testdata/secret-no-trusted-ca.pem", data[contract.KeyTrustedCABundle])
}

func TestEnsure_PutsBackWhatIsOutOfPlace(t *testing.T) {
	t.Parallel()
	want := ensure(t, parse(t, ownUser), recipe(t, patch.Options{}))
	spec := api.Spec(want)
	for name, commands := range map[string][]string{
		"a managed command twice":       append([]string{spec.PreKubeadmCommands[1]}, spec.PreKubeadmCommands...),
		"managed commands at the end":   append(spec.PreKubeadmCommands[2:5:5], spec.PreKubeadmCommands[:2]...),
		"managed commands missing":      spec.PreKubeadmCommands[1:4],
		"managed command between own":   slices.Insert(slices.Clone(spec.PreKubeadmCommands[2:]), 1, spec.PreKubeadmCommands[0]),
		"first and last exchanged":      append(append(spec.PreKubeadmCommands[4:5:5], spec.PreKubeadmCommands[1:4]...), spec.PreKubeadmCommands[0]),
		"only the commands of the user": spec.PreKubeadmCommands[2:4],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := parse(t, ownUser)
			maps.Copy(d, want)
			var list []any
			for _, command := range commands {
				list = append(list, command)
			}
			d["preKubeadmCommands"] = list
			if diff := cmp.Diff(want, ensure(t, d, recipe(t, patch.Options{}))); diff != "" {
				t.Errorf("after Ensure (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEnsure_RepairsManagedFilesInPlace(t *testing.T) {
	t.Parallel()
	r := recipe(t, patch.Options{})
	want := ensure(t, parse(t, ownUser), r)
	d := ensure(t, parse(t, ownUser), r)
	files, ok := d["files"].([]any)
	if !ok {
		t.Fatal("no files")
	}
	first, ok := files[1].(map[string]any)
	if !ok {
		t.Fatal("no managed file")
	}
	first["permissions"] = "0644"        // somebody opened the file for everybody
	first["contentFormat"] = "Template"  // or made a template of it
	d["files"] = append(files, files[2]) // or doubled one
	if diff := cmp.Diff(want, ensure(t, d, r)); diff != "" {
		t.Errorf("after Ensure (-want +got):\n%s", diff)
	}
}

func TestEnsure_DoesNotModifyItsArguments(t *testing.T) {
	t.Parallel()
	spec, r := api.Spec(parse(t, ownUser)), recipe(t, patch.Options{})
	wantSpec, wantRecipe := fmt.Sprintf("%+v", spec), fmt.Sprintf("%+v", r)
	if _, err := patch.Ensure(spec, r); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%+v", spec); got != wantSpec {
		t.Errorf("spec changed to %s", got)
	}
	if got := fmt.Sprintf("%+v", r); got != wantRecipe {
		t.Errorf("recipe changed to %s", got)
	}
}

func TestEnsure_RefusesWhatTheUserOwns(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"files: [{path: /etc/capi-proxy-patcher/proxy.env, contentFrom: {secret: {name: mine, key: env}}}]": "files[0]: " +
			"already writes /etc/capi-proxy-patcher/proxy.env" + removeFile + ", " + setTargets + "trust",
		"preKubeadmCommands: [echo hello, 'rm -rf /var # capi-proxy-patcher']": `preKubeadmCommands[1]: ends with ` +
			`the marker "# capi-proxy-patcher" of managed commands but is not one; remove the marker`,
	} {
		checkConflict(t, api.Spec(parse(t, spec)), patch.Options{}, want)
	}
}

// What a conflict with a file advises.
const (
	removeFile = "; remove that file from the spec, in the same write that sets label capi-proxy-patcher.io/enabled or in a later one"
	setTargets = "or set annotation capi-proxy-patcher.io/targets of the Cluster to "
)

func checkConflict(t *testing.T, spec patch.Spec, options patch.Options, want string) {
	t.Helper()
	for range 2 { // errors are the same bytes on every try
		plan, err := patch.Ensure(spec, recipe(t, options))
		var conflict *patch.ConflictError
		if !errors.As(err, &conflict) || err.Error() != want {
			t.Errorf("got  %v\nwant conflict %s", err, want)
		}
		if len(plan.Edits) > 0 {
			t.Errorf("edits %v beside a conflict", plan.Edits)
		}
	}
}

func TestEnsure_KeepsToTheLimitsOfTheAPI(t *testing.T) {
	t.Parallel()
	spec := patch.Spec{Files: make([]patch.File, 197)}
	_, err := patch.Ensure(spec, recipe(t, patch.Options{}))
	if err == nil || err.Error() != "files: would have 202 entries, but at most 200 are allowed; shorten it" {
		t.Errorf("error %v", err)
	}
}

func TestUnsupported_NamesWindowsNodesAndOtherFormats(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ spec, want string }{
		"a drive letter":   {"files: [{path: 'c:/k/azure.json'}]", "for Windows nodes (a file path with a drive letter, c:/k/azure.json)"},
		"a named pipe":     {"joinConfiguration: {nodeRegistration: {criSocket: 'npipe:////./pipe/containerd-containerd'}}", "for Windows nodes (criSocket npipe:////./pipe/containerd-containerd)"},
		"an argument":      {"joinConfiguration: {nodeRegistration: {kubeletExtraArgs: [{name: windows-priorityclass, value: HIGH}]}}", "for Windows nodes (kubelet argument windows-priorityclass)"},
		"another argument": {"joinConfiguration: {nodeRegistration: {kubeletExtraArgs: [{name: node-labels, value: kubernetes.io/os=windows}]}}", "for Windows nodes (kubelet argument node-labels)"},
		"a Linux node":     {"files: [{path: /c:/x}]", ""},
		"cloud-config":     {"format: cloud-config", ""},
		"ignition":         {"format: ignition", ""},
		"an empty format":  {"format: ''", ""},
		"bottlerocket":     {"format: bottlerocket", `of format "bottlerocket", not cloud-config or ignition,`},
		"another case":     {"format: Ignition", `of format "Ignition", not cloud-config or ignition,`},
		"a rude format":    {`format: "a\n\"'$(b){{ %s ` + strings.Repeat("x", 5000) + `"`, `of format "a\n\"'$(b){{ %s ` + strings.Repeat("x", 26) + `", not cloud-config or ignition,`},
		"Windows first":    {"{format: bottlerocket, files: [{path: 'c:/a'}]}", "for Windows nodes (a file path with a drive letter, c:/a)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := parse(t, test.spec)
			if got := patch.Unsupported(api.Spec(d)); got != test.want {
				t.Errorf("from a manifest %q, want %q", got, test.want)
			}
			typed := typed(t, d)
			if got := patch.Unsupported(api.Spec(&typed)); got != test.want {
				t.Errorf("from a typed spec %q, want %q", got, test.want)
			}
		})
	}
}

// TestWindowsField_IsOneThatNamesTheOperatingSystem in the spec of a machine template.
func TestWindowsField_IsOneThatNamesTheOperatingSystem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{}":            "",
		"{os: windows}": "spec.os", "{os: Linux}": "", "{osType: Windows}": "spec.osType", "{name: windows}": "",
		"{osType: {os: linux}}": "", "{template: {disks: [{os: linux}, {os: WINDOWS}]}}": "spec.template.disks[1].os",
		"{os: [windows]}": "", "{a: 1, b: [x, [{osType: windows}]]}": "spec.b[1][0].osType",
	} {
		var spec any
		if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
			t.Fatal(err)
		}
		if got := patch.WindowsField(spec); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// TestIsTrustOnly_KnowsTheEntriesOfEachTarget has the entries of some targets beside the user's.
func TestIsTrustOnly_KnowsTheEntriesOfEachTarget(t *testing.T) {
	t.Parallel()
	user := api.Spec(parse(t, ownUser))
	with := func(targets ...contract.Target) patch.Spec {
		goal, err := patch.Ensure(user, recipe(t, patch.Options{Targets: targets}))
		if err != nil {
			t.Fatal(err)
		}
		return patch.Apply(user, goal.Edits)
	}
	alone, both := with(contract.TargetTrust), with(contract.TargetTrust, contract.TargetCommands)
	for name, test := range map[string]struct {
		spec patch.Spec
		want bool
	}{
		"the user's":             {user, false},
		"trust":                  {alone, true},
		"containerd":             {with(contract.TargetContainerd), false},
		"both":                   {both, false},
		"files of both":          {patch.Spec{Files: both.Files, PreKubeadmCommands: alone.PreKubeadmCommands}, false},
		"commands of both":       {patch.Spec{Files: alone.Files, PreKubeadmCommands: both.PreKubeadmCommands}, false},
		"commands after kubeadm": {patch.Spec{Files: alone.Files, PostKubeadmCommands: both.PreKubeadmCommands}, false},
		"commands of trust":      {patch.Spec{PreKubeadmCommands: alone.PreKubeadmCommands}, true},
	} {
		if got := patch.IsTrustOnly(test.spec); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestEnsure_AdvisesTheTargetsThatAvoidAConflict(t *testing.T) {
	t.Parallel()
	const (
		containerd = "/etc/systemd/system/containerd.service.d/http-proxy.conf"
		kubelet    = "/etc/systemd/system/kubelet.service.d/http-proxy.conf"
	)
	for name, test := range map[string]struct {
		files   []string
		targets []contract.Target
		in      string
		want    string // what follows the advice
	}{
		"of one file":                 {[]string{containerd}, nil, "", ", " + setTargets + "kubelet,commands,trust"},
		"of a path that is not clean": {[]string{"/etc//systemd/system/./kubelet.service.d/http-proxy.conf"}, nil, "", ", " + setTargets + "containerd,commands,trust"},
		"of a drop-in of a package":   {[]string{"/usr/lib/systemd/system/kubelet.service.d/http-proxy.conf"}, nil, "", ", " + setTargets + "containerd,commands,trust"},
		"of two files at once":        {[]string{containerd, kubelet}, nil, "", ", " + setTargets + "commands,trust"},
		"of a narrower choice":        {[]string{kubelet}, []contract.Target{"kubelet", "trust"}, "", ", " + setTargets + "trust"},
		"and there is none":           {[]string{kubelet}, []contract.Target{"kubelet"}, "", ""},
		"and two files leave none":    {[]string{containerd, kubelet}, []contract.Target{"containerd", "kubelet"}, "", ""},
		"of the certificates":         {[]string{contract.PathTrustedCA}, nil, "", ", " + setTargets + "containerd,kubelet,commands"},
		"of the script":               {[]string{contract.PathSetup}, nil, "", ""},
		"of the file of the node":     {[]string{contract.PathNodeEnv}, nil, "", ", " + setTargets + "trust"},
		"of the values":               {[]string{contract.PathProxyEnv}, nil, "", ", " + setTargets + "trust"},
		"of the values and more":      {[]string{contract.PathProxyEnv, contract.PathTrustedCA}, nil, "", ""},
		"in a variable of a topology": {[]string{containerd}, nil, "variable v.targets", ", or set variable v.targets to kubelet,commands,trust"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var spec patch.Spec
			want := ""
			for i, path := range test.files {
				spec.Files = append(spec.Files, patch.File{Path: path, Content: "50% \"$x\"\n"})
				want += fmt.Sprintf("; files[%d]: already writes %s%s%s", i, path, removeFile, test.want)
			}
			options := patch.Options{Targets: test.targets, TargetsIn: test.in}
			checkConflict(t, spec, options, strings.TrimPrefix(want, "; "))
		})
	}
}

// TestEnsure_AdviceAvoidsTheConflict follows the advice: a recipe for the targets that it names is without conflict.
func TestEnsure_AdviceAvoidsTheConflict(t *testing.T) {
	t.Parallel()
	all := recipe(t, patch.Options{})
	for _, f := range all.Files {
		spec := patch.Spec{Files: []patch.File{{Path: f.Path, Content: "own"}}}
		_, err := patch.Ensure(spec, all)
		if err == nil {
			t.Fatalf("%s is no conflict", f.Path)
		}
		_, advice, found := strings.Cut(err.Error(), " of the Cluster to ")
		if !found {
			if f.Path != contract.PathSetup { // which every target needs
				t.Errorf("no advice in %v", err)
			}
			continue
		}
		var targets []contract.Target
		for name := range strings.SplitSeq(advice, ",") {
			targets = append(targets, contract.Target(name))
		}
		if _, err := patch.Ensure(spec, recipe(t, patch.Options{Targets: targets})); err != nil {
			t.Errorf("targets %s: %v", advice, err)
		}
	}
}

// FuzzEnsureAndRemove builds specs from bits: each bit pair puts an entry of the user or of ours somewhere.
func FuzzEnsureAndRemove(f *testing.F) {
	for _, seed := range []uint64{0, 1, 42, 1 << 63} {
		f.Add(seed, uint8(15))
		f.Add(seed, uint8(3))
	}
	f.Fuzz(func(t *testing.T, seed uint64, targets uint8) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // reproducible on purpose
		o := patch.Options{SecretName: "s"}
		for i, target := range contract.Targets() {
			if targets>>i&1 == 1 {
				o.Targets = append(o.Targets, target)
			}
		}
		r := recipe(t, o)
		full := recipe(t, patch.Options{})
		user, dirty := document{}, document{}
		for _, list := range []string{"files", "preKubeadmCommands", "postKubeadmCommands"} {
			var own, mixed []any
			for i := range random.IntN(6) {
				var entry any = fmt.Sprintf("echo %d", i)
				var managed any = full.First[random.IntN(len(full.First))]
				if list == "files" {
					entry = map[string]any{"path": fmt.Sprintf("/etc/%d", i), "x": "kept"}
					file := full.Files[random.IntN(len(full.Files))]
					managed = map[string]any{"path": file.Path, "content": file.Content, "owner": "x"}
					if file.Content == "" {
						managed = map[string]any{
							"path":        file.Path,
							"contentFrom": map[string]any{"secret": map[string]any{"name": "old", "key": file.ContentFrom.Key}},
						}
					}
				}
				own = append(own, entry)
				mixed = append(mixed, entry)
				if random.IntN(2) == 0 {
					mixed = append(mixed, managed)
				}
			}
			if len(own) > 0 {
				user[list], dirty[list] = own, mixed
			}
		}
		clean := ensure(t, user, r)
		if diff := cmp.Diff(api.Spec(clean).PreKubeadmCommands,
			api.Spec(ensure(t, dirty, r)).PreKubeadmCommands); diff != "" {
			t.Errorf("commands depend on what was there before:\n%s", diff)
		}
		for _, d := range []document{user, dirty, clean} {
			patched := ensure(t, d, r)
			if again, err := patch.Ensure(api.Spec(patched), r); err != nil || len(again.Edits) != 0 {
				t.Errorf("second Ensure: edits %v, error %v", again.Edits, err)
			}
			removed := apply(t, patched, patch.Remove(api.Spec(patched)))
			if diff := cmp.Diff(user, removed, cmp.Transformer("nil", func(d document) map[string]any {
				if len(d) == 0 {
					return nil
				}
				return d
			})); diff != "" {
				t.Errorf("Remove after Ensure (-want +got):\n%s", diff)
			}
		}
	})
}
