package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// originsLimit caps the listing of NO_PROXY origins, in bytes.
const originsLimit = 256 << 10

// SecretData returns the data of a generated Secret: the files of a node, the URLs that it asks when its files change,
// and for people the origin of every NO_PROXY entry, as far as there is room. The limits of
// ParseSecret make all of it fit into a Secret.
func SecretData(resolution Resolution) (map[string][]byte, error) {
	data := maps.Clone(resolution.Files)
	if data == nil {
		var err error
		if data, err = Files(resolution.Settings, resolution.NoProxy.Value); err != nil {
			return nil, err
		}
	}
	data[contract.KeyNoProxyOrigins] = []byte(resolution.origins().Origins(originsLimit))
	return data, nil
}

// origins lists NO_PROXY with Secrets named as in a cluster: the file of a Secret's manifest does not belong in another
// Secret.
func (r Resolution) origins() noproxy.Result {
	result := r.NoProxy
	if len(r.documents) == 0 {
		return result
	}
	result.Entries = slices.Clone(result.Entries)
	for i := range result.Entries {
		if name := r.documents[result.Entries[i].Place.Object]; name != "" {
			result.Entries[i].Place.Object = name
		}
	}
	return result
}

// Files returns the data of a generated Secret that nodes read. Nobody may change the values.
func Files(proxy Proxy, noProxy string) (map[string][]byte, error) {
	certificates := make([][]byte, len(proxy.TrustedCA))
	for i, certificate := range proxy.TrustedCA {
		certificates[i] = certificate.PEM()
	}
	data, err := patch.SecretData(proxy.Vars(noProxy), certificates, proxy.ReadinessEndpoints)
	if endpoints := proxy.ReadinessEndpoints; err == nil && len(endpoints) > 0 {
		data[contract.KeyReadiness] = []byte(strings.Join(endpoints, "\n") + "\n")
	}
	return data, err
}

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
