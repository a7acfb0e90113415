package node_test

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/node"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// theirs is a drop-in of somebody else at a path of the product.
var theirs = systemd.DropInPath("containerd")

// world is a node with files of a version; if foreign is set, with a drop-in of somebody else, where the version has none.
func world(t *testing.T, data map[string][]byte, foreign bool) *disk {
	t.Helper()
	d := newDisk(t, data)
	if foreign {
		d.put(theirs, &inode{content: []byte("[Service]\nEnvironment=HTTP_PROXY=http://mine\n"), mode: 0o640, foreign: true})
		d.restarted()
	}
	return d
}

// whole reports whether every file of a node is as in one of two worlds, and the user's are his.
func (d *disk) whole(t *testing.T, s scenario) string {
	t.Helper()
	before, after, now, problems := s.begin(t).files(), s.end(t).files(), d.files(), ""
	for _, name := range append(patch.ManagedPaths(), usersEd) {
		if now[name] != before[name] && now[name] != after[name] {
			problems += fmt.Sprintf("%s is neither: %q\n", name, now[name])
		}
	}
	if s.foreign && !slices.Contains(slices.Collect(maps.Values(now)), "640 true [Service]\nEnvironment=HTTP_PROXY=http://mine\n") {
		problems += "the file of somebody else is gone"
	}
	return problems
}

// scenario is an apply, with what happens when services get the new values.
type scenario struct {
	before, want map[string][]byte
	foreign      bool
	refuses      func(call string, env, ca []byte) bool
}

func (s scenario) begin(t *testing.T) *disk {
	t.Helper()
	d := world(t, s.before, s.foreign)
	d.refuses = s.refuses
	return d
}

func (s scenario) end(t *testing.T) *disk {
	t.Helper()
	return world(t, s.want, s.foreign)
}

func scenarios(t *testing.T) map[string]scenario {
	t.Helper()
	before, want := data(t, "old", "CA1\n", "script1\n"), data(t, rude, "CA2\n", "script2\n")
	none, kubelet := withTargets(t, want), withTargets(t, want, contract.TargetKubelet, contract.TargetTrust)
	isNew := func(call string, env, _ []byte) bool {
		return call == "restart" && string(env) == string(want[contract.KeyProxyEnv])
	}
	isGone := func(call string, env, _ []byte) bool { return call == "restart" && env == nil }
	return map[string]scenario{
		"that works":                            {before: before, want: want},
		"that is rolled back":                   {before: before, want: want, refuses: isNew},
		"that adds files":                       {before: none, want: want},
		"that adds files and is rolled back":    {before: none, want: want, refuses: isNew},
		"that removes files":                    {before: before, want: none},
		"that removes files and is rolled back": {before: before, want: none, refuses: isGone},
		"that adds files beside another":        {before: none, want: kubelet, foreign: true},
		"that removes files beside another":     {before: kubelet, want: none, foreign: true},
		"of fewer targets":                      {before: before, want: withTargets(t, want, contract.TargetContainerd)},
	}
}

// each runs a scenario once for each call that it makes.
func each(t *testing.T, test func(t *testing.T, s scenario, d *disk, at int)) {
	t.Helper()
	for name, s := range scenarios(t) {
		measure := s.begin(t)
		_ = measure.host().Apply(version(t, s.want), nil)
		if len(measure.calls) < 30 {
			t.Fatalf("%d calls", len(measure.calls))
		}
		for at := 1; at <= len(measure.calls); at++ {
			t.Run(fmt.Sprintf("an apply %s, at %d, %s", name, at, measure.calls[at-1]), func(t *testing.T) {
				t.Parallel()
				d := s.begin(t)
				test(t, s, d, at)
			})
		}
	}
}

// ended checks what holds after a run that was not disturbed: the new version is in force, or the old one and an error.
func ended(t *testing.T, d *disk, s scenario, err error) {
	t.Helper()
	expected := s.end(t)
	if failed := (*node.RolledBackError)(nil); errors.As(err, &failed) && failed.Left == nil {
		expected = s.begin(t)
	} else if err != nil {
		t.Fatalf("%v", err)
	}
	if diff := d.differs(expected); diff != "" {
		t.Errorf("after %v (-want +got):\n%s", err, diff)
	}
}

