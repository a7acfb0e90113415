//go:build node

package kubernetes_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/check"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/agent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/lab"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/wait"
)

const (
	rotatingProxy   = "rotating"
	rotatingURL     = "http://10.77.0.1:3134"
	inPlaceEndpoint = "10.77.0.50"
	inPlaceWorker   = "10.77.0.51"
	generatedName   = clusterName + contract.GeneratedSecretSuffix
	oldRotating     = "Old1 %@"
	newRotating     = "New2 %@"
	journalFolder   = "/etc/capi-proxy-patcher/.node-apply"

	// applyWithin is how long one node may take.
	applyWithin = 6 * time.Minute

	stepDeliver = "files for running nodes arrive, and nothing is restarted"
	stepCheck   = "node check names a drop-in that takes a variable away"
	stepAsk     = "check --from-nodes says what nodes reach, and how"
	stepRotate  = "in place: a new password, the old one being refused"
	stepTrust   = "in place: a CA is added and removed"
	stepWrong   = "in place: a wrong password stops at one node, before it writes"

	// askAPI asks kube-apiserver until a file appears, and prints when it answered, in milliseconds.
	askAPI = `until [ -e /run/stop-asking ]; do
	curl --silent --insecure --output /dev/null --max-time 1 https://` + inPlaceEndpoint + `:6443/readyz && date +%s%3N
	sleep 0.05
done`
)

// running is a cluster of two nodes that change in place.
type running struct {
	*suite
	cluster
	first, worker node
	values        map[string]string // of the proxy Secret
}

func (r *running) nodes() []node { return []node{r.first, r.worker} }

// inPlace changes the proxy of nodes that run, first without the manager, then by it.
func (s *suite) inPlace(t *testing.T) {
	r := &running{suite: s, values: map[string]string{
		contract.KeyHTTPProxy: rotatingURL, contract.KeyUsername: "rotating", contract.KeyPassword: oldRotating,
		contract.KeyTrustedCA:          string(s.authority.PEM),
		contract.KeyReadinessEndpoints: "https://" + registryHost + "/v2/",
	}}
	s.lab.StartProxy(t, lab.Proxy{Name: rotatingProxy, Port: 3134, Username: "rotating", Password: oldRotating})
	manifest := strings.NewReplacer("10.77.0.10", inPlaceEndpoint,
		"  annotations:\n    "+contract.AnnotationSecret+": "+poolSecret+"\n", "").Replace(clusterManifest)
	r.cluster = s.management.newCluster(t, "in-place", manifest, map[string]map[string]string{"http-proxy": r.values})
	r.first = s.node(t, nodeOptions{
		name: "in-place-control-plane", address: inPlaceEndpoint, pods: "10.244.0.0/24", boot: r.waitBoot(t, ofControlPlane),
	})
	r.first.Start(t)
	r.first.mustBootstrap(t)
	r.worker = s.node(t, nodeOptions{
		name: "in-place-worker", address: inPlaceWorker, pods: "10.244.1.0/24", boot: r.waitBoot(t, ofPool),
	})
	s.join(t, r.first, r.worker)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"nodes take turns by themselves", r.byHand},
		{"files arrive", r.arrive},
		{"what systemd gives to services", r.check},
		{"what a check from nodes says", r.ask},
		{"a new password", r.rotate},
		{"a CA is added and removed", r.trust},
		{"a wrong password", r.wrong},
		{"the label goes, and comes back where drop-ins are somebody else's", r.adopt},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
	r.worker.Stop(t)
	r.first.Stop(t)
}

// arrive has the DaemonSet come up with what the nodes have already.
func (r *running) arrive(t *testing.T) {
	t.Helper()
	r.report.Step(t, stepDeliver)
	before := r.processes(t)
	r.annotate(t, contract.AnnotationRollout+"="+inplace.RolloutInPlace)
	r.waitApplied(t)
	if after := r.processes(t); !slices.Equal(before, after) {
		t.Errorf("processes of services were %v, are %v", before, after)
	}
	for _, n := range r.nodes() {
		pid := strings.TrimSpace(n.MustRun(t, "pgrep", "--full", "node watch"))
		memory := n.MustRun(t, "grep", "-E", "^(VmRSS|RssAnon|RssFile):", "/proc/"+pid+"/status")
		r.report.Saw(t, stepDeliver, "%s: watch has %s", n.name, strings.Join(strings.Fields(memory), " "))
	}
}

