package cli

import (
	"strings"
	"testing"
)

func TestManager_RefusesFlagsBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	certificates, none := hookCertificate(t), t.TempDir()
	for name, test := range map[string]struct {
		args string
		want string
	}{
		"sync period below 0":          {"--sync-period -1s", "--sync-period -1s: use a longer time, for example 10m"},
		"sync period 0":                {"--sync-period 0", "--sync-period 0s: use a longer time"},
		"sync period too long":         {"--sync-period 24h1s", "--sync-period 24h0m1s: use at most 24h, "},
		"sync period of centuries":     {"--sync-period 2562047h", "--sync-period 2562047h0m0s: use at most 24h, "},
		"concurrency below 0":          {"--concurrency -1", "--concurrency -1: use 1 or more"},
		"concurrency 0":                {"--concurrency 0", "--concurrency 0: use 1 or more"},
		"requests below 0":             {"--kube-api-qps -1", "--kube-api-qps -1: use more than 0"},
		"requests that are no number":  {"--kube-api-qps NaN", "--kube-api-qps NaN: use more than 0"},
		"burst 0":                      {"--kube-api-burst 0", "--kube-api-burst 0: use 1 or more"},
		"namespace":                    {"--namespace Bad_NS", `--namespace "Bad_NS": `},
		"two namespaces":               {"--namespace a,b", `--namespace "a,b": `},
		"namespace of the lease":       {"--leader-elect-namespace a/b", `--leader-elect-namespace "a/b": `},
		"default Secret":               {"--default-proxy-secret a/B_", `--default-proxy-secret "a/B_": write namespace/name`},
		"default Secret elsewhere":     {"--default-proxy-secret ../a", `--default-proxy-secret "../a": write namespace/name`},
		"default Secret of three":      {"--default-proxy-secret a/b/c", `--default-proxy-secret "a/b/c": write namespace/name`},
		"default namespaces":           {"--default-proxy-namespaces a=b=c", `--default-proxy-namespaces "a=b=c": `},
		"health address":               {"--health-addr 8081", `--health-addr "8081": use an address and a port such as :8081`},
		"health port":                  {"--health-addr :65536", `--health-addr ":65536": use an address and a port`},
		"health port 0":                {"--health-addr :0", `--health-addr ":0": use an address and a port`},
		"diagnostics address":          {"--diagnostics-address example.com:1", `--diagnostics-address "example.com:1": use an address and a port`},
		"profiler address":             {"--profiler-address 6060", `--profiler-address "6060": use an address and a port`},
		"format of logs":               {"--logging-format xml", `--logging-format "xml": use text or json`},
		"version of TLS":               {"--tls-min-version VersionTLS9", `--tls-min-version, --tls-cipher-suites or --tls-curve-preferences: unknown tls version "VersionTLS9"`},
		"cipher suite":                 {"--tls-cipher-suites TLS_RSA", "--tls-min-version, --tls-cipher-suites or --tls-curve-preferences: Cipher suite TLS_RSA not supported or doesn't exist"},
		"unknown feature":              {"--feature-gates Foo=true", `--feature-gates: there is no feature "Foo"; there are PriorityQueue`},
		"feature without value":        {"--feature-gates PriorityQueue", "invalid argument"},
		"retry period 0":               {"--leader-elect-retry-period 0", "--leader-elect-retry-period 0s: use 1s or more"},
		"renew deadline too short":     {"--leader-elect-renew-deadline 2s", "--leader-elect-renew-deadline 2s: use more than 1.2 times"},
		"lease too short":              {"--leader-elect-lease-duration 10s", "--leader-elect-lease-duration 10s: use more than --leader-elect-renew-deadline"},
		"certificate elsewhere":        {"--webhook-cert-dir " + certificates + " --webhook-cert-name ../tls.crt", `--webhook-cert-name "../tls.crt": name a file in --webhook-cert-dir`},
		"key missing":                  {"--webhook-cert-dir " + certificates + " --webhook-key-name key.pem", "--webhook-cert-dir: file " + certificates + "/key.pem does not exist"},
		"webhook port":                 {"--webhook-port -1", "--webhook-port -1: use a port from 1 to 65535"},
		"webhook port beyond":          {"--webhook-port 65536", "--webhook-port 65536: use a port from 1 to 65535"},
		"webhook address":              {"--webhook-bind-address [::]:1", `--webhook-bind-address "[::]:1": use an IP address without a port`},
		"webhook certificates missing": {"--webhook-cert-dir " + none, "--webhook-cert-dir: file " + none + "/tls.crt does not exist"},
		"image of nodes":               {"--node-image a,b", `--node-image "a,b": not the name of an image`},
		"pull policy of nodes":         {"--node-image-pull-policy Never", `--node-image-pull-policy "Never": neither Always nor IfNotPresent`},
		"image of nodes too long":      {"--node-image " + strings.Repeat("a", 513), `--node-image "aaa`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, stderr := startManager(t, strings.Fields(test.args)...)
			first, _, _ := strings.Cut(stderr, "\n")
			if status != exitUsage || !strings.HasPrefix(first, "capi-proxy-patcher: "+test.want) {
				t.Errorf("exit status %d, want %d; %q, want %q", status, exitUsage, stderr, test.want)
			}
		})
	}
}

func TestManager_AcceptsFlagsWithinTheirLimits(t *testing.T) {
	t.Parallel()
	certificates := hookCertificate(t)
	for _, args := range [][]string{
		nil,
		{"--sync-period", "1s", "--concurrency", "1", "--kube-api-qps", "0.5", "--kube-api-burst", "1"},
		{"--sync-period", "24h"},
		{"--health-addr", "0", "--diagnostics-address", "[::1]:8443", "--profiler-address", "localhost:6060", "--webhook-port", "0", "--webhook-bind-address", "::1"},
		{"--tls-min-version", "VersionTLS12", "--tls-cipher-suites", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
		{"--logging-format", "json", "--feature-gates", "PriorityQueue=false", "--feature-gates", "", "--insecure-diagnostics"},
		{"--leader-elect-lease-duration", "60s", "--leader-elect-renew-deadline", "40s", "--leader-elect-retry-period", "5s"},
		{"--namespace", "team-a", "--default-proxy-secret", "system/proxy.v1", "--default-proxy-namespaces", "a,!b,c in (d)"},
		{"--node-image", "a", "--node-image-pull-policy", "IfNotPresent"},
		{"--node-image", "[::1]:5000/a@sha256:" + strings.Repeat("a", 512-20)},
		{"--default-proxy-namespaces", "", "--webhook-cert-dir", certificates},
	} {
		if status, stderr := startManager(t, args...); status != exitInput ||
			!strings.Contains(stderr, "reading kubeconfig") {
			t.Errorf("%q: exit status %d: %s", args, status, stderr)
		}
	}
}

// startManager starts a manager whose kubeconfig does not exist, and returns its exit status and standard error.
func startManager(t *testing.T, args ...string) (status int, stderr string) {
	t.Helper()
	status, _, stderr = run(t, "", append([]string{"manager", "--kubeconfig", t.TempDir() + "/kubeconfig"}, args...)...)
	return status, stderr
}