func TestApply_SurvivesEachCallThatFails(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s scenario, d *disk, at int) {
		t.Helper()
		d.failAt = at
		err := d.host().Apply(version(t, s.want), nil)
		if problems := d.whole(t, s); problems != "" {
			t.Error(problems)
		}
		failed := (*node.RolledBackError)(nil)
		switch {
		case err == nil:
			t.Errorf("the failure of %s is not noticed", d.calls[at-1])
		case !errors.As(err, &failed):
			// Nothing was changed, or all is in force and only the journal is not gone.
			if d.differsBut(s.begin(t)) != "" && d.differsBut(s.end(t)) != "" {
				t.Errorf("%v: %s", err, d.differsBut(s.begin(t)))
			}
		case failed.Left == nil:
			if diff := d.differs(s.begin(t)); diff != "" {
				t.Errorf("rolled back (-want +got):\n%s", diff)
			}
		}
		var tried error
		if failed != nil {
			tried = failed.Cause
		}
		// The same Pod again, which has a memory, and then another one.
		again := d.host().Apply(version(t, s.want), tried)
		if tried != nil {
			if diff := d.differs(s.begin(t)); diff != "" || !errors.As(again, &failed) || failed.Left != nil {
				t.Errorf("tried again: %v (-want +got):\n%s", again, diff)
			}
		}
		ended(t, d, s, d.host().Apply(version(t, s.want), nil))
	})
}

// differsBut is differs, with a journal that may be left.
func (d *disk) differsBut(want *disk) string {
	got := d.files()
	for name := range got {
		if strings.Contains(name, ".node-apply") {
			delete(got, name)
		}
	}
	return cmp.Diff(want.files(), got) + cmp.Diff(want.running, d.running)
}

func TestApply_IsConsistentAfterAPowerCut(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("names that were not synced are lost: %t", lost), func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s scenario, d *disk, at int) {
				t.Helper()
				d.cutAt = at
				if _, cut := d.apply(version(t, s.want), nil); !cut {
					t.Fatal("no cut")
				}
				d.reboot(lost)
				if problems := d.whole(t, s); problems != "" {
					t.Error(problems)
				}
				ended(t, d, s, d.host().Apply(version(t, s.want), nil))
			})
		})
	}
}

// The process is killed and the node runs on: services do not read anything by themselves.
func TestApply_IsConsistentAfterItWasKilled(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s scenario, d *disk, at int) {
		t.Helper()
		d.cutAt = at
		if _, cut := d.apply(version(t, s.want), nil); !cut {
			t.Fatal("no cut")
		}
		d.cutAt = 0
		// The next version may be another one: the user has changed the Secret again, or back.
		third := data(t, "third", "CA3\n", "script3\n")
		if s.foreign {
			third = withTargets(t, third, contract.TargetKubelet)
		}
		for name, next := range map[string]map[string][]byte{"third": third, "before": s.before, "the same": s.want} {
			t.Run(name, func(t *testing.T) {
				d := d.clone(t)
				ended(t, d, scenario{before: s.before, want: next, foreign: s.foreign}, d.host().Apply(version(t, next), nil))
			})
		}
	})
}

// A damaged journal: two applies at once, without a lock, left one without its files beside files that are whole.
func TestApply_ContinuesWithAJournalWithoutItsFiles(t *testing.T) {
	t.Parallel()
	before, want := data(t, "old", "CA1\n", "script1\n"), data(t, rude, "CA2\n", "script2\n")
	for _, f := range append(filesOf(t, before), patch.NodeFile{}) {
		for end, refuses := range map[string]func(call string, env, ca []byte) bool{
			"works": nil, "is rolled back": func(call string, env, _ []byte) bool {
				return call == "restart" && string(env) == string(want[contract.KeyProxyEnv])
			},
		} {
			t.Run(fmt.Sprintf("only %q is in it, and the apply %s", f.Path, end), func(t *testing.T) {
				t.Parallel()
				d := newDisk(t, before)
				d.refuses = refuses
				folder, _ := d.find(usersEd)
				folder.names[".node-apply"] = newFolder()
				if f.Path != "" {
					name := path.Base(f.Path)
					if service := path.Base(path.Dir(f.Path)); strings.HasSuffix(service, ".d") {
						name = service + "-" + name
					}
					d.put("/etc/capi-proxy-patcher/.node-apply/"+name, &inode{content: f.Content, mode: 0o600})
				}
				ended(t, d, scenario{before: before, want: want}, d.host().Apply(version(t, want), nil))
			})
		}
	}
}

// clone copies a disk with what runs on it.
func (d *disk) clone(t *testing.T) *disk {
	t.Helper()
	c := *d
	c.calls, c.root, c.running = nil, copyOf(d.root), maps.Clone(d.running)
	return &c
}

func copyOf(n *inode) *inode {
	c := *n
	if n.names != nil {
		c.names, c.durable = map[string]*inode{}, map[string]*inode{}
		for name, inside := range n.names {
			c.names[name] = copyOf(inside)
			c.durable[name] = c.names[name]
		}
	}
	return &c
}
