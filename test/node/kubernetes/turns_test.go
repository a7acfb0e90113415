//go:build node

package kubernetes_test

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/agent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/lab"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

//go:embed testdata/turns.yaml
var turnsManifest string

const (
	handed = "Hand4" // a password

	stepHandRotate = "nodes take turns: a new password, the old one being refused"
	stepHandWrong  = "nodes take turns: a wrong password stops at one node, before it writes"
	stepHandTrust  = "nodes take turns: a CA is added and removed"
	stepHandBack   = "nodes take turns: certificates that cannot be installed are put back"
	stepHandDrift  = "nodes take turns: a file changed by hand ends the Pod, and a new one mends it"
	stepHandCut    = "nodes take turns: the power fails in the middle"
	stepHandLeave  = "nodes take turns: the files go, and the nodes are as before"
)

// byHand delivers versions to both nodes without the manager: what the nodes do by themselves.
func (r *running) byHand(t *testing.T) {
	t.Helper()
	good := r.files(t, "")
	for _, step := range []struct {
		name string
		run  func(*testing.T, map[string][]byte)
	}{
		{"a new password", r.handRotate},
		{"a wrong password", r.handWrong},
		{"a CA", r.handTrust},
		{"certificates that cannot be installed", r.handBack},
		{"drift", r.handDrift},
		{"the power fails", r.handCut},
		{"the files go", r.handLeave},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, good) }) {
			t.FailNow()
		}
	}
}

// files are those of the generated Secret, with another password if one is given.
func (r *running) files(t *testing.T, password string) map[string][]byte {
	t.Helper()
	data := r.generated(t)
	if password != "" {
		data[contract.KeyProxyEnv] = bytes.ReplaceAll(data[contract.KeyProxyEnv], []byte("Old1%20%25%40"), []byte(password))
	}
	recipe, err := patch.NewRecipe(patch.Options{Targets: contract.Targets(), SecretName: generatedName})
	if err != nil {
		t.Fatal(err)
	}
	data, err = patch.NodeData(data, recipe)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// hand applies the objects of a version, as the manager does, and returns its name.
func (r *running) hand(t *testing.T, data map[string][]byte) string {
	t.Helper()
	encoded := map[string]string{}
	hash := sha256.New() // the manager has a key
	for _, key := range slices.Sorted(maps.Keys(data)) {
		encoded[key] = base64.StdEncoding.EncodeToString(data[key])
		_, _ = fmt.Fprintf(hash, "%s %d %s", key, len(data[key]), data[key])
	}
	version := fmt.Sprintf("by-hand-%x", hash.Sum(nil)[:5])
	text, err := json.Marshal(encoded)
	if err != nil {
		t.Fatal(err)
	}
	mounts, pull := "- ", "Always"
	if files, err := patch.ReadNodeData(data); err != nil {
		t.Fatal(err)
	} else if len(files) == 0 {
		mounts, pull = "# ", "IfNotPresent" // a mount would make the folder again, and without a proxy nothing can be pulled
	}
	r.first.apply(t, strings.NewReplacer("VERSION", version, "DATA", string(text), "# PRODUCT ", mounts, "PULL", pull).Replace(turnsManifest))
	return version
}

// handPods are the Pods of a version.
func (r *running) handPods(t *testing.T, version string) map[string]corev1.Pod {
	t.Helper()
	var list corev1.PodList
	decode(t, r.first.kubectl(t, "get", "pods", "--namespace=kube-system", "--selector=version="+version, "-o", "json"), &list)
	pods := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp.IsZero() {
			pods[pod.Spec.NodeName] = pod
		}
	}
	return pods
}

// slot is the Lease.
func (r *running) slot(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{}
	decode(t, r.first.kubectl(t, "get", "lease", agent.LeaseName(0), "--namespace=kube-system", "-o", "json"), lease)
	return lease
}

// handed waits until both nodes have a version and the slot is free, and returns the log of each apply by Node.
func (r *running) handed(t *testing.T, version string) map[string]string {
	t.Helper()
	waitUntil(t, "Pods of version "+version+" that are ready, and a free slot", func() bool {
		pods := r.handPods(t, version)
		for _, n := range r.nodes() {
			if !slices.ContainsFunc(pods[n.host].Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
				return false
			}
		}
		return r.slot(t).Spec.HolderIdentity == nil
	})
	if lease := r.slot(t); len(lease.OwnerReferences) > 0 || lease.Annotations[agent.AnnotationFailure] != "" {
		t.Errorf("the Lease is %v", lease)
	}
	logs := map[string]string{}
	for _, n := range r.nodes() {
		logs[n.host] = r.first.kubectl(t, "logs", r.handPods(t, version)[n.host].Name, "--namespace=kube-system", "--container=apply")
	}
	return logs
}

