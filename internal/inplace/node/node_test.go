package node_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/node"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

const (
	rude    = `p%40"'\$` + "`" + `{x}é`
	usersEd = "/etc/capi-proxy-patcher/mine"
)

// data is that of a generated Secret with a password, a CA and a script.
func data(t *testing.T, password, ca, script string) map[string][]byte {
	t.Helper()
	env, err := systemd.EnvironmentFile([]systemd.Var{
		{Name: "HTTP_PROXY", Value: "http://u:" + password + "@proxy:3128"},
		{Name: "NO_PROXY", Value: fmt.Sprintf("%x.example.com", password)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return withTargets(t, map[string][]byte{
		contract.KeyProxyEnv:        env,
		contract.KeyTrustedCABundle: []byte(systemd.EnvironmentFileHeader + "\n" + ca),
		contract.KeySetup:           []byte("#!/bin/sh\n" + systemd.EnvironmentFileHeader + "\n" + script),
		contract.KeyReadiness:       []byte("https://registry\n"),
	}, contract.Targets()...)
}

// withTargets is data for the recipe of targets, without any for a node without the product.
func withTargets(t *testing.T, data map[string][]byte, targets ...contract.Target) map[string][]byte {
	t.Helper()
	recipe, err := patch.NewRecipe(patch.Options{Targets: targets, SecretName: "files"})
	if err != nil {
		t.Fatal(err)
	}
	data, err = patch.NodeData(data, recipe)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// filesOf are the files of a recipe.
func filesOf(t *testing.T, data map[string][]byte) []patch.NodeFile {
	t.Helper()
	files, err := patch.ReadNodeData(data)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func version(t *testing.T, data map[string][]byte) node.Version {
	t.Helper()
	v, err := node.NewVersion(data)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// newDisk is a node as bootstrap has left it.
func newDisk(t *testing.T, data map[string][]byte) *disk {
	t.Helper()
	d := &disk{root: newFolder(), room: 1 << 30, running: map[string]string{"containerd": "", "kubelet": ""}}
	d.put("/etc/os-release", &inode{mode: 0o644})
	d.put("/etc/systemd/system/mine.service", &inode{mode: 0o644})
	ca := ""
	for _, f := range filesOf(t, data) {
		d.put(f.Path, &inode{content: f.Content, mode: f.Mode})
		if f.Path == contract.PathTrustedCA {
			ca = string(f.Content)
		}
	}
	d.put(usersEd, &inode{content: []byte("mine\n"), mode: 0o600})
	if d.content(contract.PathProxyEnv) != nil {
		d.addOwn()
	}
	if d.trusted = strings.TrimPrefix(ca, systemd.EnvironmentFileHeader+"\n"); d.trusted != "" {
		d.put(marker, &inode{mode: 0o644})
	}
	d.restarted()
	return d
}

func (d *disk) host() node.Host { return node.Host{Files: d, Services: d, Say: func(string) {}} }

// apply runs an apply until it ends or the power does.
func (d *disk) apply(v node.Version, tried error) (err error, cut bool) { //nolint:revive // cut tells whether err means anything
	defer func() {
		if r := recover(); r != nil {
			if r != errCut { //nolint:errorlint,err113 // what was thrown
				panic(r)
			}
			cut = true
		}
	}()
	return d.host().Apply(v, tried), false
}

// brings applies data, which has to work.
func (d *disk) brings(t *testing.T, data map[string][]byte) {
	t.Helper()
	if err := d.host().Apply(version(t, data), nil); err != nil {
		t.Fatal(err)
	}
}

// inForce holds that data is in force on a node, files, services, and nothing else.
func (d *disk) inForce(t *testing.T, data map[string][]byte) {
	t.Helper()
	if diff := d.differs(newDisk(t, data)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// has holds that files and folders are those that there were.
func (d *disk) has(t *testing.T, files map[string]string) {
	t.Helper()
	if diff := cmp.Diff(files, d.tree()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// differs compares a node with another: files and folders, services, and the trust store.
func (d *disk) differs(want *disk) string {
	return cmp.Diff(want.tree(), d.tree()) + cmp.Diff(want.running, d.running) + cmp.Diff(want.trusted, d.trusted)
}

func TestApply_BringsWhatChangedIntoForceAndNothingElse(t *testing.T) {
	t.Parallel()
	all := contract.Targets()
	without := func(target contract.Target) []contract.Target {
		return slices.DeleteFunc(slices.Clone(all), func(t contract.Target) bool { return t == target })
	}
	plain, certified := data(t, "old", "", "x\n"), data(t, "old", "CA1\n", "x\n")
	for name, test := range map[string]struct {
		before, want map[string][]byte
		// calls are those of Services, in order.
		calls string
	}{
		"nothing":                   {certified, certified, ""},
		"the script":                {certified, data(t, "old", "CA1\n", "y\n"), ""},
		"the environment":           {certified, data(t, rude, "CA1\n", "x\n"), "ready healthy containerd,kubelet check addresses restart containerd,kubelet check"},
		"certificates":              {certified, data(t, "old", "CA2\n", "x\n"), "ready healthy containerd,kubelet check trust restart containerd,kubelet check"},
		"all":                       {certified, data(t, rude, "", "y\n"), "ready healthy containerd,kubelet check trust addresses restart containerd,kubelet check"},
		"all is new":                {withTargets(t, plain), plain, "ready healthy containerd,kubelet check addresses restart containerd,kubelet check"},
		"all is new, certificates":  {withTargets(t, plain), certified, "ready healthy containerd,kubelet check trust addresses restart containerd,kubelet check"},
		"all goes":                  {plain, withTargets(t, plain), "ready healthy containerd,kubelet restart containerd,kubelet"},
		"all goes, certificates":    {certified, withTargets(t, plain), "ready healthy containerd,kubelet trust restart containerd,kubelet"},
		"kubelet is added":          {withTargets(t, plain, without(contract.TargetKubelet)...), plain, "ready healthy kubelet check restart kubelet check"},
		"containerd goes":           {plain, withTargets(t, plain, without(contract.TargetContainerd)...), "ready healthy containerd check restart containerd check"},
		"the shell of the user":     {withTargets(t, plain), withTargets(t, plain, contract.TargetCommands), "check check"},
		"the trust store":           {withTargets(t, plain), withTargets(t, certified, contract.TargetTrust), "ready healthy containerd,kubelet check trust restart containerd,kubelet check"},
		"a trust store for nothing": {withTargets(t, plain), withTargets(t, plain, contract.TargetTrust), ""},
		"certificates go":           {certified, withTargets(t, certified, without(contract.TargetTrust)...), "ready healthy containerd,kubelet check trust restart containerd,kubelet check"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDisk(t, test.before)
			d.brings(t, test.want)
			d.powerCut()
			called := slices.DeleteFunc(slices.Clone(d.calls), func(c string) bool { return strings.Contains(c, "/") })
			if got := strings.Join(called, " "); got != test.calls {
				t.Errorf("services: %s, want %s", got, test.calls)
			}
			want := newDisk(t, test.want)
			if !slices.Contains(d.calls, "addresses") && d.content(contract.PathNodeEnv) == nil {
				delete(must(want.find("/etc/capi-proxy-patcher")).names, "node.env") // bootstrap makes it for the shell
			}
			if diff := d.differs(want); diff != "" {
				t.Errorf("after the power failed (-want +got):\n%s", diff)
			}
			for i, call := range d.calls {
				if strings.HasPrefix(call, "rename ") && !strings.HasPrefix(d.calls[i+1], "sync /etc/") {
					t.Errorf("%s is followed by %s: a file system may do them in another order", call, d.calls[i+1])
				}
			}
			if drift, err := d.host().Drift(version(t, test.want)); err != nil || len(drift) > 0 {
				t.Errorf("drift %q, %v", drift, err)
			}
			if plan, err := d.host().Plan(version(t, test.want)); err != nil || !plan.IsEmpty() {
				t.Errorf("plan %q, %v", plan.Lines(), err)
			}
			d.calls = nil
			d.brings(t, test.want)
			d.onlyCalls(t, "read", "list", "lock")
		})
	}
}

// onlyCalls holds that there were no calls but of some kinds.
func (d *disk) onlyCalls(t *testing.T, kinds ...string) {
	t.Helper()
	for _, call := range d.calls {
		if kind, _, _ := strings.Cut(call, " "); !slices.Contains(kinds, kind) {
			t.Errorf("calls %s", call)
		}
	}
}

func must(_, found *inode) *inode { return found }

// A node as it was before the product: nothing of it is left, folders included.
func TestApply_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	full := data(t, rude, "CA1\n", "x\n")
	d := newDisk(t, withTargets(t, full))
	delete(must(d.find("/etc")).names, "capi-proxy-patcher")
	delete(must(d.find("/etc")).durable, "capi-proxy-patcher")
	before := d.tree()
	d.brings(t, full)
	d.brings(t, withTargets(t, full))
	d.powerCut()
	d.has(t, before)
}

func TestApply_WritesNothingThatCannotWork(t *testing.T) {
	t.Parallel()
	before, want := data(t, "old", "CA1\n", "x\n"), data(t, rude, "CA2\n", "y\n")
	refuse := func(refused string) func(*disk) {
		return func(d *disk) { d.refuses = func(call string, _, _ []byte) bool { return call == refused } }
	}
	for name, test := range map[string]struct {
		change func(*disk)
		want   string
	}{
		"a service is not healthy":         {refuse("healthy"), "containerd is not healthy"},
		"an endpoint that does not answer": {refuse("check"), "the endpoint does not answer"},
		"the disk is full":                 {func(d *disk) { d.room = 1 << 20 }, "the disk of /etc on this node is full: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, d := range []*disk{newDisk(t, before), newDisk(t, withTargets(t, before))} {
				test.change(d)
				files := d.tree()
				err := d.host().Apply(version(t, want), nil)
				if failed := (*node.RolledBackError)(nil); err == nil || errors.As(err, &failed) || !strings.HasPrefix(err.Error(), test.want) {
					t.Errorf("%v", err)
				}
				d.has(t, files)
				d.onlyCalls(t, "lock", "read", "list", "ready", "healthy", "room", "check")
			}
		})
	}
}

// Other words would be another cause, with which the container ends again.
func TestApply_SaysTheSameOfTheSameFiles(t *testing.T) {
	t.Parallel()
	full := data(t, rude, "CA1\n", "x\n")
	d := newDisk(t, withTargets(t, full))
	for _, f := range filesOf(t, full) {
		d.put(f.Path, &inode{content: []byte("mine\n"), mode: 0o644})
	}
	want := d.host().Apply(version(t, full), nil)
	for range 20 {
		if got := d.host().Apply(version(t, full), nil); got == nil || got.Error() != want.Error() {
			t.Fatalf("says %v, then %v", want, got)
		}
	}
}

func TestApply_LeavesAFileOfSomebodyElse(t *testing.T) {
	t.Parallel()
	before, want := data(t, "old", "CA1\n", "x\n"), data(t, "new", "CA2\n", "y\n")
	for name, file := range map[string]*inode{
		"without the mark": {content: []byte("HTTP_PROXY=http://mine\n"), mode: 0o644},
		"empty":            {mode: 0o600},
		"a link":           {link: true, content: before[contract.KeyProxyEnv]},
		"a folder":         newFolder(),
	} {
		for _, f := range append(filesOf(t, before), patch.NodeFile{Path: contract.PathNodeEnv}) {
			for _, interrupted := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s at %s, interrupted %t", name, f.Path, interrupted), func(t *testing.T) {
					t.Parallel()
					d := newDisk(t, before)
					d.put(f.Path, file)
					if interrupted {
						d.put("/etc/capi-proxy-patcher/.node-apply", newFolder())
					}
					files := d.tree()
					err := d.host().Apply(version(t, want), nil)
					if err == nil || !strings.HasPrefix(err.Error(), f.Path+" on this node ") {
						t.Errorf("%v", err)
					}
					d.has(t, files)
				})
			}
		}
	}
}

// A drop-in of somebody else's that reads the variables counts as one of the product.
func TestApply_LeavesTheFileOfOwnAddressesOfSomebodyElse(t *testing.T) {
	t.Parallel()
	d := newDisk(t, withTargets(t, data(t, "old", "", "x\n")))
	d.put(systemd.DropInPath("kubelet"), &inode{content: []byte("[Service]\nEnvironmentFile=" + contract.PathProxyEnv + "\n"), mode: 0o644})
	d.put(contract.PathNodeEnv, &inode{content: []byte("mine\n"), mode: 0o644})
	files := d.tree()
	err := d.host().Apply(version(t, withTargets(t, data(t, rude, "", "x\n"), contract.TargetCommands)), nil)
	if err == nil || !strings.HasPrefix(err.Error(), contract.PathNodeEnv+" on this node ") {
		t.Error(err)
	}
	d.has(t, files)
}

// Somebody writes a file after the run has looked. What the product had there before cannot come back then.
func TestApply_LeavesAFileThatAppearsMeanwhile(t *testing.T) {
	t.Parallel()
	old, want := data(t, "old", "CA1\n", "x\n"), data(t, rude, "CA2\n", "y\n")
	for name, test := range map[string]struct {
		before map[string][]byte
		left   bool
	}{"on a node without the product": {withTargets(t, old), false}, "over a file of the product": {old, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDisk(t, test.before)
			file := &inode{content: []byte("mine\n"), mode: 0o640, foreign: true}
			d.refuses = func(call string, _, _ []byte) bool {
				if call == "check" {
					d.put(theirs, file)
				}
				return false
			}
			err := d.host().Apply(version(t, want), nil)
			failed := &node.RolledBackError{}
			if !errors.As(err, &failed) || !strings.HasPrefix(err.Error(), theirs+" on this node ") || failed.Left != nil != test.left {
				t.Fatal(err)
			}
			folder, found := d.find(theirs)
			if found != file {
				t.Errorf("it is %+v", found)
			}
			d.refuses = nil
			delete(folder.names, "http-proxy.conf")
			d.brings(t, want)
			d.inForce(t, want)
		})
	}
}

func TestApply_MendsModeOwnerAndDrift(t *testing.T) {
	t.Parallel()
	want := data(t, "old", "CA1\n", "x\n")
	for name, change := range map[string]func(*inode){
		"mode":    func(n *inode) { n.mode = 0o666 },
		"owner":   func(n *inode) { n.foreign = true },
		"content": func(n *inode) { n.content = append(slices.Clip(n.content), '#', '\n') },
	} {
		for _, f := range append(filesOf(t, want), patch.NodeFile{Path: contract.PathNodeEnv}) {
			t.Run(name+" of "+f.Path, func(t *testing.T) {
				t.Parallel()
				d := newDisk(t, want)
				_, file := d.find(f.Path)
				change(file)
				if drift, err := d.host().Drift(version(t, want)); err != nil || !slices.Equal(drift, []string{f.Path}) {
					t.Errorf("drift %q, %v", drift, err)
				}
				d.brings(t, want)
				d.inForce(t, want)
				if drift, err := d.host().Drift(version(t, want)); err != nil || len(drift) > 0 {
					t.Errorf("drift %q, %v", drift, err)
				}
			})
		}
	}
}

// A service reads the variables by a drop-in of the user's, at the path of one that is not wanted.
func TestApply_RestartsServicesWithADropInOfSomebodyElse(t *testing.T) {
	t.Parallel()
	for _, target := range []contract.Target{contract.TargetContainerd, contract.TargetCommands} {
		d := newDisk(t, withTargets(t, data(t, "old", "", "x\n")))
		name := systemd.DropInPath("kubelet")
		d.put(name, &inode{content: []byte("[Service]\nEnvironmentFile=" + contract.PathProxyEnv + "\n"), mode: 0o644})
		before := d.files()[name]
		d.brings(t, withTargets(t, data(t, rude, "", "x\n"), target))
		if d.files()[name] != before || !strings.Contains(d.running["kubelet"], "10.0.0.1,") {
			t.Errorf("target %s: %q, kubelet runs with %q", target, d.files()[name], d.running["kubelet"])
		}
	}
}

func TestApply_MendsTheFileOfOwnAddresses(t *testing.T) {
	t.Parallel()
	want := data(t, "old", "CA1\n", "x\n")
	const list = "6f6c64.example.com" // NO_PROXY of want
	for name, test := range map[string]struct {
		content string // no file if empty
		drifts  bool
	}{
		"other addresses":           {`NO_PROXY="10.0.0.2,node-1,` + list + `"`, false},
		"no addresses":              {`NO_PROXY="` + list + `"`, false},
		"a list of another version": {`NO_PROXY="10.0.0.1,mine.` + list + `"`, true},
		"another variable":          {`HTTP_PROXY="http://mine"`, true},
		"not as a node writes it":   {`NO_PROXY=` + list, true},
		"gone":                      {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDisk(t, want)
			d.put(contract.PathNodeEnv, &inode{content: []byte(systemd.EnvironmentFileHeader + "\n" + test.content + "\n"), mode: 0o600})
			if folder, _ := d.find(contract.PathNodeEnv); test.content == "" {
				delete(folder.names, "node.env")
			}
			drift, err := d.host().Drift(version(t, want))
			if err != nil || slices.Contains(drift, contract.PathNodeEnv) != test.drifts {
				t.Errorf("drift %q, %v", drift, err)
			}
			if plan, err := d.host().Plan(version(t, want)); err != nil || plan.IsEmpty() == test.drifts ||
				test.drifts && plan.Lines()[0] != "write "+contract.PathNodeEnv {
				t.Errorf("plan %q, %v", plan.Lines(), err)
			}
			if !test.drifts {
				return
			}
			d.refuses = func(call string, _, _ []byte) bool { // the first restart
				return call == "restart" && strings.Count(strings.Join(d.calls, "\n"), "restart ") == 1
			}
			if failed := (*node.RolledBackError)(nil); !errors.As(d.host().Apply(version(t, want), nil), &failed) || failed.Left != nil {
				t.Error(failed)
			}
			d.inForce(t, want)
		})
	}
}

func TestApply_PutsBackWhatDoesNotWork(t *testing.T) {
	t.Parallel()
	before, want := data(t, "old", "CA1\n", "x\n"), data(t, rude, "CA2\n", "y\n")
	isNew := func(env, ca []byte) bool {
		return strings.Contains(string(env), "u:p%40") || strings.Contains(string(ca), "CA2")
	}
	for call, cause := range map[string]string{
		"trust": "the command fails", "addresses": "the script fails", "restart": "containerd does not answer",
		"check": "the endpoint does not answer",
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			d, checks := newDisk(t, before), 0
			d.refuses = func(at string, env, ca []byte) bool {
				if at == "check" && call == "check" {
					checks++
					return checks > 1 // the one after the restart
				}
				return at == call && isNew(env, ca)
			}
			err := d.host().Apply(version(t, want), nil)
			failed := &node.RolledBackError{}
			if !errors.As(err, &failed) || failed.Left != nil || err.Error() != cause+"; the previous files were restored" {
				t.Fatalf("%#v", err)
			}
			d.inForce(t, before)
			restarts := map[string]int{"trust": 1, "addresses": 1, "restart": 2, "check": 2}[call]
			if got := strings.Count(strings.Join(d.calls, "\n"), "restart containerd"); got != restarts {
				t.Errorf("%d restarts, want %d", got, restarts)
			}
			d.calls = nil
			again := d.host().Apply(version(t, want), failed.Cause)
			if again.Error() != err.Error() {
				t.Errorf("tried again, it says %q, then %q", err, again)
			}
			if restarts := slices.ContainsFunc(d.calls, func(c string) bool { return strings.HasPrefix(c, "restart") }); restarts {
				t.Error("it is tried again")
			}
		})
	}
}

