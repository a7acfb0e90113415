package workload

import (
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const (
	main  = "prod-proxy-files"
	gpu   = "prod-gpu.proxy-files"
	fresh = main + "-0123456789"
	stale = main + "-9876543210"
)

// machine is a member whose names begin with that of its node.
func machine(node, secret string) Member {
	return Member{Node: node, Secret: secret, Group: "MachineDeployment md", Machine: node + "-machine", Config: node + "-config"}
}

// pod is a Pod that has begun to apply a version.
func pod(node, version string, ready bool) Pod {
	return Pod{Name: "p-" + node, Node: node, Version: version, Ready: ready, Started: true}
}

func with(p Pod, edit func(*Pod)) Pod {
	edit(&p)
	return p
}

// labelled are ready nodes with a version, by name.
func labelled(version string, names ...string) map[string]Node {
	all := map[string]Node{}
	for _, name := range names {
		all[name] = Node{Version: version}
	}
	return all
}

func TestDecide_GrantsVersionsInTurn(t *testing.T) {
	t.Parallel()
	const other, otherStale = gpu + "-0123456789", gpu + "-9876543210"
	down := noon.Add(-time.Hour)
	got := Decide(View{
		Wants: []Want{{main, fresh}, {gpu, other}, {"waits", ""}},
		Members: []Member{
			machine("a", main), machine("b", main), machine("dead", main), machine("began", main), machine("g1", gpu), machine("g2", gpu),
			machine("gone", main), machine("w", "waits"),
		},
		Nodes: map[string]Node{
			"a": {Version: stale}, "b": {Version: fresh}, "dead": {Version: fresh, NotReady: down}, "began": {},
			"g1": {Version: main + "-5555555555"}, "g2": {Version: otherStale},
			"foreign": {Version: fresh}, "plain": {}, "w": {Version: "waits-0123456789"},
		},
		Pods: []Pod{pod("a", stale, true), pod("b", fresh, true), pod("b", stale, false), pod("g1", main+"-5555555555", true)},
		Now:  noon,
	})
	want := map[string]string{"a": fresh, "g2": other, "dead": "", "foreign": ""}
	if diff := cmp.Diff(want, got.Labels); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDecide_KeepsLabelsWhileNodesAreNotKnown has Cluster API find the nodes of Machines again, one after the other, as
// after clusterctl move.
func TestDecide_KeepsLabelsWhileNodesAreNotKnown(t *testing.T) {
	t.Parallel()
	got := Decide(View{
		Wants: []Want{{main, fresh}}, Members: []Member{machine("a", main), machine("", main)}, Now: noon,
		Nodes: map[string]Node{"a": {Version: fresh}, "b": {Version: fresh}, "plain": {}},
		Pods:  []Pod{pod("a", fresh, true), pod("b", fresh, true)},
	})
	if len(got.Labels) > 0 || len(got.Findings) > 0 {
		t.Errorf("%+v", got)
	}
}

func TestDecide_SaysHowFarNodesAre(t *testing.T) {
	t.Parallel()
	const of = " nodes have the current files of Secret prod-proxy-files"
	failed := with(pod("a", fresh, false), func(p *Pod) { p.Failure = "the proxy refuses %s" })
	drifted := func(since time.Duration) Pod {
		return with(pod("a", fresh, false), func(p *Pod) { p.Drifted = noon.Add(-since) })
	}
	a, b, c := machine("a", main), machine("b", main), machine("c", main)
	dead := Node{Version: stale, NotReady: noon.Add(-time.Hour)}
	controlPlane := Member{Node: "a", Secret: main, Machine: "m", Config: "c"}
	for name, test := range map[string]struct {
		View
		want    string
		status  string
		current int
		again   time.Duration
	}{
		"nothing delivered": {
			View{Wants: []Want{{main, ""}}, Members: []Member{a}, Nodes: labelled("", "a")},
			"the files of Secret prod-proxy-files are not delivered to 1 nodes yet; condition capi-proxy-patcher.io/ProxyPublished says why",
			"Unknown InPlaceProgressing", 0, 0,
		},
		"no Pod yet": {
			View{Members: []Member{b, a}, Nodes: labelled(fresh, "a", "b")},
			"0 of 2" + of + "; waiting for node a", "Unknown InPlaceProgressing", 0, 0,
		},
		"no Pod, and the reason": {
			View{Members: []Member{b, a}, Nodes: labelled(fresh, "a", "b"), Refused: map[string]string{"a": "FailedCreate: quota"}},
			"* node a has no Pod: FailedCreate: quota\n* 0 of 2" + of + ", and 1 failed", "False InPlaceFailed", 0, 0,
		},
		"a reason of before": {
			View{
				Members: []Member{a}, Nodes: labelled(fresh, "a"), Pods: []Pod{pod("a", fresh, true)},
				Refused: map[string]string{"a": "FailedCreate: quota"},
			},
			"", "True Configured", 1, 0,
		},
		"a Node that is gone": {
			View{Members: []Member{a, b}, Nodes: labelled(fresh, "b"), Pods: []Pod{pod("b", fresh, true)}},
			"1 of 2" + of + "; waiting for node a", "Unknown InPlaceProgressing", 1, 0,
		},
		"the node that changes is named before those that wait": {
			View{
				Members: []Member{a, b, c}, Nodes: map[string]Node{"a": {Version: stale}, "b": {Version: fresh}, "c": {Version: stale}},
				Pods: []Pod{pod("a", stale, true), pod("b", fresh, false), pod("c", stale, true)},
			},
			"0 of 3" + of + "; waiting for node b", "Unknown InPlaceProgressing", 0, 0,
		},
		"done": {
			View{Members: []Member{a, b}, Nodes: labelled(fresh, "a", "b"), Pods: []Pod{pod("a", fresh, true), pod("b", fresh, true)}},
			"", "True Configured", 2, 0,
		},
		"a Pod of another version that is not gone yet": {
			View{Members: []Member{a}, Nodes: labelled(fresh, "a"), Pods: []Pod{pod("a", fresh, true), pod("a", stale, false)}},
			"", "True Configured", 1, 0,
		},
		"a Pod of another version that is not gone yet, listed first": {
			View{Members: []Member{a}, Nodes: labelled(fresh, "a"), Pods: []Pod{pod("a", stale, false), pod("a", fresh, true)}},
			"", "True Configured", 1, 0,
		},
		"a Machine that is being deleted": {
			View{
				Members: []Member{a, {Node: "b", Secret: main, Machine: "m", Config: "c", Leaving: true}},
				Nodes:   labelled(fresh, "a", "b"), Pods: []Pod{pod("a", fresh, true)},
			},
			"", "True Configured", 1, 0,
		},
		"a node of a MachinePool": {
			View{Members: []Member{{Node: "a", Secret: main, Group: "p"}}, Nodes: labelled(fresh, "a"), Pods: []Pod{pod("a", fresh, true)}},
			"", "True Configured", 0, 0,
		},
		"one node failed": {
			View{Members: []Member{a, b, c}, Nodes: labelled(fresh, "a", "b", "c"), Pods: []Pod{failed, pod("c", fresh, true)}},
			"* node a: the proxy refuses %s; delete Pod capi-proxy-patcher-nodes/p-a to retry\n" +
				"* 1 of 3" + of + ", and 1 failed", "False InPlaceFailed", 1, 0,
		},
		"a node that is not ready": {
			View{
				Members: []Member{a, b}, Nodes: map[string]Node{"a": dead, "b": {Version: fresh}},
				Pods: []Pod{pod("a", stale, true), pod("b", fresh, true)},
			},
			"1 of 2" + of + "; not ready, and not waited for: a", "Unknown InPlaceProgressing", 1, 0,
		},
		"many that are not ready": {
			View{
				Members: []Member{a, b, c, machine("d", main)}, Nodes: map[string]Node{"a": dead, "b": dead, "c": dead, "d": dead},
			},
			"0 of 4" + of + "; not ready, and not waited for: a, b, c and 1 more", "Unknown InPlaceProgressing", 0, 0,
		},
		"a control plane that is replaced": {
			View{Members: []Member{controlPlane}, Nodes: labelled("", "a"), ControlPlaneRolls: true},
			"0 of 1" + of + "; the others wait until the Machines of the control plane are replaced", "Unknown InPlaceProgressing", 0, 0,
		},
		"a Machine of the control plane that never gets a node": {
			View{
				Members: []Member{controlPlane, {Secret: main, Machine: "cp-2"}}, Nodes: labelled("", "a"), ControlPlaneRolls: true,
			},
			"0 of 1" + of + "; the others wait until the Machines of the control plane are replaced; Machine cp-2 has no Node yet",
			"Unknown InPlaceProgressing", 0, 0,
		},
		"other files since a while": {
			View{Members: []Member{a}, Nodes: labelled(fresh, "a"), Pods: []Pod{drifted(15 * time.Second)}},
			"* node a: its files were changed after they were written; delete Pod capi-proxy-patcher-nodes/p-a to retry\n" +
				"* 0 of 1" + of + ", and 1 failed", "False InPlaceFailed", 0, 0,
		},
		"a kubelet that has just started again": {
			View{Members: []Member{a}, Nodes: labelled(fresh, "a"), Pods: []Pod{drifted(5 * time.Second)}},
			"", "True Configured", 1, 10 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.Now = noon; test.Wants == nil {
				test.Wants = []Want{{main, fresh}}
			}
			got := Decide(test.View)
			condition := finding.ConditionOf(got.Findings, "")
			if status := condition.Status + " " + condition.Reason; condition.Message != test.want || status != test.status {
				t.Errorf("got  %s %s\nwant %s %s", status, condition.Message, test.status, test.want)
			}
			if len(got.Current) != test.current || got.Again != test.again {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestDecide_RestoresNodes has no label any more: every node that has files gets the version without any.
func TestDecide_RestoresNodes(t *testing.T) {
	t.Parallel()
	const of = " nodes are restored"
	a, b, boots := machine("a", main), machine("b", main), machine("", main)
	plain := member(machine("p", main), func(m *Member) { m.Plain = true })
	leaves := member(machine("l", main), func(m *Member) { m.Leaving = true })
	for name, test := range map[string]struct {
		View
		labels   map[string]string
		want     string
		current  int
		restored bool
	}{
		"no node has files": {
			View{Members: []Member{plain}, Nodes: labelled("", "p", "foreign")}, map[string]string{}, "True Configured ", 0, true,
		},
		"the first node": {
			View{Members: []Member{a, b, plain}, Nodes: labelled(stale, "a", "b")},
			map[string]string{"a": fresh},
			"Unknown InPlaceProgressing 0 of 2" + of + "; waiting for node a", 0, false,
		},
		"a node that has files without a label": {
			View{Members: []Member{a}, Nodes: labelled("", "a")},
			map[string]string{"a": fresh},
			"Unknown InPlaceProgressing 0 of 1" + of + "; waiting for node a", 0, false,
		},
		"a node that only its label shows": {
			View{Members: []Member{plain}, Nodes: labelled(stale, "p")},
			map[string]string{"p": fresh},
			"Unknown InPlaceProgressing 0 of 1" + of + "; waiting for node p", 0, false,
		},
		"a node that Cluster API does not know": {
			View{Members: []Member{a}, Nodes: map[string]Node{"a": {Version: fresh}, "x": {Version: stale}}, Pods: []Pod{pod("a", fresh, true)}},
			map[string]string{"x": fresh},
			"Unknown InPlaceProgressing 1 of 2" + of + "; waiting for node x", 1, false,
		},
		"a Machine that boots with files may be that node": {
			View{Members: []Member{a, boots}, Nodes: map[string]Node{"a": {Version: fresh}, "x": {Version: stale}}, Pods: []Pod{pod("a", fresh, true)}},
			map[string]string{},
			"Unknown InPlaceProgressing 1 of 2" + of + "; waiting for the node of Machine -machine", 1, false,
		},
		"a Machine that boots without files": {
			View{Members: []Member{member(boots, func(m *Member) { m.Plain = true })}}, map[string]string{}, "True Configured ", 0, true,
		},
		"a Machine that is being deleted": {
			View{Members: []Member{a, leaves}, Nodes: map[string]Node{"a": {Version: fresh}, "l": {Version: stale}}, Pods: []Pod{pod("a", fresh, true)}},
			map[string]string{},
			"True Configured ", 1, true,
		},
		"a node that fails stops the others": {
			View{
				Members: []Member{a, b}, Nodes: map[string]Node{"a": {Version: fresh}, "b": {Version: stale}},
				Pods: []Pod{with(pod("a", fresh, false), func(p *Pod) { p.Failure = "no" })},
			},
			map[string]string{},
			"False InPlaceFailed * node a: no; delete Pod capi-proxy-patcher-nodes/p-a to retry\n* 0 of 2" + of +
				", and 1 failed", 0, false,
		},
		"a node that is not ready is missing at the end": {
			View{
				Members: []Member{a, b}, Nodes: map[string]Node{"a": {Version: fresh}, "b": {Version: stale, NotReady: noon.Add(-time.Hour)}},
				Pods: []Pod{pod("a", fresh, true)},
			},
			map[string]string{"b": ""},
			"Unknown InPlaceProgressing 1 of 2" + of + "; not ready, and not waited for: b", 1, false,
		},
		"a version that is not delivered": {
			View{Wants: []Want{{main, ""}}, Members: []Member{a}, Nodes: labelled(stale, "a")},
			map[string]string{},
			"Unknown InPlaceProgressing the objects that restore 1 nodes are not delivered yet; condition " +
				"capi-proxy-patcher.io/ProxyPublished says why", 0, false,
		},
		"all": {
			View{Members: []Member{a, b}, Nodes: labelled(fresh, "a", "b"), Pods: []Pod{pod("a", fresh, true), pod("b", fresh, true)}},
			map[string]string{},
			"True Configured ", 2, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.Now, test.Restores = noon, true
			if test.Wants == nil {
				test.Wants = []Want{{main, fresh}}
			}
			got := Decide(test.View)
			c := finding.ConditionOf(got.Findings, "")
			if text := c.Status + " " + c.Reason + " " + c.Message; text != test.want || !maps.Equal(got.Labels, test.labels) ||
				len(got.Current) != test.current || got.Restored != test.restored {
				t.Errorf("%s\n%+v", text, got)
			}
			if test.Restores = false; Decide(test.View).Restored {
				t.Error("a Cluster that is enabled is restored")
			}
		})
	}
}

func member(m Member, edit func(*Member)) Member {
	edit(&m)
	return m
}

func TestDecide_NamesFewOfManyFailures(t *testing.T) {
	t.Parallel()
	var members []Member
	var pods []Pod
	for _, node := range []string{"f", "e", "d", "c", "b", "a"} {
		members = append(members, machine(node, main))
		pods = append(pods, with(pod(node, fresh, false), func(p *Pod) { p.Failure = "no\u202e" }))
	}
	condition := finding.ConditionOf(Decide(View{
		Wants: []Want{{main, fresh}}, Members: members, Nodes: labelled(fresh, "a", "b", "c", "d", "e", "f"), Pods: pods, Now: noon,
	}).Findings, "")
	if strings.Count(condition.Message, "node ") != 3 || !strings.HasPrefix(condition.Message, "* node a: ") ||
		!strings.HasSuffix(condition.Message, "0 of 6 nodes have the current files of Secret prod-proxy-files, and 6 failed") {
		t.Errorf("got %s", condition.Message)
	}
}

func TestNodeOf(t *testing.T) {
	t.Parallel()
	made := noon.Add(-time.Hour)
	for name, test := range map[string]struct {
		conditions []corev1.NodeCondition
		want       time.Time
	}{
		"ready":     {[]corev1.NodeCondition{{Type: "DiskPressure", Status: "False"}, {Type: "Ready", Status: "True", LastTransitionTime: metav1.NewTime(noon)}}, time.Time{}},
		"not ready": {[]corev1.NodeCondition{{Type: "Ready", Status: "False", LastTransitionTime: metav1.NewTime(noon)}}, noon},
		"unknown":   {[]corev1.NodeCondition{{Type: "Ready", Status: "Unknown", LastTransitionTime: metav1.NewTime(noon)}}, noon},
		"new":       {nil, made},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: metav1.NewTime(made), Labels: map[string]string{
					contract.LabelNodeFiles: fresh, "rude": "1",
				}},
				Spec:   corev1.NodeSpec{PodCIDR: "10.0.0.0/24"},
				Status: corev1.NodeStatus{Conditions: test.conditions, Images: []corev1.ContainerImage{{SizeBytes: 1}}},
			}
			got := NodeOf(node)
			if got != (Node{Version: fresh, NotReady: test.want}) {
				t.Errorf("got %+v", got)
			}
			if TrimNode(node); NodeOf(node) != got || node.Status.Images != nil || node.Spec.PodCIDR != "" || len(node.Labels) != 1 {
				t.Errorf("a trimmed Node is another: %+v", node)
			}
		})
	}
}

func terminated(code int32, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}
}

