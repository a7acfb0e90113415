package hooks

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/core/reconcilers/topology/cluster/patches"
	runtimeclient "sigs.k8s.io/cluster-api/exp/runtime/client"
	"sigs.k8s.io/cluster-api/exp/topology/scope"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
)

// clusterAPI calls hooks for Cluster API.
type clusterAPI struct {
	runtimeclient.Client // nothing else of it is called

	served served
}

// CallExtension implements runtimeclient.Client.
func (a clusterAPI) CallExtension(ctx context.Context, hook runtimecatalog.Hook, _ client.Object, name string,
	q runtimehooksv1.RequestObject, response runtimehooksv1.ResponseObject, _ ...runtimeclient.CallExtensionOption,
) error {
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	text, err := a.served.post(ctx, hook, name, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, response); err != nil {
		return err
	}
	if response.GetStatus() != runtimehooksv1.ResponseStatusSuccess {
		return fmt.Errorf("%s: %s", response.GetStatus(), response.GetMessage())
	}
	return nil
}

func unstructuredOf(t *testing.T, raw []byte) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return u
}

// made returns the object that Cluster API makes from a template, before patches.
func made(t *testing.T, template *unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	spec, _, err := unstructured.NestedMap(template.DeepCopy().Object, "spec", "template", "spec")
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetAPIVersion(template.GetAPIVersion())
	o.SetKind(kind)
	o.SetNamespace("team-a")
	o.SetName(name)
	return o
}

// topologyState is a topology as the controller of Cluster API sees it before it calls hooks: one control plane, a
// MachineDeployment with the Cluster's Secret, one with its own and a MachinePool.
func topologyState(t *testing.T, labels map[string]string) (*scope.ClusterBlueprint, *scope.ClusterState) {
	t.Helper()
	q := generated(t, hookrequests.Options{Pools: 1})
	template := func(i int) *unstructured.Unstructured { return unstructuredOf(t, q.Items[i].Object.Raw) }
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "cluster-0000", Labels: labels}}
	cluster.Spec.Topology = clusterv1.Topology{
		ClassRef: clusterv1.ClusterClassRef{Name: "standard"}, Version: hookrequests.Version,
		Variables: []clusterv1.ClusterVariable{{
			Name:  contract.VariableName,
			Value: literal(map[string]any{"targets": contract.Targets()}),
		}},
		Workers: clusterv1.WorkersTopology{
			MachineDeployments: []clusterv1.MachineDeploymentTopology{
				{Name: "plain", Class: "worker"},
				{Name: "own", Class: "worker", Variables: clusterv1.MachineDeploymentVariables{
					Overrides: []clusterv1.ClusterVariable{{
						Name:  contract.VariableName,
						Value: literal(map[string]any{"secretName": "other"}),
					}},
				}},
			},
			MachinePools: []clusterv1.MachinePoolTopology{{Name: "pool", Class: "worker"}},
		},
	}
	class := &clusterv1.ClusterClass{}
	class.Spec.ControlPlane.MachineInfrastructure.TemplateRef.Name = "standard-machine"
	class.Spec.Patches = []clusterv1.ClusterClassPatch{{Name: "proxy", External: &clusterv1.ExternalPatchDefinition{
		GeneratePatchesExtension:  contract.HandlerGeneratePatches,
		ValidateTopologyExtension: contract.HandlerValidateTopology,
	}}}
	class.Status.Variables = []clusterv1.ClusterClassStatusVariable{{
		Name:        contract.VariableName,
		Definitions: []clusterv1.ClusterClassStatusVariableDefinition{{From: "proxy"}},
	}}
	blueprint := &scope.ClusterBlueprint{
		Topology: cluster.Spec.Topology, ClusterClass: class, InfrastructureClusterTemplate: template(0),
		ControlPlane: &scope.ControlPlaneBlueprint{Template: template(1), InfrastructureMachineTemplate: template(2)},
		MachineDeployments: map[string]*scope.MachineDeploymentBlueprint{
			"worker": {BootstrapTemplate: template(3), InfrastructureMachineTemplate: template(4)},
		},
		MachinePools: map[string]*scope.MachinePoolBlueprint{
			"worker": {BootstrapTemplate: template(3), InfrastructureMachinePoolTemplate: template(4)},
		},
	}
	controlPlane := made(t, template(1), "KubeadmControlPlane", "cluster-0000-cp")
	_ = unstructured.SetNestedField(controlPlane.Object, hookrequests.Version, "spec", "version")
	desired := &scope.ClusterState{
		Cluster: cluster, InfrastructureCluster: made(t, template(0), "DockerCluster", "cluster-0000"),
		ControlPlane:       &scope.ControlPlaneState{Object: controlPlane, InfrastructureMachineTemplate: template(2)},
		MachineDeployments: scope.MachineDeploymentsStateMap{}, MachinePools: scope.MachinePoolsStateMap{},
	}
	for _, name := range []string{"plain", "own"} {
		md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "cluster-0000-" + name,
			Labels: map[string]string{clusterv1.ClusterTopologyMachineDeploymentNameLabel: name},
		}}
		md.Spec.Template.Spec.Version = hookrequests.Version
		desired.MachineDeployments[name] = &scope.MachineDeploymentState{
			Object: md, BootstrapTemplate: template(3),
			InfrastructureMachineTemplate: template(4),
		}
	}
	mp := &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: "cluster-0000-pool",
		Labels: map[string]string{clusterv1.ClusterTopologyMachinePoolNameLabel: "pool"},
	}}
	mp.Spec.Template.Spec.Version = hookrequests.Version
	desired.MachinePools["pool"] = &scope.MachinePoolState{
		Object: mp, BootstrapObject: made(t, template(3), "KubeadmConfig", "cluster-0000-pool"),
		InfrastructureMachinePoolObject: made(t, template(4), "DockerMachinePool", "cluster-0000-pool"),
	}
	return blueprint, desired
}

