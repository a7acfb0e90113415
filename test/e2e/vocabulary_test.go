//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/infra"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/management"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/wait"
)

// Times.
const (
	// patience is for how long nothing may be written in any management cluster before a wait is given up. Cluster API
	// waits for 15 to 30 s in places, and tries again after minutes what has failed some times.
	patience = 4 * time.Minute
	// calm is how long something has to stay away that must not come. Cluster API begins a rollout within 3 s.
	calm = 12 * time.Second
	// poll is how often to look. More often takes CPU from what is waited for.
	poll = time.Second
)

// Versions of Kubernetes; no node runs them.
const (
	version     = "v1.34.2"
	nextVersion = "v1.35.1"
)

// proxySecret is a proxy Secret with rude credentials.
const (
	proxySecret = `{apiVersion: v1, kind: Secret, metadata: {name: http-proxy, labels: {capi-proxy-patcher.io/proxy: "", clusterctl.cluster.x-k8s.io/move: ""}},
stringData: {httpProxy: "http://proxy.corp.example:3128", username: node, password: 'p%ss"$x', noProxy: "registry.corp.example, 10.20.0.0/16"}}`
	proxyURL = `http://node:p%25ss%22%24x@proxy.corp.example:3128`
)

// cluster is a workload cluster in a namespace of its own.
type cluster struct {
	*world
	namespace, name string
	// manifest is what clusterctl generate cluster printed, edited by the test.
	manifest string
}

// options say which workload cluster a test wants.
type options struct {
	controlPlanes, workers int
	// variables are those of testdata/cluster-template.yaml.
	variables map[string]string
	// secret is the manifest of the proxy Secret; empty for proxySecret.
	secret string
	// from is the template; empty for testdata/cluster-template.yaml.
	from string
	// edit changes the manifest before it is applied.
	edit func(string) string
}

// newCluster makes a namespace with a proxy Secret, and generates a workload cluster for it, which is not applied.
func newCluster(t *testing.T, w *world, o options) *cluster {
	t.Helper()
	c := &cluster{world: w, namespace: namespaceOf(t), name: "work"}
	if o.secret == "" {
		o.secret = proxySecret
	}
	c.kubectl(t, "", "create", "namespace", c.namespace)
	c.kubectl(t, o.secret, "apply", "-f", "-")
	c.manifest = c.generate(t, c.name, o)
	if o.edit != nil {
		c.manifest = o.edit(c.manifest)
	}
	return c
}

// namespaceOf makes a name of a namespace of the name of a test.
func namespaceOf(t *testing.T) string {
	t.Helper()
	name := regexp.MustCompile("[^a-z0-9]+").ReplaceAllString(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "-")
	return strings.Trim(name[:min(len(name), 40)], "-")
}

// generate runs clusterctl generate cluster.
func (c *cluster) generate(t *testing.T, name string, o options) string {
	t.Helper()
	environment := []string{"NAMESPACE=" + c.namespace}
	for name, value := range o.variables {
		environment = append(environment, name+"="+value)
	}
	return c.clusterctl(t, environment, "generate", "cluster", name,
		"--from", cmp.Or(o.from, "testdata/cluster-template.yaml"), "--target-namespace", c.namespace, "--kubernetes-version", version,
		"--control-plane-machine-count", strconv.Itoa(o.controlPlanes), "--worker-machine-count", strconv.Itoa(o.workers))
}

func (c *cluster) clusterctl(t *testing.T, environment []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), management.Program("clusterctl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.world.cluster.Kubeconfig, "CLUSTERCTL_DISABLE_VERSIONCHECK=true",
		"XDG_CONFIG_HOME="+filepath.Join(c.world.cluster.Logs, "xdg"))
	cmd.Env = append(cmd.Env, environment...)
	return output(t, cmd)
}

// kubectl runs kubectl in the namespace of the cluster.
func (c *cluster) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), management.Program("kubectl"),
		append([]string{"--namespace", c.namespace}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.world.cluster.Kubeconfig)
	cmd.Stdin = strings.NewReader(stdin)
	return output(t, cmd)
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, out, stderr.String())
	}
	return string(out)
}

// apply applies the manifest as users do.
func (c *cluster) apply(t *testing.T) {
	t.Helper()
	c.kubectl(t, c.manifest, "apply", "-f", "-")
}

