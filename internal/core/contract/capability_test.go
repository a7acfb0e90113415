package contract_test

import (
	"slices"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// TestAdd_AddsEveryName has one capability with one name of each kind, added twice. It runs alone: what it adds is the
// whole program's.
func TestAdd_AddsEveryName(t *testing.T) { //nolint:paralleltest // see above
	before := len(contract.Reasons())
	late := contract.Reason{
		Name: "Late", Status: contract.StatusUnknown, Task: contract.TaskWait, After: contract.ReasonPaused,
	}
	later := late
	later.Name, later.After = "Later", late.Name
	other := contract.Capability{Name: "other", Rollouts: []string{"Elsewhere"}}
	contract.Add(other)
	for range 2 {
		contract.Add(contract.Capability{
			Name: "test", Annotations: []contract.Annotation{{Key: contract.Domain + "/asked"}},
			Records: []string{contract.Domain + "/recorded"}, Rollouts: []string{"OnNodes"}, Conditions: []string{"ItWorks"},
			Reasons: []contract.Reason{late, later},
		})
	}
	contract.Add(other)
	if all := contract.Rollouts(); slices.Index(all, "Elsewhere") > slices.Index(all, "OnNodes") {
		t.Errorf("rollouts %q: one that is added again changes its place", all)
	}
	all := contract.Reasons()
	at := slices.Index(all, contract.ReasonOf(contract.ReasonPaused))
	if len(all) != before+2 || all[at+1] != late || all[at+2] != later {
		t.Errorf("reasons %v", all)
	}
	for what, list := range map[string][]string{
		"asked": contract.ClusterAnnotations(), "recorded": contract.ClusterAnnotations(), "OnNodes": contract.Rollouts(),
		"ItWorks": contract.Conditions(), contract.Domain + "/asked": contract.UserAnnotations(),
	} {
		if !slices.Contains(list, what) {
			t.Errorf("%s is not in %q", what, list)
		}
	}
	if slices.Contains(contract.UserAnnotations(), contract.Domain+"/recorded") {
		t.Error("a record is an annotation of users")
	}
	for rollout, reaches := range map[string]bool{
		"OnNodes": true, contract.RolloutImmediate: false, contract.RolloutOnNextRollout: false, "": false, "other": false,
	} {
		if contract.ReachesNodes(rollout) != reaches {
			t.Errorf("rollout %q reaches nodes: %t", rollout, !reaches)
		}
	}
}
