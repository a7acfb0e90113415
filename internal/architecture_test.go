// Package internal_test holds what is promised about the module as a whole.
package internal_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/modfile"
	"sigs.k8s.io/yaml"
)

const modulePath = "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/"

// TestPurePackages_ImportNothingImpure holds the pure packages to what they may import, through everything that they
// import. The linter sees direct imports only.
func TestPurePackages_ImportNothingImpure(t *testing.T) {
	t.Parallel()
	denied := map[string]string{
		"os/exec": "a pure package starts nothing", "net/http": "a pure package calls nobody",
		"sigs.k8s.io/controller-runtime": "a pure package has no client", "k8s.io/client-go": "a pure package has no client",
		"github.com/go-logr/logr": "a pure package does not log",
	}
	// Brought along by the API types of Cluster API and by kyaml.
	types := []string{"net/http", "github.com/go-logr/logr"}
	excused := map[string][]string{
		"offline/foreign":  {"net/http", "os/exec"},
		"offline/manifest": {"net/http", "os/exec"},
		"core/kinds":       types,
		"inplace/node":     types,
		"patch":            types,
		"core/plan":        types,
		"publish/output":   types,
		"core/settings":    types,
	}
	for _, name := range []string{
		"core/contract", "core/finding", "core/infrastructure", "core/kinds", "inplace/node", "core/noproxy", "offline/foreign", "offline/manifest",
		"explain/match", "patch", "core/plan", "publish/output", "core/settings", "systemd",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, exists := imported(t)[modulePath+name]; !exists {
				t.Fatal("there is no such package")
			}
			for _, path := range excused[name] {
				if !slices.ContainsFunc(imported(t)[modulePath+name].Deps, func(d string) bool { return d == path || strings.HasPrefix(d, path+"/") }) {
					t.Errorf("%s is excused for %s, which it does not import", name, path)
				}
			}
			for _, dependency := range imported(t)[modulePath+name].Deps {
				for path, reason := range denied {
					if (dependency == path || strings.HasPrefix(dependency, path+"/")) && !slices.Contains(excused[name], path) {
						t.Errorf("%s comes to import %s: %s", name, dependency, reason)
					}
				}
				for _, shell := range []string{"cli", "core/controller", "core/hooks", "core/manager", "offline/render", "core/webhook", "core/world"} {
					if dependency == modulePath+shell {
						t.Errorf("%s comes to import %s, which is not pure", name, shell)
					}
				}
			}
		})
	}
}

// shared are the folders below internal that everything may import. All others are capabilities.
var shared = []string{"core", "patch", "systemd", "remote", "cli", "reported"}

// TestArrows_PointToTheCore holds that the core imports no capability, and no capability another one, not even through
// another package: each can be taken out, as hack/without.sh does. Only the command imports capabilities.
func TestArrows_PointToTheCore(t *testing.T) {
	t.Parallel()
	folder := func(path string) string {
		folder, _, _ := strings.Cut(strings.TrimPrefix(path, modulePath), "/")
		return folder
	}
	for path, one := range imported(t) {
		for _, dependency := range one.Deps {
			if from, to := folder(path), folder(dependency); strings.HasPrefix(dependency, modulePath) && from != to &&
				!slices.Contains(shared, to) {
				t.Errorf("%s comes to import %s", strings.TrimPrefix(path, modulePath), strings.TrimPrefix(dependency, modulePath))
			}
		}
	}
}

// TestCore_NamesNoCapability reads the core, and what it is made of: a capability brings its own names, see
// contract.Capability.
func TestCore_NamesNoCapability(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`InPlace|(?i:inplace|in-place|updates? in place|publisher|annotationpublish|proxypublished)|` +
		`internal/(inplace|publish|offline|explain|fleet|check)\b`)
	for name, files := range packages(t) {
		folder, _, _ := strings.Cut(name, "/")
		if folder != "core" && folder != "patch" && folder != "systemd" {
			continue
		}
		for _, file := range files {
			for _, found := range named.FindAllString(file.text, -1) {
				t.Errorf("package %s names %s", name, found)
			}
		}
	}
}

// TestLinter_AllowsWhatIsImportedAndNoMore compares the strict lists of depguard with the imports that there are. What
// is missing in a list is found by the linter, what is too much only here.
func TestLinter_AllowsWhatIsImportedAndNoMore(t *testing.T) {
	t.Parallel()
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]struct {
						ListMode string `json:"list-mode"`
						Files    []string
						Allow    []string
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "../.golangci.yml")), &config); err != nil {
		t.Fatal(err)
	}
	strict := 0
	for name, rule := range config.Linters.Settings.Depguard.Rules {
		if rule.ListMode != "strict" {
			continue
		}
		strict++
		folder := strings.TrimSuffix(strings.TrimPrefix(rule.Files[0], "**/internal/"), "/**")
		var imports []string
		for path, one := range imported(t) {
			if strings.HasPrefix(path+"/", modulePath+folder+"/") {
				imports = append(imports, one.Imports...)
			}
		}
		for _, allowed := range rule.Allow {
			if allowed != "$gostd" && !slices.Contains(imports, strings.TrimSuffix(allowed, "$")) {
				t.Errorf("depguard rule %s allows %s, which %s does not import", name, allowed, folder)
			}
		}
	}
	if strict < 14 {
		t.Errorf("%d strict rules found", strict)
	}
}

// imports are what a package imports, and what it comes to import.
type imports struct{ Imports, Deps []string }

// listed asks the go command once.
var listed = sync.OnceValues(func() (map[string]imports, error) {
	output, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...").Output()
	if err != nil {
		return nil, err
	}
	all := map[string]imports{}
	decoder := json.NewDecoder(bytes.NewReader(output))
	for decoder.More() {
		var one struct {
			ImportPath string
			imports
		}
		if err := decoder.Decode(&one); err != nil {
			return nil, err
		}
		all[one.ImportPath] = one.imports
	}
	return all, nil
})

// imported returns the packages of this folder by import path.
func imported(t *testing.T) map[string]imports {
	t.Helper()
	all, err := listed()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return all
}

// goMod returns go.mod.
func goMod(t *testing.T) *modfile.File {
	t.Helper()
	file, err := modfile.Parse("go.mod", []byte(read(t, "../go.mod")), nil)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// read returns the text of a file.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// eachFile calls visit with the path of every file below a folder, or of the file itself.
func eachFile(t *testing.T, root string, visit func(path string)) {
	t.Helper()
	if err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			visit(path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestVersions_AreThoseOfClusterAPI keeps `go mod tidy` from raising the libraries above what Cluster API is tested
// with.
func TestVersions_AreThoseOfClusterAPI(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"sigs.k8s.io/cluster-api": "v1.14.2", "sigs.k8s.io/cluster-api/api": "v1.14.2", "sigs.k8s.io/controller-runtime": "v0.24.1",
		"k8s.io/api": "v0.36.3", "k8s.io/apiextensions-apiserver": "v0.36.3", "k8s.io/apimachinery": "v0.36.3", "k8s.io/client-go": "v0.36.3",
	}
	for _, requirement := range goMod(t).Require {
		version, pinned := want[requirement.Mod.Path]
		if pinned && requirement.Mod.Version != version {
			t.Errorf("%s is at %s, want %s", requirement.Mod.Path, requirement.Mod.Version, version)
		}
		delete(want, requirement.Mod.Path)
	}
	for path := range want {
		t.Errorf("%s is not required", path)
	}
}
