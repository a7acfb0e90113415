package hooks

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimeserver "sigs.k8s.io/cluster-api/exp/runtime/server"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ports"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/wait"
)

// served is a running server of hooks.
type served struct {
	url     string
	client  *http.Client
	catalog *runtimecatalog.Catalog
}

// serve starts a server of hooks on a port of its own.
func serve(t *testing.T, h *Handlers) served {
	t.Helper()
	port, err := ports.Free(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	certificate := pki.Serve(t, folder)
	server, err := h.NewServer(runtimeserver.Options{Host: "127.0.0.1", Port: port, CertDir: folder})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	wait.Rule{Still: time.Minute, Poll: time.Second}.Until(t, "the server listens", func() string {
		if err := server.StartedChecker()(nil); err != nil {
			return err.Error()
		}
		return ""
	})
	config := &tls.Config{RootCAs: certificate.Pool(), MinVersion: tls.VersionTLS12}
	s := served{
		url: "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), catalog: runtimecatalog.New(),
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}},
	}
	t.Cleanup(s.client.CloseIdleConnections)
	if err := runtimehooksv1.AddToCatalog(s.catalog); err != nil {
		t.Fatal(err)
	}
	return s
}

// post sends a body to a hook and returns the body of the answer.
func (s served) post(ctx context.Context, hook runtimecatalog.Hook, name string, body []byte) ([]byte, error) {
	gvh, err := s.catalog.GroupVersionHook(hook)
	if err != nil {
		return nil, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+runtimecatalog.GVHToPath(gvh, name),
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", response.StatusCode)
	}
	return io.ReadAll(response.Body)
}

func TestServer_AnnouncesAndAnswers(t *testing.T) {
	t.Parallel()
	discover := func(s served) []string {
		text, err := s.post(t.Context(), runtimehooksv1.Discovery, "", []byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		var response runtimehooksv1.DiscoveryResponse
		if err := json.Unmarshal(text, &response); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, handler := range response.Handlers {
			if handler.TimeoutSeconds == nil || handler.FailurePolicy == nil ||
				*handler.FailurePolicy != runtimehooksv1.FailurePolicyFail {
				t.Errorf("%+v", handler)
			}
			names = append(names, handler.Name)
		}
		slices.Sort(names)
		return names
	}
	server := serve(t, &Handlers{})
	if diff := cmp.Diff([]string{"discover-variables", "generate-patches", "validate-topology"},
		discover(server)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	q := generated(t, hookrequests.Options{Pools: 2})
	text, err := server.post(t.Context(), runtimehooksv1.GeneratePatches,
		contract.HandlerGeneratePatches, encoded(t, q))
	if err != nil {
		t.Fatal(err)
	}
	want := respond(t, &Handlers{}, q)
	if diff := cmp.Diff(string(encoded(t, want)), string(text)); diff != "" || len(want.Items) != 3 {
		t.Errorf("%d items (-want +got):\n%s", len(want.Items), diff)
	}
	if text, err := server.post(t.Context(), runtimehooksv1.GeneratePatches, contract.HandlerGeneratePatches,
		[]byte(`{"items":"x"}`)); err != nil || !strings.Contains(string(text), `"status":"Failure"`) {
		t.Errorf("%s %v", text, err)
	}
}
