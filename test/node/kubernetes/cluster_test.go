//go:build node

package kubernetes_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/lab"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/report"
)

const (
	stepInit = "kubeadm init of a labelled Cluster behind a proxy with a rude password"
	stepJoin = "kubeadm join of a pool with a proxy of its own"
	stepEnv  = "who sees the password"
	stepLog  = "what the proxies saw"
)

// cluster makes a cluster of two nodes and looks at everything.
func (s *suite) cluster(t *testing.T) {
	c := newCluster(t, s.secrets())
	first := newNode(t, s.image, s.lab, nodeOptions{
		name: "control-plane", address: "10.77.0.10", pods: "10.244.0.0/24", data: bootstrapData(t, c, controlPlane),
	})
	second := newNode(t, s.image, s.lab, nodeOptions{
		name: "worker", address: "10.77.0.11", pods: "10.244.1.0/24", data: bootstrapData(t, c, worker),
	})
	if !t.Run("a control plane comes up", func(t *testing.T) {
		s.report.Step(t, stepInit)
		first.Start(t)
		first.mustBootstrap(t)
		first.kubectl(t, "wait", "--for=condition=Ready", "node/control-plane", "--timeout=90s")
		s.report.Saw(t, stepInit, "Ready")
	}) {
		return
	}
	if !t.Run("a worker joins and runs a Pod", func(t *testing.T) {
		s.report.Step(t, stepJoin)
		second.Start(t)
		second.mustBootstrap(t)
		first.kubectl(t, "wait", "--for=create", "node/worker", "--timeout=60s")
		first.kubectl(t, "wait", "--for=condition=Ready", "node/worker", "--timeout=90s")
		first.kubectl(t, "wait", "--for=create", "serviceaccount/default", "--timeout=60s")
		first.kubectl(t, "run", "pod", "--image="+pauseImage, "--image-pull-policy=Always",
			`--overrides={"spec": {"nodeName": "worker", "automountServiceAccountToken": false}}`)
		first.kubectl(t, "wait", "--for=condition=Ready", "pod/pod", "--timeout=90s")
		first.kubectl(t, "wait", "--for=condition=Ready", "pod", "--all", "--namespace=kube-system", "--timeout=90s")
		pods := strings.Fields(first.kubectl(t, "get", "pods", "-A", "-o", "name"))
		s.report.Saw(t, stepJoin, "Ready, %d Pods run", len(pods))
	}) {
		return
	}
	t.Run("environments", func(t *testing.T) {
		s.report.Step(t, stepEnv)
		s.environments(t, first, variables(mainURL, encodedUserinfo, clusterNoProxy), needle)
		s.environments(t, second, variables(poolURL, poolUserinfo, poolNoProxy), poolNeedle)
		s.clusterHoldsNoCredential(t, first)
	})
	var asked []string
	t.Run("explain", func(t *testing.T) { asked = s.explain(t, c, first) })
	if t.Failed() {
		return
	}
	held := map[string][]string{first.name: imagesOf(t, first), second.name: imagesOf(t, second)}
	// squid writes a tunnel into its log when it is closed.
	second.Stop(t)
	first.Stop(t)
	t.Run("logs", func(t *testing.T) {
		s.report.Step(t, stepLog)
		s.logs(t, first, second, asked)
		report.Progress(t, "\n%s", s.picture(t, held, first, second))
	})
}

// variables are the six variables with both spellings, by name.
func variables(url, userinfo, noProxy string) map[string]string {
	scheme, host, _ := strings.Cut(url, "://")
	values := map[string]string{}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
		values[name] = scheme + "://" + userinfo + "@" + host
		values[strings.ToLower(name)] = values[name]
	}
	values["NO_PROXY"], values["no_proxy"] = noProxy, noProxy
	return values
}

// proxyVariables are those of environ that kubeadm would copy: the ones that end in _proxy, in any spelling.
func proxyVariables(environ map[string]string) map[string]string {
	found := map[string]string{}
	for name, value := range environ {
		if strings.HasSuffix(strings.ToLower(name), "_proxy") {
			found[name] = value
		}
	}
	return found
}

// withoutCredentials is what kubeadm may see.
func withoutCredentials(values map[string]string) map[string]string {
	return map[string]string{"NO_PROXY": values["NO_PROXY"], "no_proxy": values["no_proxy"]}
}

