package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// elsewhere are parts of commands that other tests run, or that need what an API server alone does not have.
var elsewhere = []string{
	" team-a", "/prod", // test/envtest, see docs/start.md
	"rollout status", "condition=Discovered", // Pods
	"monitoring.yaml", "capi-operator.yaml", "runtimeextensionprovider", // kinds of other products
}

// certManager has the kinds of cert-manager that an installation uses.
const certManager = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: PLURAL.cert-manager.io}
spec:
  group: cert-manager.io
  names: {kind: KIND, plural: PLURAL}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---`

// TestPages_CommandsOfKubectlWork runs each command line of kubectl in the pages about installing, in their order, on an
// API server with the kinds of Cluster API and cert-manager.
func TestPages_CommandsOfKubectlWork(t *testing.T) {
	t.Parallel()
	cluster := vocabulary.StartCluster(t, mgmt.Options{})
	folder := t.TempDir()
	kubectl := filepath.Join(os.Getenv(mgmt.AssetsVariable), "kubectl")
	run := func(command string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(folder, "kubeconfig"),
			"PATH="+filepath.Dir(kubectl)+":"+os.Getenv("PATH"), "HOME="+folder)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
	if err := mgmt.WriteKubeconfig(filepath.Join(folder, "kubeconfig"), cluster.Config()); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(vocabulary.CopyConfig(t), filepath.Join(folder, "config")); err != nil {
		t.Fatal(err)
	}
	kinds := strings.NewReplacer("KIND", "Certificate", "PLURAL", "certificates").Replace(certManager) +
		strings.NewReplacer("KIND", "Issuer", "PLURAL", "issuers").Replace(certManager)
	if err := os.WriteFile(filepath.Join(folder, "kinds.yaml"), []byte(kinds), 0o600); err != nil {
		t.Fatal(err)
	}
	run("kubectl apply -f kinds.yaml && kubectl wait --for=condition=Established -f kinds.yaml")
	run("kubectl kustomize config/guard > guard.yaml")

	line := regexp.MustCompile("(?m)^ {4,}(kubectl .*)$|`(kubectl (?:apply|delete) -[fk] [^`]+)`")
	ran := map[string]bool{}
	for _, name := range []string{"README.md", "docs/start.md", "docs/clusterclass.md", "docs/install.md"} {
		page, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		text, _, _ := strings.Cut(string(page), "\n## A session\n")
		for _, match := range line.FindAllStringSubmatch(text, -1) {
			command := match[1] + match[2]
			if slices.ContainsFunc(elsewhere, func(part string) bool { return strings.Contains(command, part) }) {
				continue
			}
			if strings.HasPrefix(command, "kubectl delete -k ") { // nothing ends a Namespace here
				command += " --ignore-not-found --wait=false"
			}
			run(command)
			ran[command] = true
		}
	}
	if len(ran) != 12 {
		t.Errorf("%d commands: %v", len(ran), ran)
	}
}