// changes delivers a version, and checks that both nodes get it one after the other, with one restart.
func (r *running) changes(t *testing.T, step string, data map[string][]byte) {
	t.Helper()
	logs := r.handed(t, r.hand(t, data))
	waited := 0
	for _, n := range r.nodes() {
		log := logs[n.host]
		if strings.Count(log, "restarting ") != 1 || strings.Count(log, "restarting containerd and kubelet") != 1 {
			t.Errorf("not one restart on %s: %s", n.name, log)
		}
		if strings.Contains(log, "waiting for a turn") {
			waited++
		}
		r.report.Saw(t, step, "%s: %s", n.name, strings.ReplaceAll(strings.TrimSpace(log), "\n", ", "))
	}
	if waited != 1 {
		t.Errorf("%d nodes have waited for the other: %v", waited, logs)
	}
	r.haveFiles(t, data)
}

// handFails waits until one node has failed and holds the slot, and returns it and why.
func (r *running) handFails(t *testing.T, version string) (failed node, why string) {
	t.Helper()
	waitUntil(t, "a node that fails", func() bool { return r.slot(t).Annotations[agent.AnnotationFailure] != "" })
	lease := r.slot(t)
	for _, n := range r.nodes() {
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != n.host {
			continue
		}
		waitUntil(t, "the Pod that says why", func() bool {
			for _, status := range r.handPods(t, version)[n.host].Status.InitContainerStatuses {
				for _, state := range []corev1.ContainerState{status.State, status.LastTerminationState} {
					if state.Terminated != nil && state.Terminated.ExitCode != 0 {
						lines := strings.Split(strings.TrimSpace(state.Terminated.Message), "\n")
						why = strings.TrimPrefix(lines[len(lines)-1], contract.Name+": ")
						return true
					}
				}
			}
			return false
		})
		if told := lease.Annotations[agent.AnnotationFailure]; !strings.HasPrefix(why, strings.TrimSuffix(told, "…")) {
			t.Errorf("the Lease says %q, the Pod %q", told, why)
		}
		return n, why
	}
	t.Fatalf("the Lease is %v", lease)
	return node{}, ""
}

func (r *running) handRotate(t *testing.T, good map[string][]byte) {
	t.Helper()
	r.report.Step(t, stepHandRotate)
	before := r.processes(t)
	for host, log := range r.handed(t, r.hand(t, good)) {
		if log != "" {
			t.Errorf("%s has what bootstrap wrote, and changes: %s", host, log)
		}
	}
	if after := r.processes(t); !slices.Equal(before, after) {
		t.Errorf("processes of services were %v, are %v", before, after)
	}
	for _, n := range r.nodes() {
		r.count(t, n)
	}
	r.proxyTakes(t, handed)
	for _, n := range r.nodes() {
		if out, err := n.Run("cripull", pauseImage); err == nil {
			t.Errorf("%s pulls with the old password: %s", n.name, out)
		}
	}
	r.changes(t, stepHandRotate, r.files(t, handed))
	r.pull(t)
	for _, n := range r.nodes() {
		r.stillCounts(t, n)
		if out, _ := n.Run("grep", "--recursive", "--files-with-matches", "Old1", "/etc", "/run/systemd"); out != "" {
			t.Errorf("%s keeps the old password in %s", n.name, out)
		}
	}
}

// count runs a Pod on a node that counts, and shows later that nothing has restarted it.
func (r *running) count(t *testing.T, n node) {
	t.Helper()
	r.first.kubectl(t, "run", "count-"+n.name, "--image="+probeImage,
		`--overrides={"spec": {"nodeName": "`+n.host+`", "automountServiceAccountToken": false, "tolerations": [{"operator": "Exists"}]}}`,
		"--", "count")
	r.first.kubectl(t, "wait", "--for=condition=Ready", "pod/count-"+n.name, "--timeout=5m")
}

