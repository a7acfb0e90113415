package slim

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// fillAll sets every field of a value that can be set.
func fillAll(v reflect.Value) {
	if !v.CanSet() {
		return
	}
	if _, isTime := reflect.TypeAssert[metav1.Time](v); isTime {
		v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(1_800_000_000, 0))))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillAll(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillAll(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillAll(key)
		fillAll(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for _, field := range v.Fields() {
			fillAll(field)
		}
	default:
		fill(v)
	}
}

// TestCluster_AsksForTheSame fails when package intent reads a field of a Cluster that caches do not keep.
func TestCluster_AsksForTheSame(t *testing.T) {
	t.Parallel()
	whole := &clusterv1.Cluster{}
	fillAll(reflect.ValueOf(whole).Elem())
	slim := whole.DeepCopy()
	Cluster(slim)
	if diff := cmp.Diff(intent.ClusterOf(whole), intent.ClusterOf(slim)); diff != "" {
		t.Errorf("a slim Cluster asks for something else (-whole +slim)\n%s", diff)
	}
	if slim.Status.Phase != "" || slim.ManagedFields != nil {
		t.Errorf("it keeps what nobody reads: %+v", slim)
	}
}

// TestPools_AreTheSameWithEveryField fails when package plan reads a field of a pool that caches do not keep.
func TestPools_AreTheSameWithEveryField(t *testing.T) {
	t.Parallel()
	deployment, pool := &clusterv1.MachineDeployment{}, &clusterv1.MachinePool{}
	fillAll(reflect.ValueOf(deployment).Elem())
	fillAll(reflect.ValueOf(pool).Elem())
	slimDeployment, slimPool := deployment.DeepCopy(), pool.DeepCopy()
	Deployment(slimDeployment)
	Pool(slimPool)
	if diff := cmp.Diff(plan.PoolOf(deployment), plan.PoolOf(slimDeployment)); diff != "" {
		t.Errorf("MachineDeployment (-whole +slim)\n%s", diff)
	}
	if diff := cmp.Diff(plan.PoolOf(pool), plan.PoolOf(slimPool)); diff != "" {
		t.Errorf("MachinePool (-whole +slim)\n%s", diff)
	}
}
