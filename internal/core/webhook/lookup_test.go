package webhook

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
)

// manyPools is a namespace with MachineDeployments, each of which refers to the same template.
type manyPools struct {
	client.Reader
	count, sent int
}

func (m *manyPools) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var requested client.ListOptions
	requested.ApplyOptions(options)
	deployments := list.(*clusterv1.MachineDeploymentList) //nolint:forcetypeassert // nothing else is asked for
	deployments.Items = nil
	for i := range m.count {
		if requested.Limit > 0 && int64(i) == requested.Limit {
			deployments.Continue = "more"
			break
		}
		deployment := clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("md-%05d", i)}}
		deployment.Spec.Template.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{Kind: plan.KindTemplate, Name: "shared"}
		deployments.Items = append(deployments.Items, deployment)
		m.sent++
	}
	return nil
}

func TestPools_ReadsBoundedlyFromTheAPIServer(t *testing.T) {
	t.Parallel()
	for count, want := range map[int]int{0: 0, 1: 1, maxLive: maxLive, maxLive + 1: 0, 30_000: 0} {
		live := &manyPools{count: count}
		w := &Webhook{Cached: &manyPools{}, Live: live}
		pools, err := w.clusters().Pools(t.Context(), plan.KindTemplate, "team", "shared")
		if err != nil || len(pools) != want || live.sent > maxLive {
			t.Errorf("%d MachineDeployments: %d pools after %d were read (%v), want %d", count, len(pools), live.sent, err, want)
		}
	}
}

// manyClusters is a namespace with labelled Clusters, of which one refers to KubeadmControlPlane shared.
type manyClusters struct {
	client.Reader
	count, refers, sent int
}

func (m *manyClusters) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var requested client.ListOptions
	requested.ApplyOptions(options)
	clusters := list.(*clusterv1.ClusterList) //nolint:forcetypeassert // nothing else is asked for
	clusters.Items = nil
	for i := range m.count {
		if requested.Limit > 0 && int64(i) == requested.Limit {
			clusters.Continue = "more"
			break
		}
		cluster := clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%05d", i)}}
		cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{Kind: plan.KindControlPlane, Name: "own"}
		if i == m.refers {
			cluster.Spec.ControlPlaneRef.Name = "shared"
		}
		clusters.Items = append(clusters.Items, cluster)
		m.sent++
	}
	return nil
}

func TestClusterOfControlPlane_ReadsBoundedlyFromTheAPIServer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		count, refers int
		found         bool
	}{
		{0, -1, false},
		{1, 0, true},
		{maxLive, maxLive - 1, true},
		{maxLive + 1, maxLive, false},
		{10_000, 3, true},
		{10_000, -1, false},
	} {
		live := &manyClusters{count: test.count, refers: test.refers}
		w := &Webhook{Cached: &manyClusters{}, Live: live}
		cluster, err := w.clusterOfControlPlane(t.Context(),
			write{kind: plan.KindControlPlane, namespace: "team", name: "shared", requested: object{BootstrapObject: &bootstrapv1.KubeadmConfig{}}})
		if err != nil || cluster != nil != test.found || live.sent > maxLive {
			t.Errorf("%+v: found %v after %d Clusters were read (%v)", test, cluster != nil, live.sent, err)
		}
	}
}
