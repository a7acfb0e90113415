package main

import (
	"strings"
	"testing"
)

// TestEveryCommand_AsksForAKubeconfigAsKubectl has none, in a home that is empty.
func TestEveryCommand_AsksForAKubeconfigAsKubectl(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_MASTER", "")
	t.Setenv("HOME", t.TempDir())
	for _, command := range []string{"check", "status", "plan --cluster a"} {
		_, _, stderr := run(t, "", strings.Fields(command)...)
		if !strings.Contains(stderr, "point to an existing, complete config file: --kubeconfig") || strings.Contains(stderr, "MASTER") {
			t.Errorf("%s: %s", command, stderr)
		}
	}
}

// TestCheck_HasAStatusForWhatItCouldNotDo tells a failure from a check that could not be made.
func TestCheck_HasAStatusForWhatItCouldNotDo(t *testing.T) {
	t.Parallel()
	a := newAPI(t, nil)
	kubeconfig := a.kubeconfig(t)
	for name, test := range map[string]struct {
		args   []string
		status int
		part   string
	}{
		"no kubeconfig":             {[]string{"--kubeconfig", "/nowhere"}, 2, "nowhere"},
		"an unknown output":         {[]string{"-o", "xml"}, 2, "unknown output"},
		"--pre of a Cluster":        {[]string{"--pre", "--cluster", "a"}, 2, "exclude each other"},
		"--pre-delete of a Cluster": {[]string{"--pre-delete", "--cluster", "a"}, 2, "excludes"},
		"a node for a Cluster":      {[]string{"prod", "--from-nodes", "node-1"}, 2, `takes one argument, a Cluster, got ["prod" "node-1"]; a node is --from-nodes=node-1`},
		"two by position":           {[]string{"prod", "stage"}, 2, `takes one argument, a Cluster, got ["prod" "stage"]`},
		"two Clusters":              {[]string{"--cluster", "prod", "stage"}, 2, `names two Clusters, "prod" and "stage"; leave out one`},
		"a Cluster by position":     {[]string{"--kubeconfig", kubeconfig, "team-a/prod"}, 1, "team-a/prod"},
		"nothing installed":         {[]string{"--kubeconfig", kubeconfig}, 1, "failed   lease"},
	} {
		status, stdout, stderr := run(t, "", append([]string{"check"}, test.args...)...)
		if status != test.status || !strings.Contains(stdout+stderr, test.part) {
			t.Errorf("%s: status %d: %s%s", name, status, stdout, stderr)
		}
	}
	if _, stdout, _ := run(t, "", "check", "--kubeconfig", kubeconfig, "prod"); !strings.Contains(stdout, "\nCluster team-a/prod\n") {
		t.Errorf("a name by position: %s", stdout)
	}
	status, stdout, _ := run(t, "", "check", "--kubeconfig", kubeconfig, "--context", "nobody")
	if status != 2 || !strings.Contains(stdout, "missing right") {
		t.Errorf("without rights: status %d: %s", status, stdout)
	}
	a.Close()
	const refused = "was refused - did you specify the right host or port?"
	status, stdout, stderr := run(t, "", "check", "--kubeconfig", kubeconfig, "--wait", "1ms", "-o", "short")
	if status != 2 || !strings.HasPrefix(stdout, "unknown  API server: api-server: ") || !strings.HasSuffix(stdout, refused+"\n1 unknown (api-server)\n") ||
		!strings.HasPrefix(stderr, "waiting for api-server: the connection to the server ") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("without an API server: status %d: %s%s", status, stdout, stderr)
	}
	for _, command := range []string{"status", "status prod", "plan prod", "explain --cluster prod"} {
		args := append(strings.Fields(command), "--kubeconfig", kubeconfig)
		status, _, stderr := run(t, "", args...)
		if status != 1 || !strings.HasPrefix(stderr, "capi-proxy-patcher: the connection to the server ") || !strings.HasSuffix(stderr, refused+"\n") {
			t.Errorf("%s without an API server: status %d: %s", command, status, stderr)
		}
	}
}
