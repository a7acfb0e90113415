package settings

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// CodeValueTooLarge is the code of a value that is longer than its key allows.
const CodeValueTooLarge finding.Code = "value-too-large"

// maxUnknown is how many unknown keys of a Secret are named.
const maxUnknown = 16

// maxSize returns how many bytes the value of a key may have. The bundle of certificates of an operating system has
// about 220 KiB, and the environment of a process cannot have a variable of more than 128 KiB.
func maxSize(key string) int {
	switch key {
	case contract.KeyTrustedCA:
		return 256 << 10
	case contract.KeyNoProxy:
		return 128 << 10
	case contract.KeyReadinessEndpoints:
		return maxEndpoints * (maxEndpoint + 1)
	default:
		return 4 << 10
	}
}

// tooLarge takes the place of a value that is too long. No value may contain a NUL.
const tooLarge = "\x00"

// Bound returns the part of the data of a proxy Secret that ParseSecret needs, so that a cache keeps few bytes of it:
// the values of known keys, a mark in place of one that is too long, and the names of some unknown keys. ParseSecret
// has the same findings about the result. The values are those of data, not copies.
func Bound(data map[string][]byte) map[string][]byte {
	bound, unknown := map[string][]byte{}, 0
	for _, key := range slices.Sorted(maps.Keys(data)) {
		value := data[key]
		switch {
		case !slices.Contains(contract.SecretKeys(), key):
			if unknown++; unknown <= maxUnknown {
				bound[key] = []byte{}
			}
		case len(value) > maxSize(key):
			bound[key] = []byte(tooLarge)
		default:
			bound[key] = value
		}
	}
	return bound
}

// checkSizes returns a finding for each value that Bound has replaced.
func checkSizes(bound map[string][]byte) (found finding.Errors) {
	for _, key := range slices.Sorted(maps.Keys(bound)) {
		if bytes.Equal(bound[key], []byte(tooLarge)) {
			found = append(found, *rejection(CodeValueTooLarge, key, fmt.Sprintf("longer than %d bytes", maxSize(key)),
				"shorten it"))
		}
	}
	return found
}
