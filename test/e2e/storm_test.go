//go:build e2e

package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/infra"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// clusters is how many workload clusters are applied at once. make test-storm has a hundred.
var clusters = flag.Int("clusters", 12, "workload clusters of TestStorm, and a third as many where the product is away")

// Tests that are not parallel run before all others, each alone: they are those that need the machine, or the product,
// for themselves.

// TestStorm applies everything at once in random order.
func TestStorm(t *testing.T) {
	w := start(t)
	s := newStorm(t, w, *clusters)
	begin := time.Now() //nolint:forbidigo // what is measured
	s.apply(t)
	s.waitRunning(t)
	took := time.Since(begin)
	s.calm(t)
	for _, c := range s.clusters {
		c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
		c.checkBoots(t, 2, want{proxy: proxyURL}, everyBoot)
	}
	results.note("%d Clusters applied at once: %d Machines in %.0f s, 0 without the proxy, 0 replaced", len(s.clusters),
		2*len(s.clusters), took.Seconds())
}

// storm are many workload clusters in one namespace, each with one Machine of a control plane and one worker.
type storm struct {
	*cluster
	clusters []*cluster
	random   *rand.Rand
}

func newStorm(t *testing.T, w *world, count int) *storm {
	t.Helper()
	first := newCluster(t, w, options{controlPlanes: 1, workers: 1})
	seed := uint64(time.Now().UnixNano()) //nolint:forbidigo // a seed, which is printed
	t.Logf("seed %d", seed)
	s := &storm{cluster: first, random: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // no secret
	// clusterctl is asked once, for all.
	const placeholder = "name-of-the-cluster"
	template := first.generate(t, placeholder, options{controlPlanes: 1, workers: 1})
	documents := []string{}
	for i := range count {
		c := &cluster{world: w, namespace: first.namespace, name: fmt.Sprintf("storm-%03d", i)}
		s.clusters = append(s.clusters, c)
		for document := range strings.SplitSeq(strings.ReplaceAll(template, placeholder, c.name), "---\n") {
			if !strings.Contains(document, "name: "+c.poolName(1)+"\n") {
				documents = append(documents, document)
			}
		}
	}
	s.random.Shuffle(len(documents), func(i, j int) { documents[i], documents[j] = documents[j], documents[i] })
	s.manifest = strings.Join(documents, "---\n")
	return s
}

// waitRunning waits until all Machines of all clusters run.
func (s *storm) waitRunning(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		machines, running, err := s.count(t)
		if err == nil && (running != 2*len(s.clusters) || machines != running) {
			err = fmt.Errorf("%d of %d Machines run, want %d", running, machines, 2*len(s.clusters))
		}
		return err
	})
}

func (s *storm) count(t *testing.T) (machines, running int, err error) {
	t.Helper()
	list := &clusterv1.MachineList{}
	if err := s.client.List(t.Context(), list, client.InNamespace(s.namespace)); err != nil {
		return 0, 0, err
	}
	for _, m := range list.Items {
		if m.Status.Phase == string(clusterv1.MachinePhaseRunning) {
			running++
		}
	}
	return len(list.Items), running, nil
}

// withoutProxy returns how many Machines of the cluster came up without the proxy and are still there.
func (c *cluster) withoutProxy(t *testing.T) int {
	t.Helper()
	machines, err := c.machines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	missing := 0
	for _, b := range c.boots() {
		if !hasProxy(b) && slices.ContainsFunc(machines, func(m clusterv1.Machine) bool { return m.UID == b.UID }) {
			missing++
		}
	}
	return missing
}

// calm fails if a Machine is replaced, now or before: each Machine that was ever created still exists.
func (s *storm) calm(t *testing.T) {
	t.Helper()
	staysTrue(t, func() error {
		list := &clusterv1.MachineList{}
		if err := s.client.List(t.Context(), list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		there := map[string]int{}
		for _, m := range list.Items {
			there[m.Spec.ClusterName]++
		}
		for _, c := range s.clusters {
			if booted := len(c.boots()); there[c.name] != 2 || booted != 2 {
				return fmt.Errorf("in Cluster %s %d Machines came up and %d are there, want 2:\n%s", c.name, booted, there[c.name],
					s.history(t, c))
			}
		}
		return nil
	})
}

// history is who wrote the objects that matter to the Machines of a cluster, and when.
func (s *storm) history(t *testing.T, c *cluster) string {
	t.Helper()
	requests, err := s.world.cluster.Requests(func(r mgmt.Request) bool {
		return r.ObjectRef.Namespace == c.namespace && strings.HasPrefix(r.ObjectRef.Name, c.name) &&
			r.ObjectRef.Resource != "events" &&
			r.ObjectRef.Subresource == "" && r.IsWrite() && r.Succeeded()
	})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, r := range requests {
		fmt.Fprintf(&b, "%s %s %s %s/%s\n", r.Received.Format("15:04:05.000"), r.User.Username, r.Verb, r.ObjectRef.Resource,
			r.ObjectRef.Name)
	}
	return b.String()
}

// boots returns the boots of all clusters so far.
func (s *storm) boots() []infra.Boot {
	return slices.DeleteFunc(s.infra.Boots(), func(b infra.Boot) bool { return b.Cluster.Namespace != s.namespace })
}

// interruptWebhooks takes the webhooks away for a third of the time until stop is closed, and puts them back.
func (s *storm) interruptWebhooks(t *testing.T, stop <-chan struct{}) error {
	t.Helper()
	for {
		if err := s.product.RemoveWebhooks(t.Context()); err != nil {
			return err
		}
		length := time.Duration(500+s.random.IntN(1500)) * time.Millisecond
		time.Sleep(length)
		if err := s.product.InstallWebhooks(t.Context()); err != nil {
			return err
		}
		select {
		case <-stop:
			return nil
		case <-time.After(2 * length):
		}
	}
}
