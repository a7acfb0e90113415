package workload

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/nodes"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const (
	main  = "prod-proxy-files"
	gpu   = "prod-gpu.proxy-files"
	fresh = "0123456789"
	stale = "9876543210"
)

// machine is a member whose names begin with that of its node.
func machine(node, secret string) Member {
	return Member{Node: node, Secret: secret, Machine: node + "-machine", Config: node + "-config"}
}

// pod is a Pod with files of main.
func pod(node, digest string, ready bool) Pod {
	return Pod{Name: "p-" + node, Node: node, Label: main, Digest: digest, Ready: ready}
}

func with(p Pod, edit func(*Pod)) Pod {
	edit(&p)
	return p
}

// all are nodes that have the label of a Secret.
func all(secret string, names ...string) map[string]string {
	labelled := map[string]string{}
	for _, name := range names {
		labelled[name] = nodes.Label(secret)
	}
	return labelled
}

func TestDecide_LabelsNodesOfMachinesWithFiles(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200) + ".proxy-files"
	got := Decide([]Want{{main, fresh}, {gpu, fresh}, {long, fresh}},
		[]Member{machine("new", main), machine("moved", gpu), machine("right", main), machine("long", long), machine("gone", main)},
		map[string]string{"new": "", "moved": main, "right": main, "long": "", "foreign": main, "plain": ""}, nil, noon)
	want := map[string]string{"new": main, "moved": gpu, "long": nodes.Label(long), "foreign": ""}
	if diff := cmp.Diff(want, got.Labels); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDecide_KeepsLabelsWhileNodesAreNotKnown has Cluster API find the nodes of Machines again, one after the other, as
// after clusterctl move.
func TestDecide_KeepsLabelsWhileNodesAreNotKnown(t *testing.T) {
	t.Parallel()
	got := Decide([]Want{{main, fresh}}, []Member{machine("a", main), machine("", main)},
		map[string]string{"a": "", "b": main, "plain": ""}, []Pod{pod("a", fresh, true), pod("b", fresh, true)}, noon)
	if diff := cmp.Diff(map[string]string{"a": main}, got.Labels); diff != "" || len(got.Findings) > 0 {
		t.Errorf("%+v, labels (-want +got):\n%s", got, diff)
	}
}

