package report

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
)

func TestNews_IsWhatDiffersFromTheLastReport(t *testing.T) {
	t.Parallel()
	var n memory
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
	if len(n.news) > maxNews {
		t.Errorf("%d Clusters are remembered", len(n.news))
	}
}

// TestReport_HoldsWhatIsThere keeps a condition that a step is about to know more about: a manager that has just
// started says nothing about a workload cluster before it has tried to connect. A write would need a client.
func TestReport_HoldsWhatIsThere(t *testing.T) {
	t.Parallel()
	cluster := &kinds.Cluster{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	cluster.Status.Conditions = []metav1.Condition{{
		Type: contract.ConditionProxyConfigured, Status: metav1.ConditionTrue, Reason: contract.ReasonConfigured,
	}}
	out := Outcome{}
	out.Join(Outcome{Holds: true})
	out.Join(Outcome{})
	out.Add(contract.ReasonInPlaceUnknown, "not known yet")
	if err := (&Reporter{}).Report(t.Context(), cluster, out, ""); err != nil {
		t.Error(err)
	}
}
