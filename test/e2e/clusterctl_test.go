//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	outputs "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/management"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ocilayout"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// repository is a folder of releases, as make release writes them, from which clusterctl installs.
type repository struct {
	*cluster // whoever uses clusterctl

	dir, config string
	pods        *management.Pods
}

// newRepository makes a management cluster one that clusterctl has installed Cluster API in, with cert-manager, and
// stands in for Pods of the product: see management.Pods. The folder may have releases.
func newRepository(t *testing.T, w *world, dir string) *repository {
	t.Helper()
	if err := w.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := &repository{cluster: &cluster{world: w, namespace: "default"}, dir: dir}
	r.config = filepath.Join(r.dir, "clusterctl.yaml")
	module, version := w.cluster.ClusterAPI.Dir, w.cluster.ClusterAPI.Version
	if err := mgmt.InstallCRDs(w.cluster.Config(), management.CertManagerCRDs()); err != nil {
		t.Fatal(err)
	}
	r.kubectl(t, "", "apply", "-f", filepath.Join(module, "cmd/clusterctl/config/manifest/clusterctl-api.yaml"))
	r.kubectl(t, "", "wait", "--for=condition=Established", "crd/providers.clusterctl.cluster.x-k8s.io", "--timeout=5m")
	metadata, err := os.ReadFile(filepath.Join(module, "metadata.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config := "providers:\n"
	provider := func(name, kind, label, components, version string) {
		config += fmt.Sprintf("- {name: %s, type: %s, url: \"file://%s/%s/%s/%s\"}\n", name, kind, r.dir, label,
			version, components)
	}
	for _, p := range []struct{ name, kind, label, components, namespace string }{
		{"cluster-api", "CoreProvider", "cluster-api", "core-components.yaml", "capi-system"},
		{"kubeadm", "BootstrapProvider", "bootstrap-kubeadm", "bootstrap-components.yaml", "capi-kubeadm-bootstrap-system"},
		{"kubeadm", "ControlPlaneProvider", "control-plane-kubeadm", "control-plane-components.yaml", "capi-kubeadm-control-plane-system"},
	} {
		provider(p.name, p.kind, p.label, p.components, version)
		folder := filepath.Join(r.dir, p.label, version)
		if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "metadata.yaml"), metadata,
			0o600)); err != nil {
			t.Fatal(err)
		}
		(&cluster{world: w, namespace: p.namespace}).kubectl(t, fmt.Sprintf(`{apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3, kind: Provider, providerName: %s, type: %s, version: %s,
metadata: {name: %s, labels: {clusterctl.cluster.x-k8s.io: "", clusterctl.cluster.x-k8s.io/core: inventory, cluster.x-k8s.io/provider: %s}}}`,
			p.name, p.kind, version, p.label, p.label), "apply", "-f", "-")
	}
	provider("capi-proxy-patcher", "RuntimeExtensionProvider", management.ProviderLabel,
		"runtime-extension-components.yaml", "v0.1.0")
	if err := os.WriteFile(r.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	r.pods = w.cluster.RunPods(t.Context(), func(image string) (string, error) {
		_, version, _ := strings.Cut(image, ":")
		program := filepath.Join(r.madeRelease(version), releasedProgram)
		_, err := os.Stat(program)
		return program, err
	})
	t.Cleanup(func() {
		if err := r.pods.Problem(); t.Failed() && err != nil {
			t.Log(err)
		}
		r.pods.Close()
	})
	return r
}

// releasedProgram is the name of the program that is unpacked from the image of a release.
const releasedProgram = "program"

// releasing is held while a release is made, which all tests share.
var releasing sync.Mutex

// madeRelease is the folder that a release is made in.
func (w *world) madeRelease(version string) string {
	return filepath.Join(filepath.Dir(w.binary), "releases", version)
}

// release adds a release to the folder, made of the checkout.
func (r *repository) release(t *testing.T, version string) {
	t.Helper()
	made := r.makeRelease(t, version)
	folder := filepath.Join(management.ProviderLabel, version)
	if err := os.CopyFS(filepath.Join(r.dir, folder), os.DirFS(filepath.Join(made, folder))); err != nil {
		t.Fatal(err)
	}
}