// check compares what systemd has loaded, by its bus: only systemd knows that it has not read a drop-in yet.
func (r *running) check(t *testing.T) {
	t.Helper()
	r.report.Step(t, stepCheck)
	const dropIn = "/etc/systemd/system/kubelet.service.d/zz.conf"
	expect := func(want string) {
		t.Helper()
		out, err := r.worker.Run("sh", "-c", "capi-proxy-patcher node check --from /var/lib/kubelet/pods/*/volumes/kubernetes.io~secret/files")
		if failed := !strings.HasPrefix(want, "systemd gives"); failed != (err != nil) || !strings.Contains(fmt.Sprint(out, err), want) {
			t.Errorf("says %s %v, want %s", out, err, want)
		}
	}
	const good = "systemd gives the variables of " + contract.PathProxyEnv + " to containerd and kubelet"
	expect(good)
	r.worker.MustRun(t, "sh", "-c", `printf '[Service]\nUnsetEnvironment=NO_PROXY\n' >`+dropIn)
	expect("the unit files of kubelet have changed since systemd has read them")
	r.worker.MustRun(t, "systemctl", "daemon-reload")
	expect("kubelet has other values than those of the proxy Secret: NO_PROXY unset by " + dropIn)
	r.worker.MustRun(t, "rm", dropIn)
	r.worker.MustRun(t, "systemctl", "daemon-reload")
	expect(good)
	r.report.Saw(t, stepCheck, "by systemd's bus, before and after daemon-reload")
}

// ask has check ask from both nodes: as they are, while the proxy is away, with a proxy that intercepts TLS and whose
// CA the nodes lack, and with one that has another password.
func (r *running) ask(t *testing.T) {
	t.Helper()
	r.report.Step(t, stepAsk)
	const through = "https://" + registryHost + ", through the proxy: status "
	out := r.says(t, map[finding.Code]string{
		check.CodeNodeImage: "ok containerd has pulled ", agent.CodeNodeVariables: "ok the files of the node set 6 variables",
		agent.CodeNodeProblems: "ok nothing failed when the node was prepared",
		agent.CodeNodeTrust:    "ok 1 certificates", agent.CodeNodeEndpoint: "ok " + through,
		agent.CodeNodeAPIServer: "ok https://" + inPlaceEndpoint + ":6443, directly: status ",
		agent.CodeNodeNetwork:   "",
	})
	for _, network := range []string{"clients would ask the proxy for nodes: " + inPlaceWorker, "nodes are reached directly"} {
		if strings.Count(out, network) != 1 { // the control plane is the endpoint
			t.Errorf("lacks %q once: %s", network, out)
		}
	}
	r.lab.StopProxy(t, rotatingProxy)
	r.cannotPull(t, "connect: connection refused")
	proxy := lab.Proxy{Name: rotatingProxy, Port: 3134, Username: "rotating", Password: oldRotating}
	for why, change := range map[string]func(*lab.Proxy){
		"x509: certificate signed by unknown authority": func(p *lab.Proxy) { p.Intercept = pki.Make(t, "proxy CA") },
		"Proxy Authentication Required":                 func(p *lab.Proxy) { p.Password = newRotating },
	} {
		changed := proxy
		change(&changed)
		r.lab.StartProxy(t, changed)
		r.cannotPull(t, why)
		r.lab.StopProxy(t, rotatingProxy)
	}
	r.lab.StartProxy(t, proxy)
}

// cannotPull has check say of both nodes why containerd cannot pull.
func (r *running) cannotPull(t *testing.T, why string) {
	t.Helper()
	out := r.says(t, map[finding.Code]string{check.CodeNodeImage: "failed containerd cannot pull "})
	if got := strings.Count(out, why); got != len(r.nodes()) {
		t.Errorf("%d nodes say %q: %s", got, why, out)
	}
}