// proxyTakes has the proxy take one password and no other.
func (r *running) proxyTakes(t *testing.T, password string) {
	t.Helper()
	r.lab.StopProxy(t, rotatingProxy)
	r.lab.StartProxy(t, lab.Proxy{Name: rotatingProxy, Port: 3134, Username: "rotating", Password: password})
}

// pull has both nodes pull an image.
func (r *running) pull(t *testing.T) {
	t.Helper()
	for _, n := range r.nodes() {
		if out, err := n.Run("cripull", pauseImage); err != nil {
			t.Errorf("%s does not pull: %s %v", n.name, out, err)
		}
	}
}

func (r *running) handWrong(t *testing.T, _ map[string][]byte) {
	t.Helper()
	r.report.Step(t, stepHandWrong)
	processes := r.processes(t)
	version := r.hand(t, r.files(t, "Wrong3"))
	failed, why := r.handFails(t, version)
	if !strings.Contains(why, "https://"+registryHost+": Proxy Authentication Required") || strings.Contains(why, "Wrong3") {
		t.Errorf("says %s", why)
	}
	r.report.Saw(t, stepHandWrong, "%s: %s", failed.name, why)
	r.untouched(t, r.files(t, handed), processes)
	for host, log := range r.handed(t, r.hand(t, r.files(t, handed))) {
		if log != "" {
			t.Errorf("%s changes: %s", host, log)
		}
	}
	r.untouched(t, r.files(t, handed), processes)
}

func (r *running) handTrust(t *testing.T, _ map[string][]byte) {
	t.Helper()
	r.report.Step(t, stepHandTrust)
	another := pki.Make(t, "by hand CA")
	certificate := strings.Split(string(another.PEM), "\n")[1]
	more := r.files(t, handed)
	more[contract.KeyTrustedCABundle] = append(bytes.Clone(more[contract.KeyTrustedCABundle]), another.PEM...)
	for _, step := range []struct {
		data    map[string][]byte
		trusted bool
	}{{more, true}, {r.files(t, handed), false}} {
		r.changes(t, stepHandTrust, step.data)
		for _, n := range r.nodes() {
			if _, err := n.Run("grep", "--fixed-strings", "--quiet", certificate, "/etc/ssl/certs/ca-certificates.crt"); (err == nil) != step.trusted {
				t.Errorf("%s trusts the certificate: %t", n.name, err == nil)
			}
		}
	}
}

// handBack gives the nodes a bundle that the command of their trust store refuses, after files are written.
func (r *running) handBack(t *testing.T, _ map[string][]byte) {
	t.Helper()
	r.report.Step(t, stepHandBack)
	bad := r.files(t, handed)
	bad[contract.KeyTrustedCABundle] = append(bytes.Clone(bad[contract.KeyTrustedCABundle]), "-----BEGIN CERTIFICATE-----\n"...)
	const command = "/usr/sbin/update-ca-certificates"
	for _, n := range r.nodes() {
		n.MustRun(t, "sh", "-c", "mv "+command+" "+command+".real && cat >"+command+" <<'END' && chmod 755 "+command+"\n#!/bin/sh\n"+
			"for f in /usr/local/share/ca-certificates/capi-proxy-patcher-*; do ! grep -q BEGIN $f || grep -q END $f || exit 1; done\nexec "+command+".real \"$@\"\nEND\n")
	}
	failed, why := r.handFails(t, r.hand(t, bad))
	if !strings.HasSuffix(why, "; the previous files were restored") {
		t.Errorf("says %s", why)
	}
	r.report.Saw(t, stepHandBack, "%s: %s", failed.name, why)
	waitUntil(t, "the files of before, between two attempts", func() bool { return r.lacksFiles(t, r.files(t, handed)) == "" })
	r.pull(t)
	for _, n := range r.nodes() {
		n.MustRun(t, "mv", command+".real", command)
	}
	r.handed(t, r.hand(t, r.files(t, handed)))
}

