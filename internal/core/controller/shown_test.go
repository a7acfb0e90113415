package controller

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/backoff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// noon is the time of the tests.
func noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// shown shows objects as the controller's cache does, and records what is written. It answers a write with refusal.
type shown struct {
	client.Client

	world   *world.Reader
	writes  []string
	refusal error
}

// show returns a client of objects, as it is and as the controller has it.
func show(t *testing.T, objects ...client.Object) (*shown, *Writer) {
	t.Helper()
	reader, err := world.Of(t.Context(), objects...)
	if err != nil {
		t.Fatal(err)
	}
	s := &shown{world: reader}
	return s, &Writer{Client: backoff.New(s, s, noon), Live: s}
}

func (s *shown) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return s.world.Get(ctx, key, into, options...)
}

func (s *shown) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return s.world.List(ctx, list, options...)
}

func (*shown) GroupVersionKindFor(object runtime.Object) (schema.GroupVersionKind, error) {
	scheme, err := world.Scheme()
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return apiutil.GVKForObject(object, scheme)
}

func (s *shown) Patch(_ context.Context, object client.Object, change client.Patch, _ ...client.PatchOption) error {
	data, err := change.Data(object)
	if err != nil {
		return err
	}
	return s.record("patch " + object.GetName() + " " + string(data))
}

func (s *shown) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	if s.refusal == nil {
		object.SetUID("new")
	}
	return s.record("create " + object.GetName())
}

func (s *shown) Update(_ context.Context, object client.Object, _ ...client.UpdateOption) error {
	if s.refusal == nil {
		object.SetUID("uid")
		object.SetResourceVersion("8")
	}
	return s.record("update " + object.GetName())
}

func (s *shown) Delete(_ context.Context, object client.Object, _ ...client.DeleteOption) error {
	return s.record("delete " + object.GetName())
}

func (s *shown) record(write string) error {
	s.writes = append(s.writes, write)
	return s.refusal
}

// named is the metadata of an object in the namespace of the tests, with pairs of labels.
func named(name string, labels ...string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Namespace: "team", Name: name, UID: "uid", ResourceVersion: "7", Labels: map[string]string{},
		CreationTimestamp: metav1.NewTime(noon().Add(-time.Hour)),
	}
	for pair := range slices.Chunk(labels, 2) {
		meta.Labels[pair[0]] = pair[1]
	}
	return meta
}

// configOf is the KubeadmConfig of a Machine of Cluster one that has its bootstrap data.
func configOf(machine string) *bootstrapv1.KubeadmConfig {
	config := &bootstrapv1.KubeadmConfig{ObjectMeta: named(machine, clusterv1.ClusterNameLabel, "one")}
	config.OwnerReferences = []metav1.OwnerReference{{Kind: "Machine", Name: machine, Controller: new(true)}}
	config.Status.DataSecretName = "data"
	return config
}

// generated is a generated Secret of Cluster one.
func generated(name string) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: named(name, clusterv1.ClusterNameLabel, "one", contract.LabelGenerated, "one", contract.LabelProxySecret, ""),
		Data:       map[string][]byte{},
	}
	secret.OwnerReferences = []metav1.OwnerReference{{Kind: "Cluster", Name: "one", UID: "cluster"}}
	return secret
}

// poolOf is MachineDeployment name of Cluster one, whose bootstrap objects come from an object of a kind.
func poolOf(name, kind, bootstrap string) *clusterv1.MachineDeployment {
	pool := &clusterv1.MachineDeployment{ObjectMeta: named(name)}
	pool.Spec.ClusterName = "one"
	pool.Spec.Template.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{Kind: kind, Name: bootstrap}
	return pool
}

// referring is a spec with a managed file from a generated Secret.
func referring(secret string) bootstrapv1.KubeadmConfigSpec {
	return bootstrapv1.KubeadmConfigSpec{Files: []bootstrapv1.File{{
		Path: contract.PathProxyEnv, ContentFrom: bootstrapv1.FileSource{Secret: bootstrapv1.SecretFileSource{
			Name: secret, Key: contract.KeyProxyEnv,
		}},
	}}}
}
