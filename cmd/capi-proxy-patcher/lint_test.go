package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
)

const lintInput = "testdata/lint/in.yaml"

func TestLint_IsGolden(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"want.txt": nil, "want.json": {"-o", "json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 2 { // the same bytes each time
				status, stdout, stderr := run(t, "", append([]string{"lint", "-f", lintInput}, args...)...)
				if status != 1 || stderr != "" {
					t.Errorf("exit status %d, standard error %s", status, stderr)
				}
				golden.Equal(t, "testdata/lint/"+name, stdout)
				if strings.Contains(stdout, "s3cr") {
					t.Error("a value of a Secret in the output")
				}
			}
		})
	}
}

// TestLint_PointsAtTheLine checks every line of the golden output against the text of the input.
func TestLint_PointsAtTheLine(t *testing.T) {
	t.Parallel()
	_, stdout, _ := run(t, "", "lint", "-f", lintInput)
	for where, line := range map[string]int{
		"annotation capi-proxy-patcher.io/rollout":      9,
		"spec.clusterNetwork.services.cidrBlocks[1]":    18,
		`Secret team-a/http-proxy, key "HTTPProxy"`:     33,
		"Secret team-a/http-proxy, key httpProxy":       32,
		"Secret team-a/http-proxy, key noProxy entry 3": 36,
		"Secret team-a/http-proxy, key noProxy entry 5": 37,
		"Secret team-a/base64, data.noProxy":            49,
		"Secret labelled, keys":                         55,
		"Secret warned, key noProxy entry 1":            69,
		"Cluster ${NAMESPACE}/template":                 71,
		"MachineDeployment team-a/edge":                 80,
	} {
		want := fmt.Sprintf("%s:%d: ", lintInput, line)
		found := false
		for text := range strings.Lines(stdout) {
			found = found || strings.HasPrefix(text, want) && (strings.Contains(text, where+":") || strings.Contains(text, where+` "`))
		}
		if !found {
			t.Errorf("no line begins with %s and names %s:\n%s", want, where, stdout)
		}
	}
}

func TestLint_ExitStatus(t *testing.T) {
	t.Parallel()
	clean := strings.Replace(clusterManifest, "[10.244.0.0/16]}",
		"[10.244.0.0/16]}, services: {cidrBlocks: [10.96.0.0/12]}, serviceDomain: cluster.local", 1) + "---\n" + secretManifest
	for name, test := range map[string]struct {
		stdin, args string
		status      int
		stdout      string
		stderr      string
	}{
		"nothing to say":               {clean, "-f -", 0, "0 rejections, 0 warnings, 0 notes in 1 labelled Cluster and 1 proxy Secret\n", ""},
		"only a note, strictly":        {strings.Replace(clean, "controlPlaneEndpoint: {host: cp.example.com, port: 6443}", "paused: false", 1), "-f - --strict", 0, "note: Cluster c, spec.controlPlaneEndpoint.host: the control plane endpoint is not known yet (endpoint-unset)", ""},
		"a warning":                    {strings.Replace(clean, ":3128", "", 1), "-f -", 0, "warning: Secret http-proxy, key httpProxy: the proxy has no port", ""},
		"a warning, strictly":          {strings.Replace(clean, ":3128", "", 1), "-f - --strict", 1, "0 rejections, 1 warning", ""},
		"kubeadm's defaults, strictly": {clusterManifest + "---\n" + secretManifest, "-f - --strict", 0, "0 rejections, 0 warnings, 2 notes", ""},
		"a Secret that is missing":     {clusterManifest, "-f -", 0, "note: Cluster c: values of the proxy Secret are not known and not checked: neither Secret c-http-proxy nor http-proxy exists", ""},
		"a Secret of another file":     {strings.TrimSuffix(clean, "---\n"+secretManifest), "-f - --secret DIR/secret.yaml", 0, "DIR/secret.yaml:4: warning: Secret chosen-freely, key httpProxy: the proxy has no port", ""},
		"a default Secret":             {clean, "-f - --default-proxy-secret system/none", 0, "note: Cluster c: values of the proxy Secret are not known and not checked: the installation-wide Secret system/none does not exist", ""},
		"nothing at all":               {controlPlaneManifest, "-f -", 0, "0 rejections", "the input has neither a Cluster with label capi-proxy-patcher.io/enabled nor a proxy Secret"},
		"no input":                     {"", "", 2, "", "capi-proxy-patcher: no input; use -f FILE, or -f - for standard input"},
		"an argument":                  {"", "x.yaml", 2, "", `takes no arguments, got 1`},
		"an unknown output":            {"", "-f - -o xml", 2, "", `unknown output "xml"; use text or json`},
		"a bad Secret name":            {"", "-f - --default-proxy-secret x", 2, "", "write namespace/name"},
		"a broken file":                {"a: [", "-f -", 1, "", "standard input: document 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t,
				map[string]string{"secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: chosen-freely, labels: {capi-proxy-patcher.io/proxy: ''}}\nstringData: {httpProxy: \"http://proxy.example.com\"}\n"})
			args := append([]string{"lint"}, strings.Fields(strings.ReplaceAll(test.args, "DIR", dir))...)
			status, stdout, stderr := run(t, test.stdin, args...)
			if status != test.status || !strings.Contains(stdout, strings.ReplaceAll(test.stdout, "DIR", dir)) ||
				!strings.Contains(stderr, test.stderr) || test.stderr == "" && stderr != "" {
				t.Errorf("exit status %d, want %d; standard error %q, want %q; output\n%s\nwant in it\n%s", status, test.status,
					stderr, test.stderr, stdout, test.stdout)
			}
		})
	}
}

func TestLint_ChecksEverySecretThatAClusterUses(t *testing.T) {
	t.Parallel()
	const pool = `---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: edge, annotations: {capi-proxy-patcher.io/secret: edge-proxy}}
spec: {clusterName: c}
---
apiVersion: v1
kind: Secret
metadata: {name: edge-proxy}
stringData: {HTTP_PROXY: "http://proxy.example.com:3128"}
`
	status, stdout, _ := run(t, clusterManifest+"---\n"+secretManifest+pool, "lint", "-f", "-")
	if want := `standard input:22: rejection: Secret edge-proxy, key "HTTP_PROXY": unknown key (unknown-key)`; status != 1 || !strings.Contains(stdout, want) {
		t.Errorf("exit status %d, output\n%s\nwant in it\n%s", status, stdout, want)
	}
	if want := "in 1 labelled Cluster and 2 proxy Secrets\n"; !strings.HasSuffix(stdout, want) {
		t.Errorf("output\n%s\ndoes not end with\n%s", stdout, want)
	}
	if n := strings.Count(stdout, "(defaults-used)"); n != 2 {
		t.Errorf("the network of the Cluster is reported %d times instead of 2", n)
	}
}
