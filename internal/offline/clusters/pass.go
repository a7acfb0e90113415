package clusters

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// Passes runs the controller's pass over Clusters of manifests, as if they were applied to a management cluster without
// Machines.
type Passes struct {
	// Controller makes the controller of the Clusters in a namespace.
	Controller func(Surroundings) (Controller, error)
	// All enables every Cluster, with or without the label.
	All bool
	// Now is the clock by which trusted certificates expire, or nil.
	Now func() time.Time

	*Manifests

	// objects are those of the manifests by their namespace.
	objects map[string][]*manifest.Object
	// base has the controller's indexes.
	base   *world.Reader
	memory *world.Memory
	// namespaces are those of Clusters, users the Clusters whose proxy objects get.
	namespaces map[string]*namespace
	users      map[*manifest.Object]*manifest.Object
}

// Controller is the controller.
type Controller interface {
	Preview(ctx context.Context, cluster *clusterv1.Cluster) (controller.Preview, error)
}

// Surroundings are what a controller reads, and where it writes to.
type Surroundings struct {
	Client client.Client
	Live   client.Reader
	Memory *world.Memory
	Now    func() time.Time
}

// Over returns passes with the choices of p over manifests.
func (p Passes) Over(ctx context.Context, m *Manifests) (*Passes, error) {
	if p.Now == nil {
		p.Now = func() time.Time { return time.Time{} }
	}
	p.Manifests, p.objects, p.namespaces = m, map[string][]*manifest.Object{}, map[string]*namespace{}
	p.users = map[*manifest.Object]*manifest.Object{}
	for _, object := range m.Index.Objects {
		name := manifest.SameName(object.Namespace())
		p.objects[name] = append(p.objects[name], object)
	}
	resolver := m.Resolver(nil)
	p.memory = &world.Memory{
		Live: live{manifests: m}, Mapper: anyKind{}, Secrets: resolver.Secrets, Installation: resolver.Default,
		Now: p.Now,
	}
	var err error
	p.base, err = world.Of(ctx)
	return &p, err
}

// Decided is a bootstrap object with the decision about it. Findings call it "it".
type Decided struct {
	// Object is its object in the manifests, nil for one that the topology controller will create.
	Object   *manifest.Object
	Decision plan.Decision
	// Path is where its bootstrap spec is.
	Path []string
}

// InSpec completes the place of a finding about the bootstrap spec.
func (d Decided) InSpec(f finding.Finding) finding.Finding {
	f.Place.Path = slices.Concat(finding.Field(d.Path...).Path, f.Place.Path)
	return f
}

// Run runs a pass over a Cluster whose label is understood, even if it is paused. It returns its bootstrap objects.
func (p *Passes) Run(ctx context.Context, cluster *manifest.Object) (decided []Decided, err error) {
	key := manifest.SameName(cluster.Namespace())
	in := p.namespaces[key]
	if in == nil {
		if in, err = p.newNamespace(key, manifest.PartOfName(cluster.Namespace())); err != nil {
			return nil, err
		}
		p.namespaces[key] = in
	}
	preview, err := in.controller.Preview(ctrl.LoggerInto(ctx, logr.Discard()), in.clusters[cluster])
	for _, o := range preview.Reconciled {
		one := Decided{
			Object: in.find(o.Kind, o.GetName()), Decision: o.Decision,
			Path: kinds.PathOf(o.BootstrapObject),
		}
		one.Decision.Findings = slices.Clone(one.Decision.Findings)
		for i, f := range one.Decision.Findings {
			one.Decision.Findings[i].Message = strings.Replace(f.Message, o.String(), "it", 1)
		}
		if user := p.users[one.Object]; one.Object != nil && one.Decision.Secret != "" {
			if p.users[one.Object] = cluster; user != nil {
				one.Decision = plan.Decision{Findings: []finding.Finding{{
					Reason:  contract.ReasonSharedTemplate,
					Message: fmt.Sprintf("it is also used by %s; give each Cluster its own template", user),
				}}}
			}
		}
		decided = append(decided, one)
	}
	return decided, err
}
