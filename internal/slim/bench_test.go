package slim

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	kjson "sigs.k8s.io/json"
)

// BenchmarkControlPlane decodes a control plane as an informer does, keeps it, and shows it to a reader. Case whole is
// what a cache of controller-runtime does.
var sink any

func BenchmarkControlPlane(b *testing.B) {
	whole := &controlplanev1.KubeadmControlPlane{}
	whole.Spec.KubeadmConfigSpec = rudeSpec()
	whole.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}`)}}
	whole.Labels = map[string]string{"a": "b"}
	text, err := json.Marshal(whole)
	if err != nil {
		b.Fatal(err)
	}
	decode := func(into any) {
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, into); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("receive", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			kept := &ControlPlane{}
			decode(kept)
			kept.Keep()
		}
	})
	b.Run("receive whole", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			decode(&controlplanev1.KubeadmControlPlane{})
		}
	})
	kept := &ControlPlane{}
	decode(kept)
	kept.Keep()
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			read := &controlplanev1.KubeadmControlPlane{}
			kept.Into(read)
			sink = read
		}
	})
	b.Run("read whole", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			sink = whole.DeepCopy()
		}
	})
}
