package main

import (
	"strings"
	"testing"
)

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
		"a Cluster by position":     {[]string{"--kubeconfig", kubeconfig, "team-a/prod"}, 1, "team-a/prod"},
		"nothing installed":         {[]string{"--kubeconfig", kubeconfig}, 1, "failed   lease"},
	} {
		status, stdout, stderr := run(t, "", append([]string{"check"}, test.args...)...)
		if status != test.status || !strings.Contains(stdout+stderr, test.part) {
			t.Errorf("%s: status %d: %s%s", name, status, stdout, stderr)
		}
	}
	a.Close()
	status, stdout, stderr := run(t, "", "check", "--kubeconfig", kubeconfig)
	if status != 2 || strings.Contains(stdout, "\n  failed ") {
		t.Errorf("without an API server: status %d: %s%s", status, stdout, stderr)
	}
}