func TestPodOf(t *testing.T) {
	t.Parallel()
	apply := func(state, last corev1.ContainerState) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "apply", State: state, LastTerminationState: last}}
	}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "Back-off 10s\nbut 20s then"}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}}
	none := corev1.ContainerState{}
	for name, test := range map[string]struct {
		ready      corev1.ConditionStatus
		since      time.Time
		init, main []corev1.ContainerStatus
		want       Pod
	}{
		"ready":                         {"True", noon, apply(terminated(0, ""), none), apply(running, none), Pod{Started: true, Ready: true}},
		"ready after failures":          {"True", noon, apply(terminated(0, ""), terminated(1, "x")), apply(running, none), Pod{Started: true, Ready: true}},
		"created":                       {"False", noon, apply(waiting("PodInitializing"), none), apply(waiting("PodInitializing"), none), Pod{}},
		"applying":                      {"False", noon, apply(running, none), nil, Pod{Started: true}},
		"failed":                        {"False", noon, apply(terminated(1, "a\nthe reason\n"), none), nil, Pod{Started: true, Failure: "the reason"}},
		"failed and waiting":            {"False", noon, apply(waiting("CrashLoopBackOff"), terminated(1, "the reason")), nil, Pod{Started: true, Failure: "the reason"}},
		"failed and trying again":       {"False", noon, apply(running, terminated(1, "the reason")), nil, Pod{Started: true, Failure: "the reason"}},
		"failed without a word":         {"False", noon, apply(terminated(137, " \n"), none), nil, Pod{Started: true, Failure: "container apply ended with code 137"}},
		"an image that is not there":    {"False", noon, apply(waiting("ErrImagePull"), none), nil, Pod{Failure: "the image of its Pod cannot be pulled"}},
		"and the next try":              {"False", noon, apply(waiting("ImagePullBackOff"), none), nil, Pod{Failure: "the image of its Pod cannot be pulled"}},
		"no Secret yet":                 {"False", noon, apply(waiting("CreateContainerConfigError"), none), nil, Pod{Failure: "its Pod cannot be started: CreateContainerConfigError"}},
		"a reason of the node's own":    {"False", noon, apply(waiting("Evil\x1b[2J"), none), nil, Pod{}},
		"watching, not ready yet":       {"False", noon.Add(-time.Minute), apply(terminated(0, ""), none), apply(running, none), Pod{Started: true}},
		"watching, not ready any more":  {"False", noon.Add(time.Minute), apply(terminated(0, ""), none), apply(running, none), Pod{Started: true, Drifted: noon.Add(time.Minute)}},
		"watching, and crashed":         {"False", noon, apply(terminated(0, ""), none), apply(waiting("CrashLoopBackOff"), terminated(2, "panic")), Pod{Started: true, Failure: "panic"}},
		"a node that has started again": {"False", noon, apply(running, terminated(0, "")), apply(waiting("PodInitializing"), terminated(255, "")), Pod{Started: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{
					contract.LabelNodeFiles: fresh, "rude": "1",
				}},
				Spec: corev1.PodSpec{NodeName: "n", Volumes: []corev1.Volume{{Name: "v"}}},
				Status: corev1.PodStatus{
					Conditions: []corev1.PodCondition{
						{Type: corev1.PodReady, Status: "False", LastTransitionTime: metav1.NewTime(noon.Add(time.Hour))}, // nobody hears of the node
						{Type: corev1.ContainersReady, Status: test.ready, LastTransitionTime: metav1.NewTime(test.since)},
					},
					InitContainerStatuses: test.init, ContainerStatuses: test.main,
				},
			}
			test.want.Name, test.want.Node, test.want.Version = "p", "n", fresh
			whole := PodOf(object)
			if diff := cmp.Diff(test.want, whole); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if TrimPod(object); PodOf(object) != whole || object.Spec.Volumes != nil {
				t.Errorf("a trimmed Pod is another: %+v", object)
			}
		})
	}
}

func TestLastLine_IsSafeInAMessage(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                 "",
		"\n\r\n \t\n":                      "",
		"one\ntwo %s \"$(id)\"`\\'\n\n":    "two %s \"$(id)\"`\\'",
		"one\u2028two":                     "two",
		"fine\rReady":                      "Ready",
		"\x1b[2J\x00a\u202eb\u00adc\xff{{": "[2J a b c {{",
		strings.Repeat("é", 200):           strings.Repeat("é", 148) + "…",
	} {
		got := LastLine(text)
		if got != want || len(got) > maxFailure || !utf8.ValidString(got) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
