package manager

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ports"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/servingcert"
)

// hookCertificate returns a folder with a certificate for servers.
func hookCertificate(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	servingcert.Write(t, folder)
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
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serveHooks(ctx, o, logr.Discard()) }()
	get := func(path string) int {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+o.HealthAddr+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(q)
		if err != nil {
			return 0
		}
		_ = response.Body.Close()
		return response.StatusCode
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
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if status := get("/healthz"); status != 0 {
		t.Errorf("healthz %d after the end", status)
	}
}
