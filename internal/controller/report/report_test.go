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

// TestSteady_WaitsUnlessTheUserIsAsked is the rule of what may wait.
func TestSteady_WaitsUnlessTheUserIsAsked(t *testing.T) {
	t.Parallel()
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	objects, endpoint := contract.ReasonWaitingForObjects, contract.ReasonWaitingForEndpoint
	for _, row := range []struct {
		status       metav1.ConditionStatus
		reason       string
		next         metav1.ConditionStatus
		reasonOfNext string
		want         bool
	}{
		{unknown, objects, unknown, endpoint, true},
		{unknown, endpoint, unknown, objects, true},
		{unknown, objects, unknown, objects, true}, // another message
		{no, contract.ReasonInvalidSettings, no, contract.ReasonInvalidSettings, true},
		{yes, contract.ReasonConfigured, yes, contract.ReasonConfigured, true},
		{unknown, endpoint, yes, contract.ReasonConfigured, false},
		{yes, contract.ReasonConfigured, unknown, objects, false},
		{unknown, objects, no, contract.ReasonSettingsNotFound, false},
		{no, contract.ReasonSettingsNotFound, unknown, objects, false},
		{no, contract.ReasonSettingsNotFound, no, contract.ReasonInvalidSettings, false},
		{unknown, contract.ReasonConfiguring, unknown, objects, false},
		{unknown, objects, unknown, contract.ReasonInternalError, false},
		{unknown, contract.ReasonInternalError, unknown, objects, false},
		{unknown, objects, unknown, contract.ReasonPaused, false},
		{unknown, objects, unknown, contract.ReasonInPlaceProgressing, false},
	} {
		previous := metav1.Condition{Status: row.status, Reason: row.reason, Message: "one"}
		next := metav1.Condition{Status: row.next, Reason: row.reasonOfNext, Message: "two"}
		var s steady
		if waits := s.wait("uid", &previous, next, time.Unix(0, 0)) > 0; waits != row.want {
			t.Errorf("%s %s after %s %s waits: %t, want %t", row.next, row.reasonOfNext, row.status, row.reason, waits, row.want)
		}
	}
}

func TestSteady_StartsAnewWithAnotherReason(t *testing.T) {
	t.Parallel()
	condition := func(reason string) metav1.Condition {
		return metav1.Condition{Status: metav1.ConditionUnknown, Reason: reason, Message: "not yet"}
	}
	objects, endpoint := condition(contract.ReasonWaitingForObjects), condition(contract.ReasonWaitingForEndpoint)
	var s steady
	for i, step := range []struct {
		at   time.Duration
		next metav1.Condition
		want time.Duration
	}{
		{0, endpoint, time.Second},
		{500 * time.Millisecond, objects, 0}, // as it is written
		{600 * time.Millisecond, endpoint, time.Second},
		{1500 * time.Millisecond, endpoint, 100 * time.Millisecond},
		{1600 * time.Millisecond, endpoint, 0},
	} {
		if got := s.wait("uid", &objects, step.next, time.Unix(0, 0).Add(step.at)); got != step.want {
			t.Errorf("step %d: waits %s, want %s", i, got, step.want)
		}
	}
}

func TestWritten_IsTheConditionUntilTheCacheHasIt(t *testing.T) {
	t.Parallel()
	cached, wrote := &metav1.Condition{Reason: "Cached"}, metav1.Condition{Reason: "Written"}
	for name, row := range map[string]struct {
		uid     types.UID
		version string
		cached  *metav1.Condition
		want    string
	}{
		"a cache that is behind":             {"one", "9", cached, "Written"},
		"a cache that has no condition yet":  {"one", "9", nil, "Written"},
		"the version that was written":       {"one", "10", cached, "Cached"},
		"a later one":                        {"one", "11", cached, "Cached"},
		"a later one without the condition":  {"one", "11", nil, ""},
		"a version that cannot be compared":  {"one", "x", cached, "Cached"},
		"no version":                         {"one", "", cached, "Cached"},
		"another Cluster":                    {"two", "9", cached, "Cached"},
		"another Cluster without conditions": {"two", "9", nil, ""},
	} {
		var w written
		w.note("one", "10", wrote)
		got := ""
		if latest := w.latest(row.uid, row.version, row.cached); latest != nil {
			got = latest.Reason
		}
		if got != row.want {
			t.Errorf("%s: condition %q, want %q", name, got, row.want)
		}
		if left := row.want == "Written" || row.uid != "one"; left != (len(w.last) == 1) {
			t.Errorf("%s: %d Clusters are remembered", name, len(w.last))
		}
		if w.forget("one"); len(w.last) != 0 {
			t.Errorf("%s: a Cluster is remembered that is gone", name)
		}
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
