package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
)

func TestManager_RefusesFlagsBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args string
		want string
	}{
		"default Secret":           {"--default-proxy-secret a/B_", `--default-proxy-secret "a/B_": write namespace/name`},
		"default Secret elsewhere": {"--default-proxy-secret ../a", `--default-proxy-secret "../a": write namespace/name`},
		"default Secret of three":  {"--default-proxy-secret a/b/c", `--default-proxy-secret "a/b/c": write namespace/name`},
		"default namespaces":       {"--default-proxy-namespaces a=b=c", `--default-proxy-namespaces "a=b=c": `},
		"format of logs":           {"--logging-format xml", `--logging-format "xml": use text or json`},
		"version of TLS":           {"--tls-min-version VersionTLS9", `--tls-min-version, --tls-cipher-suites or --tls-curve-preferences: unknown tls version "VersionTLS9"`},
		"cipher suite":             {"--tls-cipher-suites TLS_RSA", "--tls-min-version, --tls-cipher-suites or --tls-curve-preferences: Cipher suite TLS_RSA not supported or doesn't exist"},
		"unknown feature":          {"--feature-gates Foo=true", `--feature-gates: there is no feature "Foo"; there are PriorityQueue`},
		"feature without value":    {"--feature-gates PriorityQueue", "invalid argument"},
		"no resync":                {"--sync-period 0", "--sync-period 0s: use a longer time, for example 10m"},
		"resync without a pause":   {"--sync-period -1s", "--sync-period -1s: use a longer time, for example 10m"},
		"no workers":               {"--concurrency 0", "--concurrency 0: use 1 or more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, stderr := startManager(t, strings.Fields(test.args)...)
			first, _, _ := strings.Cut(stderr, "\n")
			if status != kit.ExitUsage || !strings.HasPrefix(first, "capi-proxy-patcher: "+test.want) {
				t.Errorf("exit status %d, want %d; %q, want %q", status, kit.ExitUsage, stderr, test.want)
			}
		})
	}
}

func TestManager_AcceptsFlagsWithinTheirLimits(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		nil,
		{"--tls-min-version", "VersionTLS12", "--tls-cipher-suites", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
		{"--logging-format", "json", "--feature-gates", "PriorityQueue=false", "--feature-gates", "", "--insecure-diagnostics"},
		{"--namespace", "team-a", "--default-proxy-secret", "system/proxy.v1", "--default-proxy-namespaces", "a,!b,c in (d)"},
		{"--default-proxy-namespaces", ""},
	} {
		if status, stderr := startManager(t, args...); status != kit.ExitInput ||
			!strings.Contains(stderr, "reading kubeconfig") {
			t.Errorf("%q: exit status %d: %s", args, status, stderr)
		}
	}
}

// startManager starts a manager whose kubeconfig does not exist, and returns its exit status and standard error.
func startManager(t *testing.T, args ...string) (status int, stderr string) {
	t.Helper()
	return run(t, append([]string{"manager", "--kubeconfig", t.TempDir() + "/kubeconfig"}, args...)...)
}

// run runs the program without a capability, and returns its exit status and standard error.
func run(t *testing.T, args ...string) (status int, stderr string) {
	t.Helper()
	var errs bytes.Buffer
	status = Main(t.Context(), args, kit.Streams{Out: io.Discard, Err: &errs})
	return status, errs.String()
}
