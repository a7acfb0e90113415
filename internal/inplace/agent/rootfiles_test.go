package agent_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/agent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/node"
)

var _ node.Files = agent.Files{}

func open(t *testing.T) (string, agent.Files) {
	t.Helper()
	folder := t.TempDir()
	files, err := agent.Open(folder)
	must(t, err)
	return folder, files
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestFiles_WriteWithModeAndOwnerWhateverTheFolder(t *testing.T) {
	t.Parallel()
	folder, files := open(t)
	must(t, files.Mkdir("/own", 0o700))
	if info, err := os.Stat(filepath.Join(folder, "own")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
	// A folder with this bit gives new files its group.
	must(t, os.Chmod(filepath.Join(folder, "own"), 0o700|fs.ModeSetgid))
	if os.Geteuid() == 0 {
		must(t, os.Chown(filepath.Join(folder, "own"), 0, 12345))
		must(t, os.Chmod(filepath.Join(folder, "own"), 0o700|fs.ModeSetgid))
	}
	for name, mode := range map[string]fs.FileMode{"a": 0o600, "b": 0o644, "c": 0o755} {
		name = "/own/" + name
		must(t, files.Write(name, node.Content("x"), mode))
		f, err := files.Read(name)
		if err != nil || f.Mode != mode || !f.Owned || string(f.Content) != "x" {
			t.Errorf("%s: %v %t %v", name, f.Mode, f.Owned, err)
		}
		if err := files.Write(name, node.Content("y"), mode); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s is written twice: %v", name, err)
		}
	}
	must(t, files.Rename("/own/a", "/own/b"), files.Sync("/own"), files.Remove("/own/c"))
	if names, err := files.List("/own"); err != nil || !slices.Equal(names, []string{"b"}) {
		t.Errorf("%q %v", names, err)
	}
	if err := files.Remove("/own"); err == nil {
		t.Error("a folder with a file is removed")
	}
}

func TestFiles_TouchNothingThroughALink(t *testing.T) {
	t.Parallel()
	folder, files := open(t)
	elsewhere := t.TempDir()
	must(t, os.WriteFile(filepath.Join(elsewhere, "f"), []byte("mine"), 0o600),
		os.Mkdir(filepath.Join(folder, "d"), 0o700), os.WriteFile(filepath.Join(folder, "d/f"), []byte("mine"), 0o600),
		os.Symlink(elsewhere, filepath.Join(folder, "out")), os.Symlink("d", filepath.Join(folder, "in")),
		os.Symlink("d/f", filepath.Join(folder, "f")), syscall.Mkfifo(filepath.Join(folder, "fifo"), 0o600))
	for _, name := range []string{"/out/f", "/in/f", "/f", "/d", "/fifo", "/in", "/../" + filepath.Base(elsewhere) + "/f", "/d/f/g"} {
		if f, err := files.Read(name); err == nil {
			t.Errorf("reads %s: %v", name, f.Mode)
		}
	}
	for _, name := range []string{"/out", "/in"} {
		_, listed := files.List(name)
		for what, err := range map[string]error{
			"lists": listed, "syncs": files.Sync(name), "writes": files.Write(name+"/new", node.Content("x"), 0o600),
			"removes": files.Remove(name + "/f"), "renames from": files.Rename(name+"/f", "/g"),
			"renames to": files.Rename("/d/f", name+"/g"), "makes a folder in": files.Mkdir(name+"/new", 0o700),
		} {
			if err == nil {
				t.Errorf("%s %s", what, name)
			}
		}
	}
}

// A process that is killed leaves no lock: the kernel removes it. Garbage collection does not.
func TestFiles_LockForOne(t *testing.T) {
	t.Parallel()
	folder, files := open(t)
	must(t, os.Mkdir(filepath.Join(folder, "run"), 0o755)) //nolint:gosec // as on a node
	other, err := agent.Open(folder)
	must(t, err)
	unlock, err := files.Lock(0)
	must(t, err)
	for name, mode := range map[string]fs.FileMode{"": fs.ModeDir | 0o700, "lock": 0o600} {
		if info, err := os.Stat(filepath.Join(folder, "run/capi-proxy-patcher", name)); err != nil || info.Mode() != mode {
			t.Errorf("%q: %v, %v", name, info, err)
		}
	}
	runtime.GC()
	runtime.GC()
	if _, err := other.Lock(250 * time.Millisecond); !errors.Is(err, node.ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		unlock, err := other.Lock(time.Minute)
		if err == nil {
			unlock()
		}
		got <- err
	}()
	unlock()
	if err := <-got; err != nil {
		t.Errorf("does not wait: %v", err)
	}
}

// What somebody else has made there he could lock, too.
func TestFiles_LockNothingOfSomebodyElse(t *testing.T) {
	t.Parallel()
	const ours = "run/capi-proxy-patcher"
	for name, test := range map[string]struct {
		plant func(root string) error
		want  string
	}{
		"no folder of the system's": {func(root string) error { return os.Remove(filepath.Join(root, "run")) }, "making the folder of the lock: "},
		"a link in place of the folder": {func(root string) error {
			return errors.Join(os.Mkdir(filepath.Join(root, "mine"), 0o700), os.Symlink("../mine", filepath.Join(root, ours)))
		}, "/run/capi-proxy-patcher on this node is not a folder of root with mode 700: "},
		"a folder for everybody": {func(root string) error {
			return errors.Join(os.Mkdir(filepath.Join(root, ours), 0o700), os.Chmod(filepath.Join(root, ours), 0o777)) //nolint:gosec // as planted
		}, "/run/capi-proxy-patcher on this node is not a folder of root with mode 700: "},
		"a folder of another owner": {func(root string) error {
			return errors.Join(os.Mkdir(filepath.Join(root, ours), 0o700), os.Chown(filepath.Join(root, ours), 12345, 12345))
		}, "/run/capi-proxy-patcher on this node is not a folder of root with mode 700: "},
		"a file in place of the folder": {func(root string) error {
			return os.WriteFile(filepath.Join(root, ours), nil, 0o600)
		}, "/run/capi-proxy-patcher on this node is not a folder of root with mode 700: "},
		"a link in place of the file": {func(root string) error {
			return errors.Join(os.Mkdir(filepath.Join(root, ours), 0o700), os.Symlink("../mine", filepath.Join(root, ours, "lock")))
		}, "/run/capi-proxy-patcher/lock on this node is not a file of root with mode 600: "},
		"a file for everybody": {func(root string) error {
			return errors.Join(os.Mkdir(filepath.Join(root, ours), 0o700), os.WriteFile(filepath.Join(root, ours, "lock"), nil, 0o644)) //nolint:gosec // as planted
		}, "/run/capi-proxy-patcher/lock on this node is not a file of root with mode 600: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "a folder of another owner" && os.Geteuid() != 0 {
				t.Skip("only root gives a folder away")
			}
			root, files := open(t)
			must(t, os.Mkdir(filepath.Join(root, "run"), 0o755), test.plant(root)) //nolint:gosec // as on a node
			if _, err := files.Lock(0); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
			if _, err := os.Stat(filepath.Join(root, "mine/lock")); err == nil {
				t.Error("the lock is where the link leads")
			}
		})
	}
}
