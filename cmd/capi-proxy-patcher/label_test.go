package main

import (
	"fmt"
	"strings"
	"testing"
)

// labelled is a patched Cluster whose label has a value, and whose metadata and pool have annotations.
func labelled(label, annotations, pool string) string {
	if label != "" {
		label = fmt.Sprintf("labels: {capi-proxy-patcher.io/enabled: %q}, ", label)
	}
	return `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: one, namespace: a, ` + label + `annotations: {` + annotations + `}}
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}, services: {cidrBlocks: [10.96.0.0/12]}, serviceDomain: cluster.local}
  controlPlaneEndpoint: {host: cp.example.com, port: 6443}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: one}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: one, namespace: a}
spec: {kubeadmConfigSpec: {files: [{path: /etc/capi-proxy-patcher/proxy.env, permissions: "0600", contentFrom: {secret: {name: one-proxy-files, key: proxy.env}}}]}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: md, namespace: a, annotations: {` + pool + `}}
spec: {clusterName: one, template: {spec: {bootstrap: {dataSecretName: own}}}}
---
apiVersion: v1
kind: Secret
metadata: {name: http-proxy, namespace: a, labels: {capi-proxy-patcher.io/proxy: ''}}
stringData: {httpProxy: 'http://proxy.example.com:3128'}
`
}

func TestUnknownLabelValue_LeavesManifestsUnchanged(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"True", "yes", "1"} {
		input := labelled(value, "", "")
		want := fmt.Sprintf("label capi-proxy-patcher.io/enabled: unknown value %q, which changes nothing", value)
		status, stdout, stderr := run(t, input, "render", "-f", "-")
		if status != 0 || stdout != input || !strings.Contains(stderr, "document 1: Cluster a/one: warning: "+want+
			`; use "true" or "false"`) {
			t.Errorf("render: status %d, standard error\n%s\noutput\n%s", status, stderr, stdout)
		}
		if strings.Contains(stderr, "no Cluster in the input uses it") {
			t.Errorf("render takes the objects of the Cluster for nobody's:\n%s", stderr)
		}
		if status, _, _ := run(t, input, "render", "-f", "-", "--strict"); status != 1 {
			t.Errorf("render --strict: status %d", status)
		}
		status, stdout, stderr = run(t, input, "lint", "-f", "-")
		if status != 1 || !strings.Contains(stdout, "standard input:3: rejection: Cluster a/one, "+want+
			" (bad-label)\n    fix: use \"true\" or \"false\"\n") || stderr != "" {
			t.Errorf("lint: status %d, standard error\n%s\noutput\n%s", status, stderr, stdout)
		}
		_, _, stderr = run(t, input, "explain", "-f", "-")
		if !strings.Contains(stderr, want) || strings.Contains(stderr, "has no label") {
			t.Errorf("explain: standard error\n%s", stderr)
		}
	}
	input := labelled("${PROXY:=true}", "", "")
	status, stdout, stderr := run(t, input, "render", "-f", "-", "--strict")
	if status != 0 || stdout != input ||
		!strings.Contains(stderr,
			"label capi-proxy-patcher.io/enabled has an unresolved variable; nothing changes until clusterctl generate cluster") {
		t.Errorf("render of a variable: status %d, standard error\n%s\noutput\n%s", status, stderr, stdout)
	}
	if status, stdout, _ := run(t, input, "lint", "-f", "-", "--strict"); status != 0 ||
		!strings.Contains(stdout, "note: Cluster a/one, label ") {
		t.Errorf("lint of a variable: status %d\n%s", status, stdout)
	}
}

func TestLabelFalse_RemovesTheProxy(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"false", ""} {
		status, stdout, stderr := run(t, labelled(value, "", ""), "render", "-f", "-")
		if status != 0 || strings.Contains(stdout, "one-proxy-files") || !strings.Contains(stderr, "removed the proxy") ||
			!strings.Contains(stderr,
				`no Cluster in the input has label capi-proxy-patcher.io/enabled: "true"; nothing is patched`) {
			t.Errorf("%q: status %d, standard error\n%s\noutput\n%s", value, status, stderr, stdout)
		}
	}
	if _, _, stderr := run(t, labelled("true", "", ""), "render", "-f", "-"); strings.Contains(stderr,
		"no Cluster in the input") {
		t.Errorf("a labelled Cluster is not seen:\n%s", stderr)
	}
	if _, _, stderr := run(t, labelled("", "", ""), "render", "-f", "-", "--all"); strings.Contains(stderr,
		"no Cluster in the input") {
		t.Errorf("--all asks for a label:\n%s", stderr)
	}
}

func TestUnknownNames_AreReportedOffline(t *testing.T) {
	t.Parallel()
	for _, label := range []string{"true", "", "yes"} {
		input := labelled(label, "capi-proxy-patcher.io/rolout: Immediate, capi-proxy-patcher.io/enabled: 'true'",
			"capi-proxy-patcher.io/targets: trust, capi-proxy-patcher.io/secret: none")
		_, _, notes := run(t, input, "render", "-f", "-")
		_, findings, _ := run(t, input, "lint", "-f", "-")
		for _, want := range []string{
			"Cluster a/one#annotation capi-proxy-patcher.io/rolout: unknown annotation, ignored; did you mean capi-proxy-patcher.io/rollout?",
			"Cluster a/one#annotation capi-proxy-patcher.io/enabled: unknown annotation, ignored; set it as a label",
			"MachineDeployment a/md#annotation capi-proxy-patcher.io/targets: unknown annotation, ignored; set it as an annotation of the Cluster",
		} {
			object, text, _ := strings.Cut(want, "#")
			if !strings.Contains(notes, object+": warning: unknown-name: "+text+"\n") {
				t.Errorf("label %q: render says\n%s\nwant\n%s", label, notes, want)
			}
			text, fix, _ := strings.Cut(text, "; ")
			if !strings.Contains(findings, ": warning: "+object+", "+text+" (unknown-name)\n    fix: "+fix+"\n") {
				t.Errorf("label %q: lint says\n%s\nwant\n%s", label, findings, want)
			}
		}
	}
}
