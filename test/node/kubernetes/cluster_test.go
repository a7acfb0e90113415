//go:build node

package kubernetes_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/lab"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const (
	stepInit = "kubeadm init of a labelled Cluster behind a proxy with a rude password"
	stepJoin = "kubeadm join of a pool with a proxy of its own"
	stepNext = "a replacement after the pool's Secret changed, the old proxy being gone"
	stepEnv  = "who sees the password"
	stepLog  = "what the proxies saw"
)

// cluster creates a cluster of two nodes, replaces one, and checks everything.
func (s *suite) cluster(t *testing.T) {
	c := s.management.newCluster(t, "team", clusterManifest, s.secrets())
	var first, second, third node
	if !t.Run("a control plane comes up", func(sub *testing.T) {
		s.report.Step(sub, stepInit)
		first = s.node(t, nodeOptions{
			name: "control-plane", address: "10.77.0.10", pods: "10.244.0.0/24",
			boot: c.waitBoot(sub, ofControlPlane),
		})
		first.Start(sub)
		first.mustBootstrap(sub)
		first.kubectl(sub, "wait", "--for=condition=Ready", "node/"+first.host, "--timeout=5m")
		first.kubectl(sub, "rollout", "status", "daemonset/kube-proxy", "--namespace=kube-system", "--timeout=5m")
		s.report.Saw(sub, stepInit, "Ready")
	}) {
		return
	}
	// Meanwhile Cluster API finds the API server.
	var asked []string
	t.Run("explain", func(t *testing.T) { asked = s.explain(t, c, first) })
	if !t.Run("a worker joins and runs a Pod", func(sub *testing.T) {
		s.report.Step(sub, stepJoin)
		second = s.node(t, nodeOptions{
			name: "worker", address: "10.77.0.11", pods: "10.244.1.0/24",
			boot: c.waitBoot(sub, ofPool),
		})
		s.join(sub, first, second)
		pods := strings.Fields(first.kubectl(sub, "get", "pods", "-A", "-o", "name"))
		s.report.Saw(sub, stepJoin, "Ready, %d Pods run", len(pods))
	}) {
		return
	}
	t.Run("kubectl reaches a Pod of the worker", func(t *testing.T) { s.reach(t, stepJoin, first, second) })
	t.Run("environments", func(t *testing.T) {
		s.report.Step(t, stepEnv)
		s.environments(t, first, variables(mainURL, encodedUserinfo, clusterNoProxy), needle)
		s.environments(t, second, variables(poolURL, poolUserinfo, poolNoProxy), poolNeedle)
		madeWithoutProxy(t, first)
		s.clusterHoldsNoCredential(t, first)
	})
	if t.Failed() {
		return
	}
	held := map[string][]string{first.name: imagesOf(t, first), second.name: imagesOf(t, second)}
	if !t.Run("a changed Secret replaces the worker, whose proxy is gone", func(sub *testing.T) {
		s.report.Step(sub, stepNext)
		boot := s.changeSecret(sub, c, first, second)
		third = s.node(t, nodeOptions{name: "replacement", address: "10.77.0.12", pods: "10.244.2.0/24", boot: boot})
		s.join(sub, first, third)
		s.environments(sub, third, variables(nextURL, nextUserinfo, poolNoProxy), nextNeedle)
		s.replaced(sub, c, first, second, third)
	}) {
		return
	}
	held[third.name] = imagesOf(t, third)
	// squid writes a tunnel into its log when it is closed.
	third.Stop(t)
	second.Stop(t)
	first.Stop(t)
	t.Run("logs", func(t *testing.T) {
		s.report.Step(t, stepLog)
		s.logs(t, asked, first, second, third)
		report.Progress(t, "\n%s", s.picture(t, held, first, second, third))
	})
}

// join boots a worker and has it run a Pod of its own.
func (s *suite) join(t *testing.T, first, worker node) {
	t.Helper()
	worker.Start(t)
	worker.mustBootstrap(t)
	first.kubectl(t, "wait", "--for=create", "node/"+worker.host, "--timeout=5m")
	first.kubectl(t, "wait", "--for=condition=Ready", "node/"+worker.host, "--timeout=5m")
	first.kubectl(t, "wait", "--for=create", "serviceaccount/default", "--timeout=5m")
	first.kubectl(t, "run", worker.name, "--image="+pauseImage, "--image-pull-policy=Always",
		`--overrides={"spec": {"nodeName": "`+worker.host+`", "automountServiceAccountToken": false}}`)
	first.kubectl(t, "wait", "--for=condition=Ready", "pod/"+worker.name, "--timeout=5m")
	first.kubectl(t, "wait", "--for=condition=Ready", "pod", "--all", "--namespace=kube-system", "--timeout=5m")
}

