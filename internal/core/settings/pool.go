package settings

import (
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// Pool has the settings of a pool.
type Pool struct {
	// Kind is KindMachineDeployment or KindMachinePool.
	Kind string
	// Name is the name of the object, or with Topology the name in spec.topology.workers. The object that Cluster API
	// creates for such a pool has another name.
	Name     string
	Topology bool
	// Override is the proxy Secret that the pool names, contract.SecretNone, or "" for the Cluster's.
	Override string
}

// String names p for messages.
func (p Pool) String() string {
	if p.Topology {
		return p.Kind + " " + p.Name + " of spec.topology"
	}
	return p.Kind + " " + p.Name
}

// UsesProxy reports whether the nodes of p get a proxy.
func (p Pool) UsesProxy() bool { return p.Override != contract.SecretNone }

// HasOwnSecret reports whether p names a proxy Secret of its own.
func (p Pool) HasOwnSecret() bool { return p.Override != "" && p.UsesProxy() }
