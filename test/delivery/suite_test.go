package delivery

import (
	"context"
	"fmt"
	"hash/fnv"
	"os/exec"
	"sync"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/logbuffer"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/wait"
)

const (
	proxyURL      = "http://proxy.example.com:3128"
	otherProxyURL = "http://other.example.com:3128"
)

// shared is what the tests share, nil without the programs of a cluster.
var shared *vocabulary.Product

func TestMain(m *testing.M) {
	inplace.New() // their names
	publish.New()
	vocabulary.Main(m, "", func(ctx context.Context, cluster *mgmt.Cluster, dir string) (int, error) {
		product, err := vocabulary.NewProduct(ctx, cluster, dir)
		if err != nil {
			return 1, err
		}
		shared = &product
		return m.Run(), nil
	})
}

// start makes a namespace with a manager, which the returned function ends.
func start(t *testing.T) (ns string, stop func()) {
	t.Helper()
	if shared == nil {
		t.Skipf("%s is not set", mgmt.AssetsVariable)
	}
	ns = vocabulary.Namespace(t, shared.Client, "delivery-")
	return ns, manage(t, ns)
}

// manage runs a manager for a namespace until the test ends or the returned function is called.
func manage(t *testing.T, ns string, arguments ...string) (stop func()) {
	t.Helper()
	log := &logbuffer.Buffer{}
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, shared.Binary, append([]string{
		"manager", "--kubeconfig", shared.Kubeconfig, "--namespace", ns, "--health-addr", "0", "--diagnostics-address", "0",
		"--sync-period", "1h",
	}, arguments...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		_ = cmd.Wait() // it is killed
	})
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return stop
}

// eventually waits until problem returns "", or fails when the condition of no Cluster has changed for a while: the product
// asks a workload cluster again after a minute, and a first answer may come too late.
func eventually(t *testing.T, what string, problem func() string) {
	t.Helper()
	moved := func() (int, error) {
		var clusters clusterv1.ClusterList
		if err := shared.Client.List(t.Context(), &clusters); err != nil {
			return 0, err
		}
		conditions := fnv.New32a() // tests write annotations while they wait, so resource versions tell nothing
		for i := range clusters.Items {
			_, _ = fmt.Fprint(conditions, clusters.Items[i].UID, clusters.Items[i].Status.Conditions)
		}
		return int(conditions.Sum32()), nil
	}
	wait.Rule{Still: 4 * time.Minute, Poll: 250 * time.Millisecond, Moved: moved}.Until(t, what, problem)
}

// publisher is a labelled Cluster that asks for outputs.
type publisher struct{ vocabulary.Publisher }

// newPublisher creates a Cluster that asks for a list of outputs, its control plane, and its proxy Secret.
func newPublisher(t *testing.T, ns, name, list string, data map[string]string) publisher {
	t.Helper()
	p := publisher{vocabulary.Publisher{T: t, Client: shared.Client, Namespace: ns, Name: name, Wait: eventually}}
	p.Create(list, data)
	return p
}
