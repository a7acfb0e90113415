package node_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/envfile"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/node"
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
	env, err := envfile.Render([]envfile.Var{
		{Name: "HTTP_PROXY", Value: "http://u:" + password + "@proxy:3128"},
		{Name: "NO_PROXY", Value: fmt.Sprintf("%x.example.com", password)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		contract.KeyProxyEnv:        env,
		contract.KeyTrustedCABundle: []byte(envfile.Header + "\n" + ca),
		contract.KeySetup:           []byte("#!/bin/sh\n" + envfile.Header + "\n" + script),
		contract.KeyReadiness:       []byte("https://registry\n"),
	}
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
	d := &disk{root: newFolder(), running: map[string]string{"containerd": "", "kubelet": ""}}
	for _, f := range patch.NodeFiles() {
		d.put(f.Path, &inode{content: data[f.Key], mode: f.Mode})
	}
	dropIn, err := systemd.EnvironmentFileDropIn(contract.PathProxyEnv)
	if err != nil {
		t.Fatal(err)
	}
	for service := range d.running {
		d.put(systemd.DropInPath(service), &inode{content: dropIn, mode: 0o644})
	}
	d.put(usersEd, &inode{content: []byte("mine\n"), mode: 0o600})
	d.addOwn()
	d.trusted = string(data[contract.KeyTrustedCABundle])
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

// inForce reports what is wrong with a node on which a version has to be in force, files, services, and nothing else.
func (d *disk) inForce(t *testing.T, data map[string][]byte) string {
	t.Helper()
	want := newDisk(t, data)
	return cmp.Diff(want.files(), d.files()) + cmp.Diff(want.running, d.running) + cmp.Diff(want.trusted, d.trusted)
}

func TestApply_BringsWhatChangedIntoForceAndNothingElse(t *testing.T) {
	t.Parallel()
	before := data(t, "old", "CA1\n", "script1\n")
	tests := map[string]struct {
		want map[string][]byte
		// services are the calls of Services, in order.
		services []string
	}{
		"nothing":         {before, nil},
		"the script":      {data(t, "old", "CA1\n", "script2\n"), nil},
		"the environment": {data(t, rude, "CA1\n", "script1\n"), []string{"ready", "check", "addresses", "restart containerd,kubelet", "check"}},
		"certificates":    {data(t, "old", "CA2\n", "script1\n"), []string{"ready", "check", "trust", "restart containerd,kubelet", "check"}},
		"all":             {data(t, rude, "", "script2\n"), []string{"ready", "check", "trust", "addresses", "restart containerd,kubelet", "check"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDisk(t, before)
			if err := d.host().Apply(version(t, test.want), nil); err != nil {
				t.Fatal(err)
			}
			d.powerCut()
			if diff := d.inForce(t, test.want); diff != "" {
				t.Errorf("after the power failed (-want +got):\n%s", diff)
			}
			called := slices.DeleteFunc(slices.Clone(d.calls), func(c string) bool { return strings.Contains(c, "/") })
			if diff := cmp.Diff(test.services, called, cmp.Comparer(slices.Equal[[]string])); diff != "" {
				t.Errorf("services (-want +got):\n%s", diff)
			}
			for i, call := range d.calls {
				if strings.HasPrefix(call, "rename ") && d.calls[i+1] != "sync /etc/capi-proxy-patcher" {
					t.Errorf("%s is followed by %s: a file system may do them in another order", call, d.calls[i+1])
				}
			}
			d.calls = nil
			if err := d.host().Apply(version(t, test.want), nil); err != nil {
				t.Fatal(err)
			}
			for _, call := range d.calls {
				if !strings.HasPrefix(call, "read ") && !strings.HasPrefix(call, "list ") && !strings.HasPrefix(call, "lock ") {
					t.Errorf("a second run does %s", call)
				}
			}
		})
	}
}

func TestApply_WritesOnlyWhatTheNodeHas(t *testing.T) {
	t.Parallel()
	before, want := data(t, "old", "CA1\n", "x\n"), data(t, "new", "CA2\n", "y\n")
	tests := map[string]struct {
		missing []string
		fails   string
		calls   string
	}{
		"no trust store":               {[]string{contract.PathTrustedCA, contract.PathSetup}, "", "ready check addresses restart containerd,kubelet check"},
		"kubelet without the file":     {[]string{systemd.DropInPath("kubelet")}, "", "ready check trust addresses restart containerd,kubelet check"},
		"environment of kubeadm alone": {[]string{contract.PathNodeEnv, contract.PathTrustedCA, systemd.DropInPath("kubelet"), systemd.DropInPath("containerd")}, "", "check check"},
		"trust store alone":            {[]string{contract.PathNodeEnv, contract.PathProxyEnv, systemd.DropInPath("kubelet"), systemd.DropInPath("containerd")}, "", "ready check trust restart containerd,kubelet check"},
		"drop-ins without the file": {
			[]string{contract.PathProxyEnv},
			"there is no /etc/capi-proxy-patcher/proxy.env of capi-proxy-patcher on this node: its Machine was made without it; only a new Machine gets it",
			"",
		},
		"no node of ours": {
			[]string{contract.PathProxyEnv, contract.PathTrustedCA, contract.PathSetup, systemd.DropInPath("kubelet"), systemd.DropInPath("containerd")},
			"there is no /etc/capi-proxy-patcher/proxy.env of capi-proxy-patcher on this node: its Machine was made without it; only a new Machine gets it",
			"",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, expected := newDisk(t, before), newDisk(t, want)
			for _, disk := range []*disk{d, expected} {
				for _, missing := range test.missing {
					folder, _ := disk.find(missing)
					delete(folder.names, missing[strings.LastIndex(missing, "/")+1:])
				}
			}
			err := d.host().Apply(version(t, want), nil)
			if fmt.Sprint(err) != cmpOr(test.fails, "<nil>") {
				t.Fatal(err)
			}
			if test.fails != "" {
				expected = newDisk(t, before)
				for _, missing := range test.missing {
					folder, _ := expected.find(missing)
					delete(folder.names, missing[strings.LastIndex(missing, "/")+1:])
				}
			}
			if diff := cmp.Diff(expected.files(), d.files()); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			called := slices.DeleteFunc(slices.Clone(d.calls), func(c string) bool { return strings.Contains(c, "/") })
			if got := strings.Join(called, " "); got != test.calls {
				t.Errorf("services: %s, want %s", got, test.calls)
			}
		})
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
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
		for _, f := range patch.NodeFiles() {
			t.Run(name+" at "+f.Path, func(t *testing.T) {
				t.Parallel()
				d := newDisk(t, before)
				d.put(f.Path, file)
				files := d.files()
				err := d.host().Apply(version(t, want), nil)
				if err == nil || !strings.HasPrefix(err.Error(), f.Path+" on this node ") {
					t.Errorf("%v", err)
				}
				if diff := cmp.Diff(files, d.files()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
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
		for _, f := range append(patch.NodeFiles(), patch.NodeFile{Path: contract.PathNodeEnv}) {
			t.Run(name+" of "+f.Path, func(t *testing.T) {
				t.Parallel()
				d := newDisk(t, want)
				paths, err := d.host().Present()
				if err != nil {
					t.Fatal(err)
				}
				_, file := d.find(f.Path)
				change(file)
				if drift, err := d.host().Drift(version(t, want), paths); err != nil || !slices.Equal(drift, []string{f.Path}) {
					t.Errorf("drift %q, %v", drift, err)
				}
				if err := d.host().Apply(version(t, want), nil); err != nil {
					t.Fatal(err)
				}
				if diff := d.inForce(t, want); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if drift, err := d.host().Drift(version(t, want), paths); err != nil || len(drift) > 0 {
					t.Errorf("drift %q, %v", drift, err)
				}
			})
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
		"other addresses":           {`NO_PROXY="` + list + `,10.0.0.2,node-1"`, false},
		"no addresses":              {`NO_PROXY="` + list + `"`, false},
		"a list of another version": {`NO_PROXY="` + list + `.mine,10.0.0.1"`, true},
		"another variable":          {`HTTP_PROXY="http://mine"`, true},
		"not as a node writes it":   {`NO_PROXY=` + list, true},
		"gone":                      {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDisk(t, want)
			d.put(contract.PathNodeEnv, &inode{content: []byte(envfile.Header + "\n" + test.content + "\n"), mode: 0o600})
			if folder, _ := d.find(contract.PathNodeEnv); test.content == "" {
				delete(folder.names, "node.env")
			}
			paths, err := d.host().Present()
			if err != nil {
				t.Fatal(err)
			}
			drift, err := d.host().Drift(version(t, want), paths)
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
			if diff := d.inForce(t, want); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
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
			if diff := d.inForce(t, before); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
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

func TestApply_WritesNothingIfAnEndpointDoesNotAnswer(t *testing.T) {
	t.Parallel()
	before := data(t, "old", "CA1\n", "x\n")
	d := newDisk(t, before)
	d.refuses = func(call string, _, _ []byte) bool { return call == "check" }
	err := d.host().Apply(version(t, data(t, rude, "CA1\n", "x\n")), nil)
	if failed := (*node.RolledBackError)(nil); err == nil || errors.As(err, &failed) {
		t.Errorf("%v", err)
	}
	if diff := d.inForce(t, before); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, call := range d.calls {
		if word, _, _ := strings.Cut(call, " "); !slices.Contains([]string{"lock", "read", "list", "ready", "check"}, word) {
			t.Errorf("calls %s", call)
		}
	}
}

func TestHost_TouchesNothingWhileAnotherRunHasTheFolder(t *testing.T) {
	t.Parallel()
	before, want := data(t, "old", "CA1\n", "x\n"), data(t, rude, "CA2\n", "y\n")
	d := newDisk(t, before)
	d.locked = true
	const locked = "another capi-proxy-patcher node command has used /etc/capi-proxy-patcher on this node for 2m0s and has " +
		"not ended: nothing was changed; run this one again when that one has ended"
	_, planned := d.host().Plan(version(t, want))
	_, present := d.host().Present()
	for name, err := range map[string]error{
		"apply": d.host().Apply(version(t, want), nil), "apply of what was tried": d.host().Apply(version(t, want), errInjected),
		"plan": planned, "present": present,
	} {
		if failed := (*node.RolledBackError)(nil); err == nil || err.Error() != locked || errors.As(err, &failed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if diff := d.inForce(t, before); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, call := range d.calls {
		if call != "lock /etc/capi-proxy-patcher" {
			t.Errorf("calls %s", call)
		}
	}
	d.locked = false
	if err := d.host().Apply(version(t, want), nil); err != nil || d.locked {
		t.Errorf("%v, locked afterwards: %t", err, d.locked)
	}
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
		"empty":        {nil, "the mounted Secret has none of the files of a node"},
		"other keys":   {map[string][]byte{"password": []byte("secret")}, "the mounted Secret has none of the files of a node"},
		"no mark":      {with(contract.KeyTrustedCABundle, "secret"), `key trusted-ca.pem of the mounted Secret has no line "Managed by capi-proxy-patcher"`},
		"no variables": {with(contract.KeyProxyEnv, envfile.Header+"\nsecret\n"), `key proxy.env of the mounted Secret: line 2 is not NAME="VALUE"`},
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
