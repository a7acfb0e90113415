package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
)

const (
	clusterManifest = `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: c, labels: {capi-proxy-patcher.io/enabled: "true"}}
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}}
  controlPlaneEndpoint: {host: cp.example.com, port: 6443}
  controlPlaneRef: {kind: KubeadmControlPlane, name: c}
`
	controlPlaneManifest = `apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: c}
spec: {version: v1.36.3}
`
	secretManifest = `apiVersion: v1
kind: Secret
metadata: {name: http-proxy, labels: {capi-proxy-patcher.io/proxy: ''}}
stringData: {httpProxy: "http://proxy.example.com:3128", username: u, password: s3cr}
`
)

// run calls the program and returns its exit status and streams.
func run(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = cli.Main(t.Context(), args, kit.Streams{In: strings.NewReader(stdin), Out: &out, Err: &errs}, capabilities()...)
	return status, out.String(), errs.String()
}

// folder writes files and returns their folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRender_ReadsFilesFoldersAndStandardInput(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{
		"1-cluster.yaml": clusterManifest, "2-control-plane.yml": controlPlaneManifest, "3-secret.yaml": secretManifest, "README.md": "not a manifest: [",
	})
	whole := clusterManifest + "---\n" + controlPlaneManifest + "---\n" + secretManifest
	_, want, _ := run(t, whole, "render", "-f", "-")
	if !strings.Contains(want, "EnvironmentFile=-/etc/capi-proxy-patcher/proxy.env") {
		t.Fatalf("nothing was patched:\n%s", want)
	}
	for name, args := range map[string][]string{
		"a folder":      {"render", "-f", dir},
		"several files": {"render", "-f", dir + "/1-cluster.yaml", "-f", dir + "/2-control-plane.yml", "-f", dir + "/3-secret.yaml"},
		"the rest from standard input": {
			"render", "-f", dir + "/1-cluster.yaml", "-f", "-",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, got, stderr := run(t, controlPlaneManifest+"---\n"+secretManifest, args...)
			if status != 0 || got != want {
				t.Errorf("exit status %d, standard error %s, output\n%s\nwant\n%s", status, stderr, got, want)
			}
		})
	}
	status, got, _ := run(t, clusterManifest+"---\n"+controlPlaneManifest, "render", "-f", "-", "--secret", dir+
		"/3-secret.yaml")
	if want, _, _ := strings.Cut(want, "---\napiVersion: v1\nkind: Secret"); status != 0 || got != want {
		t.Errorf("with --secret: exit status %d, output\n%s\nwant\n%s", status, got, want)
	}
}

func TestRender_PrintsADiff(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := run(t, clusterManifest+"---\n"+controlPlaneManifest+"---\n"+secretManifest, "render", "-f",
		"-", "-o", "diff")
	if status != 0 || !strings.HasPrefix(stdout, "--- -\n+++ - (rendered)\n@@ ") || strings.Contains(stdout, "\n-a") {
		t.Errorf("exit status %d, output\n%s", status, stdout)
	}
	if !strings.Contains(stderr, "--include-secrets prints: 1 (c-proxy-files)") ||
		strings.Contains(stdout+stderr, "s3cr") {
		t.Errorf("standard error\n%s", stderr)
	}
}

func TestRender_MergesTheInstallationWideSecret(t *testing.T) {
	t.Parallel()
	dir := folder(t,
		map[string]string{"default.yaml": strings.ReplaceAll(secretManifest, "{name: http-proxy,",
			"{name: installation, namespace: system,") + "  \n"})
	status, stdout, stderr := run(t, clusterManifest+"---\n"+controlPlaneManifest, "render", "-f", "-", "--secret", dir+
		"/default.yaml",
		"--default-proxy-secret", "system/installation", "--include-secrets")
	if status != 0 || !strings.Contains(stdout, "capi-proxy-patcher.io/source: system/installation") {
		t.Errorf("exit status %d, standard error %s, output\n%s", status, stderr, stdout)
	}
}

func TestExitStatus(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"bad.yaml": "a: [", "empty.txt": ""})
	for name, test := range map[string]struct {
		args   []string
		status int
		stderr string
	}{
		"help":                    {[]string{"--help"}, 0, ""},
		"version":                 {[]string{"--version"}, 0, ""},
		"an unknown command":      {[]string{"rendr"}, 2, `unknown command "rendr"; did you mean render?`},
		"an unknown flag":         {[]string{"render", "--fil", "x"}, 2, "unknown flag: --fil"},
		"another unknown command": {[]string{"{{%s"}, 2, `unknown command "{{%s"` + "\nRun 'capi-proxy-patcher --help'"},
		"no input":                {[]string{"render"}, 2, "no input; use -f FILE, or -f - for standard input\nRun 'capi-proxy-patcher render --help'"},
		"an argument":             {[]string{"render", "x.yaml"}, 2, `takes no arguments, got 1`},
		"an unknown output":       {[]string{"render", "-f", "-", "-o", "json"}, 2, `unknown output "json"; use yaml or diff`},
		"a flag without another":  {[]string{"render", "-f", "-", "--incomplete-secrets"}, 2, "--incomplete-secrets needs --include-secrets"},
		"a file that is not":      {[]string{"render", "-f", dir + "/none.yaml"}, 1, "none.yaml: no such file or directory"},
		"a folder without any":    {[]string{"render", "-f", t.TempDir()}, 1, "has no file that ends with .yaml, .yml or .json"},
		"a file that is broken":   {[]string{"render", "-f", dir + "/bad.yaml"}, 1, "bad.yaml: document 1, line 2"},
		"a Secret that is not":    {[]string{"render", "-f", "-", "--secret", dir + "/empty.txt"}, 1, "it holds no Secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, stdout, stderr := run(t, "", test.args...)
			if status != test.status || !strings.Contains(stderr, test.stderr) {
				t.Errorf("exit status %d, want %d; standard error %q, want %q in it", status, test.status, stderr, test.stderr)
			}
			if status != 0 && stdout != "" {
				t.Errorf("an error with output %q", stdout)
			}
		})
	}
}

func TestRender_StrictFailsOnWarnings(t *testing.T) {
	t.Parallel()
	const pool = `---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: md}
spec: {clusterName: c, template: {spec: {bootstrap: {configRef: {kind: RKE2ConfigTemplate, name: md}}}}}
`
	plain := clusterManifest + "---\n" + controlPlaneManifest + "---\n" + secretManifest
	for name, test := range map[string]struct {
		stdin, flag string
		status      int
		stderr      string
	}{
		"nothing to warn of":         {plain, "--strict", 0, ""},
		"a warning":                  {plain + pool, "--strict=false", 0, "standard input: document 4: MachineDeployment md: warning: "},
		"a warning that is an error": {plain + pool, "--strict", 1, "capi-proxy-patcher: nothing is written, because --strict"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, stdout, stderr := run(t, test.stdin, "render", "-f", "-", test.flag)
			if status != test.status || (stdout == "") != (test.status != 0) {
				t.Errorf("exit status %d, want %d; output %q", status, test.status, stdout)
			}
			if !strings.Contains(stderr, test.stderr) || test.status != 0 &&
				!strings.Contains(stderr, "RKE2ConfigTemplate cannot be patched") {
				t.Errorf("want %q in standard error:\n%s", test.stderr, stderr)
			}
		})
	}
}
