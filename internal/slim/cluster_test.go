package slim

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	kjson "sigs.k8s.io/json"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
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
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(`{}`)) // JSON
			return
		}
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

// again returns a whole object as a reader sees it after a cache has received and kept it.
func again[K any, W any, P interface {
	*K
	Kept
	Into(*W)
}](t *testing.T, whole *W,
) *W {
	t.Helper()
	text, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	kept := P(new(K))
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, kept); err != nil {
		t.Fatal(err)
	}
	early, ok := kept.DeepCopyObject().(P)
	if !ok {
		t.Fatalf("the copy is of another type: %T", kept.DeepCopyObject())
	}
	kept.Keep()
	first := new(W)
	kept.Into(first)
	kept.Keep() // some informers transform twice
	late, _ := kept.DeepCopyObject().(P)
	early.Keep()
	for _, other := range []P{kept, early, late} {
		second := new(W)
		if other.Into(second); !cmp.Equal(first, second) {
			t.Errorf("kept again (-first +now)\n%s", cmp.Diff(first, second))
		}
	}
	return first
}

// TestCluster_AsksForTheSame fails when package intent reads a field of a Cluster that caches do not keep.
func TestCluster_AsksForTheSame(t *testing.T) {
	t.Parallel()
	whole := &clusterv1.Cluster{}
	fillAll(reflect.ValueOf(whole).Elem())
	for _, variables := range variablesOf(whole) {
		(*variables)[0].Value.Raw = []byte(`{"big":"%"}`)
		*variables = append(*variables, clusterv1.ClusterVariable{Name: contract.VariableName})
		(*variables)[1].Value.Raw = []byte(`{"secretName":"corp"}`)
	}
	slim := again[Cluster](t, whole)
	if diff := cmp.Diff(intent.ClusterOf(whole), intent.ClusterOf(slim)); diff != "" {
		t.Errorf("a slim Cluster asks for something else (-whole +slim)\n%s", diff)
	}
	if diff := cmp.Diff(intent.TopologySourceOf(whole), intent.TopologySourceOf(slim)); diff != "" {
		t.Errorf("its topology asks for something else (-whole +slim)\n%s", diff)
	}
	if slim.Status.Phase != "" || slim.ManagedFields != nil || slim.Spec.Topology.Variables[0].Value.Raw != nil {
		t.Errorf("it keeps what nobody reads: %+v", slim)
	}
	if classic := again[Cluster](t, &clusterv1.Cluster{}); classic.Spec.Topology.IsDefined() {
		t.Errorf("a Cluster without a topology has %+v", classic.Spec.Topology)
	}
}

func variablesOf(cluster *clusterv1.Cluster) []*[]clusterv1.ClusterVariable {
	topology := &cluster.Spec.Topology
	return []*[]clusterv1.ClusterVariable{
		&topology.Variables, &topology.ControlPlane.Variables.Overrides,
		&topology.Workers.MachineDeployments[0].Variables.Overrides, &topology.Workers.MachinePools[0].Variables.Overrides,
	}
}

// TestPools_AreTheSameWithEveryField fails when package plan reads a field of a pool that caches do not keep.
func TestPools_AreTheSameWithEveryField(t *testing.T) {
	t.Parallel()
	deployment, pool := &clusterv1.MachineDeployment{}, &clusterv1.MachinePool{}
	fillAll(reflect.ValueOf(deployment).Elem())
	fillAll(reflect.ValueOf(pool).Elem())
	if diff := cmp.Diff(plan.PoolOf(deployment), plan.PoolOf(again[Deployment](t, deployment))); diff != "" {
		t.Errorf("MachineDeployment (-whole +slim)\n%s", diff)
	}
	if diff := cmp.Diff(plan.PoolOf(pool), plan.PoolOf(again[Pool](t, pool))); diff != "" {
		t.Errorf("MachinePool (-whole +slim)\n%s", diff)
	}
}

// TestMetadata_IsThatOfTheWholeObject compares every field but those that nobody reads.
func TestMetadata_IsThatOfTheWholeObject(t *testing.T) {
	t.Parallel()
	whole := &bootstrapv1.KubeadmConfigTemplate{}
	fillAll(reflect.ValueOf(&whole.ObjectMeta).Elem())
	whole.Annotations = map[string]string{"b%": "{{", "a\n": "", corev1.LastAppliedConfigAnnotation: "{}"}
	whole.Labels = map[string]string{"c": "$", "": "`"}
	want := whole.ObjectMeta.DeepCopy()
	dropUnread(want)
	got := again[Template](t, whole)
	if diff := cmp.Diff(*want, got.ObjectMeta); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got.Kind != "KubeadmConfigTemplate" || got.APIVersion != bootstrapv1.GroupVersion.String() {
		t.Errorf("it is %+v", got.TypeMeta)
	}
}

// TestWhole_CanBeChanged changes everything of an object that a reader has got.
func TestWhole_CanBeChanged(t *testing.T) {
	t.Parallel()
	whole := &clusterv1.Cluster{}
	fillAll(reflect.ValueOf(whole).Elem())
	text, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	kept := &Cluster{}
	if err := json.Unmarshal(text, kept); err != nil {
		t.Fatal(err)
	}
	kept.Keep()
	first, changed, last := &clusterv1.Cluster{}, &clusterv1.Cluster{}, &clusterv1.Cluster{}
	kept.Into(first)
	kept.Into(changed)
	clobber(reflect.ValueOf(changed).Elem())
	kept.Into(last)
	if diff := cmp.Diff(first, last); diff != "" {
		t.Errorf("the cache has changed (-before +after)\n%s", diff)
	}
}

// clobber changes every value that can be reached.
func clobber(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			clobber(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			clobber(v.Index(i))
		}
	case reflect.Map:
		v.Clear()
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				clobber(field)
			}
		}
	default:
		if v.CanSet() {
			v.SetZero()
		}
	}
}
