//go:build e2e

// Package infra is an infrastructure provider that keeps the v1beta2 contract of Cluster API and makes no machines:
// LocalCluster, LocalMachine and LocalMachinePool are ready at once, and a machine that gets its bootstrap data comes
// up as a Node that kubeadm seems to have set up, so that control planes become available, scale, roll and are
// upgraded.
//
// The API server of the management cluster stands in for those of all workload clusters. Each workload cluster sees its
// own part of it, through an endpoint of its own and with certificates of its own authority; see Workloads.
//
// KubeadmControlPlanes need an external etcd (Cluster API looks into one that it manages); the provider creates its
// certificates with the LocalCluster.
//
// A provider without Workloads leaves the machines to somebody who boots real ones: a LocalCluster has its endpoint in
// its spec, a machine is there as soon as it has bootstrap data, and its Node is the one that has the providerID of the
// LocalMachine.
package infra

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// group is the API group of infrastructure providers.
const group = "infrastructure.cluster.x-k8s.io"

// finalizer keeps a machine until its Nodes are gone.
const finalizer = "local." + group + "/nodes"

// HoldEndpoint is an annotation on a LocalCluster, with any value. While it is there the cluster is not provisioned and
// has no control-plane endpoint, as with a load balancer that takes its time.
const HoldEndpoint = "local." + group + "/hold-endpoint"

func kind(name string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: "v1beta2", Kind: "Local" + name}
}

// CRDs returns the kinds of the provider. They accept any spec and status.
func CRDs() []*apiextensionsv1.CustomResourceDefinition {
	names := []string{"Cluster", "ClusterTemplate", "Machine", "MachineTemplate", "MachinePool", "MachinePoolTemplate"}
	crds := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(names))
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	for _, name := range names {
		gvk := kind(name)
		singular := strings.ToLower(gvk.Kind)
		crds = append(crds, &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{
				Name: singular + "s." + group,
				Labels: map[string]string{
					clusterv1.GroupVersion.Group + "/v1beta2": gvk.Version,
					clusterv1.ProviderNameLabel:               "infrastructure-local",
					clusterctlv1.ClusterctlLabel:              "", // clusterctl move reads it
				},
			},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: group,
				Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{
					Kind: gvk.Kind, ListKind: gvk.Kind + "List", Singular: singular, Plural: singular + "s",
					Categories: []string{"cluster-api"},
				},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: gvk.Version, Served: true, Storage: true,
					Subresources: &apiextensionsv1.CustomResourceSubresources{
						Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
					},
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type:       "object",
						Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": anything, "status": anything},
					}},
				}},
			},
		})
	}
	return crds
}

// Boot is a machine that came up, or a MachinePool that did.
type Boot struct {
	// Cluster is the namespace and the name of the workload cluster.
	Cluster types.NamespacedName
	// Machine is the name of the Machine or MachinePool, UID its identity.
	Machine string
	UID     types.UID
	// ControlPlane reports whether it is a Machine of a control plane.
	ControlPlane bool
	// Format is cloud-config or ignition, and Data the bootstrap data.
	Format string
	Data   []byte
	// At is when it came up.
	At time.Time
}

// Provider is the infrastructure provider of one management cluster.
type Provider struct {
	workloads *Workloads // nil if machines are real ones
	client    client.Client
	live      client.Reader

	mu    sync.Mutex
	boots []Boot
	seen  map[types.UID]bool
}

// Boots returns every boot so far, those of Machines that are gone included, in their order.
func (p *Provider) Boots() []Boot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Boot{}, p.boots...)
}

// record notes a boot. A machine boots once.
func (p *Provider) record(b Boot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.seen[b.UID] {
		p.seen[b.UID] = true
		p.boots = append(p.boots, b)
	}
}

// NewScheme returns a scheme with the kinds of Kubernetes and of Cluster API.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme, controlplanev1.AddToScheme,
		runtimev1.AddToScheme, addonsv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building scheme: %w", err)
		}
	}
	return scheme, nil
}