// changeSecret takes the pool's proxy away and names another one in its Secret. It returns what the replacement of the
// worker boots with.
func (s *suite) changeSecret(t *testing.T, c cluster, first, worker node) booted {
	t.Helper()
	c.user(t, "", "annotate", "cluster", clusterName, contract.AnnotationRollout+"="+contract.RolloutImmediate)
	s.lab.StartProxy(t, lab.Proxy{Name: "next", Port: 3131, Username: poolUsername, Password: nextPassword})
	s.lab.StopProxy(t, "pool")
	values := s.secrets()[poolSecret]
	values[contract.KeyHTTPProxy], values[contract.KeyPassword] = nextURL, nextPassword
	c.user(t, proxySecret(t, poolSecret, values), "apply", "-f", "-")
	boot := c.waitBoot(t, ofPool, worker.host)
	if machines := c.machines(t, ofControlPlane); len(machines) != 1 || machines[0].Name != first.host {
		t.Errorf("there are %d Machines of the control plane, the first %s, want %s and no other", len(machines),
			machines[0].Name, first.host)
	}
	return boot
}

// replaced waits until Cluster API has taken the worker out for its replacement, and nothing else.
func (s *suite) replaced(t *testing.T, c cluster, first, worker, replacement node) {
	t.Helper()
	waitUntil(t, "the old worker to be taken out", func() bool {
		machines := c.machines(t, ofPool)
		return len(machines) == 1 && machines[0].Name == replacement.host &&
			machines[0].Status.NodeRef.Name == replacement.host
	})
	if machines := c.machines(t, ofControlPlane); len(machines) != 1 || machines[0].Name != first.host {
		t.Errorf("the control plane has other Machines than %s: %d", first.host, len(machines))
	}
	nodes := strings.Fields(first.kubectl(t, "get", "nodes", "-o", "name"))
	want := []string{"node/" + first.host, "node/" + replacement.host}
	slices.Sort(nodes)
	slices.Sort(want)
	if diff := cmp.Diff(want, nodes); diff != "" {
		t.Errorf("Nodes, the old worker %s being gone (-want +got):\n%s", worker.host, diff)
	}
	s.report.Saw(t, stepNext, "Ready, the old Machine is gone")
}

// variables are the six variables with both spellings, by name.
func variables(url, userinfo, noProxy string) map[string]string {
	scheme, host, _ := strings.Cut(url, "://")
	proxy := scheme + "://" + userinfo + "@" + host
	return vocabulary.Environment(proxy, proxy, noProxy)
}

// clusterHoldsNoCredential checks the objects of the API server, including the static Pods.
func (s *suite) clusterHoldsNoCredential(t *testing.T, n node) {
	t.Helper()
	t.Run("no object in the API has a credential", func(t *testing.T) {
		kinds := strings.Fields(n.kubectl(t, "api-resources", "--verbs=list", "-o", "name"))
		text := n.kubectl(t, "get", strings.Join(kinds, ","), "-A", "-o", "yaml")
		// Those of Secrets are in base64 there.
		values := n.kubectl(t, "get", "secrets", "-A", "-o",
			`go-template={{range .items}}{{range .data}}{{. | base64decode}}{{"\n"}}{{end}}{{end}}`)
		if strings.TrimSpace(values) == "" {
			t.Error("the API has no Secret, so this shows nothing")
		}
		text += values
		for _, part := range []string{needle, poolNeedle} {
			if strings.Contains(text, part) {
				t.Errorf("the API has a credential: %s", vocabulary.LineWith(text, part))
			}
		}
		if !strings.Contains(text, "name: kube-apiserver-"+n.host) {
			t.Error("the API does not have the static Pods, so this shows nothing")
		}
		s.report.Saw(t, stepEnv, "%d kinds in the API: no credential", len(kinds))
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
	return vocabulary.ProxyVariables(environ)
}

// logs reads the logs of the proxies and of the registry. asked are destinations that were asked of the proxy on
// purpose.
func (s *suite) logs(t *testing.T, asked []string, first, second, third node) {
	t.Helper()
	t.Run("every image came through a proxy, and all that kubeadm needs were asked for", func(t *testing.T) {
		want := []string{
			"etcd:" + etcdVersion, "kube-apiserver:" + version, "kube-controller-manager:" + version, "kube-proxy:" + version,
			"kube-scheduler:" + version, "pause:3.10.2", "probe:v1",
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
	}{
		{"main", strings.ReplaceAll(username, "%", "%25"), first},
		{"pool", poolUsername, second},
		{"next", poolUsername, third},
	} {
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
		for name, url := range map[string]string{"main": mainURL, "pool": poolURL, "next": nextURL} {
			if slices.ContainsFunc(s.lab.Requests(t, name),
				func(r lab.Request) bool { return r.Client == n.address && r.Host == registryHost }) {
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
