package settings_test

import (
	"strings"
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

// TestTrustedCA_WarnsOfTheBundleOfAnOperatingSystem counts what comes to a node: each certificate once, no comments.
func TestTrustedCA_WarnsOfTheBundleOfAnOperatingSystem(t *testing.T) {
	t.Parallel()
	large, small := pki.Bundle(t, 70_000), pki.Bundle(t, 30_000)
	for name, test := range map[string]struct {
		bundle string
		warns  bool
	}{
		"a bundle": {large, true}, "own authorities": {small, false},
		"comments": {"# " + strings.Repeat("x", 70_000) + "\n" + small, false}, "twice the same": {small + small, false},
	} {
		for _, key := range []string{"httpProxy", "trustedCA"} { // with a proxy and without one
			proxy, err := settings.ParseSecret(map[string][]byte{key: []byte("http://p:1"), "trustedCA": []byte(test.bundle)})
			if err != nil {
				t.Fatal(name, err)
			}
			warned := false
			for _, w := range proxy.TrustedCAWarnings(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) {
				warned = warned || w.Code == settings.CodeCASize
			}
			if warned != test.warns {
				t.Errorf("%s: warnings %v", name, proxy.Warnings)
			}
		}
	}
}