// Start starts the provider in this process and returns when it works. It ends with the context. Without workloads the
// machines are real ones.
func Start(ctx context.Context, cfg *rest.Config, workloads *Workloads) (*Provider, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, fmt.Errorf("starting the infrastructure provider: %w", err)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = "infrastructure-local"
	manager, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: new(true), MaxConcurrentReconciles: 20},
		Client:                 client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	})
	if err != nil {
		return nil, fmt.Errorf("starting the infrastructure provider: %w", err)
	}
	p := &Provider{
		workloads: workloads, client: manager.GetClient(), live: manager.GetAPIReader(),
		seen: map[types.UID]bool{},
	}
	for _, c := range []struct {
		kind  string
		owner client.Object
		do    func(context.Context, *unstructured.Unstructured) error
	}{
		{"Cluster", &clusterv1.Cluster{}, p.cluster},
		{"Machine", &clusterv1.Machine{}, p.machine},
		{"MachinePool", &clusterv1.MachinePool{}, p.pool},
	} {
		err := ctrl.NewControllerManagedBy(manager).
			Named("local-"+strings.ToLower(c.kind)).
			For(empty(c.kind)).
			Watches(c.owner, handler.EnqueueRequestsFromMapFunc(infrastructureOf)).
			WithOptions(controller.Options{}).
			Complete(p.reconciler(c.kind, c.do))
		if err != nil {
			return nil, fmt.Errorf("starting the infrastructure provider: %w", err)
		}
	}
	failed := make(chan error, 1)
	go func() { failed <- manager.Start(ctx) }()
	if !manager.GetCache().WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("starting the infrastructure provider: %w", <-failed)
	}
	return p, nil
}

func empty(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind(name))
	return object
}

// infrastructureOf asks for the object of this provider that an object of Cluster API refers to.
func infrastructureOf(_ context.Context, object client.Object) []reconcile.Request {
	var ref clusterv1.ContractVersionedObjectReference
	switch o := object.(type) {
	case *clusterv1.Cluster:
		ref = o.Spec.InfrastructureRef
	case *clusterv1.Machine:
		ref = o.Spec.InfrastructureRef
	case *clusterv1.MachinePool:
		ref = o.Spec.Template.Spec.InfrastructureRef
	}
	if ref.APIGroup != group {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: ref.Name}}}
}

// reconciler gives an object to do, a copy that do may change, unless it or its Cluster is paused.
func (p *Provider) reconciler(name string, do func(context.Context, *unstructured.Unstructured) error) reconcile.Func {
	return func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		object := empty(name)
		if err := p.client.Get(ctx, request.NamespacedName, object); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		return reconcile.Result{}, do(ctx, object)
	}
}

// owner reads the owner of an object into owner, and the Cluster that the owner belongs to. ok is false while there are
// none, and while the Cluster is paused.
func (p *Provider) owner(ctx context.Context, object, owner client.Object) (cluster *clusterv1.Cluster,
	ok bool, err error,
) {
	gvk, err := p.client.GroupVersionKindFor(owner)
	if err != nil {
		return nil, false, err
	}
	for _, ref := range object.GetOwnerReferences() {
		if ref.Kind != gvk.Kind {
			continue
		}
		key := client.ObjectKey{Namespace: object.GetNamespace(), Name: ref.Name}
		if err := p.client.Get(ctx, key, owner); err != nil {
			return nil, false, client.IgnoreNotFound(err)
		}
		cluster, isCluster := owner.(*clusterv1.Cluster)
		if !isCluster {
			cluster = &clusterv1.Cluster{}
			key.Name = owner.GetLabels()[clusterv1.ClusterNameLabel]
			if err := p.client.Get(ctx, key, cluster); err != nil {
				return nil, false, client.IgnoreNotFound(err)
			}
		}
		return cluster, cluster.Spec.Paused == nil || !*cluster.Spec.Paused, nil
	}
	return nil, false, nil
}

// patch writes what differs between object and before, status included.
func (p *Provider) patch(ctx context.Context, object, before *unstructured.Unstructured) error {
	changed := object.DeepCopy()
	if err := p.client.Patch(ctx, changed, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patching %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	if err := p.client.Status().Patch(ctx, object, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patching status of %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// set sets a field, whose parents are mappings or are not there.
func set(object *unstructured.Unstructured, value any, path ...string) error {
	if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
		return fmt.Errorf("setting %s of %s %s: %w", strings.Join(path, "."), object.GetKind(), object.GetName(), err)
	}
	return nil
}

// provisioned says by the contract that infrastructure is there.
func provisioned(object *unstructured.Unstructured) error {
	return set(object, true, "status", "initialization", "provisioned")
}

func isProvisioned(object *unstructured.Unstructured) bool {
	done, _, _ := unstructured.NestedBool(object.Object, "status", "initialization", "provisioned")
	return done
}
