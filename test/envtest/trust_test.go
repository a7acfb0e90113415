package envtest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/cabundle"
)

func TestCertificatesAlone_ConfigureTheTrustStore(t *testing.T) {
	ns := namespace(t)
	secret := proxySecret(t, ns, "one-http-proxy", map[string]string{"trustedCA": cabundle.Small(t)})
	c := newCluster(t, ns, "one")
	managed := func() map[string]string {
		paths := map[string]string{}
		for name, spec := range c.specs() {
			for _, f := range spec.Files {
				if patch.IsManagedFile(f) {
					paths[name] += f.Path[strings.LastIndex(f.Path, "/")+1:] + " "
				}
			}
		}
		return paths
	}
	eventuallyHave := func(files string) {
		t.Helper()
		want := map[string]string{}
		for _, name := range everyObject {
			want[name] = files
		}
		eventually(t, "managed files", func() string { return cmp.Diff(want, managed()) })
	}
	c.eventuallyReports(contract.ReasonConfigured, "Secret "+ns+
		"/one-http-proxy has only key trustedCA: nodes trust its certificates and get no proxy variables")
	eventuallyHave("trusted-ca.pem setup.sh ")
	if env := string(c.generated()[contract.KeyProxyEnv]); strings.Contains(env, "=") {
		t.Errorf("proxy.env sets variables: %s", env)
	}
	staysQuiet(t, ns)

	change(t, secret, func(s *corev1.Secret) { s.Data["httpProxy"] = []byte(proxyURL) })
	c.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`)
	eventuallyHave("trusted-ca.pem setup.sh proxy.env http-proxy.conf http-proxy.conf ")
	staysQuiet(t, ns)

	change(t, secret, func(s *corev1.Secret) { delete(s.Data, "httpProxy") })
	eventuallyHave("trusted-ca.pem setup.sh ")
	staysQuiet(t, ns)
}
