package nodeagent

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

func TestContainerdAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status string
		want   bool
	}{
		"a runtime": {"0", true}, "without the plugin": {"12", true}, "not initialized yet": {"2", false}, "no gRPC": {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.ProtoMajor != 2 || r.URL.Path != "/runtime.v1.RuntimeService/Version" {
					t.Errorf("%s %s", r.Proto, r.URL)
				}
				w.Header().Set("Trailer", "Grpc-Status")
				_, _ = w.Write([]byte("\x00\x00\x00\x00\x00"))
				if test.status != "" {
					w.Header().Set("Grpc-Status", test.status)
				}
			}))
			if err := containerdAnswers(t.Context(), socket); (err == nil) != test.want {
				t.Error(err)
			}
		})
	}
}

// A socket that accepts and says nothing, as a containerd that hangs has, is no answer.
func TestContainerdAnswers_WantsMoreThanAConnection(t *testing.T) {
	t.Parallel()
	var listen net.ListenConfig
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := listen.Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := containerdAnswers(ctx, socket); err == nil {
		t.Error("answers")
	}
}

func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: handler, Protocols: &protocols, ReadHeaderTimeout: time.Second}
	var listen net.ListenConfig
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := listen.Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return socket
}
