package envtest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/cabundle"
)

func TestSettings_WithAValueThatIsTooLongAreInvalid(t *testing.T) {
	t.Parallel()
	for name, labels := range map[string]map[string]string{"labelled": {contract.LabelProxySecret: ""}, "not labelled": nil} {
		t.Run(name, func(t *testing.T) {
			ns := namespace(t)
			secret := proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL, "trustedCA": cabundle.New(t, 300_000)})
			change(t, secret, func(s *corev1.Secret) { s.Labels = labels })
			c := newCluster(t, ns, "one")
			c.eventuallyReports(contract.ReasonInvalidSettings,
				"Secret "+ns+"/one-http-proxy, key trustedCA: longer than 262144 bytes (value-too-large)")
			if c.generated() != nil {
				t.Error("a generated Secret exists")
			}
			if labels != nil { // the other is read at each resync
				staysQuiet(t, ns, "secrets")
			}
			change(t, secret, func(s *corev1.Secret) { s.Data["trustedCA"] = []byte(cabundle.New(t, 200_000)) })
			c.eventuallyReports(contract.ReasonConfigured)
		})
	}
}
