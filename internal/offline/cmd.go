// Package offline is the capability to patch and to check manifests without a cluster: commands render, lint and
// secret.
package offline

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
)

// Capability implements kit.Capability.
type Capability struct{}

// New returns the capability.
func New() Capability { return Capability{} }

// Commands implements kit.Capability.
func (Capability) Commands(streams kit.Streams, all []kit.Capability) []*cobra.Command {
	return []*cobra.Command{newRender(streams, all), newLint(streams, all), newSecret(streams)}
}

// ReadClusters implements kit.ManifestReader.
func (Capability) ReadClusters(manifests, secrets []kit.File, installation types.NamespacedName,
) (all []kit.ManifestCluster, notes []string, err error) {
	read, err := clusters.Read(manifests, secrets, installation)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range read.Clusters() {
		cluster := kit.ManifestCluster{
			View: c.View, Settings: c.Settings, Invalid: c.Invalid, Secrets: read.Resolver(nil).Secrets,
			Unresolved: clusters.Unresolved(c.Unresolved),
			Bootstrap: func(override string) (objects []kinds.BootstrapObject) {
				for _, use := range read.Uses(c.Object) {
					if use.Override == override {
						objects = append(objects, read.BootstrapOf(use.Object))
					}
				}
				return objects
			},
		}
		for _, pool := range c.Pools {
			cluster.Pools = append(cluster.Pools, kit.ManifestPool{Name: pool.Name(), Override: read.Pool(pool).Override})
		}
		all = append(all, cluster)
	}
	return all, read.Notes, nil
}
