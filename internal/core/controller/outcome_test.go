package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

func TestJoin_KeepsTheEarliestAndTheLast(t *testing.T) {
	t.Parallel()
	var o Outcome
	o.AddAll(finding.Finding{Message: "0"})
	if o.IsExplained() {
		t.Error("a note is a reason")
	}
	for _, later := range []Outcome{
		{RequeueAfter: time.Minute},
		{RequeueAfter: time.Second},
		{RequeueAfter: time.Hour},
		{Findings: []finding.Finding{{Reason: "R"}}, Warnings: []finding.Finding{{Message: "w"}}},
		{},
	} {
		o.Join(later)
	}
	o.RequeueIn(0)
	o.Add("Reason", "%s", "text")
	o.Note("%d", 1)
	want := Outcome{
		RequeueAfter: time.Second, Warnings: []finding.Finding{{Message: "w"}},
		Findings: []finding.Finding{{Message: "0"}, {Reason: "R"}, {Reason: "Reason", Message: "text"}, {Message: "1"}},
	}
	if diff := cmp.Diff(want, o); diff != "" || !o.IsExplained() {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCondition_IsAsOldAsItsStatus(t *testing.T) {
	t.Parallel()
	now := time.Unix(100, 0)
	c := Condition{Now: func() time.Time { return now }, Type: "T"}
	previous := metav1.Condition{
		Type: "T", Status: metav1.ConditionTrue, Reason: "R", Message: "m", LastTransitionTime: metav1.NewTime(time.Unix(1, 0)),
	}
	for name, test := range map[string]struct {
		content  finding.Condition
		previous *metav1.Condition
		differs  bool
		since    time.Time
	}{
		"the first":       {finding.Condition{Status: "True", Reason: "R", Message: "m"}, nil, true, now},
		"the same":        {finding.Condition{Status: "True", Reason: "R", Message: "m"}, &previous, false, time.Unix(1, 0)},
		"another message": {finding.Condition{Status: "True", Reason: "R", Message: "n"}, &previous, true, time.Unix(1, 0)},
		"another reason":  {finding.Condition{Status: "True", Reason: "S", Message: "m"}, &previous, true, time.Unix(1, 0)},
		"another status":  {finding.Condition{Status: "False", Reason: "R", Message: "m"}, &previous, true, now},
	} {
		got := c.of(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Generation: 3}}, test.content, test.previous)
		if !got.LastTransitionTime.Time.Equal(test.since) || differs(test.previous, got) != test.differs || got.ObservedGeneration != 3 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