func (r *running) handDrift(t *testing.T, _ map[string][]byte) {
	t.Helper()
	r.report.Step(t, stepHandDrift)
	version := r.hand(t, r.files(t, handed))
	before := vocabulary.ProxyVariables(r.worker.Environ(t, "kubelet"))
	if !slices.Contains(strings.Split(before["NO_PROXY"], ","), r.worker.address) {
		t.Errorf("NO_PROXY lacks the own address, so this shows nothing: %s", before["NO_PROXY"])
	}
	r.worker.MustRun(t, "sh", "-c", "echo '# by hand' >>"+contract.PathProxyEnv+" && rm "+contract.PathNodeEnv)
	begin := time.Now() //nolint:forbidigo // how long it takes is what is measured
	const want = contract.Name + ": not as in the mounted Secret: " + contract.PathProxyEnv + ", " + contract.PathNodeEnv
	waitUntil(t, "an end with "+want, func() bool {
		return slices.ContainsFunc(r.handPods(t, version)[r.worker.host].Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
			return slices.ContainsFunc([]corev1.ContainerState{s.State, s.LastTerminationState}, func(state corev1.ContainerState) bool {
				return state.Terminated != nil && strings.TrimSpace(state.Terminated.Message) == want && state.Terminated.ExitCode == 1
			})
		})
	})
	r.report.Saw(t, stepHandDrift, "shown after %d s", int(time.Since(begin).Seconds()))
	r.first.kubectl(t, "delete", "pod", r.handPods(t, version)[r.worker.host].Name, "--namespace=kube-system")
	r.handed(t, version)
	r.haveFiles(t, r.files(t, handed))
	if diff := cmp.Diff(before, vocabulary.ProxyVariables(r.worker.Environ(t, "kubelet"))); diff != "" {
		t.Errorf("variables of kubelet (-want +got):\n%s", diff)
	}
}

// handCut ends the worker while it changes.
func (r *running) handCut(t *testing.T, _ map[string][]byte) {
	t.Helper()
	r.report.Step(t, stepHandCut)
	r.stillCounts(t, r.worker)
	want := r.files(t, handed)
	want[contract.KeyProxyEnv] = bytes.ReplaceAll(want[contract.KeyProxyEnv], []byte("NO_PROXY=\""), []byte("NO_PROXY=\"power.example.org,"))
	version := r.hand(t, want)
	r.worker.WaitFor(t, 2*applyWithin, "test", "-e", journalFolder) // the other one may have been first
	r.worker.Kill(t)
	r.worker.Start(t)
	log := r.handed(t, version)[r.worker.host]
	if !strings.Contains(log, "continuing after an interruption") {
		t.Errorf("the power did not fail in the middle: %s", log)
	}
	r.haveFiles(t, want)
	if env := r.worker.Environ(t, "containerd"); !strings.Contains(env["NO_PROXY"], "power.example.org") {
		t.Errorf("containerd has NO_PROXY %s", env["NO_PROXY"])
	}
	r.first.kubectl(t, "delete", "pod", "count-"+r.worker.name, "--now") // the power has restarted it
	r.count(t, r.worker)
}

// handLeave takes the product from both nodes, gives it to them, takes it again, and ends with what bootstrap wrote.
func (r *running) handLeave(t *testing.T, good map[string][]byte) {
	t.Helper()
	r.report.Step(t, stepHandLeave)
	none, err := patch.NodeData(nil, patch.Recipe{})
	if err != nil {
		t.Fatal(err)
	}
	r.handed(t, r.hand(t, none))
	before := map[string]string{}
	for _, n := range r.nodes() {
		r.lacksProduct(t, n)
		before[n.name] = n.MustRun(t, "sh", "-c", filesOfNode)
	}
	r.changes(t, stepHandLeave, r.files(t, handed))
	r.handed(t, r.hand(t, none))
	for _, n := range r.nodes() {
		if diff := cmp.Diff(before[n.name], n.MustRun(t, "sh", "-c", filesOfNode)); diff != "" {
			t.Errorf("files of %s (-want +got):\n%s", n.name, diff)
		}
	}
	r.proxyTakes(t, oldRotating)
	r.changes(t, stepHandLeave, good)
	for _, n := range r.nodes() {
		r.stillCounts(t, n)
		r.first.kubectl(t, "delete", "pod", "count-"+n.name, "--now")
	}
	for _, object := range []string{
		"daemonset/capi-proxy-patcher-by-hand", "serviceaccount/capi-proxy-patcher", "role/capi-proxy-patcher",
		"rolebinding/capi-proxy-patcher", "lease/" + agent.LeaseName(0), "clusterrole/capi-proxy-patcher", "clusterrolebinding/capi-proxy-patcher",
	} {
		r.first.kubectl(t, "delete", object, "--namespace=kube-system", "--timeout=5m")
	}
	r.first.kubectl(t, "delete", "secrets", "--selector=some=by-hand", "--namespace=kube-system")
}
