package settings

import (
	"maps"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// originsLimit caps the listing of NO_PROXY origins, in bytes.
const originsLimit = 256 << 10

// SecretData returns the data of a generated Secret: the files of a node, the URLs that it asks when the files are
// changed in place, and for people the origin of every NO_PROXY entry, as far as there is room. The limits of package
// proxyconfig make all of it fit into a Secret.
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
