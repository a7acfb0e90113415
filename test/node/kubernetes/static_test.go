//go:build node

package kubernetes_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/lab"
)

const (
	stepStatic     = "a cluster whose static Pods keep the variables, kubectl logs, exec and port-forward"
	staticProxy    = "static"
	staticURL      = "http://10.77.0.1:3133"
	staticFirst    = "10.77.0.40"
	staticEndpoint = "10.77.0.49"
	staticWorker   = "10.77.0.41"
	// nodeNetwork is that of the worker alone: kube-apiserver asks its kubelet. The control plane's own addresses are not
	// in it.
	nodeNetwork = "10.77.0.41/32"
)

// staticCluster applies a Cluster with target static-pods, whose list has the entries of noProxy.
func (s *suite) staticCluster(t *testing.T, namespace, noProxy string) cluster {
	t.Helper()
	targets := make([]string, len(contract.AllTargets()))
	for i, target := range contract.AllTargets() {
		targets[i] = string(target)
	}
	manifest := strings.NewReplacer(
		"  annotations:\n    "+contract.AnnotationSecret+": "+poolSecret+"\n", "",
		"    "+contract.LabelEnabled+": \"true\"\n",
		"    "+contract.LabelEnabled+": \"true\"\n  annotations:\n    "+contract.AnnotationTargets+": "+strings.Join(targets, ",")+"\n",
	).Replace(onVIP(clusterManifest, staticFirst, staticEndpoint))
	return s.management.newCluster(t, namespace, manifest, map[string]map[string]string{
		"http-proxy": {
			contract.KeyHTTPProxy: staticURL, contract.KeyNoProxy: noProxy, contract.KeyTrustedCA: string(s.authority.PEM),
		},
	})
}

// message is that of the condition of the Cluster.
func (c cluster) message(t *testing.T) string {
	t.Helper()
	return c.user(t, "", "get", "cluster", clusterName, "-o",
		`jsonpath={.status.conditions[?(@.type=="`+contract.ConditionProxyConfigured+`")].message}`)
}

// static makes a cluster of two nodes whose static Pods have the variables, and has kube-apiserver ask the worker's
// kubelet. without is a Cluster without a network of the nodes in its list.
func (s *suite) static(t *testing.T, c, without cluster) {
	t.Helper()
	s.report.Step(t, stepStatic)
	waitUntil(t, "the warning about a list without nodes", func() bool {
		return strings.Contains(without.message(t), "no-node-network: ")
	})
	if message := without.message(t); !strings.Contains(message, "kubectl logs, exec and port-forward do not work") {
		t.Errorf("the condition says %s", message)
	}
	first := s.node(t, nodeOptions{
		name: "static-control-plane", address: staticFirst, pods: "10.244.0.0/24",
		boot: c.waitBoot(t, ofControlPlane),
	})
	first.Start(t)
	first.mustBootstrap(t)
	worker := s.node(t, nodeOptions{
		name: "static-worker", address: staticWorker, pods: "10.244.1.0/24",
		boot: c.waitBoot(t, ofPool),
	})
	s.join(t, first, worker)
	if message := c.message(t); strings.Contains(message, "no-node-network") {
		t.Errorf("the condition of a Cluster with a network of the nodes says %s", message)
	}
	t.Run("kube-apiserver has the variables", func(t *testing.T) {
		var pod corev1.Pod
		decode(t, first.ReadFile(t, "/etc/kubernetes/manifests/kube-apiserver.yaml"), &pod)
		environ := environOf(pod.Spec)
		if diff := cmp.Diff(staticURL, environ["HTTPS_PROXY"]); diff != "" {
			t.Errorf("HTTPS_PROXY (-want +got):\n%s", diff)
		}
		if !slices.Contains(strings.Split(environ["NO_PROXY"], ","), nodeNetwork) {
			t.Errorf("NO_PROXY is %s", environ["NO_PROXY"])
		}
	})
	t.Run("kubectl reaches a Pod of the worker", func(t *testing.T) { s.reach(t, stepStatic, first, worker) })
	worker.Stop(t)
	first.Stop(t)
	t.Run("the proxy saw no address of a node", func(t *testing.T) {
		requests := s.lab.Requests(t, staticProxy)
		for _, r := range requests {
			if strings.HasPrefix(r.Host, "10.77.0.") || r.Host == worker.host || r.Host == first.host {
				t.Errorf("%s %s %s:%s by %s", r.Status, r.Method, r.Host, r.Port, r.Client)
			}
		}
		if len(requests) == 0 {
			t.Error("no request at all, so this shows nothing")
		}
		if !t.Failed() {
			s.report.Saw(t, stepStatic, "%d requests, none to a node", len(requests))
		}
	})
}

// startStatic starts the proxy of static Pods and applies both Clusters.
func (s *suite) startStatic(t *testing.T) (with, without cluster) {
	t.Helper()
	s.lab.StartProxy(t, lab.Proxy{Name: staticProxy, Port: 3133})
	return s.staticCluster(t, "static", nodeNetwork), s.staticCluster(t, "static-without", "corp.example.com")
}