// label sets the label of the product, unlabel takes it off.
func (c *cluster) label(t *testing.T) {
	t.Helper()
	c.kubectl(t, "", "label", "cluster", c.name, contract.LabelEnabled+"="+contract.LabelEnabledValue, "--overwrite")
}

func (c *cluster) unlabel(t *testing.T) {
	t.Helper()
	c.kubectl(t, "", "label", "cluster", c.name, contract.LabelEnabled+"-")
}

// annotated edits a manifest: it gives annotations to an object of a kind and a name.
func annotated(kind, name string, annotations ...string) func(string) string {
	return func(manifest string) string {
		documents := strings.Split(manifest, "---\n")
		for i, document := range documents {
			if strings.Contains(document, "\nkind: "+kind+"\n") && strings.Contains(document, "\n  name: "+name+"\n") {
				documents[i] = strings.Replace(document, "\nmetadata:\n", "\nmetadata:\n  annotations:\n    "+
					strings.Join(annotations, "\n    ")+"\n", 1)
			}
		}
		return strings.Join(documents, "---\n")
	}
}

// heldEndpoint edits a manifest to one whose endpoint becomes known late.
func heldEndpoint(manifest string) string {
	return annotated("LocalCluster", "work", infra.HoldEndpoint+`: ""`)(manifest)
}

// gated edits a manifest to one of a Cluster that is available only if the condition of the product is True.
func gated(manifest string) string {
	return strings.Replace(manifest, "\nspec:\n", "\nspec:\n  availabilityGates:\n  - conditionType: "+
		contract.ConditionProxyConfigured+"\n", 1)
}

// waitAvailableNames waits until Cluster API's condition Available names that of the product as a cause, or does not.
func (c *cluster) waitAvailableNames(t *testing.T, names bool) {
	t.Helper()
	eventually(t, func() error {
		object := &clusterv1.Cluster{}
		if err := c.client.Get(t.Context(), c.key(c.name), object); err != nil {
			return err
		}
		available := meta.FindStatusCondition(object.Status.Conditions, clusterv1.ClusterAvailableCondition)
		if available == nil || strings.Contains(available.Message, contract.ConditionProxyConfigured) != names ||
			names && available.Status == metav1.ConditionTrue {
			return fmt.Errorf("Available is %+v; names %s: want %t", available, contract.ConditionProxyConfigured, names)
		}
		return nil
	})
}

// releaseEndpoint has the endpoint become known.
func (c *cluster) releaseEndpoint(t *testing.T) {
	t.Helper()
	c.kubectl(t, "", "annotate", "localcluster", c.name, infra.HoldEndpoint+"-")
}

// unlabelled edits a manifest to one of a Cluster without the label.
func unlabelled(manifest string) string {
	return regexp.MustCompile(`(?m)^  labels:\n    `+regexp.QuoteMeta(contract.LabelEnabled)+
		`: .*\n`).ReplaceAllString(manifest, "")
}

// roll has the user replace all Machines of an object, with Cluster API's own lever.
func (c *cluster) roll(t *testing.T, object string) {
	t.Helper()
	after := time.Now().UTC().Format(time.RFC3339) //nolint:forbidigo // the API server compares it with its own clock
	c.kubectl(t, "", "patch", object, "--type", "merge", "-p", `{"spec":{"rollout":{"after":"`+after+`"}}}`)
}

// controlPlaneName and poolName are the names that the template gives.
func (c *cluster) controlPlaneName() string   { return c.name + "-control-plane" }
func (c *cluster) poolName(number int) string { return fmt.Sprintf("%s-md-%d", c.name, number) }

func (c *cluster) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: c.namespace, Name: name}
}

// get reads an object of the cluster.
func get[T any, P interface {
	*T
	client.Object
}](t *testing.T, c *cluster, name string,
) P {
	t.Helper()
	return vocabulary.Fetch(t, c.client, c.namespace, name, P(new(T)))
}

func (c *cluster) controlPlane(t *testing.T) *controlplanev1.KubeadmControlPlane {
	t.Helper()
	return get[controlplanev1.KubeadmControlPlane](t, c, c.controlPlaneName())
}

