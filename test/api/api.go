// Package api lets tests use objects as their users and controllers write them.
package api

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// NewScheme returns a scheme with Cluster API's own types.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(
		clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme), bootstrapv1.AddToScheme(scheme),
		controlplanev1.AddToScheme(scheme), addonsv1.AddToScheme(scheme),
	)
}

// Into reads an object as another type, as one does that gets it from an API server: nothing is left of what was there.
func Into(object, into any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	reflect.ValueOf(into).Elem().SetZero()
	return json.Unmarshal(text, into)
}

// Read reads an object of Cluster API's own type from YAML, in which each field must be known, as a type of package
// kinds.
func Read[T any](t *testing.T, text string, own any) *T {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), own); err != nil {
		t.Fatal(err)
	}
	return As[T](own)
}

// As returns an object as a type of package kinds.
func As[T any](object any) *T {
	into := new(T)
	if err := Into(object, into); err != nil {
		panic(err)
	}
	return into
}

// Spec returns the view of a bootstrap spec, of Cluster API's own type or decoded from JSON without one.
func Spec(object any) patch.Spec { return kinds.ViewOf(As[bootstrapv1.KubeadmConfigSpec](object)) }
