//go:build node

package kubernetes_test

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/lab"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/wait"
)

//go:embed testdata/cluster.yaml
var clusterManifest string

const (
	stepManagement = "a management cluster with Cluster API's controllers and the product"
	// repository is the folder of this repository.
	repository = "../../.."
	// managementLogs is where the logs of the management cluster are after a test that failed, in the repository.
	managementLogs = "out/node"
	clusterName    = "prod"
	poolName       = "pool"
	poolSecret     = "pool-http-proxy"
	// patience is how long Cluster API may take. It waits 15 to 30 s in places.
	patience = 6 * time.Minute
	poll     = 2 * time.Second
)

// management is a management cluster with Cluster API's own controllers and the product, beside the machines.
type management struct {
	host                         *lab.Host
	kubeconfig, kubectl, product string
}

// newManagement prepares it. It ends with the test.
func newManagement(t *testing.T, i image, l *lab.Lab) *management {
	t.Helper()
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	t.Cleanup(func() {
		if t.Failed() {
			keep(t, filepath.Join(folder, "logs"), filepath.Join(root, managementLogs))
		}
	})
	return &management{
		kubectl: filepath.Join(i.programs, "kubectl"),
		host: l.NewHost(t, lab.HostConfig{
			Name: "management", Address: "10.77.0.2", Argv: []string{i.capi, root, folder},
			Environment: []string{"KUBEBUILDER_ASSETS=" + i.programs, "TMPDIR=" + folder},
		}),
	}
}

// start returns when it is ready.
func (m *management) start(t *testing.T) {
	t.Helper()
	var ready struct{ Kubeconfig, Product string }
	decode(t, m.host.Start(t), &ready)
	m.kubeconfig, m.product = ready.Kubeconfig, ready.Product
}

// keep copies logs to where they are looked for.
func keep(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Error(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Error(err)
	}
	t.Logf("logs of the management cluster are in %s", managementLogs)
}

// cluster is a Cluster of testdata/cluster.yaml in a namespace of the management cluster.
type cluster struct {
	*management
	namespace string
}

// newCluster applies proxy Secrets, by name, and a Cluster, as users do.
func (m *management) newCluster(t *testing.T, namespace, manifest string,
	secrets map[string]map[string]string,
) cluster {
	t.Helper()
	c := cluster{management: m, namespace: namespace}
	stream := []string{`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "` + namespace + `"}}`}
	for name, values := range secrets {
		stream = append(stream, proxySecret(t, name, values))
	}
	c.user(t, strings.Join(append(stream, manifest), "\n---\n"), "apply", "-f", "-")
	return c
}

// unlabelled is the manifest of the same Cluster without the label.
func unlabelled() string {
	return strings.Replace(clusterManifest, "    "+contract.LabelEnabled+": \"true\"\n", "    some: label\n", 1)
}

// proxySecret is the manifest of a proxy Secret.
func proxySecret(t *testing.T, name string, values map[string]string) string {
	t.Helper()
	object, err := json.Marshal(vocabulary.ProxySecret("", name, values))
	if err != nil {
		t.Fatal(err)
	}
	return string(object)
}

// user runs kubectl in the Cluster's namespace, as an administrator of the management cluster.
func (c cluster) user(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	return c.command(t, stdin,
		append([]string{c.kubectl, "--kubeconfig", c.kubeconfig, "--namespace", c.namespace}, args...)...)
}

// explain runs the product's explain about the Cluster.
func (c cluster) explain(t *testing.T, args ...string) string {
	t.Helper()
	return c.command(t, "",
		append([]string{
			c.product, "explain", "--kubeconfig", c.kubeconfig, "--namespace", c.namespace, "--cluster",
			clusterName,
		}, args...)...)
}

// command runs a command where the management cluster is.
func (c cluster) command(t *testing.T, stdin string, argv ...string) string {
	t.Helper()
	cmd := c.host.Command(t, argv...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(stdin), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s%s", argv, err, out, &stderr)
	}
	return string(out)
}

// Labels of Machines: those of the control plane, and those of the pool.
const (
	ofControlPlane = clusterv1.MachineControlPlaneLabel
	ofPool         = clusterv1.MachineDeploymentNameLabel + "=" + poolName
)

// machines returns the Machines with a label, the oldest first.
func (c cluster) machines(t *testing.T, label string) []clusterv1.Machine {
	t.Helper()
	var list clusterv1.MachineList
	decode(t, c.user(t, "", "get", "machines", "--selector", label, "--sort-by", "{.metadata.creationTimestamp}",
		"-o", "json"), &list)
	return list.Items
}

// booted is a machine as the infrastructure hands it over: its identity and its bootstrap data.
type booted struct {
	machine, instanceID string
	data                []byte
}

// waitBoot waits until there is a Machine with a label that boots, other than those that are given, and returns its
// bootstrap data unchanged.
func (c cluster) waitBoot(t *testing.T, label string, others ...string) booted {
	t.Helper()
	var b booted
	var secretName string
	waitUntil(t, "a Machine that boots", func() bool {
		for _, m := range c.machines(t, label) {
			if m.Spec.Bootstrap.DataSecretName != nil && m.Spec.ProviderID != "" && !slices.Contains(others, m.Name) {
				b.machine, b.instanceID, secretName = m.Name, strings.TrimPrefix(m.Spec.ProviderID, "local://"),
					*m.Spec.Bootstrap.DataSecretName
				return true
			}
		}
		return false
	})
	var data corev1.Secret
	decode(t, c.user(t, "", "get", "secret", secretName, "-o", "json"), &data)
	b.data = data.Data["value"]
	return b
}

// waitUntil waits for something that Cluster API does.
func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	wait.Rule{Still: patience, Poll: poll}.Until(t, "waiting", func() string {
		if done() {
			return ""
		}
		return what
	})
}
