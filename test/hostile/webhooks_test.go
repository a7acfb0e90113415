//go:build linux

package hostile

import (
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const template = "/mutate-bootstrap-cluster-x-k8s-io-v1beta2-kubeadmconfigtemplate"

// review is an AdmissionReview of a new KubeadmConfigTemplate with a spec.
func review(spec string) []byte {
	return fmt.Appendf(nil,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"x","operation":"CREATE","namespace":"default","name":"x",`+
			`"object":{"apiVersion":"bootstrap.cluster.x-k8s.io/v1beta2","kind":"KubeadmConfigTemplate","metadata":{"namespace":"default","name":"x"},"spec":%s}}}`, spec)
}

func TestManager_SurvivesHostileRequests(t *testing.T) {
	t.Parallel()
	cluster := vocabulary.StartCluster(t, mgmt.Options{})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := mgmt.WriteKubeconfig(kubeconfig, cluster.Config()); err != nil {
		t.Fatal(err)
	}
	p := start(t, "capi-proxy-patcher-controller-manager", "extension", func(port, folder string) []string {
		return []string{
			"manager", "--kubeconfig", kubeconfig, "--health-addr", "0", "--diagnostics-address", "0",
			"--webhook-bind-address", "127.0.0.1", "--webhook-port", port, "--webhook-cert-dir", folder,
		}
	})
	honest := review(`{"template":{"spec":{"files":[{"path":"/x","content":"y"}]}}}`)
	const most = 4 * megabyte
	full := func(item string) []byte {
		list := strings.Repeat(item+",", (most-2000)/(len(item)+1))
		return review(`{"template":{"spec":{"files":[` + strings.TrimSuffix(list, ",") + `]}}}`)
	}
	p.survives(template, honest, []attack{
		{"2,000 connections with one byte of 4 MB", func() {
			p.flood(2000, func(c net.Conn) { post(c, template, most, []byte("{")) })
		}},
		{"bodies that stop before their end", func() {
			p.flood(60, func(c net.Conn) { post(c, template, most, bytes.Repeat([]byte(" "), most-1)) })
		}},
		{"millions of empty objects", func() { p.send(template, times(8, full(`{}`))...) }},
		{"millions of empty lists", func() { p.send(template, times(8, full(`[]`))...) }},
		{"files without end", func() { p.send(template, times(8, full(`{"path":"/a"}`))...) }},
		{"many small reviews", func() { p.send(template, times(100, honest)...) }},
	})
}
