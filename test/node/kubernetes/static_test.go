//go:build node

package kubernetes_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/lab"
)

const (
	stepStatic     = "a cluster whose static Pods keep the variables, kubectl logs, exec and port-forward"
	staticProxy    = "static"
	staticURL      = "http://10.77.0.1:3133"
	staticFirst    = "10.77.0.40"
	staticEndpoint = "10.77.0.49"
	staticWorker   = "10.77.0.42"
	staticSecond   = "10.77.0.43" // of the control plane
	// nodeNetwork is that of the worker and of the second control-plane node: kube-apiserver asks their kubelets. The first
	// control-plane node itself is not in it.
	nodeNetwork = "10.77.0.42/31"
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
		"replicas: 1\n  version: v1.36.3\n  machineTemplate", "replicas: 3\n  version: v1.36.3\n  machineTemplate",
	).Replace(onVIP(clusterManifest, staticFirst, staticEndpoint))
	return s.management.newCluster(t, namespace, manifest, map[string]map[string]string{"http-proxy": s.staticSecret(noProxy)})
}

// staticSecret is the proxy Secret of these Clusters.
func (s *suite) staticSecret(noProxy string) map[string]string {
	return map[string]string{
		contract.KeyHTTPProxy: staticURL, contract.KeyNoProxy: noProxy, contract.KeyTrustedCA: string(s.authority.PEM),
	}
}

// message is that of the condition of the Cluster.
func (c cluster) message(t *testing.T) string {
	t.Helper()
	return c.user(t, "", "get", "cluster", clusterName, "-o",
		`jsonpath={.status.conditions[?(@.type=="`+contract.ConditionProxyConfigured+`")].message}`)
}

// static makes a cluster of three nodes whose static Pods have the variables, and has kube-apiserver ask the worker's
// kubelet, and services. Another Cluster has no network of the nodes in its list.
func (s *suite) static(t *testing.T) {
	s.report.Step(t, stepStatic)
	s.lab.StartProxy(t, lab.Proxy{Name: staticProxy, Port: 3133})
	c, without := s.staticCluster(t, "static", nodeNetwork), s.staticCluster(t, "static-without", "corp.example.com")
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
	// kubeadm of the second control-plane node asks etcd of the first. Nodes boot with this list from here on.
	c.user(t, proxySecret(t, "http-proxy", s.staticSecret(nodeNetwork+", "+staticFirst)), "apply", "-f", "-")
	waitUntil(t, "the generated Secret to change", func() bool {
		return strings.Contains(string(c.generated(t)[contract.KeyProxyEnv]), staticFirst)
	})
	first.Start(t)
	first.mustBootstrap(t)
	worker := s.node(t, nodeOptions{
		name: "static-worker", address: staticWorker, pods: "10.244.1.0/24",
		boot: c.waitBoot(t, ofPool),
	})
	s.join(t, first, worker)
	second := s.node(t, nodeOptions{
		name: "static-second", address: staticSecond, pods: "10.244.2.0/24",
		boot: c.waitBoot(t, ofControlPlane, first.host),
	})
	second.Start(t)
	second.mustBootstrap(t)
	first.kubectl(t, "wait", "--for=condition=Ready", "node/"+second.host, "--timeout=5m")
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
	t.Run("kube-apiserver asks a webhook and an aggregated API at a Service", func(t *testing.T) {
		s.askService(t, first, worker)
	})
	worker.Stop(t)
	second.Stop(t)
	first.Stop(t)
	t.Run("the proxy saw the registry, and no address of a node, a Pod or a Service", func(t *testing.T) {
		requests := s.lab.Requests(t, staticProxy)
		for _, r := range requests {
			if r.Host != registryHost {
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

// service is a Pod behind a Service that is a webhook and an aggregated API, by its answer to every request, 204. The Pod
// is in the network of its node, because networks of Pods end at their nodes here.
const service = `apiVersion: v1
kind: Secret
metadata: {name: service, namespace: default}
data: {tls.crt: CERTIFICATE, tls.key: KEY}
---
apiVersion: v1
kind: Pod
metadata: {name: service, namespace: default, labels: {run: service}}
spec:
  nodeName: NODE
  hostNetwork: true
  automountServiceAccountToken: false
  volumes: [{name: tls, secret: {secretName: service}}]
  containers:
  - name: service
    image: ` + probeImage + `
    args: [serve, ":18081", /tls/tls.crt, /tls/tls.key]
    volumeMounts: [{name: tls, mountPath: /tls}]
---
apiVersion: v1
kind: Service
metadata: {name: service, namespace: default}
spec: {selector: {run: service}, ports: [{port: 443, targetPort: 18081}]}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.node-test.example.com}
spec:
  group: node-test.example.com
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 10
  caBundle: AUTHORITY
  service: {name: service, namespace: default}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: node-test.example.com}
webhooks:
- name: node-test.example.com
  clientConfig: {caBundle: AUTHORITY, service: {name: service, namespace: default}}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}
  admissionReviewVersions: [v1]
  sideEffects: None
`

// askService has kube-apiserver of the first node ask service on the worker.
func (s *suite) askService(t *testing.T, first, worker node) {
	t.Helper()
	certificate, key := s.authority.IssueFor(t, "service.default.svc")
	encode := base64.StdEncoding.EncodeToString
	first.apply(t, strings.NewReplacer("CERTIFICATE", encode(certificate), "KEY", encode(key),
		"AUTHORITY", encode(s.authority.PEM), "NODE", worker.host).Replace(service))
	first.kubectl(t, "wait", "--for=condition=Ready", "pod/service", "--timeout=5m")
	first.kubectl(t, "wait", "--for=condition=Available", "apiservice/v1.node-test.example.com", "--timeout=5m")
	waitUntil(t, "an error about the answer of the webhook", func() bool {
		_, err := first.Run("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "create", "configmap", "asked", "--dry-run=server")
		return err != nil && strings.Contains(err.Error(), "status code: 204")
	})
}