func TestDecide_SaysHowFarNodesAre(t *testing.T) {
	t.Parallel()
	failed := with(pod("a", fresh, false), func(p *Pod) { p.Failure = "the proxy refuses %s" })
	for name, test := range map[string]struct {
		members []Member
		digest  string
		pods    []Pod
		want    string
		status  string
		current int
		again   time.Duration
	}{
		"nothing delivered": {
			[]Member{machine("a", main)},
			"",
			nil, "the files of Secret prod-proxy-files are not delivered to 1 nodes yet; condition capi-proxy-patcher.io/" +
				"ProxyPublished says why", "Unknown InPlaceProgressing", 0, 0,
		},
		"no Pod yet": {
			[]Member{machine("b", main), machine("a", main)},
			fresh, nil,
			"0 of 2 nodes have the current files of Secret prod-proxy-files; waiting for node a", "Unknown InPlaceProgressing", 0, 0,
		},
		"files of before": {
			[]Member{machine("a", main), machine("b", main)},
			fresh,
			[]Pod{pod("a", stale, true), pod("b", fresh, true)},
			"1 of 2 nodes have the current files of Secret prod-proxy-files; waiting for node a", "Unknown InPlaceProgressing", 1, 0,
		},
		"the node that changes is named before those that wait": {
			[]Member{machine("a", main), machine("b", main), machine("c", main)},
			fresh,
			[]Pod{pod("a", stale, true), pod("b", fresh, false), pod("c", stale, true)},
			"0 of 3 nodes have the current files of Secret prod-proxy-files; waiting for node b", "Unknown InPlaceProgressing", 0, 0,
		},
		"done": {
			[]Member{machine("a", main), machine("b", main)}, fresh, []Pod{pod("a", fresh, true), pod("b", fresh, true)}, "", "True Configured", 2, 0,
		},
		"a Pod of before that is not gone yet": {
			[]Member{machine("a", main)}, fresh, []Pod{pod("a", fresh, true), pod("a", stale, true)}, "", "True Configured", 1, 0,
		},
		"a Pod with the files of another pool": {
			[]Member{machine("a", main)},
			fresh,
			[]Pod{with(pod("a", fresh, true), func(p *Pod) { p.Label = gpu })},
			"0 of 1 nodes have the current files of Secret prod-proxy-files; waiting for node a", "Unknown InPlaceProgressing", 0, 0,
		},
		"a Machine that is being deleted": {
			[]Member{machine("a", main), {Node: "b", Secret: main, Machine: "m", Config: "c", Leaving: true}},
			fresh,
			[]Pod{pod("a", fresh, true)},
			"", "True Configured", 1, 0,
		},
		"a node of a MachinePool": {
			[]Member{{Node: "a", Secret: main}}, fresh, []Pod{pod("a", fresh, true)}, "", "True Configured", 0, 0,
		},
		"one node failed": {
			[]Member{machine("a", main), machine("b", main), machine("c", main)},
			fresh,
			[]Pod{failed, pod("b", stale, true), pod("c", fresh, true)},
			"* node a: the proxy refuses %s; delete Pod capi-proxy-patcher-nodes/p-a to retry\n" +
				"* 1 of 3 nodes have the current files of Secret prod-proxy-files, and 1 failed", "False InPlaceFailed", 1, 0,
		},
		"other files since a while": {
			[]Member{machine("a", main)},
			fresh,
			[]Pod{with(pod("a", fresh, false), func(p *Pod) { p.Drifted = noon.Add(-15 * time.Second) })},
			"* node a: its files were changed after they were written; delete Pod capi-proxy-patcher-nodes/p-a to retry\n" +
				"* 0 of 1 nodes have the current files of Secret prod-proxy-files, and 1 failed", "False InPlaceFailed", 0, 0,
		},
		"a kubelet that has just started again": {
			[]Member{machine("a", main)},
			fresh,
			[]Pod{with(pod("a", fresh, false), func(p *Pod) { p.Drifted = noon.Add(-5 * time.Second) })},
			"", "True Configured", 1,
			10 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var names []string
			for _, m := range test.members {
				names = append(names, m.Node)
			}
			got := Decide([]Want{{main, test.digest}}, test.members, all(main, names...), test.pods, noon)
			condition := finding.ConditionOf(got.Findings, "")
			if status := condition.Status + " " + condition.Reason; condition.Message != test.want || status != test.status {
				t.Errorf("got  %s %s\nwant %s %s", status, condition.Message, test.status, test.want)
			}
			if len(got.Current) != test.current || got.Again != test.again || len(got.Labels) > 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestDecide_PrefersThePodWithTheFilesOfItsOwnPool has a Pod of before, with the files that another pool has now.
func TestDecide_PrefersThePodWithTheFilesOfItsOwnPool(t *testing.T) {
	t.Parallel()
	old, current := pod("a", stale, true), pod("a", fresh, true)
	for _, pods := range [][]Pod{{old, current}, {current, old}} {
		got := Decide([]Want{{main, fresh}, {gpu, stale}}, []Member{machine("a", main)}, all(main, "a"), pods, noon)
		if len(got.Current) != 1 || len(got.Findings) > 0 {
			t.Errorf("%v: %+v", pods, got)
		}
	}
}

func TestDecide_NamesFewOfManyFailures(t *testing.T) {
	t.Parallel()
	var members []Member
	var pods []Pod
	for _, node := range []string{"f", "e", "d", "c", "b", "a"} {
		members = append(members, machine(node, main))
		pods = append(pods, with(pod(node, fresh, false), func(p *Pod) { p.Failure = "no\u202e" }))
	}
	condition := finding.ConditionOf(Decide([]Want{{main, fresh}}, members, all(main, "a", "b", "c", "d", "e", "f"), pods, noon).Findings, "")
	if strings.Count(condition.Message, "node ") != 3 || !strings.HasPrefix(condition.Message, "* node a: ") ||
		!strings.HasSuffix(condition.Message, "0 of 6 nodes have the current files of Secret prod-proxy-files, and 6 failed") {
		t.Errorf("got %s", condition.Message)
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
		"ready":                         {"True", noon, apply(terminated(0, ""), none), apply(running, none), Pod{Ready: true}},
		"ready after failures":          {"True", noon, apply(terminated(0, ""), terminated(1, "x")), apply(running, none), Pod{Ready: true}},
		"created":                       {"False", noon, apply(waiting("PodInitializing"), none), apply(waiting("PodInitializing"), none), Pod{}},
		"applying":                      {"False", noon, apply(running, none), nil, Pod{}},
		"failed":                        {"False", noon, apply(terminated(1, "a\nthe reason\n"), none), nil, Pod{Failure: "the reason"}},
		"failed and waiting":            {"False", noon, apply(waiting("CrashLoopBackOff"), terminated(1, "the reason")), nil, Pod{Failure: "the reason"}},
		"failed and trying again":       {"False", noon, apply(running, terminated(1, "the reason")), nil, Pod{Failure: "the reason"}},
		"failed without a word":         {"False", noon, apply(terminated(137, " \n"), none), nil, Pod{Failure: "container apply ended with code 137"}},
		"an image that is not there":    {"False", noon, apply(waiting("ErrImagePull"), none), nil, Pod{Failure: "the image of its Pod cannot be pulled"}},
		"and the next try":              {"False", noon, apply(waiting("ImagePullBackOff"), none), nil, Pod{Failure: "the image of its Pod cannot be pulled"}},
		"no Secret yet":                 {"False", noon, apply(waiting("CreateContainerConfigError"), none), nil, Pod{Failure: "its Pod cannot be started: CreateContainerConfigError"}},
		"a reason of the node's own":    {"False", noon, apply(waiting("Evil\x1b[2J"), none), nil, Pod{}},
		"watching, not ready yet":       {"False", noon.Add(-time.Minute), apply(terminated(0, ""), none), apply(running, none), Pod{}},
		"watching, not ready any more":  {"False", noon.Add(time.Minute), apply(terminated(0, ""), none), apply(running, none), Pod{Drifted: noon.Add(time.Minute)}},
		"watching, and crashed":         {"False", noon, apply(terminated(0, ""), none), apply(waiting("CrashLoopBackOff"), terminated(2, "panic")), Pod{Failure: "panic"}},
		"a node that has started again": {"False", noon, apply(running, terminated(0, "")), apply(waiting("PodInitializing"), terminated(255, "")), Pod{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{
					contract.LabelNodeFiles: main, contract.LabelFilesDigest: fresh, "rude": "1",
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
			test.want.Name, test.want.Node, test.want.Label, test.want.Digest = "p", "n", main, fresh
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
