package webhook_test

import (
	"context"
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// shown is a world that stands for a cache or for an API server, and counts what it is asked for.
type shown struct {
	*world.Reader

	// gets are the names of the Secrets that were asked for.
	gets []string
	// lists are the kinds of the lists that were asked for.
	lists []string
	// clusters is how many Clusters were asked for, reads how many objects and lists.
	clusters, reads int
	// err is the answer to all reads, nil for the objects.
	err error
}

func newWorld(t *testing.T, objects ...client.Object) *shown {
	t.Helper()
	reader, err := world.Of(t.Context(), objects...)
	if err != nil {
		t.Fatal(err)
	}
	return &shown{Reader: reader}
}

// clustersOf shows Clusters.
func clustersOf(t *testing.T, clusters ...clusterv1.Cluster) *shown {
	t.Helper()
	w := newWorld(t)
	for i := range clusters {
		w.Add(&clusters[i])
	}
	return w
}

func (w *shown) read() error {
	w.reads++
	return w.err
}

func (w *shown) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	switch kind := into.GetObjectKind().GroupVersionKind().Kind; into.(type) {
	case *corev1.Secret:
		w.gets = append(w.gets, key.Name)
	case *clusterv1.Cluster:
		w.clusters++
	default:
		if kind == "Secret" {
			w.gets = append(w.gets, key.Name)
		}
	}
	if err := w.read(); err != nil {
		return err
	}
	return w.Reader.Get(ctx, key, into, o...)
}

func (w *shown) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	w.lists = append(w.lists, fmt.Sprintf("%T", list))
	if err := w.read(); err != nil {
		return err
	}
	return w.Reader.List(ctx, list, o...)
}

// clusterNamed is a Cluster that is labelled, or was and is still reported on.
func clusterNamed(name string, enabled bool) *clusterv1.Cluster {
	cluster := labelled()
	cluster.Name = name
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 6443}
	if !enabled {
		cluster.Labels = nil
		cluster.Status.Conditions = []metav1.Condition{{Type: contract.ConditionProxyConfigured}}
	}
	return &cluster
}

// deployment is MachineDeployment md, which uses KubeadmConfigTemplate md.
func deployment(cluster string) *clusterv1.MachineDeployment {
	pool := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "md"}}
	pool.Spec.ClusterName = cluster
	pool.Spec.Template.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: bootstrapv1.GroupVersion.Group, Kind: plan.KindTemplate, Name: "md",
	}
	return pool
}

// ask sends a request about an object of a kind to webhooks with a cache and an API server.
func ask(t *testing.T, cached, live *shown, kind, name, stored,
	requested string,
) *admissionv1.AdmissionResponse {
	t.Helper()
	body := review(t, requested, func(r *admissionv1.AdmissionRequest) {
		r.Name = name
		if stored != "" {
			r.Operation, r.OldObject.Raw = admissionv1.Update, []byte(stored)
		}
	})
	return response(t, postTo(t, serve(t, cached, live), kind, body))
}
