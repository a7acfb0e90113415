package main

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

func TestVersion_IsTextOrJSON(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := run(t, "", "version")
	if status != 0 || !strings.HasPrefix(stdout, "capi-proxy-patcher ") || !strings.Contains(stdout, runtime.Version()) {
		t.Errorf("exit status %d, output %q, standard error %q", status, stdout, stderr)
	}
	status, stdout, stderr = run(t, "", "version", "-o", "json")
	var got map[string]any
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || status != 0 {
		t.Fatalf("exit status %d, output %q, standard error %q: %v", status, stdout, stderr, err)
	}
	if got["goVersion"] != runtime.Version() || got["outputVersion"] != float64(patch.OutputVersion) || got["version"] != contract.CurrentBuild().Version {
		t.Errorf("output %v", got)
	}
	if status, _, stderr := run(t, "", "version", "-o", "yaml"); status != 2 || !strings.Contains(stderr, `unknown output "yaml"`) {
		t.Errorf("exit status %d, standard error %q", status, stderr)
	}
}

func TestCompletion_OffersTheValuesOfFlags(t *testing.T) {
	t.Parallel()
	kubeconfig := folder(t, map[string]string{
		"config": "apiVersion: v1\nkind: Config\ncontexts: [{name: prod, context: {}}, {name: lab, context: {}}]\n",
	}) + "/config"
	for line, want := range map[string][]string{
		"render -f x -o ":     {"yaml", "diff"},
		"lint -f x --output ": {"text", "json"},
		"explain --profile ":  {"service", "shell"},
		"explain --client ":   {"curl", "go-nethttp"},
		"explain --kubeconfig " + kubeconfig + " --context ": {"lab\nprod"},
	} {
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		status, stdout, stderr := run(t, "", args...)
		for _, value := range want {
			if status != 0 || !strings.Contains("\n"+stdout, "\n"+value+"\n") {
				t.Errorf("%s: exit status %d, output %q lacks %q; standard error %q", line, status, stdout, value, stderr)
			}
		}
	}
}