func TestHost_TouchesNothingWhileAnotherRunHasTheFolder(t *testing.T) {
	t.Parallel()
	before, want := data(t, "old", "CA1\n", "x\n"), data(t, rude, "CA2\n", "y\n")
	d := newDisk(t, before)
	d.locked = true
	const locked = "another capi-proxy-patcher node command has worked on this node for 2m0s and has " +
		"not ended: nothing was changed; run this one again when that one has ended"
	_, planned := d.host().Plan(version(t, want))
	for name, err := range map[string]error{
		"apply": d.host().Apply(version(t, want), nil), "apply of what was tried": d.host().Apply(version(t, want), errInjected),
		"plan": planned,
	} {
		if failed := (*node.RolledBackError)(nil); err == nil || err.Error() != locked || errors.As(err, &failed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.inForce(t, before)
	d.onlyCalls(t, "lock")
	d.locked = false
	if err := d.host().Apply(version(t, want), nil); err != nil || d.locked {
		t.Errorf("%v, locked afterwards: %t", err, d.locked)
	}
}

// Others look while a node waits, and what they have changed then counts.
func TestApply_WaitsForItsTurn(t *testing.T) {
	t.Parallel()
	before, want := data(t, "old", "CA1\n", "x\n"), data(t, rude, "CA2\n", "y\n")
	denied := errors.New("ended while waiting for a turn")
	for name, test := range map[string]struct {
		want   map[string][]byte
		change func(d *disk)
		turn   error
		waits  bool
		says   string
	}{
		"nothing to do":   {before, nil, denied, false, ""},
		"its turn":        {want, nil, nil, true, ""},
		"not its turn":    {want, nil, denied, true, denied.Error()},
		"cannot be done":  {want, func(d *disk) { d.put(theirs, &inode{content: []byte("mine\n")}) }, nil, true, theirs + " on this node has no line \"Managed by capi-proxy-patcher\": it is a file of somebody else and stays as it is; remove it, or replace the Machine"},
		"an old password": {want, func(d *disk) { d.put("/etc/capi-proxy-patcher/.node-apply.scrap/proxy.env", &inode{}) }, nil, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDisk(t, before)
			if test.change != nil {
				test.change(d)
			}
			files := d.tree()
			h, waited := d.host(), false
			h.Turn = func() error {
				waited = true
				d.has(t, files)
				if d.locked {
					t.Error("locked while it waits")
				}
				return test.turn
			}
			err := h.Apply(version(t, test.want), nil)
			if says := fmt.Sprint(err); err == nil && test.says != "" || err != nil && says != test.says || waited != test.waits || d.locked {
				t.Errorf("says %v, waited %t, locked %t", err, waited, d.locked)
			}
			if test.says != "" {
				d.has(t, files)
				return
			}
			d.inForce(t, test.want)
		})
	}
}

func TestApply_LooksAgainWhenItIsItsTurn(t *testing.T) {
	t.Parallel()
	d := newDisk(t, data(t, "old", "CA1\n", "x\n"))
	second, third := data(t, rude, "CA2\n", "y\n"), data(t, "third", "CA3\n", "z\n")
	h := d.host()
	h.Turn = func() error { return d.host().Apply(version(t, second), nil) }
	if err := h.Apply(version(t, third), nil); err != nil {
		t.Fatal(err)
	}
	d.inForce(t, third)
}

func TestNewVersion_RefusesWhatItCouldNotReplace(t *testing.T) {
	t.Parallel()
	good := data(t, rude, "CA\n", "x\n")
	with := func(key, value string) map[string][]byte {
		changed := maps.Clone(good)
		changed[key] = []byte(value)
		return changed
	}
	for name, test := range map[string]struct {
		data map[string][]byte
		want string
	}{
		"empty":                         {nil, "there is no key node-files.json in the mounted Secret"},
		"not a list":                    {with(contract.KeyNodeFiles, "secret"), "key node-files.json of the mounted Secret is not a list of files"},
		"another path":                  {with(contract.KeyNodeFiles, `{"files":["/etc/shadow"]}`), `key node-files.json of the mounted Secret, file "/etc/shadow": not a path of capi-proxy-patcher`},
		"another form":                  {with(contract.KeyNodeFiles, `{"files":[{"path":"/etc/capi-proxy-patcher/setup.sh"}]}`), "key node-files.json of the mounted Secret is not a list of files"},
		"a variable that a tenant adds": {with(contract.KeyProxyEnv, systemd.EnvironmentFileHeader+"\nLD_PRELOAD=\"/tmp/x\"\n"), `/etc/capi-proxy-patcher/proxy.env of the mounted Secret: "LD_PRELOAD" is not a variable of capi-proxy-patcher`},
		"no mark":                       {with(contract.KeyTrustedCABundle, "secret"), `key trusted-ca.pem of the mounted Secret has no line "Managed by capi-proxy-patcher"`},
		"no variables":                  {with(contract.KeyProxyEnv, systemd.EnvironmentFileHeader+"\nsecret\n"), `/etc/capi-proxy-patcher/proxy.env of the mounted Secret: line 2 is not NAME="VALUE"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := node.NewVersion(test.data); err == nil || err.Error() != test.want {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

func TestContent_PrintsNothing(t *testing.T) {
	t.Parallel()
	content := node.Content("secret")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if got := fmt.Sprintf(verb, content) + fmt.Sprintf(verb, node.File{Content: content}); strings.Contains(got, "secret") || strings.Contains(got, "736563726574") || strings.Contains(got, "115") {
			t.Errorf("%s prints %s", verb, got)
		}
	}
}