// says compares the answers from both nodes, checks that no Pod is left, and returns what check has printed.
func (r *running) says(t *testing.T, want map[finding.Code]string) string {
	t.Helper()
	cmd := r.cluster.host.Command(t, r.cluster.product, "check", "--kubeconfig", r.cluster.kubeconfig, "--cluster", r.namespace+"/"+clusterName,
		"--from-nodes", "--node-image", registryHost+"/capi-proxy-patcher:v1", "--output", "json")
	out, _ := cmd.Output() // the installation is not what the release has, so the status is 1
	var said check.Report
	decode(t, string(out), &said)
	count := 0
	for _, group := range said.Groups {
		if !strings.HasPrefix(group.Name, "Node ") {
			continue
		}
		count++
		got := map[finding.Code]string{}
		for _, result := range group.Checks {
			got[result.Check] = string(result.Status) + " " + result.Message
			if direct := result.Message == "nodes are reached directly"; result.Check == agent.CodeNodeNetwork &&
				direct != (result.Status == check.OK) {
				t.Errorf("%s: %s", group.Name, got[result.Check])
			}
			if strings.HasPrefix(got[result.Check], want[result.Check]) {
				r.report.Saw(t, stepAsk, "%s: %s", group.Name, got[result.Check])
				got[result.Check] = want[result.Check]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", group.Name, diff)
		}
	}
	left := r.first.kubectl(t, "get", "pods", "--namespace=kube-system", "--selector=app.kubernetes.io/component=check", "-o", "name")
	if count != len(r.nodes()) || strings.TrimSpace(left) != "" || strings.Contains(string(out), "Old1") {
		t.Errorf("%d nodes, left are %q: %s", count, left, out)
	}
	return string(out)
}

// rotate changes the password where the old one does not work any more.
func (r *running) rotate(t *testing.T) {
	t.Helper()
	r.report.Step(t, stepRotate)
	for _, n := range r.nodes() {
		r.first.kubectl(t, "run", "count-"+n.name, "--image="+probeImage,
			`--overrides={"spec": {"nodeName": "`+n.host+`", "automountServiceAccountToken": false, "tolerations": [{"operator": "Exists"}]}}`,
			"--", "count")
		r.first.kubectl(t, "wait", "--for=condition=Ready", "pod/count-"+n.name, "--timeout=5m")
	}
	r.lab.StopProxy(t, rotatingProxy)
	r.lab.StartProxy(t, lab.Proxy{Name: rotatingProxy, Port: 3134, Username: "rotating", Password: newRotating})
	for _, n := range r.nodes() {
		if out, err := n.Run("cripull", pauseImage); err == nil {
			t.Errorf("%s pulls with the old password: %s", n.name, out)
		}
	}
	machines := r.machineNames(t)
	gaps := r.askAPI(t)
	r.values[contract.KeyPassword] = newRotating
	r.change(t)
	r.report.Saw(t, stepRotate, "kube-apiserver did not answer for %d ms at most", longestGap(t, gaps()))
	for _, n := range r.nodes() {
		if out, err := n.Run("cripull", pauseImage); err != nil {
			t.Errorf("%s does not pull: %s %v", n.name, out, err)
		}
		for _, unit := range []string{"containerd", "kubelet"} {
			if env := n.Environ(t, unit); !strings.Contains(env["HTTPS_PROXY"], "New2") {
				t.Errorf("%s of %s has other variables", unit, n.name)
			}
		}
		if out, _ := n.Run("grep", "--recursive", "--files-with-matches", "Old1", "/etc", "/run/systemd"); out != "" {
			t.Errorf("%s keeps the old password in %s", n.name, out)
		}
		r.saw(t, stepRotate, n)
		r.stillCounts(t, n)
	}
	if after := r.machineNames(t); !slices.Equal(machines, after) {
		t.Errorf("Machines were %s, are %s", machines, after)
	}
}

// stillCounts checks that a Pod was neither stopped nor started again.
func (r *running) stillCounts(t *testing.T, n node) {
	t.Helper()
	var pod corev1.Pod
	decode(t, r.first.kubectl(t, "get", "pod", "count-"+n.name, "-o", "yaml"), &pod)
	if status := pod.Status.ContainerStatuses; len(status) != 1 || status[0].RestartCount != 0 || !status[0].Ready {
		t.Errorf("the Pod on %s: %+v", n.name, status)
	}
	r.report.Saw(t, stepRotate, "a Pod on %s counts on, longest gap %d ms", n.name,
		longestGap(t, r.first.kubectl(t, "logs", "count-"+n.name)))
}

func (r *running) trust(t *testing.T) {
	t.Helper()
	r.report.Step(t, stepTrust)
	another := pki.Make(t, "in-place CA")
	certificate := strings.Split(string(another.PEM), "\n")[1]
	for _, step := range []struct {
		ca      string
		trusted bool
	}{{string(r.authority.PEM) + string(another.PEM), true}, {string(r.authority.PEM), false}} {
		r.values[contract.KeyTrustedCA] = step.ca
		r.change(t)
		for _, n := range r.nodes() {
			_, err := n.Run("grep", "--fixed-strings", "--quiet", certificate, "/etc/ssl/certs/ca-certificates.crt")
			if (err == nil) != step.trusted {
				t.Errorf("%s trusts the certificate: %t", n.name, err == nil)
			}
			r.saw(t, stepTrust, n)
		}
	}
}

// wrong gives the nodes a password that the proxy refuses.
func (r *running) wrong(t *testing.T) {
	t.Helper()
	r.report.Step(t, stepWrong)
	good, processes := r.generated(t), r.processes(t)
	r.values[contract.KeyPassword] = "Wrong3"
	r.changeSecret(t)
	message := r.waitCondition(t, inplace.ReasonInPlaceFailed, "https://"+registryHost+": Proxy Authentication Required")
	if strings.Contains(message, "Wrong3") || strings.Count(message, "Required") != 1 ||
		!strings.Contains(message, "0 of 2 nodes") {
		t.Errorf("says %s", message)
	}
	r.untouched(t, good, processes)
	r.report.Saw(t, stepWrong, "%s", message)
	r.values[contract.KeyPassword] = newRotating
	r.change(t)
	if after := r.processes(t); !slices.Equal(processes, after) {
		t.Errorf("processes of services were %v, are %v", processes, after)
	}
}

// change changes the proxy Secret and waits until every node has what is generated from it.
func (r *running) change(t *testing.T) {
	t.Helper()
	r.changeSecret(t)
	r.waitApplied(t)
	r.haveFiles(t, r.generated(t))
}

// changeSecret changes the proxy Secret and waits for the generated one.
func (r *running) changeSecret(t *testing.T) {
	t.Helper()
	before := r.generated(t)
	r.user(t, proxySecret(t, "http-proxy", r.values), "apply", "-f", "-")
	waitUntil(t, "the generated Secret to change", func() bool {
		after := r.generated(t)
		return !bytes.Equal(before[contract.KeyProxyEnv], after[contract.KeyProxyEnv]) ||
			!bytes.Equal(before[contract.KeyTrustedCABundle], after[contract.KeyTrustedCABundle])
	})
}

// generated is the content of the generated Secret.
func (c cluster) generated(t *testing.T) map[string][]byte {
	t.Helper()
	return c.generatedSecret(t).Data
}

func (c cluster) generatedSecret(t *testing.T) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	decode(t, c.user(t, "", "get", "secret", generatedName, "-o", "json"), secret)
	return secret
}

