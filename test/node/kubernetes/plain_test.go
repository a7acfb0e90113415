//go:build node

package kubernetes_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/lab"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/machine"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const (
	stepPlain     = "a cluster, kubectl logs, exec and port-forward behind a proxy without credentials"
	openProxy     = "open"
	plainFirst    = "10.77.0.30"
	plainWorker   = "10.77.0.31"
	plainSecond   = "10.77.0.32" // of the control plane
	plainEndpoint = "10.77.0.39"
	// metadata is the address of the metadata service of most clouds.
	metadata = "169.254.169.254"
	// holdMachine is an annotation of a Machine that Cluster API does not remove yet.
	holdMachine = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/node-test"
	// ownSpelling is a variable of the user that kubeadm would copy too.
	ownSpelling = "All_Proxy"
	// forward asks a Pod through kubectl port-forward.
	forward = `kubectl --kubeconfig=/etc/kubernetes/admin.conf port-forward "pod/$1" 18080:8080 >/run/forward 2>&1 &
until grep -q '^Forwarding from 127' /run/forward; do kill -0 $! || { cat /run/forward; exit 1; }; sleep 0.1; done
curl --silent --show-error --fail --max-time 10 http://127.0.0.1:18080/ 2>&1; status=$?
kill $!; cat /run/forward; exit "$status"`
)

// plainCluster applies a Cluster whose proxy asks for no credentials. All of its machines use that proxy.
func (s *suite) plainCluster(t *testing.T) cluster {
	t.Helper()
	s.lab.StartProxy(t, lab.Proxy{Name: openProxy, Port: 3132})
	manifest := strings.NewReplacer(
		"  annotations:\n    "+contract.AnnotationSecret+": "+poolSecret+"\n", "",
		"    preKubeadmCommands:\n", "    preKubeadmCommands:\n    - export "+ownSpelling+"="+openURL+"\n",
	).Replace(onVIP(clusterManifest, plainFirst, plainEndpoint))
	return s.management.newCluster(t, "plain", manifest, map[string]map[string]string{
		"http-proxy": {
			contract.KeyHTTPProxy: openURL, contract.KeyNoProxy: metadata, contract.KeyTrustedCA: string(s.authority.PEM),
		},
	})
}

// onVIP makes the endpoint of a manifest an address that the first control-plane node adds in a command of the user's,
// as kube-vip and keepalived do: kubelet.conf then names the node's own address, which is in no NO_PROXY of the Cluster.
func onVIP(manifest, first, vip string) string {
	const control = "    joinConfiguration:\n      nodeRegistration:\n        criSocket: unix:///run/containerd/containerd.sock\n"
	// Before a rollout Cluster API writes into kubeadm-config that there is CoreDNS, whose image the registry does not have.
	const begin = "        ignorePreflightErrors:\n"
	_, registration, _ := strings.Cut(manifest, begin)
	registration, _, _ = strings.Cut(begin+"        - ImagePull\n"+registration, "    preKubeadmCommands:\n")
	return strings.NewReplacer(
		"host: 10.77.0.10", "host: "+vip, "advertiseAddress: 10.77.0.10", "advertiseAddress: "+first,
		"    preKubeadmCommands:\n", control+registration+"    preKubeadmCommands:\n    - curl --silent --insecure --noproxy '*' --max-time 3 https://"+vip+
			":6443/healthz || ip address add "+vip+"/24 dev eth0\n",
	).Replace(manifest)
}

