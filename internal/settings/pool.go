package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
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

// GeneratedSecret returns the name of the generated Secret that the nodes of p read.
func (p Pool) GeneratedSecret(cluster string) string {
	if p.HasOwnSecret() {
		return p.ownSecret(cluster)
	}
	return GeneratedSecretName(cluster)
}

// maxPoolName is the length up to which the name of a pool is part of the name of its generated Secret.
const maxPoolName = 100

// GeneratedSecretName returns the name of the generated Secret of a Cluster.
func GeneratedSecretName(cluster string) string { return cluster + contract.GeneratedSecretSuffix }

// ownSecret returns the name of the generated Secret of a pool with a proxy Secret of its own:
// <cluster>.<pool>.<tag>.proxy-files. The tag is md or mp by the kind of the pool, with t before it for a pool of a
// topology and h after it if a hash replaces a long name. Names of Clusters and pools may have dots, so the tag of a
// Cluster whose name has dots ends with their number.
//
// Two different pools never have the same name, and none has the name of a Cluster's Secret; see GeneratedFor.
func (p Pool) ownSecret(cluster string) string {
	tag, name := "md", p.Name
	if p.Kind == KindMachinePool {
		tag = "mp"
	}
	if p.Topology {
		tag = "t" + tag
	}
	if len(name) > maxPoolName {
		sum := sha256.Sum256([]byte(name))
		tag, name = tag+"h", hex.EncodeToString(sum[:])
	}
	if dots := strings.Count(cluster, "."); dots > 0 {
		tag += strconv.Itoa(dots)
	}
	return cluster + "." + name + "." + tag + contract.PoolSecretSuffix
}

// GeneratedFor returns the Cluster to which a generated Secret of this name, its own or a pool's, belongs; "" if it is
// not such a name. It is the inverse of Pool.GeneratedSecret.
func GeneratedFor(secret string) string {
	if cluster, found := strings.CutSuffix(secret, contract.GeneratedSecretSuffix); found {
		return cluster
	}
	rest, found := strings.CutSuffix(secret, contract.PoolSecretSuffix)
	parts := strings.Split(rest, ".")
	last := len(parts) - 1
	kind := strings.TrimRight(parts[last], "0123456789")
	if !found || !slices.Contains([]string{"md", "mp", "tmd", "tmp", "mdh", "mph", "tmdh", "tmph"}, kind) {
		return ""
	}
	dots := 0
	if number := strings.TrimPrefix(parts[last], kind); number != "" {
		var err error
		if dots, err = strconv.Atoi(number); err != nil || dots == 0 {
			return ""
		}
	}
	if last < dots+2 { // nothing is left for the pool
		return ""
	}
	return strings.Join(parts[:dots+1], ".")
}
