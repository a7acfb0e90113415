package manager

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestCheckClusterAPI_RefusesWhatIsKnownNotToBeSupported(t *testing.T) {
	t.Parallel()
	kind := schema.GroupVersionKind{Group: "clusterctl.cluster.x-k8s.io", Version: "v1alpha3", Kind: "Provider"}
	provider := func(name, providerType, version string) client.Object {
		o := &unstructured.Unstructured{Object: map[string]any{"type": providerType, "version": version}}
		o.SetGroupVersionKind(kind)
		o.SetNamespace("capi-system")
		o.SetName(name)
		return o
	}
	builder := func() *fake.ClientBuilder {
		scheme := runtime.NewScheme()
		scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind("ProviderList"), &unstructured.UnstructuredList{})
		return fake.NewClientBuilder().WithScheme(scheme)
	}
	for name, test := range map[string]struct {
		api    client.Reader
		refuse string
	}{
		"the oldest":       {builder().WithObjects(provider("cluster-api", "CoreProvider", "v1.13.6")).Build(), ""},
		"the newest":       {builder().WithObjects(provider("cluster-api", "CoreProvider", "v1.14.0")).Build(), ""},
		"an older one":     {builder().WithObjects(provider("cluster-api", "CoreProvider", "v1.12.9")).Build(), "v1.12 is not"},
		"a newer one":      {builder().WithObjects(provider("cluster-api", "CoreProvider", "v1.15.0-rc.0")).Build(), "v1.15 is not"},
		"no version":       {builder().WithObjects(provider("cluster-api", "CoreProvider", "main")).Build(), ""},
		"another provider": {builder().WithObjects(provider("docker", "InfrastructureProvider", "v1.2.0")).Build(), ""},
		"no inventory":     {builder().Build(), ""},
		"no rights": {builder().WithInterceptorFuncs(interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("forbidden")
			},
		}).Build(), ""},
	} {
		err := checkClusterAPI(t.Context(), test.api)
		if test.refuse == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if test.refuse != "" && (err == nil || !strings.Contains(err.Error(), test.refuse) ||
			!strings.Contains(err.Error(), "supports v1.13 and v1.14")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