// plain makes a cluster of two nodes behind a proxy without credentials, has Cluster API replace the control plane, and
// has kube-apiserver ask the worker's kubelet. No address of a node is in NO_PROXY but the endpoint.
func (s *suite) plain(t *testing.T) {
	s.report.Step(t, stepPlain)
	c := s.plainCluster(t)
	first := s.node(t, nodeOptions{
		name: "plain-control-plane", address: plainFirst, pods: "10.244.0.0/24",
		boot: c.waitBoot(t, ofControlPlane),
	})
	first.Start(t)
	first.mustBootstrap(t)
	worker := s.node(t, nodeOptions{
		name: "plain-worker", address: plainWorker, pods: "10.244.1.0/24",
		boot: c.waitBoot(t, ofPool), files: credentialPlugin(),
	})
	s.join(t, first, worker)
	c.user(t, "", "annotate", "machine", first.host, holdMachine+"=")
	c.user(t, "", "patch", "kubeadmcontrolplane", clusterName, "--type=merge", "--patch",
		`{"spec": {"rollout": {"after": "`+time.Now().UTC().Format(time.RFC3339)+`"}}}`) //nolint:forbidigo // Cluster API's clock
	second := s.node(t, nodeOptions{
		name: "plain-second", address: plainSecond, pods: "10.244.2.0/24",
		boot: c.waitBoot(t, ofControlPlane, first.host),
	})
	second.Start(t)
	second.mustBootstrap(t)
	first.kubectl(t, "wait", "--for=condition=Ready", "node/"+second.host, "--timeout=5m")
	t.Run("each node adds its own addresses, and kubelet of control planes connects to them", func(t *testing.T) {
		for _, n := range []node{first, second, worker} {
			list := strings.Split(vocabulary.ProxyVariables(n.Environ(t, "kubelet"))["NO_PROXY"], ",")
			for _, want := range []string{plainEndpoint, n.address, n.host} {
				if !slices.Contains(list, want) {
					t.Errorf("NO_PROXY of kubelet of %s lacks %s: %s", n.name, want, list)
				}
			}
			if server := "server: https://" + n.address + ":6443"; n.name != worker.name &&
				!strings.Contains(n.ReadFile(t, "/etc/kubernetes/kubelet.conf"), server) {
				t.Errorf("kubelet.conf of %s does not have %s, so this shows nothing", n.name, server)
			}
		}
	})
	for _, n := range []node{first, second, worker} {
		sawNoProxy(t, n, openURL)
	}
	madeWithoutProxy(t, first)
	t.Run("the first control-plane node goes", func(t *testing.T) { c.takeOver(t, first, second) })
	t.Run("kubectl reaches a Pod of the worker", func(t *testing.T) { s.reach(t, stepPlain, second, worker) })
	t.Run("a plugin for credentials has asked the metadata service with the variables", func(t *testing.T) {
		asked := machine.ParseEnviron(worker.ReadFile(t, "/var/lib/node-test/plugin.env"))
		if asked["HTTP_PROXY"] != openURL {
			t.Errorf("HTTP_PROXY is %q, so this shows nothing", asked["HTTP_PROXY"])
		}
	})
	worker.Stop(t)
	second.Stop(t)
	t.Run("the proxy saw the registry, and no address of a node", func(t *testing.T) {
		tunnels := 0
		for _, r := range s.lab.Requests(t, openProxy) {
			if r.Host != registryHost || r.Status != "TCP_TUNNEL/200" || r.User != "-" {
				t.Errorf("%s %s %s:%s by %s", r.Status, r.Method, r.Host, r.Port, r.Client)
			}
			tunnels++
		}
		if tunnels == 0 {
			t.Error("no request to the registry, so this shows nothing")
		}
		if !t.Failed() {
			s.report.Saw(t, stepPlain, "%d tunnels to %s, no other", tunnels, registryHost)
		}
	})
}

// takeOver gives the endpoint to the second control-plane node, as kube-vip does, and waits until Cluster API has
// removed the first.
func (c cluster) takeOver(t *testing.T, first, second node) {
	t.Helper()
	first.MustRun(t, "ip", "address", "del", plainEndpoint+"/24", "dev", "eth0")
	second.MustRun(t, "ip", "address", "add", plainEndpoint+"/24", "dev", "eth0")
	c.user(t, "", "annotate", "machine", first.host, holdMachine+"-")
	waitUntil(t, "the first control-plane Machine to go", func() bool {
		machines := c.machines(t, ofControlPlane)
		return len(machines) == 1 && machines[0].Name == second.host
	})
	first.Stop(t)
	if nodes := second.kubectl(t, "get", "nodes", "-o", "name"); strings.Contains(nodes, first.host) {
		t.Errorf("the Node of the first is there: %s", nodes)
	}
}

