package render_test

import (
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

func TestRender_CertificatesAloneAreAllThatNodesGet(t *testing.T) {
	t.Parallel()
	const cluster = `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: one, namespace: ns, labels: {capi-proxy-patcher.io/enabled: "true"}}
spec:
  clusterNetwork: {pods: {cidrBlocks: ["${PODS}"]}}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: cp}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: cp, namespace: ns}
spec:
  version: v1.36.3
  kubeadmConfigSpec:
    preKubeadmCommands:
    - echo own
    postKubeadmCommands:
    - echo done
`
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: http-proxy, namespace: ns}\nstringData:\n  trustedCA: |\n    " +
		strings.ReplaceAll(pki.Text(t), "\n", "\n    ") + "\n"
	result := run(t, render.Options{
		Inputs:         []clusters.Input{{Name: "-", Data: []byte(cluster)}},
		Secrets:        []clusters.Input{{Name: "s", Data: []byte(secret)}},
		IncludeSecrets: true,
	})
	output := string(result.Output)
	for _, absent := range []string{
		"path: /etc/capi-proxy-patcher/proxy.env", "path: /etc/systemd", "set -a", "command unset",
	} {
		if strings.Contains(output, absent) {
			t.Errorf("there is %q in:\n%s", absent, output)
		}
	}
	for _, present := range []string{
		"path: /etc/capi-proxy-patcher/trusted-ca.pem",
		"path: /etc/capi-proxy-patcher/setup.sh", "sh /etc/capi-proxy-patcher/setup.sh || :",
	} {
		if !strings.Contains(output, present) {
			t.Errorf("there is no %q in:\n%s", present, output)
		}
	}
	// A proxy.env that says nothing: what somebody has patched earlier refers to it.
	if !strings.Contains(output, "proxy.env: IyBNYW5hZ2VkIGJ5IGNhcGktcHJveHktcGF0Y2hlcgo=\n") {
		t.Errorf("no empty proxy.env in the generated Secret:\n%s", output)
	}
	const note = "Secret ns/http-proxy has only key trustedCA: nodes trust its certificates and get no proxy variables"
	if notes := strings.Join(result.Notes, "\n"); !strings.Contains(notes, note) || result.Warnings != 0 {
		t.Errorf("notes %s (%d warnings)", notes, result.Warnings)
	}
}
