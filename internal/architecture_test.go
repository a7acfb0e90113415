// Package internal_test holds what is promised about the module as a whole.
package internal_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

const modulePath = "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/"

// TestPurePackagesStayPure holds the pure packages to what they may import, through everything that they import. The
// linter sees direct imports only.
func TestPurePackagesStayPure(t *testing.T) {
	t.Parallel()
	denied := map[string]string{
		"os/exec": "a pure package starts nothing", "net/http": "a pure package calls nobody",
		"sigs.k8s.io/controller-runtime": "a pure package has no client", "k8s.io/client-go": "a pure package has no client",
		"github.com/go-logr/logr": "a pure package does not log",
	}
	// Brought along by the API types of Cluster API, and by kyaml.
	excused := map[string][]string{
		"finding":  {"net/http", "github.com/go-logr/logr"},
		"patch":    {"net/http", "github.com/go-logr/logr"},
		"manifest": {"net/http", "os/exec"},
	}
	for _, name := range []string{
		"contract", "envfile", "explain", "finding", "jsonread", "manifest", "match", "nodescript", "noproxy", "patch", "proxyconfig", "shellquote", "spelling", "systemd",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := os.Stat(name); err != nil {
				t.Fatal(err)
			}
			output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+name).Output()
			if err != nil {
				t.Fatalf("go list: %v", err)
			}
			for dependency := range strings.FieldsSeq(string(output)) {
				for path, reason := range denied {
					if (dependency == path || strings.HasPrefix(dependency, path+"/")) && !slices.Contains(excused[name], path) {
						t.Errorf("%s comes to import %s: %s", name, dependency, reason)
					}
				}
				for _, shell := range []string{"cli", "controller", "render", "source", "webhook"} {
					if dependency == modulePath+shell {
						t.Errorf("%s comes to import %s, which is not pure", name, shell)
					}
				}
			}
		})
	}
}

// TestVersionsAreThoseOfClusterAPI keeps `go mod tidy` from raising the libraries above what Cluster API is tested with.
func TestVersionsAreThoseOfClusterAPI(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	file, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"sigs.k8s.io/cluster-api": "v1.14.2", "sigs.k8s.io/cluster-api/api": "v1.14.2", "sigs.k8s.io/controller-runtime": "v0.24.1",
		"k8s.io/api": "v0.36.3", "k8s.io/apiextensions-apiserver": "v0.36.3", "k8s.io/apimachinery": "v0.36.3", "k8s.io/client-go": "v0.36.3",
	}
	for _, requirement := range file.Require {
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
