package envtest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/cabundle"
)

func TestGeneratedSecret_IsRecreatedIfImmutable(t *testing.T) {
	t.Parallel()
	freeze := func(s *corev1.Secret) { s.Immutable = new(true) }
	t.Run("it follows its sources", func(t *testing.T) {
		ns := namespace(t)
		secret := proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
		c := newCluster(t, ns, "one")
		c.eventuallyReports(contract.ReasonConfigured)
		generated := fetch(t, ns, "one-proxy-files", &corev1.Secret{})
		change(t, generated, freeze)
		staysQuiet(t, ns) // it says what it should
		change(t, secret, func(s *corev1.Secret) { s.Data["httpProxy"] = []byte("http://moved.example.com:3128") })
		c.eventuallyHas(`HTTP_PROXY="http://moved.example.com:3128"`)
		c.eventuallyReports(contract.ReasonConfigured)
		again := fetch(t, ns, "one-proxy-files", &corev1.Secret{})
		if again.Immutable != nil || again.UID == generated.UID || again.Annotations[contract.AnnotationChangedAt] == "" {
			t.Errorf("the Secret was not made anew: immutable %v, UID %s and before %s, annotations %v", again.Immutable,
				again.UID, generated.UID, again.Annotations)
		}
	})
	t.Run("one of somebody else stays", func(t *testing.T) {
		ns := namespace(t)
		proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
		own := &corev1.Secret{StringData: map[string]string{"own": "data"}, Immutable: new(true)}
		own.Namespace, own.Name = ns, "one-proxy-files"
		create(t, own)
		c := newCluster(t, ns, "one")
		eventually(t, "condition", func() string {
			if c.condition().Status != "False" {
				return c.condition().Message
			}
			return ""
		})
		if after := fetch(t, ns, "one-proxy-files", &corev1.Secret{}); after.UID != own.UID ||
			string(after.Data["own"]) != "data" {
			t.Errorf("it is another one: %v", after.Data)
		}
	})
}

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
