// Package clusters reads the Clusters of manifests: their pools, settings, proxy Secrets and infrastructure. It decides
// nothing.
package clusters

import (
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// Input is one file.
type Input = kit.File

// Manifests are the objects of inputs.
type Manifests struct {
	Index

	// Streams are the inputs in order.
	Streams []*manifest.Stream
	// Notes are lines about input that is not an object.
	Notes []string

	secrets      secretReader
	installation types.NamespacedName
}

// Read parses inputs, and further files with proxy Secrets; installation is the installation-wide Secret, or the zero
// value. Its error joins all findings, each with its file.
func Read(inputs, secrets []Input, installation types.NamespacedName) (*Manifests, error) {
	m := &Manifests{installation: installation}
	var problems, more []error
	var given []*manifest.Stream
	m.Streams, problems = m.read(inputs)
	m.Index = newIndex(objectsOf(m.Streams))
	given, more = m.read(secrets)
	problems = append(problems, more...)
	var err error
	if m.secrets, err = newSecretReader(m.Index, newIndex(objectsOf(given)), secrets, installation); err != nil {
		problems = append(problems, err)
	}
	return m, errors.Join(problems...)
}

// Cluster is a Cluster of Manifests.
type Cluster struct {
	// Object is its object in the manifests.
	Object *manifest.Object
	// View is the Cluster as package settings reads it.
	View settings.Cluster
	// Unresolved are the fields with an unresolved variable of clusterctl. View lacks their values.
	Unresolved []finding.Place
	// Settings are what its annotations and, with a topology, its variable and the pools of the topology ask for.
	Settings settings.ClusterSettings
	// Invalid is why some of Settings cannot be used, or nil. It joins an error of settings.Of or, with a topology,
	// settings.OutputVersion, and those of CheckMetadata.
	Invalid error
	// Pools are its MachineDeployments and MachinePools, in this order.
	Pools []*manifest.Object
}

// Objects returns the objects of the inputs in order, then those of the files with Secrets.
func (m *Manifests) Objects() []*manifest.Object {
	return slices.Concat(m.Index.Objects, m.secrets.given.secrets())
}

// Clusters returns the Clusters of the inputs in order, with the label and without it.
func (m *Manifests) Clusters() []Cluster {
	objects := m.Find("Cluster")
	clusters := make([]Cluster, len(objects))
	for i, o := range objects {
		c := m.Cluster(o)
		c.Invalid = append(finding.Of(c.Invalid), CheckMetadata(o)...).Err()
		for _, worker := range m.Workers(o) {
			if IsPool(worker) {
				c.Pools = append(c.Pools, worker)
			}
		}
		clusters[i] = c
	}
	return clusters
}

// Cluster reads a Cluster, without its pools and without CheckMetadata.
func (m *Manifests) Cluster(o *manifest.Object) Cluster {
	cluster := m.cluster(o)
	c := Cluster{Object: o, View: settings.ClusterOf(cluster), Unresolved: m.unresolved[o]}
	c.View.Namespace, c.View.Name = manifest.PartOfName(o.Namespace()), manifest.PartOfName(o.Name())
	c.View.Provisioned = true // nothing will change in a manifest
	if c.Settings, c.Invalid = settings.Of(cluster); c.Invalid == nil && c.View.Topology {
		_, c.Invalid = settings.OutputVersion(cluster.Annotations)
	}
	if c.Invalid == nil {
		c.View = c.Settings.ApplyTo(c.View)
	}
	m.infrastructureOf(o, &c.View, &c.Unresolved)
	return c
}

// Machines returns the Machines of a Cluster among the inputs, also those that a controller has created.
func (m *Manifests) Machines(cluster *manifest.Object) (machines []clusterv1.Machine) {
	for _, o := range m.Find("Machine") {
		own, _ := m.NamedBy(o)
		if machine, ok := m.forms[o].(*clusterv1.Machine); ok && own == cluster {
			machines = append(machines, *machine)
		}
	}
	return machines
}

// Resolver finds the settings of Clusters in the proxy Secrets of the inputs. The Where of a Secret is the Place of its
// object. now is the clock by which trusted certificates expire, or nil.
func (m *Manifests) Resolver(now func() time.Time) settings.Resolver {
	installation := settings.Installation{Secret: m.installation, Namespaces: settings.EveryNamespace{}}
	return settings.Resolver{Secrets: m.secrets, Default: installation, Now: now}
}

// Secret decodes a Secret object. Its error is finding.Errors, one for each value that cannot be decoded, or one for
// which NotKnown holds.
func (m *Manifests) Secret(o *manifest.Object) (*settings.Secret, error) {
	return decodeSecret(o, types.NamespacedName{Namespace: o.Namespace(), Name: o.Name()})
}

// IsProxySecret reports whether o is a Secret that is meant for this product: it has the label of proxy Secrets or a
// key that only they have, in upper or lower case. HTTP_PROXY is not such a key: it is a variable of some program.
// Generated Secrets are not proxy Secrets.
func IsProxySecret(o *manifest.Object) bool {
	labels := o.Labels()
	_, generated := labels[contract.LabelGenerated]
	if generated || o.Kind() != "Secret" || o.APIVersion() != secretGroup {
		return false
	}
	if _, labelled := labels[contract.LabelProxySecret]; labelled {
		return true
	}
	for _, field := range []string{"data", "stringData"} {
		for key := range Dig(o.Value(), field) {
			if isOwnKey(key) {
				return true
			}
		}
	}
	return false
}

// isOwnKey reports whether only proxy Secrets have a key.
func isOwnKey(key string) bool {
	switch strings.ToLower(key) {
	case "httpproxy", "httpsproxy", "noproxy":
		return true
	}
	return false
}
