package node_test

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/node"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// whole reports whether every file of a node is one of two versions, and the user's are his.
func (d *disk) whole(t *testing.T, versions ...map[string][]byte) string {
	t.Helper()
	problems := ""
	for _, f := range patch.NodeFiles() {
		content := string(d.content(f.Path))
		if content != string(versions[0][f.Key]) && content != string(versions[1][f.Key]) {
			problems += fmt.Sprintf("%s is neither: %q\n", f.Path, content)
		}
		if _, file := d.find(f.Path); file == nil || file.mode != f.Mode {
			problems += f.Path + " has another mode\n"
		}
	}
	if string(d.content(usersEd)) != "mine\n" {
		problems += usersEd + " is not as it was\n"
	}
	return problems
}

// scenario is an apply, with what happens when services get the new values.
type scenario struct {
	before, want map[string][]byte
	refuses      func(call string, env, ca []byte) bool
}

func scenarios(t *testing.T) map[string]scenario {
	t.Helper()
	before, want := data(t, "old", "CA1\n", "script1\n"), data(t, rude, "CA2\n", "script2\n")
	return map[string]scenario{
		"that works": {before: before, want: want},
		"that is rolled back": {before: before, want: want, refuses: func(call string, env, _ []byte) bool {
			return call == "restart" && string(env) == string(want[contract.KeyProxyEnv])
		}},
	}
}

// each runs a scenario once for each call that it makes.
func each(t *testing.T, test func(t *testing.T, s scenario, d *disk, at int)) {
	t.Helper()
	for name, s := range scenarios(t) {
		measure := newDisk(t, s.before)
		measure.refuses = s.refuses
		_ = measure.host().Apply(version(t, s.want), nil)
		if len(measure.calls) < 30 {
			t.Fatalf("%d calls", len(measure.calls))
		}
		for at := 1; at <= len(measure.calls); at++ {
			t.Run(fmt.Sprintf("an apply %s, at %d, %s", name, at, measure.calls[at-1]), func(t *testing.T) {
				t.Parallel()
				d := newDisk(t, s.before)
				d.refuses = s.refuses
				test(t, s, d, at)
			})
		}
	}
}

// ended checks what holds after a run that was not disturbed: the new version is in force, or the old one and an error.
func ended(t *testing.T, d *disk, s scenario, err error) {
	t.Helper()
	expected := s.want
	if failed := (*node.RolledBackError)(nil); errors.As(err, &failed) && failed.Left == nil {
		expected = s.before
	} else if err != nil {
		t.Fatalf("%v", err)
	}
	if diff := d.inForce(t, expected); diff != "" {
		t.Errorf("after %v (-want +got):\n%s", err, diff)
	}
}

func TestApply_SurvivesEachCallThatFails(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s scenario, d *disk, at int) {
		t.Helper()
		d.failAt = at
		err := d.host().Apply(version(t, s.want), nil)
		if problems := d.whole(t, s.before, s.want); problems != "" {
			t.Error(problems)
		}
		failed := (*node.RolledBackError)(nil)
		switch {
		case err == nil:
			t.Errorf("the failure of %s is not noticed", d.calls[at-1])
		case !errors.As(err, &failed):
			// Nothing was changed, or all is in force and only the journal is not gone.
			if d.inForceBut(t, s.before) != "" && d.inForceBut(t, s.want) != "" {
				t.Errorf("%v: %s", err, d.inForceBut(t, s.before))
			}
		case failed.Left == nil:
			if diff := d.inForce(t, s.before); diff != "" {
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
			if diff := d.inForce(t, s.before); diff != "" || !errors.As(again, &failed) || failed.Left != nil {
				t.Errorf("tried again: %v (-want +got):\n%s", again, diff)
			}
		}
		ended(t, d, s, d.host().Apply(version(t, s.want), nil))
	})
}

// inForceBut is inForce, with a journal that may be left.
func (d *disk) inForceBut(t *testing.T, data map[string][]byte) string {
	t.Helper()
	want, got := newDisk(t, data), d.files()
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
				if problems := d.whole(t, s.before, s.want); problems != "" {
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
		for name, next := range map[string]map[string][]byte{
			"third": data(t, "third", "CA3\n", "script3\n"), "before": s.before, "the same": s.want,
		} {
			t.Run(name, func(t *testing.T) {
				d := d.clone(t)
				ended(t, d, scenario{before: s.before, want: next}, d.host().Apply(version(t, next), nil))
			})
		}
	})
}

// A damaged journal: two applies at once, without a lock, left one without its files beside files that are whole.
func TestApply_ContinuesWithAJournalWithoutItsFiles(t *testing.T) {
	t.Parallel()
	before, want := data(t, "old", "CA1\n", "script1\n"), data(t, rude, "CA2\n", "script2\n")
	for _, f := range append(patch.NodeFiles(), patch.NodeFile{}) {
		for end, refuses := range map[string]func(call string, env, ca []byte) bool{
			"works": nil, "is rolled back": func(call string, env, _ []byte) bool {
				return call == "restart" && string(env) == string(want[contract.KeyProxyEnv])
			},
		} {
			t.Run(fmt.Sprintf("only %q is in it, and the apply %s", f.Key, end), func(t *testing.T) {
				t.Parallel()
				d := newDisk(t, before)
				d.refuses = refuses
				folder, _ := d.find(usersEd)
				folder.names[".node-apply"] = newFolder()
				if f.Key != "" {
					d.put("/etc/capi-proxy-patcher/.node-apply/"+path.Base(f.Path), &inode{content: before[f.Key], mode: 0o600})
				}
				if paths, err := d.host().Present(); err != nil || len(paths) != 1+len(patch.NodeFiles()) {
					t.Errorf("present: %q, %v", paths, err)
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
