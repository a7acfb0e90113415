package controller

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// TestCollect_FindsWhatCanBePatched has Cluster one, whose control plane is cp.
func TestCollect_FindsWhatCanBePatched(t *testing.T) {
	t.Parallel()
	controlPlane := func(change func(*controlplanev1.KubeadmControlPlane)) client.Object {
		object := &controlplanev1.KubeadmControlPlane{ObjectMeta: named("cp")}
		change(object)
		return object
	}
	paused := func(status metav1.ConditionStatus) func(*controlplanev1.KubeadmControlPlane) {
		return func(o *controlplanev1.KubeadmControlPlane) {
			o.Status.Conditions = []metav1.Condition{{Type: clusterv1.PausedCondition, Status: status}}
		}
	}
	plain := controlPlane(func(*controlplanev1.KubeadmControlPlane) {})
	machine := world.MachineMetadata()
	machine.ObjectMeta = named("m", clusterv1.ClusterNameLabel, "one", clusterv1.MachineControlPlaneLabel, "")
	template := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: named("t")}
	machines := func(kind, bootstrap string) client.Object {
		pool := &clusterv1.MachinePool{ObjectMeta: named("mp")}
		pool.Spec.ClusterName = "one"
		pool.Spec.Template.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{Kind: kind, Name: bootstrap}
		return pool
	}
	empty := &bootstrapv1.KubeadmConfig{ObjectMeta: named("c")}
	const (
		kcp, none = plan.KindControlPlane, ""
	)
	for name, test := range map[string]struct {
		// kind is that of the control plane.
		kind    string
		objects []client.Object
		want    []string
		found   []string
	}{
		"nothing":                       {none, nil, nil, nil},
		"no control plane yet":          {kcp, nil, nil, []string{"WaitingForObjects"}},
		"a control plane":               {kcp, []client.Object{plain}, []string{"KubeadmControlPlane team/cp running false busy false []"}, nil},
		"one with a Machine":            {kcp, []client.Object{plain, machine}, []string{"KubeadmControlPlane team/cp running true busy false []"}, nil},
		"one with a replica":            {kcp, []client.Object{controlPlane(func(o *controlplanev1.KubeadmControlPlane) { o.Status.Replicas = new(int32(1)) })}, []string{"KubeadmControlPlane team/cp running true busy false []"}, nil},
		"one with no replica":           {kcp, []client.Object{controlPlane(func(o *controlplanev1.KubeadmControlPlane) { o.Status.Replicas = new(int32(0)) })}, []string{"KubeadmControlPlane team/cp running false busy false []"}, nil},
		"one that Cluster API works on": {kcp, []client.Object{controlPlane(paused(metav1.ConditionFalse))}, []string{"KubeadmControlPlane team/cp running false busy true []"}, nil},
		"one that is paused":            {kcp, []client.Object{controlPlane(paused(metav1.ConditionTrue))}, []string{"KubeadmControlPlane team/cp running false busy false []"}, nil},
		"one that is being deleted": {kcp, []client.Object{controlPlane(func(o *controlplanev1.KubeadmControlPlane) {
			paused(metav1.ConditionFalse)(o)
			o.DeletionTimestamp = new(metav1.NewTime(noon()))
		})}, []string{"KubeadmControlPlane team/cp running false busy false []"}, nil},
		"a foreign control plane":           {"Other", nil, nil, nil},
		"a foreign one with Machines":       {"Other", []client.Object{machine}, nil, []string{"TemplateNotSupported"}},
		"a hosted one with a pool":          {"Other", []client.Object{template, poolOf("a", plan.KindTemplate, "t")}, []string{"KubeadmConfigTemplate team/t running false busy false [MachineDeployment a]"}, []string{""}},
		"pools that share a template":       {none, []client.Object{template, poolOf("b", plan.KindTemplate, "t"), poolOf("a", plan.KindTemplate, "t")}, []string{"KubeadmConfigTemplate team/t running false busy false [MachineDeployment a MachineDeployment b]"}, nil},
		"a pool whose template is missing":  {none, []client.Object{poolOf("a", plan.KindTemplate, "t")}, nil, []string{"WaitingForObjects"}},
		"a pool of another bootstrapper":    {none, []client.Object{poolOf("a", "OtherTemplate", "t")}, nil, []string{"TemplateNotSupported"}},
		"a pool of a KubeadmConfig":         {none, []client.Object{poolOf("a", plan.KindConfig, "t")}, nil, []string{"TemplateNotSupported"}},
		"a pool with its own data":          {none, []client.Object{poolOf("a", plan.KindTemplate, "")}, nil, []string{""}},
		"a MachinePool":                     {none, []client.Object{empty, machines(plan.KindConfig, "c")}, []string{"KubeadmConfig team/c running false busy false [MachinePool mp]"}, nil},
		"a MachinePool that has its data":   {none, []client.Object{configOf("c"), machines(plan.KindConfig, "c")}, []string{"KubeadmConfig team/c running true busy false [MachinePool mp]"}, nil},
		"a MachinePool without its config":  {none, []client.Object{machines(plan.KindConfig, "c")}, nil, []string{"WaitingForObjects"}},
		"a MachinePool of a template":       {none, []client.Object{template, machines(plan.KindTemplate, "t")}, nil, []string{"TemplateNotSupported"}},
		"a MachineDeployment comes earlier": {kcp, []client.Object{empty, machines(plan.KindConfig, "c"), template, poolOf("z", plan.KindTemplate, "t"), plain}, []string{"KubeadmControlPlane team/cp running false busy false []", "KubeadmConfigTemplate team/t running false busy false [MachineDeployment z]", "KubeadmConfig team/c running false busy false [MachinePool mp]"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := show(t, test.objects...)
			cluster := settings.Cluster{Namespace: "team", Name: "one", ControlPlaneKind: test.kind, ControlPlaneName: "cp"}
			objects, out, err := Reader{Client: s}.Collect(t.Context(), cluster, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got, found []string
			for _, o := range objects {
				got = append(got, fmt.Sprintf("%s running %t busy %t %v", o, o.Running, o.Busy, o.Pools))
			}
			for _, f := range out.Findings {
				found = append(found, f.Reason)
			}
			if !slices.Equal(got, test.want) || !slices.Equal(found, test.found) {
				t.Errorf("got %q, findings %+v", got, out.Findings)
			}
		})
	}
}

