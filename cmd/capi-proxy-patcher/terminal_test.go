package main

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// TestEveryCommand_EscapesWhatATerminalObeys gives manifests with escape sequences, carriage returns and text that runs
// backwards in every place that a finding names. Manifests stay as they are.
func TestEveryCommand_EscapesWhatATerminalObeys(t *testing.T) {
	t.Parallel()
	for name, mark := range map[string]string{
		"an escape sequence": `\e]0;owned\a\e[2J`, "a carriage return": `\r`, "a control of 8 bits": `\x9b2J`,
		"backwards": `\u202e`, "a deletion": `\x7f`,
	} {
		manifests := strings.ReplaceAll(`apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: "c@", namespace: "n@", labels: {capi-proxy-patcher.io/enabled: "true"}, annotations: {capi-proxy-patcher.io/rollout: "x@", "capi-proxy-patcher.io/@": a}}
spec:
  clusterNetwork: {pods: {cidrBlocks: ["10.0.0.0/8@"]}, serviceDomain: "a@"}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: "K@", name: "k@"}
---
apiVersion: v1
kind: Secret
metadata: {name: "http-proxy", namespace: "n@", labels: {capi-proxy-patcher.io/proxy: ""}}
stringData: {httpProxy: "http://p:1", "key@": a, noProxy: "a@,b"}
`, "@", mark)
		for _, args := range [][]string{
			{"lint", "-f", "-"},
			{"lint", "-f", "-", "-o", "json"},
			{"render", "-f", "-"},
			{"explain", "-f", "-"},
			{"secret", "--from", "-"},
			{"plan", "\u202e\x1b[2J"},
			{"status", "a", "\x1b[2J"},
			{"\x1b[2J\r\xff"},
		} {
			_, stdout, stderr := run(t, manifests, args...)
			if stdout+stderr == "" {
				t.Errorf("%v prints nothing", args)
			}
			if i := strings.IndexFunc(stdout+stderr, obeyed); i >= 0 {
				t.Errorf("%s, %v: byte %d of %q", name, args, i, stdout+stderr)
			}
			if strings.Contains(strings.Join(args, " "), "json") && stdout != "" && !json.Valid([]byte(stdout)) {
				t.Errorf("%s, %v: no JSON: %s", name, args, stdout)
			}
		}
		// Commands that refuse nothing print more than the first error.
		accepted := strings.ReplaceAll(`apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: "c@", namespace: "n@", labels: {capi-proxy-patcher.io/enabled: "true"}, annotations: {"capi-proxy-patcher.io/@": a}}
spec: {controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: "k@"}}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: "k@", namespace: "n@"}
spec: {kubeadmConfigSpec: {preKubeadmCommands: ["export HTTP_PROXY=@"]}}
---
apiVersion: v1
kind: Secret
metadata: {name: "http-proxy", namespace: "n@", labels: {capi-proxy-patcher.io/proxy: ""}}
stringData: {httpProxy: "http://p:1", noProxy: "b"}
`, "@", mark)
		for _, args := range [][]string{{"render", "-f", "-", "-o", "diff"}, {"explain", "-f", "-"}, {"explain", "-f", "-", "-o", "json"}} {
			status, stdout, stderr := run(t, accepted, args...)
			if status != 0 || stdout == "" {
				t.Errorf("%s, %v: exit status %d: %s", name, args, status, stderr)
			}
			if i := strings.IndexFunc(stdout+stderr, obeyed); i >= 0 {
				t.Errorf("%s, %v: byte %d of %q", name, args, i, stdout+stderr)
			}
			if args[len(args)-1] == "json" && !json.Valid([]byte(stdout)) {
				t.Errorf("%s, %v: no JSON: %s", name, args, stdout)
			}
		}
		const secret = "kind: Secret\napiVersion: v1\nmetadata: {name: x}\nstringData: {a: \"@\"} # \u202e\r\n"
		text := strings.ReplaceAll(secret, "@", mark)
		if status, stdout, stderr := run(t, text, "render", "-f", "-"); status != 0 || stdout != text {
			t.Errorf("%s: a manifest is changed: status %d, %q, %s", name, status, stdout, stderr)
		}
	}
}

func obeyed(c rune) bool {
	return unicode.IsControl(c) && c != '\n' && c != '\t' || c == '\u202e' || c == unicode.ReplacementChar
}