func (c *cluster) template(t *testing.T, pool int) *bootstrapv1.KubeadmConfigTemplate {
	t.Helper()
	return get[bootstrapv1.KubeadmConfigTemplate](t, c, c.poolName(pool))
}

// specified returns the objects of the cluster with a spec of kubeadm.
func (c *cluster) specified(t *testing.T) []client.Object {
	t.Helper()
	return []client.Object{c.controlPlane(t), c.template(t, 0), c.template(t, 1)}
}

// endpoint returns the host of the control-plane endpoint, or "".
func (c *cluster) endpoint(t *testing.T) string {
	t.Helper()
	return get[clusterv1.Cluster](t, c, c.name).Spec.ControlPlaneEndpoint.Host
}

// machines returns the Machines of the cluster.
func (c *cluster) machines(ctx context.Context) ([]clusterv1.Machine, error) {
	list := &clusterv1.MachineList{}
	err := c.client.List(ctx, list, client.InNamespace(c.namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: c.name})
	return list.Items, err
}

// identity distinguishes Machines from their replacements.
type identity map[string]types.UID

// waitRunning waits until the cluster has count Machines, all of them running, and returns their identity.
func (c *cluster) waitRunning(t *testing.T, count int) identity {
	t.Helper()
	found := identity{}
	eventually(t, func() error {
		machines, err := c.machines(t.Context())
		if err != nil {
			return err
		}
		var running int
		clear(found)
		for _, m := range machines {
			found[m.Name] = m.UID
			if m.Status.Phase == string(clusterv1.MachinePhaseRunning) && m.DeletionTimestamp.IsZero() {
				running++
			}
		}
		if running != count || len(machines) != count {
			return fmt.Errorf("%d of %d Machines are running, want %d", running, len(machines), count)
		}
		return nil
	})
	return found
}

// staysCalm fails if a Machine is created, deleted or replaced without a reason.
func (c *cluster) staysCalm(t *testing.T, want identity) {
	t.Helper()
	staysTrue(t, func() error { return c.isCalm(t.Context(), want) })
}

// isCalm returns an error unless these Machines are there and no other, and none is being deleted.
func (c *cluster) isCalm(ctx context.Context, want identity) error {
	machines, err := c.machines(ctx)
	if err != nil {
		return err
	}
	now := identity{}
	for _, m := range machines {
		now[m.Name] = m.UID
		if !m.DeletionTimestamp.IsZero() {
			return fmt.Errorf("Machine %s is being deleted", m.Name)
		}
	}
	if !maps.Equal(now, want) {
		return fmt.Errorf("Machines of %s were %v and are %v", c.name, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(now)))
	}
	return nil
}

// waitReplaced waits until no Machine of before that keep reports true for is left and count Machines run.
func (c *cluster) waitReplaced(t *testing.T, before identity, count int, of func(name string) bool) identity {
	t.Helper()
	eventually(t, func() error {
		machines, err := c.machines(t.Context())
		if err != nil {
			return err
		}
		for _, m := range machines {
			if uid, old := before[m.Name]; old && uid == m.UID && of(m.Name) {
				return fmt.Errorf("Machine %s is not replaced", m.Name)
			}
		}
		return nil
	})
	return c.waitRunning(t, count)
}

func anyMachine(string) bool { return true }

// ofControlPlane and ofPool identify Machines by their names.
func (c *cluster) ofControlPlane(name string) bool {
	return strings.HasPrefix(name, c.controlPlaneName())
}

func (c *cluster) ofPool(number int) func(string) bool {
	return func(name string) bool { return strings.HasPrefix(name, c.poolName(number)) }
}

// boots returns the boots of the cluster so far.
func (c *cluster) boots() []infra.Boot {
	return slices.DeleteFunc(c.infra.Boots(), func(b infra.Boot) bool {
		return b.Cluster != types.NamespacedName{Namespace: c.namespace, Name: c.name}
	})
}

// waitCondition waits for the condition of the product.
func (c *cluster) waitCondition(t *testing.T, status metav1.ConditionStatus, reason string) {
	t.Helper()
	eventually(t, func() error {
		condition, err := c.condition(t)
		if err != nil {
			return err
		}
		if condition.Status != status || condition.Reason != reason {
			return fmt.Errorf("the condition is %+v, want %s %s", condition, status, reason)
		}
		return nil
	})
}

