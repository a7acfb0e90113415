package resolve

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Limits of a generated Secret, in bytes.
const (
	// originsLimit caps the listing of NO_PROXY origins.
	originsLimit = 256 << 10
	// maxFiles limits the files of a node together. The rest of a Secret is for its other keys.
	maxFiles = corev1.MaxSecretSize - 1<<10
)

// SecretData returns the data of a generated Secret: the files of a node, the URLs that it asks when the files are
// changed in place, and for people the origin of every NO_PROXY entry, as far as there is room. beside is the size of
// the other keys in bytes. It returns finding.Errors if the total is more than a Secret holds.
func SecretData(resolution Resolution, beside int) (map[string][]byte, error) {
	data, err := patch.SecretData(resolution.Settings, resolution.NoProxy.Value)
	if err != nil {
		return nil, err
	}
	if endpoints := resolution.Settings.ReadinessEndpoints; len(endpoints) > 0 {
		data[contract.KeyReadiness] = []byte(strings.Join(endpoints, "\n") + "\n")
	}
	size := 0
	for _, value := range data {
		size += len(value)
	}
	if size+beside > maxFiles {
		return nil, tooLarge(resolution, size, beside)
	}
	data[contract.KeyNoProxyOrigins] = []byte(resolution.NoProxy.Origins(min(originsLimit, maxFiles-size-beside)))
	return data, nil
}

func tooLarge(resolution Resolution, size, beside int) error {
	why := fmt.Sprintf("the files of a node have %d bytes", size)
	if beside > 0 {
		why += fmt.Sprintf(" and adopted files %d", beside)
	}
	return finding.Errors{finding.Rejection(CodeSecretTooLarge, finding.Place{Object: resolution.Secret.where()},
		fmt.Sprintf("%s; a generated Secret holds %d", why, maxFiles), "remove certificates that no node needs from "+
			contract.KeyTrustedCA)}
}
