package delivery

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/logbuffer"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/wait"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	proxyURL      = "http://proxy.example.com:3128"
	otherProxyURL = "http://other.example.com:3128"
)

// world is what the tests share: one API server with the product's manifests, and the program.
type world struct {
	cluster            *mgmt.Cluster
	client             client.Client
	binary, kubeconfig string
}

var shared *world

func TestMain(m *testing.M) {
	vocabulary.Main(m, "", func(ctx context.Context, cluster *mgmt.Cluster, dir string) (int, error) {
		w := &world{cluster: cluster, kubeconfig: filepath.Join(dir, "kubeconfig")}
		var err error
		if w.binary, err = mgmt.Build(ctx, "../..", dir); err != nil {
			return 1, err
		}
		config, err := cluster.InstallProduct(ctx, "../..")
		if err != nil {
			return 1, err
		}
		if err := cluster.ApplyKustomize(ctx, "../faults/testdata/deliver"); err != nil {
			return 1, err
		}
		if err := mgmt.WriteKubeconfig(w.kubeconfig, config); err != nil {
			return 1, err
		}
		if w.client, err = vocabulary.NewClient(cluster.Config()); err != nil {
			return 1, err
		}
		shared = w
		return m.Run(), nil
	})
}

// start makes a namespace with a manager that delivers.
func start(t *testing.T) string {
	t.Helper()
	if shared == nil {
		t.Skipf("%s is not set", mgmt.AssetsVariable)
	}
	ns := vocabulary.Namespace(t, shared.client, "delivery-")
	log := &logbuffer.Buffer{}
	cmd := exec.CommandContext(t.Context(), shared.binary, "manager", "--kubeconfig", shared.kubeconfig, "--namespace", ns,
		"--health-addr", "0", "--diagnostics-address", "0", "--sync-period", "1h", "--deliver")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Wait() // it is killed with the test's context
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return ns
}

// eventually waits until problem returns "", or fails when the condition of no Cluster has changed for a while.
func eventually(t *testing.T, what string, problem func() string) {
	t.Helper()
	moved := func() (int, error) {
		var clusters clusterv1.ClusterList
		if err := shared.client.List(t.Context(), &clusters); err != nil {
			return 0, err
		}
		var version int
		_, err := fmt.Sscan(clusters.Items[0].ResourceVersion, &version)
		return version, err
	}
	wait.Rule{Still: 90 * time.Second, Poll: 50 * time.Millisecond, Moved: moved}.Until(t, what, problem)
}

// publisher is a labelled Cluster that asks for outputs.
type publisher struct {
	t        *testing.T
	ns, name string
}

// newPublisher creates a Cluster, its control plane of a version, and its proxy Secret.
func newPublisher(t *testing.T, ns, name, list string, data map[string]string) publisher {
	t.Helper()
	p := publisher{t, ns, name}
	o := vocabulary.NewClassic(ns, name, name)
	o.Cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	o.Cluster.Annotations = map[string]string{contract.AnnotationPublish: list}
	vocabulary.Create(t, shared.client, vocabulary.ProxySecret(ns, name+contract.ClusterSecretSuffix, data), o.ControlPlane, o.Cluster)
	return p
}

func (p publisher) cluster() *clusterv1.Cluster {
	p.t.Helper()
	return vocabulary.Fetch(p.t, shared.client, p.ns, p.name, &clusterv1.Cluster{})
}

func (p publisher) edit(edit func(*clusterv1.Cluster)) {
	p.t.Helper()
	vocabulary.Change(p.t, shared.client, p.cluster(), edit)
}

// publish asks for another list; "" removes the annotation.
func (p publisher) publish(list string) {
	p.t.Helper()
	p.edit(func(c *clusterv1.Cluster) {
		if c.Annotations[contract.AnnotationPublish] = list; list == "" {
			delete(c.Annotations, contract.AnnotationPublish)
		}
	})
}

// useProxy replaces the proxy Secret's content.
func (p publisher) useProxy(data map[string]string) {
	p.t.Helper()
	secret := vocabulary.Fetch(p.t, shared.client, p.ns, p.name+contract.ClusterSecretSuffix, &corev1.Secret{})
	vocabulary.Change(p.t, shared.client, secret, func(s *corev1.Secret) { s.Data, s.StringData = nil, data })
}

// runs reports the version that the control plane runs.
func (p publisher) runs(version string) {
	p.t.Helper()
	controlPlane := vocabulary.Fetch(p.t, shared.client, p.ns, p.name, &controlplanev1.KubeadmControlPlane{})
	before := client.MergeFrom(controlPlane.DeepCopy())
	controlPlane.Status.Version = version //nolint:staticcheck // the field of the contract
	if err := shared.client.Status().Patch(p.t.Context(), controlPlane, before); err != nil {
		p.t.Fatal(err)
	}
}

// eventually waits until the condition has a reason, "" for none, and its message some parts.
func (p publisher) eventually(reason string, parts ...string) {
	p.t.Helper()
	eventually(p.t, "condition of Cluster "+p.name, func() string {
		cluster := p.cluster()
		condition := meta.FindStatusCondition(cluster.Status.Conditions, contract.ConditionProxyPublished)
		if condition == nil {
			condition = &metav1.Condition{ObservedGeneration: cluster.Generation}
		}
		for _, part := range parts {
			if !strings.Contains(condition.Message, part) {
				return fmt.Sprintf("message %q lacks %q", condition.Message, part)
			}
		}
		if condition.Reason != reason || condition.ObservedGeneration != cluster.Generation {
			return fmt.Sprintf("reason %s, want %s; message: %s", condition.Reason, reason, condition.Message)
		}
		return ""
	})
}

// secret returns the data of a Secret, nil if it does not exist.
func (p publisher) secret(end string) map[string][]byte {
	p.t.Helper()
	var secret corev1.Secret
	err := shared.client.Get(p.t.Context(), client.ObjectKey{Namespace: p.ns, Name: p.name + end}, &secret)
	if client.IgnoreNotFound(err) != nil {
		p.t.Fatal(err)
	}
	return secret.Data
}
