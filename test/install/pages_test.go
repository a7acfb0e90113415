package install

import (
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ocilayout"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// owner is a part of command lines, and the test that runs them.
type owner struct{ part, test string }

// elsewhere are command lines that need more than a release folder, a registry and an API server.
var elsewhere = []owner{
	{"-n team-a", "TestStartPage_CommandsWork"},
	{"clusterctl init", "TestTranscript"},
	{"clusterctl upgrade", "TestTranscript"},
	{"clusterctl delete", "TestTranscript"},
	{"check --pre", "TestTranscript"},
	{"check --wait", "TestTranscript"},
	{"rollout status", "TestClusterctl"},
	{"condition=Discovered", "TestClusterctl"},
	{"make release", "TestRelease"},
	{"make demo KEEP=1", "TestDemo_EndsItsProcesses"},
	{"make demo NODE=1", "TestKubernetes"},
	{"make demo", ""}, // .ci/run
}

// shown are beginnings of what is no command: what one prints, and a file in a list.
var shown = regexp.MustCompile(`^(\d of \d pools|\* |images:|runtime-extension-capi|repository:)`)

// kinds are those of cert-manager, Prometheus and the Cluster API Operator that an installation uses.
var kinds = map[string]string{
	"Certificate": "cert-manager.io/v1", "Issuer": "cert-manager.io/v1",
	"ServiceMonitor": "monitoring.coreos.com/v1", "PrometheusRule": "monitoring.coreos.com/v1",
	"RuntimeExtensionProvider": "operator.cluster.x-k8s.io/v1alpha2",
}

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: PLURAL.GROUP}
spec:
  group: GROUP
  names: {kind: KIND, plural: PLURAL}
  scope: Namespaced
  versions:
  - name: VERSION
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---`

// user has a release folder, a checkout, a registry and a management cluster.
type user struct {
	folder string
	env    []string
}

// newUser starts a management cluster for a copy of a release folder, in which there is config/ of the checkout, too. The
// tools are in folder bin.
func newUser(t *testing.T, release, bin string) *user {
	t.Helper()
	if _, err := os.Stat(filepath.Join(os.Getenv(mgmt.AssetsVariable), "clusterctl")); err != nil {
		t.Skip(err)
	}
	cluster := vocabulary.StartCluster(t, mgmt.Options{})
	u := &user{folder: t.TempDir()}
	home := t.TempDir()
	caches, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output() // of the real home
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(caches), "\n")
	u.env = append(os.Environ(), "GOCACHE="+lines[0], "GOMODCACHE="+lines[1],
		"HOME="+home, "KUBECONFIG="+filepath.Join(home, "kubeconfig"),
		"PATH="+bin+":"+os.Getenv(mgmt.AssetsVariable)+":"+os.Getenv("PATH"),
		"CLUSTERCTL_DISABLE_VERSIONCHECK=true", "PLATFORMS=linux/"+runtime.GOARCH,
		"KUBERNETES_VERSION=v1.36.3", "WORKER_MACHINE_COUNT=1")
	if err := mgmt.WriteKubeconfig(filepath.Join(home, "kubeconfig"), cluster.Config()); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(u.folder, os.DirFS(release)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(vocabulary.CopyConfig(t), filepath.Join(u.folder, "config")); err != nil {
		t.Fatal(err)
	}
	text := ""
	for kind, served := range kinds {
		group, version, _ := strings.Cut(served, "/")
		text += strings.NewReplacer("KIND", kind, "PLURAL", strings.ToLower(kind)+"s", "GROUP", group, "VERSION", version).
			Replace(definition)
	}
	if err := os.WriteFile(filepath.Join(home, "kinds.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	u.run(t, "kubectl apply -f ~/kinds.yaml && kubectl wait --for=condition=Established -f ~/kinds.yaml")
	return u
}

// run runs a command line in the folder and returns what it prints.
func (u *user) run(t *testing.T, command string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", command)
	cmd.Dir, cmd.Env = u.folder, u.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// tools builds the programs that the pages name and that are no part of Kubernetes.
func tools(t *testing.T) (bin string) {
	t.Helper()
	bin = t.TempDir()
	for _, args := range [][]string{
		{"-modfile=go.tools.mod", "sigs.k8s.io/kustomize/kustomize/v5"},
		{"helm.sh/helm/v3/cmd/helm"},
		{"./cmd/capi-proxy-patcher"},
	} {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", bin + "/"}, args...)...)
		cmd.Dir = root
		if strings.HasPrefix(args[0], "helm") {
			cmd.Dir = filepath.Join(root, "test", "engines")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return bin
}

// commandLines returns the lines of the code blocks of a page that are no files, and commands about kubectl in its text.
func commandLines(t *testing.T, page string) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(content), "\n## A session\n")                // TestTranscript
	text = regexp.MustCompile("(?s)\n```.*?\n```\n").ReplaceAllString(text, "\n") // TestDocs_ExamplesOfAnInstallationWork
	text = strings.ReplaceAll(text, "\\\n", "")
	var lines []string
	for _, match := range regexp.MustCompile("(?m)^ {4,}(.*)$|`(kubectl (?:apply|delete) -[fk] [^`]+)`").
		FindAllStringSubmatch(text, -1) {
		lines = append(lines, match[1]+match[2])
	}
	return lines
}

// adapted returns what a command line is here: the registry and the checkout are those of the test, and there are no Pods.
func adapted(line, host, checkout, digest string) (program, command string) {
	command = strings.NewReplacer("my-registry.example.com", host, "sha256:…", digest, "linux-amd64", "linux-"+runtime.GOARCH,
		"cluster prod |", "cluster prod --from cluster-template.yaml |").Replace(line)
	program, rest, _ := strings.Cut(command, " ")
	switch program {
	case "make":
		return program, "make --no-print-directory -C " + checkout + " " + rest
	case "tar":
		return program, "mkdir -p ~/.local/bin && " + command
	case "helm":
		return program, strings.ReplaceAll(command, " --wait", "") + " --plain-http"
	case "skopeo":
		return program, command + " --dest-tls-verify=false"
	}
	if strings.HasPrefix(command, "kubectl delete -k ") { // nothing ends a Namespace
		command += " --ignore-not-found --wait=false"
	}
	return program, command
}

// isInstalledAsThePagesSay runs each command line of the pages about installing, in their order.
func isInstalledAsThePagesSay(t *testing.T, release string) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	bin := tools(t)
	user, userOfHelm := newUser(t, release, bin), newUser(t, release, bin)
	user.run(t, "mkdir clusters && clusterctl generate cluster staging --from cluster-template.yaml > clusters/staging.yaml")
	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	_, noSkopeo := exec.LookPath("skopeo")
	ran, used, digest := map[string]int{}, map[int]bool{}, ""
	for _, page := range []string{"README.md", "docs/start.md", "docs/clusterclass.md", "docs/install.md"} {
		for _, line := range commandLines(t, page) {
			program, command := adapted(line, host, checkout, digest)
			if i := slices.IndexFunc(elsewhere, func(o owner) bool { return strings.Contains(line, o.part) }); i >= 0 {
				used[i] = true
				continue
			}
			if shown.MatchString(line) || program == "cd" || page == "docs/clusterclass.md" && program != "kubectl" {
				continue
			}
			ran[program]++
			switch {
			case program == "skopeo" && noSkopeo != nil:
				t.Logf("%s is not run: %v", line, noSkopeo)
			case program == "helm":
				userOfHelm.run(t, command)
			case program == "make":
				digest = regexp.MustCompile("sha256:[0-9a-f]{64}").FindString(user.run(t, command))
			default:
				user.run(t, command)
			}
		}
	}
	if want := map[string]int{
		"(cd": 2, "capi-proxy-patcher": 3, "clusterctl": 2, "helm": 2, "kubectl": 18, "make": 1, "sha256sum": 1, "skopeo": 2,
		"tar": 1,
	}; !maps.Equal(ran, want) {
		t.Errorf("commands: %v", ran)
	}
	pushed(t, server, "capi-proxy-patcher", digest)
	if image, err := ocilayout.Read(filepath.Join(release, "image")); err != nil || noSkopeo == nil {
		pushed(t, server, "team/capi-proxy-patcher", image.Digest)
	}
	areTests(t, checkout, used)
}

// pushed checks that an image is in a registry.
func pushed(t *testing.T, server *httptest.Server, image, digest string) {
	t.Helper()
	url := server.URL + "/v2/" + image + "/manifests/" + releaseVersion
	request, err := http.NewRequestWithContext(t.Context(), http.MethodHead, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if got := response.Header.Get("Docker-Content-Digest"); response.StatusCode != http.StatusOK || got != digest {
		t.Errorf("%s: %s, digest %q, want %s", url, response.Status, got, digest)
	}
}

// areTests checks that pages have the command lines of other tests, and that these tests exist.
func areTests(t *testing.T, checkout string, used map[int]bool) {
	t.Helper()
	for i, o := range elsewhere {
		if !used[i] {
			t.Errorf("no page has a command line with %q", o.part)
		}
		grep := exec.CommandContext(t.Context(), "grep", "-rqF", "func "+o.test+"(", "--include=*_test.go",
			filepath.Join(checkout, "hack"), filepath.Join(checkout, "test"))
		if err := grep.Run(); o.test != "" && err != nil {
			t.Errorf("there is no %s: %v", o.test, err)
		}
	}
}