// credentialPlugin has kubelet ask a plugin for the credentials of the registry, which asks the metadata service of the
// cloud first, as those of clouds do.
func credentialPlugin() map[string]machine.File {
	const folder = "/etc/node-test/credentials"
	return map[string]machine.File{
		"/etc/default/kubelet": {Mode: 0o644, Content: []byte("KUBELET_EXTRA_ARGS=--image-credential-provider-bin-dir=" +
			folder + " --image-credential-provider-config=" + folder + "/config.yaml\n")},
		folder + "/config.yaml": {Mode: 0o644, Content: []byte(`apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- {name: plugin, matchImages: [` + registryHost + `], defaultCacheDuration: 0s, apiVersion: credentialprovider.kubelet.k8s.io/v1}
`)},
		folder + "/plugin": {Mode: 0o755, Content: []byte(`#!/bin/sh
umask 077
env -0 >/var/lib/node-test/plugin.env
curl --silent --max-time 1 http://` + metadata + `/latest/meta-data/ >&2
echo '{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse", "cacheKeyType": "Registry"}'
`)},
	}
}

// probed is a Pod that its kubelet probes, at its own address and elsewhere, and that has a hook.
const probed = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": {
  "nodeName": "NODE", "automountServiceAccountToken": false, "containers": [{
    "name": "probe", "image": "` + probeImage + `", "args": ["serve", ":8080"],
    "livenessProbe": {"httpGet": {"port": 8080}, "periodSeconds": 1},
    "readinessProbe": {"httpGet": {"scheme": "HTTPS", "host": "HOST", "port": 6443, "path": "/readyz"}, "periodSeconds": 1},
    "lifecycle": {"postStart": {"httpGet": {"scheme": "HTTPS", "host": "HOST", "port": 6443, "path": "/readyz"}}}}]}}`

// reach runs a Pod on a worker and reaches it in every way that involves kubelet, which itself asks the Pod and the
// control-plane node.
func (s *suite) reach(t *testing.T, step string, first, worker node) {
	t.Helper()
	first.apply(t, strings.NewReplacer("NODE", worker.host, "HOST", first.address).Replace(probed))
	first.kubectl(t, "wait", "--for=condition=Ready", "pod/probe", "--timeout=5m")
	const kubeconfig = "--kubeconfig=/etc/kubernetes/admin.conf"
	for name, test := range map[string]struct {
		argv []string
		want string
	}{
		"logs":         {[]string{"kubectl", kubeconfig, "logs", "probe"}, "serving\n"},
		"exec":         {[]string{"kubectl", kubeconfig, "exec", "probe", "--", "/probe", "get", "http://127.0.0.1:8080/"}, ""},
		"port-forward": {[]string{"sh", "-c", forward, "sh", "probe"}, "Handling connection for 18080\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := first.Run(test.argv...); err != nil || !strings.HasSuffix(out, test.want) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	if !t.Failed() {
		s.report.Saw(t, step, "logs, exec, port-forward")
	}
}

// sawNoProxy looks for variables that kubeadm would copy, and for a text in all others.
func sawNoProxy(t *testing.T, n node, text string) {
	t.Helper()
	t.Run("kubeadm of "+n.name+" saw no proxy variable", func(t *testing.T) {
		recorded := n.ReadFile(t, "/var/lib/node-test/kubeadm.env")
		if diff := cmp.Diff(map[string]string{}, vocabulary.ProxyVariables(machine.ParseEnviron(recorded))); diff != "" {
			t.Errorf("variables (-want +got):\n%s", diff)
		}
		if strings.Contains(recorded, text) {
			t.Errorf("a variable of another name has %s", text)
		}
	})
}

// madeWithoutProxy looks for variables in what kubeadm makes.
func madeWithoutProxy(t *testing.T, first node) {
	t.Helper()
	none := map[string]string{}
	t.Run("no static Pod has a proxy variable", func(t *testing.T) {
		for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
			var pod corev1.Pod
			decode(t, first.ReadFile(t, "/etc/kubernetes/manifests/"+name+".yaml"), &pod)
			if diff := cmp.Diff(none, environOf(pod.Spec)); len(pod.Spec.Containers) == 0 || diff != "" {
				t.Errorf("variables of %s, %d containers (-want +got):\n%s", name, len(pod.Spec.Containers), diff)
			}
		}
	})
	t.Run("the DaemonSet of kube-proxy has no proxy variable", func(t *testing.T) {
		var set appsv1.DaemonSet
		decode(t, first.kubectl(t, "get", "daemonset", "kube-proxy", "--namespace=kube-system", "-o", "yaml"), &set)
		if diff := cmp.Diff(none, environOf(set.Spec.Template.Spec)); diff != "" {
			t.Errorf("variables (-want +got):\n%s", diff)
		}
	})
}