// waitApplied waits until both nodes have the files of the generated Secret, their Pods are ready, and the manager says
// so.
func (r *running) waitApplied(t *testing.T) {
	t.Helper()
	want := r.generated(t)
	waitUntil(t, "both nodes to have the files and Pods that are ready", func() bool {
		for _, n := range r.nodes() {
			for path, key := range map[string]string{contract.PathProxyEnv: contract.KeyProxyEnv, contract.PathTrustedCA: contract.KeyTrustedCABundle} {
				if got, err := n.Run("cat", path); err != nil || got != string(want[key]) {
					return false
				}
			}
		}
		ready := 0
		for _, pod := range r.pods(t) {
			if slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
				ready++
			}
		}
		return ready == len(r.nodes())
	})
	r.waitCondition(t, contract.ReasonConfigured, "")
}

// waitCondition waits for a reason, and text in the message, of condition ProxyConfigured, and returns the message.
func (r *running) waitCondition(t *testing.T, reason, text string) (message string) {
	t.Helper()
	wait.Rule{Still: patience, Poll: poll}.Until(t, "waiting for "+reason+": "+text, func() string {
		got := meta.FindStatusCondition(r.shown(t).Status.Conditions, contract.ConditionProxyConfigured)
		if got != nil && got.Reason == reason && strings.Contains(got.Message, text) {
			message = got.Message
			return ""
		}
		return fmt.Sprintf("%+v", got)
	})
	return message
}

// shown is the Cluster.
func (r *running) shown(t *testing.T) *clusterv1.Cluster {
	t.Helper()
	cluster := &clusterv1.Cluster{}
	decode(t, r.user(t, "", "get", "cluster", clusterName, "-o", "json"), cluster)
	return cluster
}

func (r *running) annotate(t *testing.T, annotations ...string) {
	t.Helper()
	r.user(t, "", append([]string{"annotate", "--overwrite", "cluster", clusterName}, annotations...)...)
}

