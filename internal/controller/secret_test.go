package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/nodescript"
)

func TestContentChanged_CountsValuesAndNotTheScript(t *testing.T) {
	t.Parallel()
	base := map[string]string{
		contract.KeyProxyEnv: "HTTP_PROXY=\"http://p%40:1\"\n", contract.KeyTrustedCABundle: "# none\n", contract.KeySetup: "#!/bin/sh\necho '$1'\n",
		contract.KeyNoProxyOrigins: "one", contract.KeyAdoptedFiles: "{}",
	}
	for key, want := range map[string]bool{
		contract.KeyProxyEnv: true, contract.KeyTrustedCABundle: true, contract.KeySetup: false, contract.KeyNoProxyOrigins: false, contract.KeyAdoptedFiles: false,
	} {
		for what, value := range map[string][]byte{"another value": []byte("other \"'`${x}\n"), "no value": nil} {
			for _, hashed := range []bool{true, false} {
				current, desired := &corev1.Secret{Data: map[string][]byte{}}, &corev1.Secret{Data: map[string][]byte{}}
				for k, v := range base {
					current.Data[k], desired.Data[k] = []byte(v), []byte(v)
				}
				if current.Data[key] = value; value == nil {
					delete(current.Data, key)
				}
				if hashed { // render writes no hash
					current.Data[contract.KeyContentHash] = contentHash(current.Data)
				}
				desired.Data[contract.KeyContentHash] = contentHash(desired.Data)
				if got := contentChanged(current, desired); got != want {
					t.Errorf("%s with %s before, hash known %t: changed %t, want %t", key, what, hashed, got, want)
				}
			}
		}
	}
}

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
	one, two, other := cached(nodescript.Setup()), cached(nodescript.Setup()), cached("#!/bin/sh\n")
	if string(one) != nodescript.Setup() || &one[0] != &two[0] {
		t.Error("the cache has a copy of the script for each Secret")
	}
	if string(other) != "#!/bin/sh\n" {
		t.Errorf("another script is %q in the cache", other)
	}
}
