package report

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

func TestNews_IsWhatDiffersFromTheLastReport(t *testing.T) {
	t.Parallel()
	var n news
	for i, step := range []struct {
		uid     types.UID
		digest  string
		changed bool
		want    bool
	}{
		{"one", "a", false, false}, // after a restart the condition says the same
		{"one", "a", true, false},  // a cache that is behind
		{"one", "b", true, true},
		{"one", "b", false, false},
		{"one", "a", false, true},
		{"two", "a", true, true},
		{"two", "a", true, false},
		{"one", "a", true, false},
	} {
		if got := n.isNew(step.uid, step.digest, step.changed); got != step.want {
			t.Errorf("step %d: %t, want %t", i, got, step.want)
		}
	}
	n.forget("one")
	if !n.isNew("one", "a", true) {
		t.Error("what was forgotten is no news")
	}
	for i := range 2 * maxNews {
		n.isNew(types.UID(fmt.Sprint(i)), "", false)
	}
	if len(n.last) > maxNews {
		t.Errorf("%d Clusters are remembered", len(n.last))
	}
}

func TestSteady_HoldsBackAMessageThatChangesWithEachPass(t *testing.T) {
	t.Parallel()
	condition := func(reason, message string, generation int64) metav1.Condition {
		return metav1.Condition{Status: "False", Reason: reason, Message: message, ObservedGeneration: generation}
	}
	previous := condition("A", "one", 1)
	var s steady
	start := time.Unix(0, 0)
	for i, step := range []struct {
		at   time.Duration
		next metav1.Condition
		want time.Duration
	}{
		{0, condition("A", "two", 1), time.Second},
		{600 * time.Millisecond, condition("A", "two", 1), 400 * time.Millisecond},
		{700 * time.Millisecond, condition("A", "three", 1), time.Second}, // another message starts anew
		{1700 * time.Millisecond, condition("A", "three", 1), 0},
		{1800 * time.Millisecond, condition("A", "three", 1), 0}, // as long as it is not written
		{1900 * time.Millisecond, condition("B", "four", 1), 0},  // another reason is news
		{2000 * time.Millisecond, condition("A", "three", 1), time.Second},
		{2100 * time.Millisecond, condition("A", "one", 1), 0}, // as it is written already
		{2200 * time.Millisecond, condition("A", "three", 1), time.Second},
		{3200 * time.Millisecond, condition("A", "three", 2), time.Second}, // for a later generation
		{4200 * time.Millisecond, condition("A", "three", 2), 0},
	} {
		if got := s.wait("uid", &previous, step.next, start.Add(step.at)); got != step.want {
			t.Errorf("step %d: waits %s, want %s", i, got, step.want)
		}
	}
	start = start.Add(time.Hour)
	s.forget("uid")
	for i := range 21 { // a message that never stays the same
		want := min(time.Second, 10*time.Second-time.Duration(i)*time.Second/2)
		if got := s.wait("uid", &previous, condition("A", fmt.Sprint(i), 1), start); got != want {
			t.Errorf("message %d: waits %s, want %s", i, got, want)
		}
		start = start.Add(time.Second / 2)
	}
	if got := s.wait("other", nil, condition("A", "one", 1), start); got != 0 {
		t.Errorf("the first condition of a Cluster waits %s", got)
	}
	s.forget("uid")
	if len(s.pending) != 0 {
		t.Errorf("%d Clusters are remembered", len(s.pending))
	}
}

// TestReport_HoldsWhatIsThere keeps a condition that a step is about to know more about: a manager that has just
// started says nothing about a workload cluster before it has tried to connect. A write would need a client.
func TestReport_HoldsWhatIsThere(t *testing.T) {
	t.Parallel()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	cluster.Status.Conditions = []metav1.Condition{{
		Type: contract.ConditionProxyConfigured, Status: metav1.ConditionTrue, Reason: contract.ReasonConfigured,
	}}
	out := Outcome{}
	out.Join(Outcome{Holds: true})
	out.Join(Outcome{})
	out.Add(contract.ReasonInPlaceUnknown, "not known yet")
	again, err := (&Reporter{}).Report(t.Context(), cluster, out, "")
	if again != 0 || err != nil {
		t.Errorf("again after %s, error %v", again, err)
	}
}
