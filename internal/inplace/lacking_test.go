package workload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// events is a workload cluster with events.
type events struct {
	client.Client

	items []corev1.Event
	asked []string
	err   error
}

func (e *events) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	all := client.ListOptions{}
	all.ApplyOptions(options)
	terms := strings.Split(all.FieldSelector.String(), ",")
	slices.Sort(terms)
	e.asked = append(e.asked, fmt.Sprintf("%s %s %d", all.Namespace, strings.Join(terms, ","), all.Limit))
	list.(*corev1.EventList).Items = e.items
	return e.err
}

func warning(at time.Time, reason, message string) corev1.Event {
	return corev1.Event{Type: corev1.EventTypeWarning, LastTimestamp: metav1.NewTime(at), Reason: reason, Message: message}
}

// TestFollow_ReadsWhyThereIsNoPod reads the events of a DaemonSet once a minute, while a node has no Pod for a minute.
func TestFollow_ReadsWhyThereIsNoPod(t *testing.T) {
	t.Parallel()
	const asks = contract.NodesNamespace + " involvedObject.kind=DaemonSet,involvedObject.name=" + fresh + " 100"
	normal := warning(noon.Add(time.Hour), "SuccessfulCreate", "made")
	normal.Type = corev1.EventTypeNormal
	remote := &events{items: []corev1.Event{
		warning(noon.Add(-time.Hour), "FailedCreate", "old"),
		warning(noon, "FailedCreate", "pods \"p\" is\n\x1b[31mforbidden\u202e: "+strings.Repeat("quota ", 100)), normal,
		{Type: corev1.EventTypeWarning, ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute))}, Reason: "Other"},
	}}
	opened, closed := 0, 0
	var refuses error
	f := (&Follower{Connect: func(context.Context, client.ObjectKey) (client.Client, func(), error) {
		if opened++; refuses != nil {
			return nil, nil, refuses
		}
		return remote, func() { closed++ }, nil
	}}).Init()
	both := labelled(fresh, "a", "b")
	for i, step := range []struct {
		after    time.Duration
		lacking  []string
		does     func()
		refused  []string
		again    time.Duration
		requests int
	}{
		{0, []string{"a"}, nil, nil, time.Minute, 0},
		{30 * time.Second, []string{"a", "b"}, nil, nil, 30 * time.Second, 0},
		{time.Minute, []string{"a", "b"}, nil, []string{"a"}, time.Minute, 1},
		{90 * time.Second, []string{"a", "b"}, nil, []string{"a"}, 30 * time.Second, 1},
		{2 * time.Minute, []string{"a", "b"}, nil, []string{"a", "b"}, time.Minute, 2},
		{3 * time.Minute, nil, nil, nil, 0, 2},
		{3 * time.Minute, []string{"a"}, nil, nil, time.Minute, 2},
		{4 * time.Minute, []string{"a"}, func() { remote.err = errors.New("x") }, nil, time.Minute, 3},
		{5 * time.Minute, []string{"a"}, func() { refuses = errors.New("x") }, nil, time.Minute, 3},
	} {
		if step.does != nil {
			step.does()
		}
		got, again := f.refused(t.Context(), client.ObjectKey{Name: "prod"}, View{Nodes: both, Now: noon.Add(step.after)}, step.lacking)
		maps.DeleteFunc(got, func(_, why string) bool { return why == "" })
		if len(got) != len(step.refused) || again != step.again || len(remote.asked) != step.requests {
			t.Errorf("step %d: %v, again after %s, requests %q", i, got, again, remote.asked)
		}
		for _, name := range step.refused {
			if why := got[name]; !strings.HasPrefix(why, `FailedCreate: pods "p" is [31mforbidden : quota quota`) || len(why) > maxFailure {
				t.Errorf("step %d: node %s: %q", i, name, why)
			}
		}
	}
	if remote.asked[0] != asks || opened != 4 || closed != 3 {
		t.Errorf("asked %q, %d connections, %d closed", remote.asked, opened, closed)
	}
}