// haveFiles checks the files of each node, and that nothing of before is left.
func (r *running) haveFiles(t *testing.T, data map[string][]byte) {
	t.Helper()
	if problem := r.lacksFiles(t, data); problem != "" {
		t.Error(problem)
	}
}

// lacksFiles says what of a generated Secret a node does not have as it is there, or "".
func (r *running) lacksFiles(t *testing.T, data map[string][]byte) string {
	t.Helper()
	for _, n := range r.nodes() {
		for path, want := range map[string]struct{ key, mode string }{
			contract.PathProxyEnv:  {contract.KeyProxyEnv, "600 root root"},
			contract.PathTrustedCA: {contract.KeyTrustedCABundle, "644 root root"},
			contract.PathSetup:     {contract.KeySetup, "755 root root"},
		} {
			if got := n.ReadFile(t, path); got != string(data[want.key]) {
				return fmt.Sprintf("%s of %s is not that of the Secret", path, n.name)
			}
			if got := strings.TrimSpace(n.MustRun(t, "stat", "--format=%a %U %G", path)); got != want.mode {
				return fmt.Sprintf("%s of %s is %s, want %s", path, n.name, got, want.mode)
			}
		}
		if out, err := n.Run("test", "!", "-e", journalFolder, "-a", "!", "-e", journalFolder+".scrap"); err != nil {
			return fmt.Sprintf("%s has a journal: %s", n.name, out)
		}
	}
	return ""
}

// untouched checks that all nodes have these files and these processes.
func (r *running) untouched(t *testing.T, data map[string][]byte, processes []string) {
	t.Helper()
	r.haveFiles(t, data)
	if after := r.processes(t); !slices.Equal(processes, after) {
		t.Errorf("processes of services were %v, are %v", processes, after)
	}
}

// processes are the main processes of the services.
func (r *running) processes(t *testing.T) []string {
	t.Helper()
	var pids []string
	for _, n := range r.nodes() {
		pids = append(pids, strings.Fields(n.MustRun(t, "systemctl", "show", "--property=MainPID", "--value", "containerd", "kubelet"))...)
	}
	return pids
}

// machineNames are those of all Machines.
func (r *running) machineNames(t *testing.T) []string {
	t.Helper()
	return strings.Fields(r.user(t, "", "get", "machines", "-o", "name"))
}

// pods are those by which the manager changes nodes.
func (r *running) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	decode(t, r.first.kubectl(t, "get", "pods", "--namespace=kube-system", "--selector=app.kubernetes.io/name="+inplace.NodesApp,
		"-o", "json"), &list)
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() })
}

// log is what the apply of a node has written.
func (r *running) log(t *testing.T, n node) string {
	t.Helper()
	return r.first.kubectl(t, "logs", r.pod(t, n), "--namespace=kube-system", "--container=apply")
}

// pod is the name of the Pod of the DaemonSet on a node.
func (r *running) pod(t *testing.T, n node) string {
	t.Helper()
	for _, pod := range r.pods(t) {
		if pod.Spec.NodeName == n.host {
			return pod.Name
		}
	}
	t.Fatalf("no Pod on %s", n.name)
	return ""
}

// saw notes how long the apply of a node took, step by step, as its Pod says.
func (r *running) saw(t *testing.T, step string, n node) {
	t.Helper()
	var parts []string
	for line := range strings.Lines(r.log(t, n)) {
		parts = append(parts, strings.TrimPrefix(strings.TrimSpace(line), contract.Name+": "))
	}
	r.report.Saw(t, step, "%s: %s", n.name, strings.Join(parts, ", "))
}

// askAPI asks kube-apiserver in the background. What it returns ends that, and returns when there were answers.
func (r *running) askAPI(t *testing.T) func() string {
	t.Helper()
	answers := make(chan string, 1)
	go func() {
		out, _ := r.worker.Run("sh", "-c", askAPI)
		answers <- out
	}()
	return func() string {
		r.worker.MustRun(t, "touch", "/run/stop-asking")
		return <-answers
	}
}

// longestGap is the longest time between two lines that are times in milliseconds.
func longestGap(t *testing.T, text string) int64 {
	t.Helper()
	last, longest := int64(0), int64(0)
	for line := range strings.FieldsSeq(text) {
		at, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if last > 0 {
			longest = max(longest, at-last)
		}
		last = at
	}
	if last == 0 {
		t.Error("nothing was counted, so this shows nothing")
	}
	return longest
}
