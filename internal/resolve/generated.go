package resolve

import (
	"fmt"
	"maps"
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
	data := maps.Clone(resolution.files)
	if data == nil {
		var err error
		if data, err = filesOf(resolution); err != nil {
			return nil, err
		}
	}
	size, err := checkSize(resolution, data, beside)
	if err != nil {
		return nil, err
	}
	data[contract.KeyNoProxyOrigins] = []byte(resolution.NoProxy.Origins(min(originsLimit, maxFiles-size-beside)))
	return data, nil
}

// filesOf renders what nodes read of a generated Secret.
func filesOf(resolution Resolution) (map[string][]byte, error) {
	data, err := patch.SecretData(resolution.Settings, resolution.NoProxy.Value)
	if endpoints := resolution.Settings.ReadinessEndpoints; err == nil && len(endpoints) > 0 {
		data[contract.KeyReadiness] = []byte(strings.Join(endpoints, "\n") + "\n")
	}
	return data, err
}

// checkSize returns the size of files in bytes, or finding.Errors if they do not fit into a generated Secret.
func checkSize(resolution Resolution, files map[string][]byte, beside int) (size int, err error) {
	for _, value := range files {
		size += len(value)
	}
	if size+beside > maxFiles {
		return size, tooLarge(resolution, size, beside)
	}
	return size, nil
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
