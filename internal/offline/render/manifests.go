package render

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// Manifests are inputs that are only read, by the rules of Render: which Secret serves which Cluster, and where its
// control-plane endpoint is.
type Manifests struct{ renderer *renderer }

// Cluster is a Cluster of Manifests.
type Cluster struct {
	// Object is its object in the manifests.
	Object *manifest.Object
	// View is what resolving needs to know about it.
	View intent.Cluster
	// Unresolved are the fields with an unresolved variable of clusterctl. View lacks their values.
	Unresolved []finding.Place
	// Settings are what its annotations and, with a topology, its variable and the pools of the topology ask for.
	Settings intent.Topology
	// Invalid is why some of Settings cannot be used, or nil. It joins an error of intent.ReadTopology or
	// intent.ParseOptions and those of CheckMetadata.
	Invalid error
	// Pools are its MachineDeployments and MachinePools, in this order.
	Pools []Pool
}

// Pool is a MachineDeployment or MachinePool.
type Pool struct {
	// Object is its object in the manifests.
	Object *manifest.Object
	// Secret is the value of its annotation contract.AnnotationSecret, or "".
	Secret string
}

// ReadManifests parses inputs, and secrets like Options.Secrets; installation is Options.DefaultSecret. Its error joins
// all findings, each with its file.
func ReadManifests(inputs, secrets []Input, installation types.NamespacedName) (*Manifests, error) {
	r, err := newRenderer(Options{Inputs: inputs, Secrets: secrets, DefaultSecret: installation})
	if err != nil {
		return nil, err
	}
	return &Manifests{renderer: r}, nil
}

// Notes are lines about input that is not an object.
func (m *Manifests) Notes() []string { return m.renderer.notes }

// Objects returns the objects of the inputs in order, then those of the files with Secrets.
func (m *Manifests) Objects() []*manifest.Object {
	return slices.Concat(m.renderer.objects, m.renderer.secrets.given.secrets())
}

// Clusters returns the Clusters of the inputs in order, with the label and without it.
func (m *Manifests) Clusters() []Cluster {
	objects := m.renderer.find("Cluster")
	clusters := make([]Cluster, len(objects))
	for i, o := range objects {
		c := m.renderer.clusterOf(o)
		c.Invalid = append(finding.Of(c.Invalid), CheckMetadata(o)...).Err()
		for _, worker := range m.renderer.workers[o] {
			if isPool(worker) {
				c.Pools = append(c.Pools, Pool{Object: worker, Secret: override(worker)})
			}
		}
		clusters[i] = c
	}
	return clusters
}

// clusterOf reads a Cluster, without its pools.
func (r *renderer) clusterOf(o *manifest.Object) Cluster {
	c := Cluster{Object: o}
	c.View, c.Unresolved = clusterView(o)
	if c.View.Topology {
		said, unresolved := topologySource(o)
		c.Unresolved = append(c.Unresolved, unresolved...)
		c.Settings, c.Invalid = intent.ReadTopology(said)
	} else {
		c.Settings.SecretName = c.View.Annotations[contract.AnnotationSecret]
		c.Settings.Options, c.Invalid = intent.ParseOptions(c.View.Annotations)
	}
	if c.Invalid == nil {
		c.View = c.Settings.ApplyTo(c.View)
	}
	r.infrastructureOf(o, &c.View, &c.Unresolved)
	return c
}

// Resolver finds the settings of Clusters as Render does. The Where of a Secret is the Place of its object.
func (m *Manifests) Resolver() resolve.Resolver { return m.renderer.resolver() }

// resolver reads the proxy Secrets of the inputs.
func (r *renderer) resolver() resolve.Resolver {
	installation := resolve.Installation{Secret: r.DefaultSecret, Namespaces: resolve.EveryNamespace{}}
	return resolve.Resolver{Secrets: r.secrets, Default: installation, Now: r.Now}
}

// Secret decodes a Secret object. Its error is finding.Errors, one for each value that cannot be decoded.
func (m *Manifests) Secret(o *manifest.Object) (*resolve.Secret, error) {
	return decodeSecret(o, types.NamespacedName{Namespace: o.Namespace(), Name: o.Name()})
}

// IsProxySecret reports whether o is a Secret that is meant for this product: it has the label of proxy Secrets or a
// key that only they have, in upper or lower case. HTTP_PROXY is not such a key: it is a variable of some program.
// Generated Secrets are not proxy Secrets.
func IsProxySecret(o *manifest.Object) bool {
	labels := o.Labels()
	if _, generated := labels[contract.LabelGenerated]; generated || o.Kind() != "Secret" || o.APIVersion() != "v1" {
		return false
	}
	if _, labelled := labels[contract.LabelProxySecret]; labelled {
		return true
	}
	for _, field := range []string{"data", "stringData"} {
		for key := range dig(o.Value(), field) {
			switch strings.ToLower(key) {
			case "httpproxy", "httpsproxy", "noproxy":
				return true
			}
		}
	}
	return false
}

// Place names an object in messages, with its file and document.
func Place(o *manifest.Object) string { return place(o) }
