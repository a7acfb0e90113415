package internal_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// checkedInFile is a file of the work tree that git knows.
type checkedInFile struct{ root, path string }

func (f checkedInFile) Path() string                { return f.path }
func (f checkedInFile) Lstat() (os.FileInfo, error) { return os.Lstat(filepath.Join(f.root, f.path)) }

func (f checkedInFile) Open() (io.ReadCloser, error) { return os.Open(filepath.Join(f.root, f.path)) }

// TestModule_CanBeInstalledByVersion holds the repository to what the go command asks of a module that it downloads:
// paths that a module zip can hold, sizes below its limits, and a go.mod without directives that
// `go install PACKAGE@VERSION` refuses.
func TestModule_CanBeInstalledByVersion(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	list, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", "--cached", "--others",
		"--exclude-standard").Output()
	if err != nil {
		t.Skipf("the files of the module are those that git knows, and it knows none here: %v", err)
	}
	var files []zip.File
	for path := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if _, err := os.Lstat(filepath.Join(root, path)); err == nil {
			files = append(files, checkedInFile{root, path})
		}
	}
	mod := goMod(t)
	if len(mod.Replace) > 0 || len(mod.Exclude) > 0 {
		t.Errorf("go.mod has %d replace and %d exclude directives, which go install PACKAGE@VERSION refuses",
			len(mod.Replace), len(mod.Exclude))
	}
	if err := module.CheckPath(mod.Module.Mod.Path); err != nil {
		t.Error(err)
	}
	checked, err := zip.CheckFiles(files)
	if err != nil {
		t.Errorf("the go command cannot make a module of this repository: %v", err)
	}
	if len(checked.Valid) < 100 {
		t.Errorf("the module has %d files: is it this repository?", len(checked.Valid))
	}
}
