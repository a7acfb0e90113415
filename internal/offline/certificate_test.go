package offline

import (
	"bytes"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

// certificate returns a certificate authority in PEM that ends at a time.
func certificate(t *testing.T, end time.Time) string {
	t.Helper()
	return string(pki.Make(t, "Example CA", func(c *x509.Certificate) { c.NotBefore, c.NotAfter = end.Add(-48*time.Hour), end }).PEM)
}

func TestLint_ReadsTheClockForCertificates(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	end := time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
	whole := certificate(t, end)
	cut := strings.Join(strings.SplitAfter(whole, "\n")[:3], "")
	for name, test := range map[string]struct {
		pem  string
		now  time.Time
		want string
		err  error
	}{
		"an expired certificate": {whole, end.Add(day), "standard input:6: warning: Secret http-proxy, key trustedCA certificate 1: the certificate expired on 2031-05-01 (ca-expired)", nil},
		"one that expires soon":  {whole, end.Add(-29 * day), "the certificate expires on 2031-05-01 (ca-expiring)", nil},
		"one that does not":      {whole, end.Add(-31 * day), "0 rejections, 0 warnings", nil},
		"one that is cut":        {cut, end, "standard input:6: rejection: Secret http-proxy, key trustedCA: block 1 is cut or damaged PEM (bad-ca)", kit.StatusError{Status: kit.ExitInput}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			input := "apiVersion: v1\nkind: Secret\nmetadata: {name: http-proxy, labels: {capi-proxy-patcher.io/proxy: ''}}\nstringData:\n  httpProxy: http://proxy.example.com:3128\n  trustedCA: |\n    " +
				strings.ReplaceAll(strings.TrimSpace(test.pem), "\n", "\n    ") + "\n"
			var out bytes.Buffer
			err := runLint(t.Context(), lintOptions{files: []string{"-"}, output: "text"}, test.now,
				kit.Streams{In: strings.NewReader(input), Out: &out, Err: &out})
			if !errors.Is(err, test.err) || !strings.Contains(out.String(), test.want) {
				t.Errorf("error %v, output\n%s\nwant in it\n%s", err, out.String(), test.want)
			}
		})
	}
}
