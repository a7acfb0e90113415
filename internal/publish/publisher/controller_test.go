package publisher

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
)

func TestEvents_AreThoseOfClustersWithOutputs(t *testing.T) {
	t.Parallel()
	plain := &clusterv1.Cluster{}
	with := func(name, value string) *clusterv1.Cluster {
		return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{name: value}}}
	}
	reported := &clusterv1.Cluster{}
	reported.Status.Conditions = []metav1.Condition{{Type: output.ConditionProxyPublished}}
	other := &clusterv1.Cluster{}
	other.Status.Conditions = []metav1.Condition{{Type: contract.ConditionProxyConfigured}}
	for name, test := range map[string]struct {
		cluster *clusterv1.Cluster
		want    bool
	}{
		"plain":                    {plain, false},
		"no output":                {with(output.AnnotationPublish, ""), false},
		"an output":                {with(output.AnnotationPublish, "env"), true},
		"an annotation of outputs": {with(output.AnnotationNoProxy, "a"), true},
		"objects in its cluster":   {with(output.AnnotationApplied, contract.AppliedValue), true},
		"our condition":            {reported, true},
		"another condition":        {other, false},
	} {
		p := ofConcerned()
		if p.Create(event.CreateEvent{Object: test.cluster}) != test.want ||
			p.Update(event.UpdateEvent{ObjectOld: test.cluster, ObjectNew: plain}) != test.want ||
			p.Update(event.UpdateEvent{ObjectOld: plain, ObjectNew: test.cluster}) != test.want ||
			p.Delete(event.DeleteEvent{Object: test.cluster}) {
			t.Errorf("%s: want %v", name, test.want)
		}
	}
}

// clustersOf has Cluster prod, which asks for an output, and Cluster plain.
type clustersOf struct{ client.Client }

func (clustersOf) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch key.Name {
	case "prod":
		into.SetAnnotations(map[string]string{output.AnnotationPublish: "env"})
	case "plain":
	default:
		into.SetAnnotations(map[string]string{output.AnnotationPublish: "env"})
		return errors.New("not found")
	}
	return nil
}

func TestConcerned_LeavesOtherClustersOut(t *testing.T) {
	t.Parallel()
	c := &Controller{Config: Config{Client: clustersOf{}}}
	var all []reconcile.Request
	for _, name := range []string{"plain", "prod", "gone"} {
		all = append(all, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: name}})
	}
	got := c.concerned(func(context.Context, client.Object) []reconcile.Request { return all })(t.Context(), nil)
	if !slices.Equal(got, all[1:2]) {
		t.Errorf("got %v", got)
	}
}

func TestEvents_OfAControlPlaneAreThoseOfItsVersion(t *testing.T) {
	t.Parallel()
	at := func(version string) *controlplanev1.KubeadmControlPlane {
		object := &controlplanev1.KubeadmControlPlane{}
		object.Status.Version = version //nolint:staticcheck // see versionOf
		return object
	}
	p := ofVersions()
	if !p.Create(event.CreateEvent{Object: at("v1")}) || p.Delete(event.DeleteEvent{Object: at("v1")}) ||
		p.Update(event.UpdateEvent{ObjectOld: at("v1"), ObjectNew: at("v1")}) ||
		!p.Update(event.UpdateEvent{ObjectOld: at("v1"), ObjectNew: at("v2")}) {
		t.Error("other events pass")
	}
	if got := versionOf(&corev1.Secret{}); got != "" {
		t.Errorf("a Secret has version %q", got)
	}
}

func TestEvents_OfANameAreThatItIsTakenOrFree(t *testing.T) {
	t.Parallel()
	p := ofExistence[client.Object]()
	if !p.Create(event.CreateEvent{}) || !p.Delete(event.DeleteEvent{}) || p.Update(event.UpdateEvent{}) {
		t.Error("other events pass")
	}
	var got []string
	for _, request := range ofOutputName(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a-b-proxy-outputs"}}) {
		got = append(got, request.String())
	}
	if !slices.Contains(got, "team/a-b") {
		t.Errorf("the Clusters of a-b-proxy-outputs are %q", got)
	}
	if got := ofOutputName(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other"}}); len(got) > 0 {
		t.Errorf("another name has Clusters %v", got)
	}
}
