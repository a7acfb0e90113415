package proxyconfig_test

import (
	"crypto/x509"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
)

func TestParse_TakesCertificatesWithoutAProxy(t *testing.T) {
	t.Parallel()
	ca := certificate(t, func(*x509.Certificate) {})
	for name, test := range map[string]struct {
		data  map[string][]byte
		only  bool
		wrong string
	}{
		"certificates alone":       {data("trustedCA", ca), true, ""},
		"with empty keys":          {data("trustedCA", ca, "httpProxy", " ", "httpsProxy", "", "noProxy", "\n", "username", "", "password", "\n"), true, ""},
		"with a URL":               {data("trustedCA", ca, "httpsProxy", "http://p:1"), false, ""},
		"with a list":              {data("trustedCA", ca, "noProxy", "a"), false, "no proxy URL (no-proxy-url); set httpProxy, for example to http://proxy.example.com:3128, or remove noProxy if nodes only have to trust the certificates of trustedCA"},
		"with credentials":         {data("trustedCA", ca, "username", "u", "password", "s3cr"), false, ", or remove username and password if nodes"},
		"with a damaged bundle":    {data("trustedCA", ca[:50]), false, "block 1 is cut or damaged PEM"},
		"with an empty bundle":     {data("trustedCA", ""), false, "key trustedCA: no certificate"},
		"a list and nothing else":  {data("noProxy", "a"), false, "no proxy URL (no-proxy-url); set httpProxy, for example to http://proxy.example.com:3128"},
		"an unknown key beside it": {data("trustedCA", ca, "httpproxi", "x"), false, "did you mean httpProxy?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := proxyconfig.Parse(test.data)
			if test.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), test.wrong) || strings.Contains(err.Error(), "s3cr") {
					t.Errorf("error %v, want %s", err, test.wrong)
				}
				return
			}
			if err != nil || s.IsTrustOnly() != test.only || !s.IsSet() {
				t.Fatalf("%v, trust only %t", err, s.IsTrustOnly())
			}
			if vars := s.Vars("localhost"); test.only != (len(vars) == 0) {
				t.Errorf("variables %v", vars)
			}
		})
	}
	if (proxyconfig.Settings{}).IsTrustOnly() || (proxyconfig.Settings{}).IsSet() {
		t.Error("the zero value counts as settings")
	}
}
