package proxyconfig_test

import (
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/cabundle"
)

func TestPEM_IsEncodedOnce(t *testing.T) {
	t.Parallel()
	bundle := cabundle.Small(t)
	settings, err := proxyconfig.Parse(map[string][]byte{"trustedCA": []byte("a comment\n" + bundle)})
	if err != nil {
		t.Fatal(err)
	}
	first, again := settings.TrustedCA[0].PEM(), settings.TrustedCA[0].PEM()
	if string(first) != bundle || &first[0] != &again[0] {
		t.Errorf("%q and %q, want the bundle, and the same bytes twice", first, again)
	}
}