// TestCollect_TakesTheTemplatesThatAreReadAlready has a second template with the same content.
func TestCollect_TakesTheTemplatesThatAreReadAlready(t *testing.T) {
	t.Parallel()
	s, _ := show(t, &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: named("a")}, &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: named("b")},
		poolOf("a", plan.KindTemplate, "a"), poolOf("b", plan.KindTemplate, "b"))
	templates := []bootstrapv1.KubeadmConfigTemplate{{ObjectMeta: named("other")}, {ObjectMeta: named("b")}}
	objects, _, err := Reader{Client: s}.Collect(t.Context(), settings.Cluster{Namespace: "team", Name: "one"}, templates)
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) != 2 || objects[1].BootstrapObject != kinds.BootstrapObject(&templates[1]) || objects[0].GetName() != "a" {
		t.Errorf("got %v", objects)
	}
}

// TestForeignUser_IsAPoolOfAnotherCluster asks for the users of template t.
func TestForeignUser_IsAPoolOfAnotherCluster(t *testing.T) {
	t.Parallel()
	other := func(name, kind, template string) client.Object {
		pool := poolOf(name, kind, template)
		pool.Spec.ClusterName = "two"
		return pool
	}
	for name, test := range map[string]struct {
		kind  string
		pools []client.Object
		want  string
	}{
		"its own pools":                {plan.KindTemplate, []client.Object{poolOf("a", plan.KindTemplate, "t")}, ""},
		"pools of another":             {plan.KindTemplate, []client.Object{other("c", plan.KindTemplate, "t"), other("b", plan.KindTemplate, "t"), poolOf("a", plan.KindTemplate, "t")}, "b"},
		"another's other template":     {plan.KindTemplate, []client.Object{other("b", plan.KindTemplate, "u")}, ""},
		"another kind of the name":     {plan.KindTemplate, []client.Object{other("b", "OtherTemplate", "t")}, ""},
		"a KubeadmConfig has one user": {plan.KindConfig, []client.Object{other("b", plan.KindTemplate, "t")}, ""},
	} {
		s, _ := show(t, test.pools...)
		o := NewObject(&bootstrapv1.KubeadmConfigTemplate{ObjectMeta: named("t")}, test.kind, false)
		pool, err := Reader{Client: s}.ForeignUser(t.Context(), settings.Cluster{Namespace: "team", Name: "one"}, o)
		if err != nil {
			t.Fatal(err)
		}
		if pool == nil && test.want != "" || pool != nil && pool.Object != test.want {
			t.Errorf("%s: got %v, want %q", name, pool, test.want)
		}
	}
}

// TestLate_ReturnsWorkersWithoutData has a KubeadmConfig each.
func TestLate_ReturnsWorkersWithoutData(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*bootstrapv1.KubeadmConfig)
		late   bool
		// pools are those that the answer has.
		pools int
	}{
		"of a Machine":              {func(*bootstrapv1.KubeadmConfig) {}, true, 0},
		"of a MachineSet":           {func(c *bootstrapv1.KubeadmConfig) { c.OwnerReferences[0].Kind = "MachineSet" }, true, 0},
		"of a MachinePool":          {func(c *bootstrapv1.KubeadmConfig) { c.OwnerReferences[0].Kind = "MachinePool" }, false, 0},
		"of nobody":                 {func(c *bootstrapv1.KubeadmConfig) { c.OwnerReferences = nil }, false, 0},
		"of a Machine by the way":   {func(c *bootstrapv1.KubeadmConfig) { c.OwnerReferences[0].Controller = nil }, false, 0},
		"of the control plane":      {func(c *bootstrapv1.KubeadmConfig) { c.Labels[clusterv1.MachineControlPlaneLabel] = "" }, false, 0},
		"with data":                 {func(c *bootstrapv1.KubeadmConfig) { c.Status.DataSecretName = "data" }, false, 0},
		"of another Cluster":        {func(c *bootstrapv1.KubeadmConfig) { c.Labels[clusterv1.ClusterNameLabel] = "two" }, false, 0},
		"of a pool":                 {func(c *bootstrapv1.KubeadmConfig) { c.Labels[clusterv1.MachineDeploymentNameLabel] = "md" }, true, 1},
		"of a pool that is removed": {func(c *bootstrapv1.KubeadmConfig) { c.Labels[clusterv1.MachineDeploymentNameLabel] = "gone" }, false, 0},
	} {
		config := configOf("m")
		config.Status.DataSecretName = ""
		test.change(config)
		pool := poolOf("md", plan.KindTemplate, "t")
		pool.Annotations = map[string]string{contract.AnnotationSecret: "own"}
		s, _ := show(t, config, pool)
		objects, err := Reader{Client: s}.Configs(settings.Cluster{Namespace: "team", Name: "one"}).Late(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if (len(objects) == 1) != test.late || test.late && (len(objects[0].Pools) != test.pools || !objects[0].IsOfMachine()) ||
			test.pools == 1 && objects[0].Pools[0].Override != "own" {
			t.Errorf("%s: got %+v", name, objects)
		}
	}
}
