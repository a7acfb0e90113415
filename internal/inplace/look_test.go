package inplace

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func terminated(code int32, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}
}

func TestPodOf(t *testing.T) {
	t.Parallel()
	status := func(name string, state, last corev1.ContainerState) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: name, State: state, LastTerminationState: last}}
	}
	apply := func(state, last corev1.ContainerState) []corev1.ContainerStatus { return status("apply", state, last) }
	watch := func(state, last corev1.ContainerState) []corev1.ContainerStatus { return status("watch", state, last) }
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "Back-off 10s\nbut 20s then"}}
	}
	running := func(ago time.Duration) corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon.Add(-ago))}}
	}
	none, done := corev1.ContainerState{}, apply(terminated(0, ""), corev1.ContainerState{})
	for name, test := range map[string]struct {
		init, main []corev1.ContainerStatus
		want       Pod
	}{
		"watching":                       {done, watch(running(0), none), Pod{Runs: true}},
		"watching after failures":        {apply(terminated(0, ""), terminated(1, "x")), watch(running(0), none), Pod{Runs: true}},
		"created":                        {apply(waiting("PodInitializing"), none), watch(waiting("PodInitializing"), none), Pod{}},
		"applying":                       {apply(running(0), none), nil, Pod{}},
		"failed":                         {apply(terminated(1, "a\nthe reason\n"), none), nil, Pod{Failure: "the reason"}},
		"failed and waiting":             {apply(waiting("CrashLoopBackOff"), terminated(1, "the reason")), nil, Pod{Failure: "the reason"}},
		"failed and trying again":        {apply(running(0), terminated(1, "the reason")), nil, Pod{Failure: "the reason"}},
		"failed without a word":          {apply(terminated(137, " \n"), none), nil, Pod{Failure: "container apply ended with code 137"}},
		"an image that is not there":     {apply(waiting("ErrImagePull"), none), nil, Pod{Failure: "the image of its Pod cannot be pulled"}},
		"an image that cannot be read":   {done, watch(waiting("ImagePullBackOff"), none), Pod{Failure: "the image of its Pod cannot be pulled"}},
		"no Secret yet":                  {apply(waiting("CreateContainerConfigError"), none), nil, Pod{Failure: "its Pod cannot be started: CreateContainerConfigError"}},
		"a reason of the node's own":     {apply(waiting("Evil\x1b[2J"), none), nil, Pod{}},
		"something differs":              {done, watch(waiting("CrashLoopBackOff"), terminated(1, "/etc/x differs")), Pod{Failure: "/etc/x differs"}},
		"something differed a while ago": {done, watch(running(settleTime), terminated(1, "/etc/x differs")), Pod{Runs: true}},
		"something differed just before": {done, watch(running(settleTime-1), terminated(1, "/etc/x differs")), Pod{Failure: "/etc/x differs"}},
		"a node that has started again":  {apply(running(0), terminated(0, "")), watch(waiting("PodInitializing"), terminated(255, "")), Pod{}},
	} {
		object := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{LabelFilesVersion: fresh}},
			Spec:       corev1.PodSpec{NodeName: "n"},
			Status:     corev1.PodStatus{InitContainerStatuses: test.init, ContainerStatuses: test.main},
		}
		test.want.Name, test.want.Node, test.want.Version = "p", "n", fresh
		if diff := cmp.Diff(test.want, PodOf(object, noon)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
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
