package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/logbuffer"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

// hookCertificate returns a folder with a certificate for servers.
func hookCertificate(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	pki.Serve(t, folder)
	return folder
}

// One case after the other: the command sets the logger of controller-runtime.
func TestHooks_ReportMistakesAtTheStart(t *testing.T) {
	t.Parallel()
	certificates := hookCertificate(t)
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	port := fmt.Sprint(taken.Addr().(*net.TCPAddr).Port)
	for name, test := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"no folder":              {nil, kit.ExitUsage, "--cert-dir is required; name the folder"},
		"no API server":          {[]string{"--kubeconfig", "none", "--cert-dir", certificates}, kit.ExitInput, "reading kubeconfig: stat none: no such file or directory; without an API server use --diagnostics-address 0"},
		"a port that is taken":   {[]string{"--port", port, "--bind-address", "127.0.0.1", "--health-addr", "0", "--diagnostics-address", "0", "--cert-dir", certificates}, kit.ExitInput, "serving hooks: listen tcp 127.0.0.1:" + port + ": bind: address already in use"},
		"a health address taken": {[]string{"--health-addr", "127.0.0.1:" + port, "--diagnostics-address", "0", "--cert-dir", certificates}, kit.ExitInput, "error listening on 127.0.0.1:" + port},
		"an argument":            {[]string{"x"}, kit.ExitUsage, `takes no arguments, got 1`},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		var stderr logbuffer.Buffer
		status := Main(ctx, append([]string{"hooks", "-v", "0"}, test.args...), kit.Streams{Out: io.Discard, Err: &stderr})
		cancel()
		if status != test.status || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%s: status %d, want %d: %s", name, status, test.status, stderr.String())
		}
	}
}
