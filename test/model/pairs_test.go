package model_test

import (
	"slices"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/sequence"
)

// call is an operation with its argument.
type call struct{ operation, argument string }

// feature is something that a user turns on and off.
type feature struct {
	name    string
	on, off call
}

// features are those of Clusters with and without a topology, of which pool and version are the operations.
func features(pool, version string, secrets [3]string) []feature {
	const rollout, none = "annotation " + contract.AnnotationRollout, ""
	targets := "static-pods,containerd,kubelet,commands,trust"
	return []feature{
		{"a Secret of a pool", call{pool, secrets[0]}, call{pool, secrets[2]}},
		{"none", call{pool, secrets[1]}, call{pool, secrets[2]}},
		{"the label off", call{"label of prod", "false"}, call{"label of prod", "true"}},
		{"pause", call{"pause Cluster prod", "true"}, call{"pause Cluster prod", none}},
		{"move", call{"clusterctl move", none}, call{"clusterctl move", none}},
		{"a version", call{version, "v1.37.0"}, call{version, "v1.36.4"}},
		{"certificates alone", call{"proxy Secret is", "certificates"}, call{"proxy Secret is", "with password"}},
		{"static Pods", call{"annotation " + contract.AnnotationTargets, targets}, call{"annotation " + contract.AnnotationTargets, none}},
		{"outputs", call{"annotation " + output.AnnotationPublish, "env,annotations"}, call{"annotation " + output.AnnotationPublish, none}},
		{"InPlace", call{rollout, inplace.RolloutInPlace}, call{rollout, none}},
		{"Immediate", call{rollout, contract.RolloutImmediate}, call{rollout, none}},
	}
}

// share is the part of the pairs that make test has: one of so many. make test-model has all.
const share = 4

// TestModel_OfCrashesForEachPairOfFeatures has a Cluster with a Machine of each kind, turns two features on, and off again.
// It disturbs each write that follows when the second one is turned on, and when the first one is turned off. With a
// topology, the label begins and ends a freeze.
func TestModel_OfCrashesForEachPairOfFeatures(t *testing.T) {
	t.Parallel()
	quiet()
	valid := map[string]bool{}
	done := &tally{writes: map[string]int{}}
	for name, kind := range map[string]struct {
		world      func() *model
		operations []operation
		first      []call
		features   []feature
	}{
		"without a topology": {
			func() *model { return newWorld(t, valid) },
			slices.Concat(clusterOperations(), crossOperations(), secretOperations(), poolOperations(), otherOperations()),
			[]call{
				{"label of prod", "true"},
				{"Cluster API creates worker", "md"},
				{"the first Machine runs", ""},
			},
			features("Secret of pool prod-md", "Kubernetes version", [3]string{"other", contract.SecretNone, ""}),
		},
		"with a topology": {
			func() *model { return newTopology(t, valid) }, topologyOperations(),
			[]call{{"label of prod", "true"}, {"Cluster API creates worker", "md"}, {"the first Machine runs", ""}},
			features("Secret of pool workers", "version of the topology",
				[3]string{`{"secretName": "other"}`, `{"secretName": "none"}`, `{}`}),
		},
	} {
		for i, a := range kind.features {
			for j, b := range kind.features[:i] {
				if !sequence.IsLong() && (i+j)%share != 0 {
					continue
				}
				c := done.begin(kind.world())
				steps := slices.Concat(kind.first, []call{a.on, b.on, a.off, b.off})
				for n, step := range steps {
					left := len(steps) - n
					c.calm = left != 3 && left != 2
					if left == 4 && c.now.firstMachine() == nil {
						t.Fatalf("%s: there is no Machine of the control plane", name)
					}
					if err := c.do(step.do(kind.operations)); err != nil {
						t.Fatalf("%s, %s and %s, at %s: %v", name, a.name, b.name, step, err)
					}
				}
				if err := c.now.finish(); err != nil {
					t.Fatalf("%s, %s and %s: %v", name, a.name, b.name, err)
				}
			}
		}
	}
	done.log(t)
}

// do returns what a call does: the last operation of the name, with any argument.
func (c call) do(operations []operation) func(*model) error {
	return func(w *model) error {
		for _, o := range slices.Backward(operations) {
			if o.Name == c.operation {
				return o.Do(w, c.argument)
			}
		}
		panic("there is no operation " + c.operation)
	}
}
