//go:build e2e

package management

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/exp/runtime/server"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ports"
)

// InstallHooks starts the runtime hooks, without any access to the API server, and has Cluster API ask them by the
// ExtensionConfig that users copy.
func (c *Cluster) InstallHooks(ctx context.Context, binary string) (*Process, error) {
	port, err := ports.Free(ctx)
	if err != nil {
		return nil, err
	}
	health, err := ports.Address(ctx)
	if err != nil {
		return nil, err
	}
	p := c.newProcess("hooks", binary, health,
		"hooks", "--bind-address", "127.0.0.1", "--port", strconv.Itoa(port), "--cert-dir", c.certificates(), "--health-addr",
		health, "--diagnostics-address", "0", "--v=4")
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	return p, c.register(ctx, port)
}

// register applies config/extensionconfig for hooks that listen on a port of loopback. It
// returns when Cluster API has discovered them: its core manager ends if hooks that it knows do not answer within the
// first minute of its life, so nobody may take them away before.
func (c *Cluster) register(ctx context.Context, port int) error {
	objects, err := mgmt.Kustomize(filepath.Join(c.root, "config", "extensionconfig"))
	if err != nil {
		return err
	}
	object := objects[0]
	object.SetAnnotations(nil) // there is no Secret with an authority to inject
	return c.discover(ctx, object, port)
}

// discover applies an ExtensionConfig whose service listens on a port of loopback, and returns when Cluster API has
// discovered it.
func (c *Cluster) discover(ctx context.Context, object *unstructured.Unstructured, port int) error {
	c.localize(object.Object, port)
	if err := c.apply(ctx, []*unstructured.Unstructured{object}); err != nil {
		return err
	}
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, readyTimeout, true,
		func(ctx context.Context) (bool, error) {
			return c.discovered(ctx, object.GetName()), nil
		}); err != nil {
		return fmt.Errorf("waiting for the discovery of ExtensionConfig %s: %w", object.GetName(), err)
	}
	return nil
}

// ServeExtension serves another runtime extension until ctx ends, and has Cluster API ask it for all namespaces.
func (c *Cluster) ServeExtension(ctx context.Context, name string, handlers ...server.ExtensionHandler) error {
	catalog := runtimecatalog.New()
	if err := runtimehooksv1.AddToCatalog(catalog); err != nil {
		return err
	}
	port, err := ports.Free(ctx)
	if err != nil {
		return err
	}
	s, err := server.New(server.Options{
		Catalog: catalog, Host: "127.0.0.1", Port: port, CertDir: c.certificates(), CertName: "tls.crt", KeyName: "tls.key",
	})
	if err != nil {
		return err
	}
	for _, handler := range handlers {
		if err := s.AddExtensionHandler(handler); err != nil {
			return err
		}
	}
	go func() { _ = s.Start(ctx) }()
	object := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{"clientConfig": map[string]any{
			"service": map[string]any{"name": name, "namespace": "default"},
		}},
	}}
	object.SetGroupVersionKind(runtimev1.GroupVersion.WithKind("ExtensionConfig"))
	return c.discover(ctx, object, port)
}

// discovered reports whether Cluster API has discovered the hooks of an ExtensionConfig.
func (c *Cluster) discovered(ctx context.Context, name string) bool {
	object, config := &unstructured.Unstructured{}, runtimev1.ExtensionConfig{}
	object.SetGroupVersionKind(runtimev1.GroupVersion.WithKind("ExtensionConfig"))
	return c.admin.Get(ctx, client.ObjectKey{Name: name}, object) == nil &&
		runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &config) == nil &&
		meta.IsStatusConditionTrue(config.Status.Conditions, runtimev1.ExtensionConfigDiscoveredCondition)
}