// condition returns the condition of the product.
func (c *cluster) condition(t *testing.T) (metav1.Condition, error) {
	t.Helper()
	object := &clusterv1.Cluster{}
	err := c.client.Get(t.Context(), c.key(c.name), object)
	return vocabulary.Condition(object), err
}

// behind returns how many Machines the condition counts that have not the current configuration.
func behind(condition metav1.Condition) int {
	match := regexp.MustCompile(`(\d+) Machines? (?:of \S+ \S+ )?ha(?:s|ve) outdated proxy settings: `).
		FindStringSubmatch(condition.Message)
	if match == nil {
		return 0
	}
	count, _ := strconv.Atoi(match[1])
	return count
}

// waitBehind waits until the condition counts so many Machines that are behind.
func (c *cluster) waitBehind(t *testing.T, count int) {
	t.Helper()
	eventually(t, func() error {
		condition, err := c.condition(t)
		if err != nil {
			return err
		}
		if behind(condition) != count {
			return fmt.Errorf("the condition is %+v, want %d Machines behind", condition, count)
		}
		return nil
	})
}

// rewritten returns the objects whose specs were changed after they were created, by type and name. One that was written
// without the webhook, which was too slow, does not count: the controller has patched it.
func (c *cluster) rewritten(t *testing.T, objects ...client.Object) map[string]int64 {
	t.Helper()
	return vocabulary.Generations(slices.DeleteFunc(slices.Clone(objects), func(o client.Object) bool {
		return o.GetGeneration() == 1 || c.missedWebhook(t, o)
	})...)
}

// writes returns the requests that wrote bootstrap objects.
func (c *cluster) writes(t *testing.T) []mgmt.Request {
	t.Helper()
	writes, err := c.world.cluster.Requests(func(r mgmt.Request) bool {
		return r.ObjectRef.Namespace == c.namespace && strings.HasPrefix(r.ObjectRef.Resource, "kubeadm") &&
			r.ObjectRef.Subresource == "" && !slices.Contains([]string{"get", "list", "watch"}, r.Verb)
	})
	if err != nil {
		t.Fatal(err)
	}
	return writes
}

// slow is the shortest time of a request whose webhook failed because the machine is busy. A broken webhook fails at once.
const slow = 2 * time.Second

// missedWebhook reports whether the API server wrote one of the objects without the webhook, which was too slow.
func (c *cluster) missedWebhook(t *testing.T, objects ...client.Object) bool {
	t.Helper()
	missed, err := c.world.cluster.Requests(func(r mgmt.Request) bool {
		return r.FailedOpen() && r.Answered.Sub(r.Received) >= slow && r.ObjectRef.Namespace == c.namespace &&
			strings.HasPrefix(r.ObjectRef.Resource, "kubeadm") &&
			slices.ContainsFunc(objects, func(o client.Object) bool { return r.ObjectRef.Name == o.GetName() })
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(missed) > 0
}

// eventually waits until f returns nil, as long as anybody writes anything in the namespace of the test. Cluster API
// writes again what is there every ten minutes, so in all namespaces together something always moves.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	moved := func() (int, error) { return managed.writes(namespaceOf(t)) }
	wait.Rule{Still: patience, Poll: poll, Moved: moved}.Until(t, "waiting", func() string {
		if err := f(); err != nil {
			return err.Error()
		}
		return ""
	})
}

// managed are the management clusters of the tests.
var managed running

type running struct {
	mu  sync.Mutex
	all []*management.Cluster
}

func (r *running) add(cluster *management.Cluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, cluster)
}

// writes returns how much was written in all of them to a namespace; see mgmt.AuditLog.Writes.
func (r *running) writes(namespace string) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := 0
	for _, cluster := range r.all {
		writes, err := cluster.Writes(namespace)
		if err != nil {
			return 0, err
		}
		sum += writes
	}
	return sum, nil
}

// staysTrue fails if f returns an error within a time in which it would.
func staysTrue(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.Now().Add(calm)  //nolint:forbidigo // of the test
	for time.Now().Before(deadline) { //nolint:forbidigo // of the test
		if err := f(); err != nil {
			t.Fatal(err)
		}
		pause(t, poll)
	}
}

func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
		t.Fatal(errors.New("the test was stopped"))
	case <-time.After(d):
	}
}
