package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// folderOf writes files into a folder of the test.
func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestPage_HasChecksumsOfItsFiles has a release folder with an image, which is on the page in an archive only.
func TestPage_HasChecksumsOfItsFiles(t *testing.T) {
	t.Parallel()
	const folder = provider + "/v1.2.3/"
	built := folderOf(t, map[string]string{
		folder + "README.txt": "r", folder + "image/blobs/a": "a", folder + checksums: "of the folder", "page/old": "",
	})
	root := folderOf(t, map[string]string{"CHANGELOG.md": "## v1.2.3\n\ntext\n"})
	if err := (release{root: root, version: "v1.2.3", built: built, folder: filepath.Join(built, folder)}).page(); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(built, "page")
	const archive = "capi-proxy-patcher-v1.2.3-folder.tar.gz"
	want := ""
	for _, name := range []string{"README.txt", archive} {
		want += fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(read(t, filepath.Join(page, name)))), name)
	}
	if got := read(t, filepath.Join(page, checksums)); got != want {
		t.Errorf("checksums are\n%s, want\n%s", got, want)
	}
	if files, err := os.ReadDir(page); err != nil || len(files) != 3 {
		t.Errorf("the page has %v, %v", files, err)
	}
	unpacked, err := gzip.NewReader(bytes.NewReader([]byte(read(t, filepath.Join(page, archive)))))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for files := tar.NewReader(unpacked); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		names = append(names, strings.TrimPrefix(header.Name, folder))
	}
	if !slices.Equal(names, []string{"README.txt", checksums, "image/blobs/a"}) {
		t.Errorf("the archive has %q", names)
	}
	if got := read(t, filepath.Join(built, "notes.md")); got != "text\n" {
		t.Errorf("notes are %q", got)
	}
}

func TestNotes_AreTheSectionOfTheVersion(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ changelog, want string }{
		"the section":   {"# Changelog\n\n## v1.2.3\n\n**Rolls**: no\n\n- a\n\n## v1.2.2\n\nb\n", "**Rolls**: no\n\n- a\n"},
		"the last one":  {"## v1.2.4\n\nb\n\n## v1.2.3\n\na\n### c\n", "a\n### c\n"},
		"links":         {"## v1.2.3\n[a](docs/b.md#c) [d](https://e.example) [f](#g)\n", "[a](" + repository + "/blob/v1.2.3/docs/b.md#c) [d](https://e.example) [f](#g)\n"},
		"no section":    {"## Unreleased\n\na\n", ""},
		"a longer one":  {"## v1.2.30\n\na\n", ""},
		"an empty one":  {"## v1.2.3\n\n## v1.2.2\n\nb\n", ""},
		"no such thing": {"", ""},
	} {
		root := folderOf(t, map[string]string{"CHANGELOG.md": test.changelog})
		got, err := release{root: root, version: "v1.2.3"}.notes()
		if got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

// TestMaterials_HaveLicences has modules of which one is the beginning of another's path, with several licences, and with
// none.
func TestMaterials_HaveLicences(t *testing.T) {
	t.Parallel()
	materials := func(names ...string) (map[string]string, error) {
		var modules []string
		for _, name := range names {
			modules = append(modules, `{"name": "`+name+`", "licenseDeclared": "NOASSERTION", "externalRefs": [{"referenceLocator": "pkg:golang/x?a&b"}]}`)
		}
		r := release{folder: t.TempDir(), built: folderOf(t, map[string]string{
			"licences.txt": "a.example/b/c MIT\na.example/b Apache-2.0\na.example/b/d/e ISC\na.example/bc ISC\n",
			"sbom/x.json":  `{"packages": [{"name": "sha256:1", "licenseDeclared": "NOASSERTION"}, ` + strings.Join(modules, ",") + "]}",
		})}
		if err := r.materials(); err != nil {
			return nil, err
		}
		text := read(t, filepath.Join(r.folder, "x.json"))
		var document struct {
			Packages []struct{ Name, LicenseConcluded, LicenseDeclared string }
		}
		if err := json.Unmarshal([]byte(text), &document); err != nil || !strings.Contains(text, "a&b") {
			t.Errorf("%v in %s", err, text)
		}
		found := map[string]string{}
		for _, p := range document.Packages {
			found[p.Name] = p.LicenseDeclared
			if p.LicenseConcluded != p.LicenseDeclared && p.LicenseConcluded != "" {
				t.Errorf("%+v", p)
			}
		}
		return found, nil
	}
	got, err := materials("a.example/b", "a.example/bc", "a.example/b/d")
	want := map[string]string{
		"sha256:1": "NOASSERTION", "a.example/b": "Apache-2.0 AND MIT", "a.example/bc": "ISC", "a.example/b/d": "ISC",
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if _, err := materials("a.example/b/c/d"); err == nil || !strings.Contains(err.Error(), "the licence of a.example/b/c/d is not known") {
		t.Errorf("a module without a licence: %v", err)
	}
}