// makeRelease makes a release unless it is made, unpacks the program of its image, and returns its folder.
func (w *world) makeRelease(t *testing.T, version string) string {
	t.Helper()
	releasing.Lock()
	defer releasing.Unlock()
	made := w.madeRelease(version)
	program := filepath.Join(made, releasedProgram)
	if _, err := os.Stat(program); err == nil {
		return made
	}
	output(t, exec.CommandContext(t.Context(), "make", "-C", root, "release", "VERSION="+version, "RELEASE_OUT="+made,
		"PLATFORMS=linux/"+runtime.GOARCH, "PROGRAMS="))
	image, err := ocilayout.Read(filepath.Join(made, management.ProviderLabel, version, "image"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, image.Programs[0].Content, 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return made
}

// run runs clusterctl with the folder.
func (r *repository) run(t *testing.T, args ...string) string {
	t.Helper()
	return r.clusterctl(t, nil, append(args, "--config", r.config)...)
}

// install is clusterctl init, and waits until Deployments are available.
func (r *repository) install(t *testing.T, version string, more ...string) {
	t.Helper()
	r.run(t, append([]string{
		"init", "--runtime-extension", "capi-proxy-patcher:" + version, "--wait-providers",
		"--wait-provider-timeout", "600",
	}, more...)...)
}

// addHooks tells Cluster API of the hooks, with the file of a release, and waits until it has found them. That they are
// at a port of loopback and not behind a Service is all that is changed.
func (r *repository) addHooks(t *testing.T, version, namespace string) {
	t.Helper()
	file := filepath.Join(r.dir, management.ProviderLabel, version, "extensionconfig.yaml")
	text := r.clusterctl(t, []string{"CAPI_PROXY_PATCHER_NAMESPACE=" + namespace}, "generate", "yaml", "--from", file)
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	service, _, _ := unstructured.NestedString(object.Object, "spec", "clientConfig", "service", "name")
	of, _, _ := unstructured.NestedString(object.Object, "spec", "clientConfig", "service", "namespace")
	port, err := r.pods.Port(of, service) // the Deployment has the name of its Service
	if err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedMap(object.Object, map[string]any{"url": fmt.Sprintf("https://127.0.0.1:%d", port)},
		"spec", "clientConfig"); err != nil {
		t.Fatal(err)
	}
	localized, err := yaml.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	r.kubectl(t, string(localized), "apply", "-f", "-")
	r.kubectl(t, "", "wait", "--for=condition=Discovered", "extensionconfig/capi-proxy-patcher", "--timeout=10m")
}

// runs checks that both Deployments run a version, in a namespace.
func (r *repository) runs(t *testing.T, version, namespace string) {
	t.Helper()
	const image = "registry.example.com/capi-proxy-patcher/capi-proxy-patcher:"
	want := map[string]string{
		namespace + "/capi-proxy-patcher-controller-manager": image + version, namespace +
			"/capi-proxy-patcher-hooks": image + version,
	}
	if diff := cmp.Diff(want, r.pods.Running()); diff != "" {
		t.Errorf("Deployments (-want +got):\n%s", diff)
	}
}

// waitLeft waits until nothing but this is left of the product, and nothing runs.
func (r *repository) waitLeft(t *testing.T, want []string) {
	t.Helper()
	const kinds = "namespaces,deployments,services,serviceaccounts,configmaps,poddisruptionbudgets,networkpolicies,roles,rolebindings," +
		"clusterroles,clusterrolebindings,mutatingwebhookconfigurations,certificates.cert-manager.io,issuers.cert-manager.io,providers.clusterctl.cluster.x-k8s.io"
	eventually(t, func() error {
		found := strings.Fields(r.kubectl(t, "", "get", kinds, "--all-namespaces", "-l", "cluster.x-k8s.io/provider="+
			management.ProviderLabel, "-o", "name"))
		slices.Sort(found)
		if diff := cmp.Diff(want, found, cmpopts.EquateEmpty()); diff != "" {
			return fmt.Errorf("left of the product (-want +got):\n%s", diff)
		}
		if running := r.pods.Running(); len(running) > 0 {
			return fmt.Errorf("%v run", running)
		}
		return nil
	})
}

// manager is the name of the Deployment with the webhooks.
const manager = "capi-proxy-patcher-controller-manager"

// scaleManager has the user scale the Deployment with the webhooks.
func (r *repository) scaleManager(t *testing.T, replicas int) {
	t.Helper()
	system := &cluster{world: r.world, namespace: mgmt.SystemNamespace}
	system.kubectl(t, "", "scale", "deployment/"+manager, fmt.Sprintf("--replicas=%d", replicas))
}

// moved are the Clusters that TestClusterctl has, with their Machines.
type moved struct {
	classic, server, topology *cluster
	machines                  map[*cluster]identity
}

// newFleet applies a Cluster with outputs, one on the side of the server, and one with a topology.
func newMoved(t *testing.T, w *world) *moved {
	t.Helper()
	small := options{controlPlanes: 1, workers: 1}
	f := &moved{classic: newCluster(t, w, options{
		controlPlanes: 1, workers: 1, secret: trusting(t, proxySecret),
		edit: asking(outputs.AnnotationPublish + ": env,values=defaults.env,annotations,giantswarm,trust"),
	}), machines: map[*cluster]identity{}}
	f.classic.apply(t)
	f.server = &cluster{world: w, namespace: f.classic.namespace, name: "server"}
	f.server.manifest = f.server.generate(t, f.server.name, small)
	f.server.kubectl(t, f.server.manifest, append([]string{"apply", "-f", "-"}, serverSide...)...)
	f.topology = &cluster{world: w, namespace: f.classic.namespace, name: "topology"}
	f.topology.manifest = f.topology.generate(t, f.topology.name, classy(small))
	f.topology.applyClass(t, "proxied", nil)
	f.topology.apply(t)
	for c, count := range map[*cluster]int{f.classic: 3, f.server: 3, f.topology: 2} {
		f.machines[c] = c.waitRunning(t, count)
		c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
		c.checkBoots(t, count, want{proxy: proxyURL, trusted: true}, everyBoot)
		c.checkGenerated(t)
	}
	f.topology.waitTopology(t)
	f.classic.waitPublished(t, outputs.ReasonPublished)
	return f
}

// generations are those of all objects with a spec of kubeadm.
func (f *moved) generations(t *testing.T) map[string]int64 {
	t.Helper()
	return vocabulary.Generations(slices.Concat(f.topology.owned(t), f.classic.specified(t), f.server.specified(t))...)
}

// staysCalm sees that no Machine comes or goes.
func (f *moved) staysCalm(t *testing.T) {
	t.Helper()
	staysTrue(t, func() error {
		for c, machines := range f.machines {
			if err := c.isCalm(t.Context(), machines); err != nil {
				return err
			}
		}
		return nil
	})
}

// grow adds a worker, which has the proxy, and sees that all else stays.
func (f *moved) grow(t *testing.T, replicas int) {
	t.Helper()
	generations, before := f.generations(t), f.machines[f.classic]
	f.classic.kubectl(t, "", "scale", "machinedeployment", f.classic.poolName(0), fmt.Sprintf("--replicas=%d", replicas))
	f.machines[f.classic] = f.classic.waitRunning(t, 2+replicas)
	f.classic.checkBoots(t, 1, want{proxy: proxyURL, trusted: true}, since(before))
	f.staysCalm(t)
	for c := range f.machines {
		c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	}
	if diff := cmp.Diff(generations, f.generations(t)); diff != "" {
		t.Errorf("generations (-before +after):\n%s", diff)
	}
}

// TestClusterctl installs, upgrades, deletes, installs again and moves, with the real clusterctl from a release folder,
// under three running Clusters. It has management clusters of its own, and waits for no turn: it takes longest.
func TestClusterctl(t *testing.T) {
	t.Parallel()
	const first, second, elsewhere = "v0.1.0", "v0.1.1", "proxy-of-ours"
	other := start(t)
	w := newManagement(t, other)
	r := newRepository(t, w, t.TempDir())
	r.release(t, first)
	r.install(t, first)
	r.runs(t, first, mgmt.SystemNamespace)
	r.addHooks(t, first, mgmt.SystemNamespace)
	guard := filepath.Join(r.dir, management.ProviderLabel, first, "guard.yaml")
	r.kubectl(t, "", "apply", "-f", guard)
	f := newMoved(t, w)

	t.Log("Upgrade.")
	r.release(t, second)
	plan := r.run(t, "upgrade", "plan")
	if !slices.ContainsFunc(strings.Split(plan, "\n"), func(line string) bool {
		return slices.Equal(strings.Fields(line), []string{management.ProviderLabel, mgmt.SystemNamespace, "RuntimeExtensionProvider", first, second})
	}) {
		t.Errorf("the plan is\n%s", plan)
	}
	r.upgradeUnderGitOps(t, second, f.classic, f.server)
	f.grow(t, 2)

	t.Log("Delete.")
	r.kubectl(t, "", "delete", "extensionconfig", "capi-proxy-patcher")
	r.run(t, "delete", "--runtime-extension", "capi-proxy-patcher", "--include-namespace")
	r.waitLeft(t, []string{
		"clusterrole.rbac.authorization.k8s.io/capi-proxy-patcher-diagnostics-role",
		"clusterrole.rbac.authorization.k8s.io/capi-proxy-patcher-hooks-diagnostics-role",
		"clusterrole.rbac.authorization.k8s.io/capi-proxy-patcher-manager-role",
		"clusterrolebinding.rbac.authorization.k8s.io/capi-proxy-patcher-diagnostics-rolebinding",
		"clusterrolebinding.rbac.authorization.k8s.io/capi-proxy-patcher-hooks-diagnostics-rolebinding",
		"clusterrolebinding.rbac.authorization.k8s.io/capi-proxy-patcher-manager-rolebinding",
	})
	r.kubectl(t, "", "delete", "clusterrole,clusterrolebinding", "-l", "cluster.x-k8s.io/provider="+management.ProviderLabel)
	r.kubectl(t, "", "delete", "-f", guard)
	r.waitLeft(t, nil)
	f.staysCalm(t)

	t.Log("Install in another namespace.")
	r.install(t, second, "--target-namespace", elsewhere)
	r.runs(t, second, elsewhere)
	r.addHooks(t, second, elsewhere)
	f.topology.waitTopology(t)
	f.grow(t, 3)

	target := newRepository(t, newManagement(t, w), r.dir)
	target.install(t, second)
	target.addHooks(t, second, mgmt.SystemNamespace)
	r.move(t, target, f)
	f.topology.waitTopology(t)
	f.grow(t, 4)
	f.classic.checkInPlaceUpdate(t, 8)
	f.classic.checkOutputsFollow(t, 8)
}
