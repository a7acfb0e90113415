package model_test

import (
	"encoding/json"
	"slices"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/sequence"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// TestModel_OfCrashesWithATopology is TestModel_OfCrashes for a Cluster with a ClusterClass.
func TestModel_OfCrashesWithATopology(t *testing.T) {
	t.Parallel()
	quiet()
	valid := map[string]bool{}
	done := &tally{writes: map[string]int{}}
	sequence.Test[*crashes]{
		New:        func() *crashes { return done.begin(newTopology(t, valid)) },
		Operations: disturbed(topologyOperations()), Check: func(*crashes) error { return nil },
		Finish: func(c *crashes) error { return c.now.finish() },
		Steps:  enough / 3, Length: 20,
	}.Run(t)
	done.log(t)
}

// newTopology has Cluster prod with a topology, whose pool workers has MachineDeployment prod-md.
func newTopology(tb testing.TB, valid map[string]bool) *model {
	tb.Helper()
	w := emptyWorld(tb, valid)
	c := vocabulary.NewClassic(namespace, prod, "linux")
	c.Cluster.Spec.Topology.ClassRef.Name, c.Cluster.Spec.Topology.Version = "class", c.ControlPlane.Spec.Version
	c.Cluster.Spec.Topology.Workers.MachineDeployments = []clusterv1.MachineDeploymentTopology{{Class: "worker", Name: "workers"}}
	c.Deployment.Spec.Template.Spec.Version = c.ControlPlane.Spec.Version
	owned := map[string]string{clusterv1.ClusterTopologyOwnedLabel: "", clusterv1.ClusterNameLabel: prod}
	c.ControlPlane.Labels, c.Template.Labels = owned, owned
	c.Deployment.Labels = map[string]string{
		clusterv1.ClusterTopologyOwnedLabel: "", clusterv1.ClusterNameLabel: prod,
		clusterv1.ClusterTopologyMachineDeploymentNameLabel: "workers",
	}
	for _, object := range []client.Object{c.Cluster, c.ControlPlane, c.Deployment, c.Template} {
		if spec := specOf(object); spec != nil {
			w.own[w.keyOf(object)] = spec.DeepCopy()
		}
		w.change(object)
	}
	return w
}

// topologyOperations are those of a user of a ClusterClass, and of Cluster API.
func topologyOperations() []operation {
	names := []string{
		"label of prod", "annotation " + contract.AnnotationSecret, "annotation " + contract.AnnotationRollout,
		"annotation " + contract.AnnotationTargets, "endpoint", "pause Cluster prod", "proxy Secret is", "somebody's Secret",
		"delete somebody's Secret", "delete the generated Secret", "Cluster API looks", "Cluster API replaces the Machine",
		"annotation " + output.AnnotationPublish, "Cluster API creates worker", "the first Machine runs", "clusterctl move",
	}
	all := slices.DeleteFunc(slices.Concat(clusterOperations(), crossOperations(), secretOperations(), otherOperations()),
		func(o operation) bool { return !slices.Contains(names, o.Name) })
	for i, o := range all {
		if o.Name == "annotation "+contract.AnnotationTargets { // replaces all Machines, see docs/clusterclass.md
			all[i].Do = func(w *model, value string) error {
				w.due = true
				return o.Do(w, value)
			}
		}
	}
	return append(all,
		annotation(contract.AnnotationTopologyHold, ""),
		operation{Name: "version of the topology", Args: []string{"v1.36.4", "v1.37.0"}, Weight: 2, Do: func(w *model, version string) error {
			edit(w, key{"Cluster", prod}, func(c *clusterv1.Cluster) {
				w.due = w.due || c.Spec.Topology.Version != version
				c.Spec.Topology.Version = version
			})
			return nil
		}},
		operation{
			Name: "Secret of pool workers", Weight: 2,
			Args: []string{`{}`, `{"secretName": "other"}`, `{"secretName": "none"}`, `{"secretName": "no-such"}`},
			Do: func(w *model, value string) error {
				edit(w, key{"Cluster", prod}, func(c *clusterv1.Cluster) {
					pool := &c.Spec.Topology.Workers.MachineDeployments[0]
					pool.Variables.Overrides = []clusterv1.ClusterVariable{{Name: contract.VariableName, Value: apiextensionsv1.JSON{Raw: []byte(value)}}}
				})
				return nil
			},
		})
}

// reconcilesTopology is a pass of the topology controller: it writes what the ClusterClass says, and what the hook adds.
func (w *model) reconcilesTopology() {
	live, _ := w.live[key{"Cluster", prod}].(*clusterv1.Cluster)
	if live.Spec.Topology.ClassRef.Name == "" || live.Spec.Paused != nil && *live.Spec.Paused {
		return
	}
	cluster := live
	asks, err := settings.Of(cluster)
	if err != nil || settings.CheckTopologyLabel(cluster.Labels, cluster.Annotations) != nil {
		return // the hook refuses
	}
	controlPlane := w.controlPlane()
	controlPlane.Spec.Version, controlPlane.Spec.KubeadmConfigSpec = live.Spec.Topology.Version, *w.own[w.keyOf(controlPlane)].DeepCopy()
	deployment, _ := copyOf(w.live[key{"MachineDeployment", prod + "-md"}]).(*clusterv1.MachineDeployment)
	deployment.Spec.Template.Spec.Version = live.Spec.Topology.Version
	topology := live.Spec.Topology
	deployment.Spec.Rollout.After = topology.Workers.MachineDeployments[0].Rollout.After
	controlPlane.Spec.Rollout.After = topology.ControlPlane.Rollout.After
	template, _ := copyOf(w.live[key{"KubeadmConfigTemplate", prod + "-md"}]).(*bootstrapv1.KubeadmConfigTemplate)
	template.Spec.Template.Spec = *w.own[w.keyOf(template)].DeepCopy()
	if settings.IsEnabledAt(cluster.Labels, cluster.Annotations, cluster.Spec.Topology.Version) {
		want := plan.Want{Cluster: prod, Enabled: true, Options: asks.Options}
		w.hook(controlPlane, plan.Object{Kind: plan.KindControlPlane}, want)
		w.hook(template, plan.Object{
			Kind: plan.KindTemplate, Pools: []plan.Pool{plan.TopologyPool(asks.Pools[0])},
		}, want)
	}
	for _, object := range []client.Object{controlPlane, deployment, template} {
		if before := w.live[w.keyOf(object)]; canonical(before) != canonical(object) {
			w.countRollouts(before, object)
			w.change(object)
		}
	}
}

// hook adds what the topology hook adds to an object.
func (w *model) hook(object client.Object, asked plan.Object, want plan.Want) {
	asked.Hooked, asked.Spec = true, kinds.View(object)
	decision, err := plan.Decide(asked, want, noFacts{})
	must(err)
	data, err := patch.EncodePatch(patch.Operations(kinds.Locate(object, nil), asked.Spec, decision.Edits))
	must(err)
	operations, err := jsonpatch.DecodePatch(data)
	must(err)
	text, err := json.Marshal(object)
	must(err)
	text, err = operations.Apply(text)
	must(err)
	switch patched := w.decode(w.kindOf(object), text).(type) {
	case *controlplanev1.KubeadmControlPlane:
		*specOf(object) = patched.Spec.KubeadmConfigSpec
	case *bootstrapv1.KubeadmConfigTemplate:
		*specOf(object) = patched.Spec.Template.Spec
	}
}

// noFacts are the facts that a hook has.
type noFacts struct{}

func (noFacts) Values(plan.Object) (none plan.Values, err error)                 { return none, nil }
func (noFacts) Taken(plan.Object, string) (string, error)                        { return "", nil }
func (noFacts) Infrastructure(plan.Object) (none plan.Infrastructure, err error) { return none, nil }

func (noFacts) Begun() (bool, error) { return false, nil }