// clusterHoldsNoCredential looks at what the API server has, and at the manifests of static Pods.
func (s *suite) clusterHoldsNoCredential(t *testing.T, n node) {
	t.Helper()
	t.Run("no static Pod has a credential, and all but etcd have NO_PROXY", func(t *testing.T) {
		for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
			var pod corev1.Pod
			decode(t, n.ReadFile(t, "/etc/kubernetes/manifests/"+name+".yaml"), &pod)
			want := withoutCredentials(variables(mainURL, encodedUserinfo, clusterNoProxy))
			if name == "etcd" {
				want = map[string]string{}
			}
			if diff := cmp.Diff(want, environOf(pod.Spec)); diff != "" {
				t.Errorf("variables of %s (-want +got):\n%s", name, diff)
			}
		}
	})
	t.Run("the DaemonSet of kube-proxy has no credential", func(t *testing.T) {
		var set appsv1.DaemonSet
		decode(t, n.kubectl(t, "get", "daemonset", "kube-proxy", "--namespace=kube-system", "-o", "yaml"), &set)
		want := withoutCredentials(variables(mainURL, encodedUserinfo, clusterNoProxy))
		if diff := cmp.Diff(want, environOf(set.Spec.Template.Spec)); diff != "" {
			t.Errorf("variables (-want +got):\n%s", diff)
		}
	})
	t.Run("no object in the API has a credential", func(t *testing.T) {
		kinds := strings.Fields(n.kubectl(t, "api-resources", "--verbs=list", "-o", "name"))
		text := n.kubectl(t, "get", strings.Join(kinds, ","), "-A", "-o", "yaml")
		for _, part := range []string{needle, poolNeedle} {
			if strings.Contains(text, part) {
				t.Errorf("the API has a credential: %s", lineWith(text, part))
			}
		}
		if !strings.Contains(text, clusterNoProxy) {
			t.Error("the API does not have the static Pods, so this shows nothing")
		}
		s.report.Saw(t, stepEnv, "%d kinds in the API and 4 static Pods: no credential", len(kinds))
	})
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

// environOf are the proxy variables of a Pod's containers.
func environOf(spec corev1.PodSpec) map[string]string {
	environ := map[string]string{}
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, variable := range container.Env {
			environ[variable.Name] = variable.Value
		}
	}
	return proxyVariables(environ)
}

// logs reads the logs of the proxies and of the registry. asked are destinations that were asked of the proxy on purpose.
func (s *suite) logs(t *testing.T, first, second node, asked []string) {
	t.Helper()
	t.Run("every image came through a proxy, and all that kubeadm needs were asked for", func(t *testing.T) {
		want := []string{
			"etcd:" + etcdVersion, "kube-apiserver:" + version, "kube-controller-manager:" + version, "kube-proxy:" + version,
			"kube-scheduler:" + version, "pause:3.10.2",
		}
		pulls := s.lab.Pulls(t)
		slices.Sort(pulls)
		if diff := cmp.Diff(want, pulls); diff != "" {
			t.Errorf("images (-want +got):\n%s", diff)
		}
	})
	inside := map[string]netip.Prefix{
		"a Pod": netip.MustParsePrefix("10.244.0.0/16"), "a Service": netip.MustParsePrefix("10.96.0.0/16"),
		"the endpoint": netip.MustParsePrefix("10.77.0.10/32"),
	}
	for _, proxy := range []struct {
		name, user string
		node
	}{{"main", strings.ReplaceAll(username, "%", "%25"), first}, {"pool", poolUsername, second}} {
		t.Run("the proxy "+proxy.name+" saw its node, the registry, and nothing of the cluster", func(t *testing.T) {
			pulls := 0
			for _, r := range s.lab.Requests(t, proxy.name) {
				where := r.Host + ":" + r.Port
				if what, found := lab.InCluster(r.Host, inside, "cluster.local"); found {
					t.Errorf("%s %s: %s", r.Method, where, what)
				}
				switch {
				case r.Client != proxy.address:
					t.Errorf("%s asked for %s, which is the proxy of %s", r.Client, where, proxy.address)
				case where == registryHost+":443":
					pulls++
					if r.Status != "TCP_TUNNEL/200" || r.User != proxy.user {
						t.Errorf("%s for user %s: %s, want one tunnel for %s", where, r.User, r.Status, proxy.user)
					}
				case proxy.node != first || !slices.Contains(asked, where):
					t.Errorf("%s %s: nobody was told to ask for that", r.Method, where)
				}
			}
			if pulls == 0 {
				t.Error("no request to the registry, so this shows nothing")
			}
			s.report.Saw(t, stepLog, "%s: %d tunnels to %s, 0 in-cluster", proxy.name, pulls, registryHost)
		})
	}
}

// imagesOf are the images that a node has.
func imagesOf(t *testing.T, n node) []string {
	t.Helper()
	var images []string
	for image := range strings.FieldsSeq(n.MustRun(t, "ctr", "--namespace=k8s.io", "images", "ls", "-q")) {
		if strings.HasPrefix(image, registryHost) && !strings.Contains(image, "@") {
			images = append(images, image)
		}
	}
	slices.Sort(images)
	return images
}

// picture is the table of images with the proxies that their nodes pulled them through.
func (s *suite) picture(t *testing.T, held map[string][]string, nodes ...node) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%-15s %-48s %s\n", "NODE", "IMAGE", "PULLED THROUGH")
	for _, n := range nodes {
		var through []string
		for name, url := range map[string]string{"main": mainURL, "pool": poolURL} {
			if slices.ContainsFunc(s.lab.Requests(t, name), func(r lab.Request) bool { return r.Client == n.address && r.Host == registryHost }) {
				through = append(through, url)
			}
		}
		slices.Sort(through)
		for _, image := range held[n.name] {
			fmt.Fprintf(&b, "%-15s %-48s %s\n", n.name, image, strings.Join(through, " and "))
		}
	}
	if !t.Failed() {
		b.WriteString("\n0 in-cluster requests through the proxy\n")
	}
	return b.String()
}
