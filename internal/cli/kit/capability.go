package kit

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// Capability is a part of the program that can be left out: a folder, and a line in main.go.
type Capability interface {
	// Commands returns its commands. all are the capabilities of the program.
	Commands(streams Streams, all []Capability) []*cobra.Command
}

// Find returns the first capability that offers T. Capabilities do not import each other: one declares what it can use
// as an interface, another one implements it, and without that one it does without.
func Find[T any](all []Capability) (offered T, found bool) {
	for _, one := range all {
		if offered, found = one.(T); found {
			return offered, true
		}
	}
	return offered, false
}

// ManifestReader is offered by what reads Clusters in manifests.
type ManifestReader interface {
	// ReadClusters reads manifests, and further files with proxy Secrets; installation is the installation-wide Secret, or
	// the zero value. Notes are lines about input that is not an object.
	ReadClusters(manifests, secrets []File, installation types.NamespacedName) (all []ManifestCluster, notes []string,
		err error)
}

// ManifestCluster is a Cluster in manifests.
type ManifestCluster struct {
	View settings.Cluster
	// Settings are what it asks for, including its topology; Invalid is why some of it cannot be used.
	Settings settings.ClusterSettings
	Invalid  error
	Secrets  settings.SecretReader
	// Unresolved names the fields with an unresolved variable of clusterctl, whose values View lacks.
	Unresolved string
	// Pools are its MachineDeployments and MachinePools.
	Pools []ManifestPool
	// Bootstrap returns the bootstrap objects that use the Secret that a pool names, "" for that of the Cluster.
	Bootstrap func(override string) []kinds.BootstrapObject
}

// ManifestPool is a pool in manifests, with the Secret that it names.
type ManifestPool struct{ Name, Override string }

// Publisher is offered by what publishes values of Clusters: render prints them, and lint checks what is asked for.
type Publisher interface {
	// Asked reads what annotations of a Cluster ask for. A list that is not "" takes the place of Annotation, and may have
	// outputs that only render writes. Its error is finding.Errors, beside what could be read.
	Asked(annotations map[string]string, list string) (Outputs, error)
	// Annotation is the annotation of a Cluster that lists outputs.
	Annotation() string
	// Written are the annotations of a Cluster that outputs write.
	Written() []string
}

// Outputs are what a Cluster asks for.
type Outputs struct {
	Count int
	// ForManagement and ForWorkload report for which cluster some are, and ForRender whether only render writes some of
	// those for the workload cluster.
	ForManagement, ForWorkload, ForRender bool
	// KeepAnnotations reports whether annotations of the Cluster stay while the values are not known.
	KeepAnnotations bool
	// Make makes them.
	Make func(PublishInput) (Published, error)
}

// PublishInput is what outputs are made of.
type PublishInput struct {
	// Cluster is the name of the Cluster. Namespace is "" if manifests do not say it.
	Cluster, Namespace string
	// Secret names the proxy Secret in messages.
	Secret string
	// Settings are the values of the proxy Secret.
	Settings settings.Proxy
	// NoProxy is the complete NO_PROXY for programs of any kind.
	NoProxy string
	// HasNodeNetwork reports whether nodes may be among what NoProxy covers.
	HasNodeNetwork bool
	// Version is the Kubernetes version that the whole control plane runs, or "" if it is not known.
	Version string
}

// Published are the outputs of a Cluster.
type Published struct {
	// Annotations are those of the Cluster. With KeepAnnotations those that exist stay as they are.
	Annotations     map[string]string
	KeepAnnotations bool
	// Secrets are for the namespace of the Cluster, Objects are what only render writes.
	Secrets []PublishedSecret
	Objects []map[string]any
	// Streams are objects for the workload cluster as YAML.
	Streams [][]byte
	// Findings are about outputs that are not out, with a reason, and notes.
	Findings []finding.Finding
}

// PublishedSecret is a Secret with an output. Labels are those beside the ones of every generated Secret.
type PublishedSecret struct {
	Name   string
	Labels map[string]string
	Data   map[string][]byte
}
