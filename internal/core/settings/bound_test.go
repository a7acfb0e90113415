package settings

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

func TestBound_KeepsABoundedNumberOfBytes(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte("x"), 1<<20)
	all, keys := map[string][]byte{}, map[string][]byte{}
	for _, key := range contract.SecretKeys() {
		all[key] = big
	}
	for i := range 4000 {
		keys[fmt.Sprintf("%0250d", i)] = nil
	}
	for name, data := range map[string]map[string][]byte{
		"every value": all, "an unknown key": {"HTTP_PROXY": big}, "many unknown keys": keys,
		"a known and an unknown one": {contract.KeyTrustedCA: big, "other": big},
	} {
		bound, size := Bound(data), 0
		for key, value := range bound {
			size += len(key) + len(value)
		}
		if size > 16*253+1000 {
			t.Errorf("%s: %d bytes are kept", name, size)
		}
		if again := Bound(bound); !cmp.Equal(again, bound) {
			t.Errorf("%s: another result the second time", name)
		}
		_, err := ParseSecret(data)
		_, same := ParseSecret(bound)
		if err == nil || same == nil || err.Error() != same.Error() {
			t.Errorf("%s: error %v of the data, %v of what is kept", name, err, same)
		}
	}
}

func TestParse_RefusesAValueThatIsTooLong(t *testing.T) {
	t.Parallel()
	for _, key := range contract.SecretKeys() {
		data := map[string][]byte{contract.KeyHTTPProxy: []byte("http://proxy:3128"), key: bytes.Repeat([]byte("p"), maxSize(key)+1)}
		_, err := ParseSecret(data)
		var found finding.Errors
		if !errors.As(err, &found) || len(found) != 1 || found[0].Code != CodeValueTooLarge ||
			!strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "pp") {
			t.Errorf("%s: error %v", key, err)
		}
		data[key] = data[key][:maxSize(key)]
		if _, err := ParseSecret(data); err != nil && strings.Contains(err.Error(), string(CodeValueTooLarge)) {
			t.Errorf("%s with the longest value: %v", key, err)
		}
	}
}
