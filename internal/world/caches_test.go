package world

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

func TestCacheOptions_KeepTheScriptOnceForAllSecrets(t *testing.T) {
	t.Parallel()
	options, err := CacheOptions("", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	cached := func(script string) []byte {
		for kind, by := range options.ByObject {
			if _, isSecret := kind.(*corev1.Secret); isSecret {
				secret, err := by.Transform(&corev1.Secret{Data: map[string][]byte{contract.KeySetup: []byte(script)}})
				if err != nil {
					t.Fatal(err)
				}
				return secret.(*corev1.Secret).Data[contract.KeySetup] //nolint:forcetypeassert // a panic is a failure
			}
		}
		return nil
	}
	one, two, other := cached(patch.Setup()), cached(patch.Setup()), cached("#!/bin/sh\n")
	if string(one) != patch.Setup() || &one[0] != &two[0] {
		t.Error("the cache has a copy of the script for each Secret")
	}
	if string(other) != "#!/bin/sh\n" {
		t.Errorf("another script is %q in the cache", other)
	}
}
