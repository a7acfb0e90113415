package kit

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

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
