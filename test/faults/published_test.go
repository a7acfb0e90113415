package faults

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/cabundle"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// manifests returns objects as JSON Lines, as kubectl would print them.
func manifests(t *testing.T, objects map[client.Object]schema.GroupVersionKind) []byte {
	t.Helper()
	var text []byte
	for object, kind := range objects {
		object.SetManagedFields(nil)
		object.GetObjectKind().SetGroupVersionKind(kind)
		line, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, line...), '\n')
	}
	return text
}

// TestOutputs_AreWhatRenderPrints compares what the manager has written with what render prints for the same Cluster.
func TestOutputs_AreWhatRenderPrints(t *testing.T) {
	ns := namespace(t)
	t.Parallel()
	manager(t, ns, noResync)
	const list = "env, values=a.b, values=c, annotations, giantswarm, pods, trust=cert-manager, kapp-controller"
	c := newPublisher(t, ns, "prod", list, map[string]string{"httpProxy": proxyURL, "trustedCA": cabundle.Small(t)})
	c.Runs("v1.36.3")
	c.Eventually(contract.ReasonDelivering, "the workload cluster does not answer")
	written := c.Cluster()
	before := written.DeepCopy()
	maps.DeleteFunc(before.Annotations, func(key, _ string) bool { return key != contract.AnnotationPublish })
	input := manifests(t, map[client.Object]schema.GroupVersionKind{
		before: clusterv1.GroupVersion.WithKind("Cluster"),
		vocabulary.Fetch(t, shared.client, ns, "prod", &controlplanev1.KubeadmControlPlane{}):         controlplanev1.GroupVersion.WithKind("KubeadmControlPlane"),
		vocabulary.Fetch(t, shared.client, ns, "prod"+contract.ClusterSecretSuffix, &corev1.Secret{}): corev1.SchemeGroupVersion.WithKind("Secret"),
	})
	result, err := render.Render(t.Context(), render.Options{
		Inputs: []clusters.Input{{Name: "-", Data: input}}, Publish: render.Publish{Wanted: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for line := range strings.Lines(string(result.Output)) {
		printed := &unstructured.Unstructured{}
		if err := printed.UnmarshalJSON([]byte(line)); err != nil {
			t.Fatal(err)
		}
		switch kind := printed.GetKind(); {
		case kind == "Cluster":
			comparePublished(t, printed, written)
			compared++
		case printed.GetLabels()[contract.LabelOutput] != "":
			compareWritten(t, printed)
			compared++
		}
	}
	if compared != 4 { // the Cluster and its three Secrets
		t.Errorf("%d objects compared in\n%s", compared, result.Output)
	}
}

// comparePublished compares the annotations of the Cluster.
func comparePublished(t *testing.T, printed *unstructured.Unstructured, written *clusterv1.Cluster) {
	t.Helper()
	for _, key := range publish.AnnotationKeys() {
		if got, want := printed.GetAnnotations()[key], written.Annotations[key]; got != want || want == "" {
			t.Errorf("annotation %s is %q and was written as %q", key, got, want)
		}
	}
}

// compareWritten compares an object with the one that the manager has written.
func compareWritten(t *testing.T, printed *unstructured.Unstructured) {
	t.Helper()
	written := &unstructured.Unstructured{}
	written.SetGroupVersionKind(printed.GroupVersionKind())
	if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(printed), written); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"type", "data", "spec"} {
		if diff := cmp.Diff(written.Object[field], printed.Object[field]); diff != "" {
			t.Errorf("%s %s, %s: %s", printed.GetKind(), printed.GetName(), field, diff)
		}
	}
	if diff := cmp.Diff(written.GetLabels(), printed.GetLabels()); diff != "" {
		t.Errorf("%s %s: %s", printed.GetKind(), printed.GetName(), diff)
	}
	if diff := cmp.Diff(written.GetAnnotations(), printed.GetAnnotations()); diff != "" {
		t.Errorf("%s %s: %s", printed.GetKind(), printed.GetName(), diff)
	}
}
