package agent

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A socket that accepts and says nothing, as a containerd that hangs has, is no answer.
func TestContainerdAnswers(t *testing.T) {
	t.Parallel()
	const hangs = "hangs"
	for name, test := range map[string]struct {
		status string
		want   bool
	}{
		"a runtime": {"0", true}, "without the plugin": {"12", true}, "not initialized yet": {"2", false}, "no gRPC": {"", false},
		hangs: {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var protocols http.Protocols
			protocols.SetUnencryptedHTTP2(true)
			server := &http.Server{Protocols: &protocols, ReadHeaderTimeout: time.Second}
			server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.ProtoMajor != 2 || r.URL.Path != "/runtime.v1.RuntimeService/Version" {
					t.Errorf("%s %s", r.Proto, r.URL)
				}
				w.Header().Set("Trailer", "Grpc-Status")
				_, _ = w.Write([]byte("\x00\x00\x00\x00\x00"))
				if test.status != "" {
					w.Header().Set("Grpc-Status", test.status)
				}
			})
			var listen net.ListenConfig
			socket := filepath.Join(t.TempDir(), "s")
			listener, err := listen.Listen(t.Context(), "unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			if name == hangs {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
			} else {
				go func() { _ = server.Serve(listener) }()
			}
			t.Cleanup(func() { _, _ = server.Close(), listener.Close() })
			if err := containerdAnswers(ctx, socket); (err == nil) != test.want {
				t.Error(err)
			}
		})
	}
}

func TestKubeletAnswers(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{http.StatusOK: "", http.StatusInternalServerError: ": status Internal Server Error", 0: "connection refused"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		if status == 0 {
			server.Close()
		}
		if err := kubeletAnswers(t.Context(), server.URL); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("status %d: %v, want %q", status, err, want)
		}
		server.Close()
	}
}

func TestSteps_AreWrittenOnceWhenTheyEnd(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := steps{to: &out}
	s.end()
	s.begin("one")
	s.begin("two")
	s.end()
	s.end()
	if got := regexp.MustCompile(` \(\d.*s\)\n`).ReplaceAllString(out.String(), ";"); got != "capi-proxy-patcher: one;capi-proxy-patcher: two;" {
		t.Errorf("written is %q", got)
	}
}

func TestHealthzOf_IsWhereTheConfigurationSays(t *testing.T) {
	t.Parallel()
	const usual, other = "/var/lib/kubelet/config.yaml", "/etc/mine.yaml"
	for name, test := range map[string]struct {
		args, file, config string
		want               string
	}{
		"nothing":                   {"", "", "", "http://127.0.0.1:10248/healthz"},
		"kubeadm's":                 {"kubelet --config=" + usual, usual, "healthzBindAddress: 127.0.0.1\nhealthzPort: 10248\n", "http://127.0.0.1:10248/healthz"},
		"another port":              {"kubelet --config=" + usual, usual, "healthzPort: 10999\n", "http://127.0.0.1:10999/healthz"},
		"another file":              {"kubelet --v 2 --config " + other, other, "healthzPort: 10999\nhealthzBindAddress: 10.0.0.1\n", "http://10.0.0.1:10999/healthz"},
		"all addresses":             {"kubelet", usual, "healthzBindAddress: 0.0.0.0\n", "http://127.0.0.1:10248/healthz"},
		"all addresses of IPv6":     {"kubelet", usual, "healthzBindAddress: '::'\n", "http://127.0.0.1:10248/healthz"},
		"IPv6":                      {"kubelet", usual, "healthzBindAddress: '::1'\n", "http://[::1]:10248/healthz"},
		"a flag before the file":    {"kubelet --healthz-port=1 --healthz-bind-address 127.0.0.2", usual, "healthzPort: 2\n", "http://127.0.0.2:1/healthz"},
		"switched off":              {"kubelet", usual, "healthzPort: 0\n", ""},
		"switched off by the flag":  {"kubelet --healthz-port 0", usual, "healthzPort: 2\n", ""},
		"a file that is not read":   {"kubelet", usual, "healthzPort: [", "http://127.0.0.1:10248/healthz"},
		"an address that is a name": {"kubelet", usual, "healthzBindAddress: example.com\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			if test.file != "" {
				if err := os.MkdirAll(filepath.Join(root, filepath.Dir(test.file)), 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(root, test.file), []byte(test.config), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			on, err := Open(root)
			if err != nil {
				t.Fatal(err)
			}
			if got := healthzOf(on, strings.Fields(test.args)); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
