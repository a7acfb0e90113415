package faults

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// core returns the part of a password that is the same when it is percent-encoded.
func core(password string) string {
	text, _, _ := strings.Cut(password, "%")
	return text
}

// dumped returns the text of the hexadecimal dumps in a log, as client-go makes them of what is not JSON.
func dumped(log string) string {
	line := regexp.MustCompile(`[0-9a-f]{8}  ((?:[0-9a-f]{2} +){1,16})\|`)
	var b strings.Builder
	for _, match := range line.FindAllStringSubmatch(log, -1) {
		text, _ := hex.DecodeString(strings.ReplaceAll(match[1], " ", ""))
		b.Write(text)
	}
	return b.String()
}

func TestVerbosity_ShowsNoPasswordAtTheHighestLevel(t *testing.T) {
	f := newFleet(t, 1)
	t.Parallel()
	const first, second, unlabelled = "zqFIRSTxk%@'", "zqSECONDxk%@'", "zqTHIRDxk%@'"
	f.merge(f.proxySecret(""), fmt.Sprintf(`{"stringData":{"password":%q}}`, first))
	_, flags := f.serveWebhooks("../../config/default")
	p := manager(t, f.ns, append(flags, shortResync, "-v", "5")...) // higher levels are refused: internal/cli
	f.create(enabled)
	f.eventuallyReports(contract.ReasonConfigured)
	holds := func(password string) {
		t.Helper()
		eventually(t, "generated Secret", func() string {
			secret := &corev1.Secret{}
			if err := shared.Client.Get(t.Context(), client.ObjectKey{Namespace: f.ns, Name: f.names[0] + contract.GeneratedSecretSuffix}, secret); err != nil {
				return err.Error()
			}
			if !strings.Contains(string(secret.Data[contract.KeyProxyEnv]), core(password)) {
				return "it does not hold the password"
			}
			return ""
		})
	}
	holds(first)
	f.merge(f.proxySecret(""), fmt.Sprintf(`{"stringData":{"password":%q}}`, second))
	holds(second)
	create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "unlabelled"},
		StringData: map[string]string{"httpProxy": proxyURL, "username": "user", "password": unlabelled},
	})
	f.merge(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: f.names[0]}},
		fmt.Sprintf(`{"metadata":{"annotations":{%q:"unlabelled"}}}`, contract.AnnotationSecret))
	holds(unlabelled)
	p.stop()

	log := p.log.String()
	if !strings.Contains(log, "Starting reflector") {
		t.Fatalf("the log has nothing of a level above 2:\n%s", log)
	}
	log += dumped(log)
	for _, password := range []string{first, second, unlabelled} {
		core := core(password)
		forms := map[string]string{"plain or percent-encoded": core, "hexadecimal": hex.EncodeToString([]byte(core))}
		for offset := range 3 {
			encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + core))
			forms[fmt.Sprintf("base64 at %d", offset)] = encoded[4 : len(encoded)-4]
		}
		for form, text := range forms {
			if i := strings.Index(log, text); i >= 0 {
				t.Errorf("the log holds %s %s: …%q…", core, form, log[max(0, i-60):min(len(log), i+60)])
			}
		}
	}
	f.eventuallyReports(contract.ReasonConfigured)
}