// TestGeneratePatches_WorksWithTheEngineOfClusterAPI lets Cluster API itself build the request, call the server over
// the network, apply the patches and copy the result into the objects that it would write, twice.
func TestGeneratePatches_WorksWithTheEngineOfClusterAPI(t *testing.T) {
	if err := feature.MutableGates.Set("RuntimeSDK=true,ClusterTopology=true"); err != nil {
		t.Fatal(err)
	}
	server := clusterAPI{served: serve(t, &Handlers{})}
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
		Name:   "kubeadmcontrolplanes.controlplane.cluster.x-k8s.io",
		Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"},
	}}
	engine := patches.NewEngine(fake.NewClientBuilder().WithScheme(scheme).WithObjects(crd).Build(), server)

	blueprint, desired := topologyState(t, map[string]string{contract.LabelEnabled: "true"})
	_, before := topologyState(t, nil)
	if err := engine.Apply(t.Context(), blueprint, desired); err != nil {
		t.Fatal(err)
	}
	specs := func(s *scope.ClusterState) map[string]map[string]any {
		return map[string]map[string]any{
			"control plane": specAt(s.ControlPlane.Object.Object, []string{"/spec", "/spec/kubeadmConfigSpec"}),
			"plain":         specAt(s.MachineDeployments["plain"].BootstrapTemplate.Object, poolParents()),
			"own":           specAt(s.MachineDeployments["own"].BootstrapTemplate.Object, poolParents()),
			"pool":          specAt(s.MachinePools["pool"].BootstrapObject.Object, []string{"/spec"}),
		}
	}
	unpatched := specs(before)
	for name, got := range specs(desired) {
		secret := "cluster-0000-proxy-files"
		if name == "own" {
			secret = "cluster-0000.own.tmd.proxy-files"
		}
		recipe, err := patch.NewRecipe(patch.Options{
			Targets:    contract.Targets(),
			SecretName: secret,
		})
		if err != nil {
			t.Fatal(err)
		}
		view := api.Spec(unpatched[name])
		plan, err := patch.Ensure(view, recipe)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(patch.Apply(view, plan.Edits), api.Spec(got)); diff != "" {
			t.Errorf("%s (-classic +topology):\n%s", name, diff)
		}
		if diff := cmp.Diff(patch.Own(unpatched[name]), patch.Own(got)); diff != "" {
			t.Errorf("%s, own entries (-before +after):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff(before.InfrastructureCluster, desired.InfrastructureCluster); diff != "" {
		t.Errorf("infrastructure:\n%s", diff)
	}

	blueprint, desired = topologyState(t, nil)
	if err := engine.Apply(t.Context(), blueprint, desired); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(unpatched, specs(desired)); diff != "" {
		t.Errorf("without the label (-before +after):\n%s", diff)
	}

	blueprint, desired = topologyState(t, map[string]string{contract.LabelEnabled: "true"})
	blueprint.Topology.Variables[0].Value = literal(map[string]any{"targets": "x"})
	if err := engine.Apply(t.Context(), blueprint, desired); err == nil {
		t.Error("a bad variable passes")
	}
}
