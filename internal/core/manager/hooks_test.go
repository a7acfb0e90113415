package manager

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ports"
)

// hookCertificate returns a folder with a certificate for servers.
func hookCertificate(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	pki.Serve(t, folder)
	return folder
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := ports.Free(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestHooks_AreReadyWhenTheyAnswer(t *testing.T) {
	t.Parallel()
	o := Hooks{Port: freePort(t), BindAddress: "127.0.0.1", CertDir: hookCertificate(t)}
	o.HealthAddr = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	o.DiagnosticsAddress, o.InsecureDiagnostics = fmt.Sprintf("127.0.0.1:%d", freePort(t)), true
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.run(ctx) }()
	ask := func(url string) (int, string) {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(url, "http:") {
			q.Method = http.MethodGet
		}
		response, err := (&http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a test
		}}).Do(q)
		if err != nil {
			return 0, ""
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		return response.StatusCode, string(text)
	}
	get := func(path string) int {
		status, _ := ask("http://" + o.HealthAddr + path)
		return status
	}
	for waited := 0; get("/readyz") != http.StatusOK; waited++ {
		if waited == 2000 {
			t.Fatal("not ready in time")
		}
		select {
		case err := <-done:
			t.Fatalf("the server has ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if status := get("/healthz"); status != http.StatusOK {
		t.Errorf("healthz %d", status)
	}
	const discovery = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery"
	if status, text := ask(fmt.Sprintf("https://127.0.0.1:%d%s", o.Port, discovery)); status != http.StatusOK ||
		!strings.Contains(text, "generate-patches") {
		t.Errorf("discovery: status %d, %s", status, text)
	}
	_, text := ask("http://" + o.DiagnosticsAddress + "/metrics")
	for _, want := range []string{
		`controller_runtime_webhook_requests_total{code="200",webhook="` + discovery + `"} 1`,
		`certwatcher_read_certificate_total`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no metric %s", want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if status := get("/healthz"); status != 0 {
		t.Errorf("healthz %d after the end", status)
	}
}
