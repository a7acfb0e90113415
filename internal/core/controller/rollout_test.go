package controller

import (
	"errors"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

func TestRollout_OfTheUserIsAwaitedAndUsedOnce(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	at := now.Add
	for name, test := range map[string]struct {
		after   time.Time
		created []time.Time
		rolls   bool
		later   time.Duration
	}{
		"none":                              {created: []time.Time{at(-time.Hour)}},
		"in an hour":                        {after: at(time.Hour), created: []time.Time{at(-time.Hour)}, later: time.Hour},
		"now":                               {after: now, created: []time.Time{at(-time.Hour)}, rolls: true},
		"past, and not begun":               {after: at(-time.Minute), created: []time.Time{at(-time.Hour), at(-2 * time.Hour)}, rolls: true},
		"past, and one Machine is replaced": {after: at(-time.Minute), created: []time.Time{at(-time.Hour), at(-time.Second)}},
		"past, and done":                    {after: at(-time.Hour), created: []time.Time{at(-time.Minute)}},
	} {
		o := Object{Running: true, Rollout: rolloutOf(metav1.NewTime(test.after), test.created)}
		if got := o.RollsNow(now); got != test.rolls {
			t.Errorf("%s: rolls %v, want %v", name, got, test.rolls)
		}
		if got := o.RollsIn(now); got != test.later {
			t.Errorf("%s: rolls in %v, want %v", name, got, test.later)
		}
	}
}

// commands are a recipe without files, so that new Machines wait for no settings.
func commands() patch.Recipe {
	return patch.Recipe{First: []string{"sh /etc/capi-proxy-patcher/setup.sh || : # capi-proxy-patcher"}}
}

// TestRollOut_CountsTheMachinesThatAreBehind has one KubeadmConfig each, and the control plane and pool md of a Cluster
// that asks for a rollout.
func TestRollOut_CountsTheMachinesThatAreBehind(t *testing.T) {
	t.Parallel()
	of := func(labels ...string) func(*bootstrapv1.KubeadmConfig) {
		return func(c *bootstrapv1.KubeadmConfig) {
			for pair := range slices.Chunk(labels, 2) {
				c.Labels[pair[0]] = pair[1]
			}
		}
	}
	controlPlane := of(clusterv1.MachineControlPlaneLabel, "")
	worker := of(clusterv1.MachineDeploymentNameLabel, "md")
	data := func(c *bootstrapv1.KubeadmConfig) {
		c.Spec.PreKubeadmCommands = commands().First
	}
	updating := func(c *bootstrapv1.KubeadmConfig) {
		c.Annotations = map[string]string{clusterv1.UpdateInProgressAnnotation: ""}
	}
	for name, test := range map[string]struct {
		change  []func(*bootstrapv1.KubeadmConfig)
		objects func(controlPlane, template *Reconciled)
		changed time.Time
		behind  string
		// rolls is the object that the controller rolls itself.
		rolls string
	}{
		"of the control plane, old entries":  {change: []func(*bootstrapv1.KubeadmConfig){controlPlane}, behind: "KubeadmControlPlane cp"},
		"of the control plane, old content":  {change: []func(*bootstrapv1.KubeadmConfig){controlPlane, data}, changed: noon(), behind: "KubeadmControlPlane cp", rolls: "cp"},
		"of a pool, old entries":             {change: []func(*bootstrapv1.KubeadmConfig){worker}, behind: "MachineDeployment md", rolls: "md"},
		"of a pool, old content":             {change: []func(*bootstrapv1.KubeadmConfig){worker, data}, changed: noon(), behind: "MachineDeployment md", rolls: "md"},
		"of a pool, being updated in place":  {change: []func(*bootstrapv1.KubeadmConfig){worker, data, updating}, behind: "MachineDeployment md"},
		"updated in place, old entries":      {change: []func(*bootstrapv1.KubeadmConfig){worker, updating}, behind: "MachineDeployment md"},
		"current":                            {change: []func(*bootstrapv1.KubeadmConfig){worker, data}},
		"made after the content changed":     {change: []func(*bootstrapv1.KubeadmConfig){worker, data}, changed: noon().Add(-2 * time.Hour)},
		"of another pool":                    {change: []func(*bootstrapv1.KubeadmConfig){of(clusterv1.MachineDeploymentNameLabel, "other")}},
		"of a pool and the control plane":    {change: []func(*bootstrapv1.KubeadmConfig){worker, controlPlane}},
		"of neither pool nor control plane":  {},
		"without bootstrap data":             {change: []func(*bootstrapv1.KubeadmConfig){worker, func(c *bootstrapv1.KubeadmConfig) { c.Status.DataSecretName = "" }}},
		"that is being deleted":              {change: []func(*bootstrapv1.KubeadmConfig){worker, func(c *bootstrapv1.KubeadmConfig) { c.DeletionTimestamp = new(metav1.NewTime(noon())) }}},
		"of a MachinePool":                   {change: []func(*bootstrapv1.KubeadmConfig){worker, func(c *bootstrapv1.KubeadmConfig) { c.OwnerReferences[0].Kind = "MachinePool" }}},
		"of nobody":                          {change: []func(*bootstrapv1.KubeadmConfig){worker, func(c *bootstrapv1.KubeadmConfig) { c.OwnerReferences = nil }}},
		"of an object that is left alone":    {change: []func(*bootstrapv1.KubeadmConfig){worker}, objects: func(_, template *Reconciled) { template.Recipe = nil }},
		"of a topology's pool, old entries":  {change: []func(*bootstrapv1.KubeadmConfig){worker}, objects: owned, behind: "MachineDeployment md"},
		"of settings that cannot be used":    {change: []func(*bootstrapv1.KubeadmConfig){worker}, objects: unusable(""), behind: "MachineDeployment md"},
		"of settings that can be used again": {change: []func(*bootstrapv1.KubeadmConfig){worker}, objects: unusable("team/proxy"), behind: "MachineDeployment md", rolls: "md"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := configOf("m")
			for _, change := range test.change {
				change(config)
			}
			secret := generated("one-proxy-files")
			if !test.changed.IsZero() {
				secret.Annotations = map[string]string{contract.AnnotationChangedAt: test.changed.Format(time.RFC3339)}
			}
			cp, md := &controlplanev1.KubeadmControlPlane{ObjectMeta: named("cp")}, &clusterv1.MachineDeployment{ObjectMeta: named("md")}
			s, writer := show(t, config, secret, cp, md)
			cluster, recipe := &clusterv1.Cluster{ObjectMeta: named("one")}, commands()
			c := rollingController(s, writer)
			controlPlane := Reconciled{Object: NewObject(cp, plan.KindControlPlane, true), Recipe: &recipe, Secret: secret.Name}
			template := Reconciled{
				Object: NewObject(&bootstrapv1.KubeadmConfigTemplate{ObjectMeta: named("t")}, plan.KindTemplate, false),
				Recipe: &recipe, Secret: secret.Name,
			}
			template.Pools = []plan.Pool{{Pool: settings.Pool{Kind: settings.KindMachineDeployment}, Object: "md"}}
			if test.objects != nil {
				test.objects(&controlPlane, &template)
			}
			for _, rollout := range []string{contract.RolloutOnNextRollout, contract.RolloutImmediate} {
				s.writes = nil
				p := c.newPass(cluster, settings.ClusterOf(cluster))
				p.Options.Rollout, p.Reconciled, p.current = rollout, []Reconciled{controlPlane, template}, true
				var done Result
				out, err := c.rollOut(t.Context(), p, &done)
				if err != nil {
					t.Fatal(err)
				}
				behind, rolls := "", ""
				for _, group := range *done.Behind {
					behind += group.Kind + " " + group.Name
				}
				for _, group := range done.RolledOut {
					rolls += group.Name
				}
				want := test.rolls
				if rollout != contract.RolloutImmediate {
					want = ""
				}
				if behind != test.behind || rolls != want || len(s.writes) != len(done.RolledOut) ||
					(len(out.Findings) > 0) != (behind != "") || !done.changed.Equal(test.changed) && test.objects == nil {
					t.Errorf("%s: behind %q, rolled out %q, writes %q, findings %v, changed %v", rollout, behind, rolls, s.writes,
						out.Findings, done.changed)
				}
			}
		})
	}
}

// owned makes the topology controller the owner of a template.
func owned(_, template *Reconciled) {
	template.SetLabels(map[string]string{clusterv1.ClusterTopologyOwnedLabel: ""})
}

// unusable gives a template files whose settings come from a proxy Secret, or cannot be used.
func unusable(proxy string) func(_, template *Reconciled) {
	return func(_, template *Reconciled) {
		recipe := commands()
		recipe.Files = []patch.File{{Path: contract.PathProxyEnv, Content: "x"}}
		template.Recipe, template.Proxy = &recipe, proxy
	}
}

// TestLagging_NamesTheYoungestMachineThatOnlyARolloutReplaces sorts the Machines by name.
func TestLagging_NamesTheYoungestMachineThatOnlyARolloutReplaces(t *testing.T) {
	t.Parallel()
	recipe, configs := commands(), []*bootstrapv1.KubeadmConfig{}
	for i, name := range []string{"b", "c", "a"} {
		config := configOf(name)
		config.CreationTimestamp = metav1.NewTime(noon().Add(time.Duration([]int{1, 3, 2}[i]) * time.Minute))
		configs = append(configs, config)
	}
	o := Reconciled{Object: Object{BootstrapObject: &bootstrapv1.KubeadmConfigTemplate{}, Kind: plan.KindTemplate}, Recipe: &recipe}
	got := lagging(&world.Memory{}, configs, o, settings.KindMachineDeployment, "md", time.Time{})
	var names []string
	for _, machine := range got.Machines {
		names = append(names, machine.Name)
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) || !got.replaceable.Equal(noon().Add(3*time.Minute)) {
		t.Errorf("got %v, the youngest of %v", names, got.replaceable)
	}
}

// TestReplace_SetsTheTimeOnce has Machines that were created an hour before noon.
func TestReplace_SetsTheTimeOnce(t *testing.T) {
	t.Parallel()
	const (
		merge  = `{"metadata":{"resourceVersion":"7"},"spec":{"rollout":{"after":"2026-01-01T12:00:00Z"}}}`
		plane  = `{"metadata":{"resourceVersion":"7"},"spec":{"topology":{"controlPlane":{"rollout":{"after":"2026-01-01T12:00:00Z"}}}}}`
		base   = `[{"op":"replace","path":"/metadata/resourceVersion","value":"7"}`
		path   = `"/spec/topology/workers/machineDeployments/1/rollout`
		first  = base + `,{"op":"test","path":` + path + `","value":null},{"op":"add","path":` + path + `","value":{"after":"2026-01-01T12:00:00Z"}}]`
		second = base + `,{"op":"add","path":` + path + `/after","value":"2026-01-01T12:00:00Z"}]`
	)
	notFound := apierrors.NewNotFound(schema.GroupResource{}, "cp")
	refused := errors.New("refused")
	created := noon().Add(-time.Hour)
	after := func(d time.Duration) metav1.Time { return metav1.NewTime(created.Add(d)) }
	pools := func(names ...string) clusterv1.Topology {
		topology := clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "class"}}
		for _, name := range names {
			topology.Workers.MachineDeployments = append(topology.Workers.MachineDeployments,
				clusterv1.MachineDeploymentTopology{Name: name})
		}
		return topology
	}
	rolling := func(d time.Duration) clusterv1.Topology {
		topology := pools("x", "workers")
		topology.Workers.MachineDeployments[1].Rollout.After = after(d)
		topology.ControlPlane.Rollout.After = after(d)
		return topology
	}
	cp := func(change func(*controlplanev1.KubeadmControlPlane)) client.Object {
		object := &controlplanev1.KubeadmControlPlane{ObjectMeta: named("g")}
		change(object)
		return object
	}
	annotated := func(value string) client.Object {
		return cp(func(o *controlplanev1.KubeadmControlPlane) {
			o.Annotations = map[string]string{clusterv1.PausedAnnotation: value}
		})
	}
	plain := cp(func(*controlplanev1.KubeadmControlPlane) {})
	ownedPlane := cp(func(o *controlplanev1.KubeadmControlPlane) { o.Labels[clusterv1.ClusterTopologyOwnedLabel] = "" })
	pool := &clusterv1.MachineDeployment{ObjectMeta: named("g")}
	ownedPool := &clusterv1.MachineDeployment{ObjectMeta: named("g", clusterv1.ClusterTopologyOwnedLabel, "",
		clusterv1.ClusterTopologyMachineDeploymentNameLabel, "workers")}
	for name, test := range map[string]struct {
		kind     string
		object   client.Object
		topology clusterv1.Topology
		refusal  error
		// write is what is written to target.
		target, write string
	}{
		"a control plane":             {kind: plan.KindControlPlane, object: plain, target: "g", write: merge},
		"a MachineDeployment":         {kind: settings.KindMachineDeployment, object: pool, target: "g", write: merge},
		"a MachinePool":               {kind: settings.KindMachinePool, object: pool},
		"an object that is gone":      {kind: settings.KindMachineDeployment, object: plain},
		"one that goes meanwhile":     {kind: plan.KindControlPlane, object: plain, refusal: notFound, target: "g", write: merge},
		"a refused write":             {kind: plan.KindControlPlane, object: plain, refusal: refused, target: "g", write: merge},
		"one that is being deleted":   {kind: plan.KindControlPlane, object: cp(func(o *controlplanev1.KubeadmControlPlane) { o.DeletionTimestamp = new(metav1.NewTime(noon())) })},
		"one that the user paused":    {kind: plan.KindControlPlane, object: annotated("")},
		"one that we paused":          {kind: plan.KindControlPlane, object: annotated(contract.PausedForPatch), target: "g", write: merge},
		"a rollout before":            {kind: plan.KindControlPlane, object: cp(func(o *controlplanev1.KubeadmControlPlane) { o.Spec.Rollout.After = after(-time.Second) }), target: "g", write: merge},
		"a rollout that has begun":    {kind: plan.KindControlPlane, object: cp(func(o *controlplanev1.KubeadmControlPlane) { o.Spec.Rollout.After = after(time.Second) })},
		"a rollout of tomorrow":       {kind: settings.KindMachineDeployment, object: &clusterv1.MachineDeployment{ObjectMeta: named("g"), Spec: clusterv1.MachineDeploymentSpec{Rollout: clusterv1.MachineDeploymentRolloutSpec{After: after(24 * time.Hour)}}}},
		"a topology that is gone":     {kind: plan.KindControlPlane, object: ownedPlane},
		"a topology without the part": {kind: plan.KindControlPlane, object: ownedPlane, topology: pools(), target: "one", write: plane},
		"a topology's control plane":  {kind: plan.KindControlPlane, object: ownedPlane, topology: clusterv1.Topology{ControlPlane: clusterv1.ControlPlaneTopology{Replicas: new(int32(3))}}, target: "one", write: plane},
		"its second rollout":          {kind: plan.KindControlPlane, object: ownedPlane, topology: rolling(-time.Second), target: "one", write: plane},
		"its rollout that has begun":  {kind: plan.KindControlPlane, object: ownedPlane, topology: rolling(time.Second)},
		"a topology's pool":           {kind: settings.KindMachineDeployment, object: ownedPool, topology: pools("x", "workers"), target: "one", write: first},
		"a pool's second rollout":     {kind: settings.KindMachineDeployment, object: ownedPool, topology: rolling(-time.Second), target: "one", write: second},
		"a pool's that has begun":     {kind: settings.KindMachineDeployment, object: ownedPool, topology: rolling(time.Second)},
		"a pool that is removed":      {kind: settings.KindMachineDeployment, object: ownedPool, topology: pools("x")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, writer := show(t, test.object)
			s.refusal = test.refusal
			recorder := events.NewFakeRecorder(1)
			c := rollingController(s, writer)
			c.reporter.Recorder = recorder
			cluster := &clusterv1.Cluster{ObjectMeta: named("one"), Spec: clusterv1.ClusterSpec{Topology: test.topology}}
			group := behind{Group: outdated.Group{Kind: test.kind, Name: "g"}, replaceable: created}
			done, err := c.replace(t.Context(), &Pass{Cluster: cluster, current: true}, group)
			if failed := errors.Is(test.refusal, refused); (err != nil) != failed || done != (test.write != "" && !failed) ||
				(len(recorder.Events) == 1) != done {
				t.Errorf("done %v, error %v, %d events", done, err, len(recorder.Events))
			}
			var want []string
			if test.write != "" {
				want = []string{"patch " + test.target + " " + test.write}
			}
			if !slices.Equal(s.writes, want) {
				t.Errorf("got  %q\nwant %q", s.writes, want)
			}
			if test.write == "" {
				return
			}
			s.writes = nil
			old := cluster.DeepCopy() // the API server has another one
			old.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
			s.world.Add(old)
			done, err = c.replace(t.Context(), &Pass{Cluster: cluster, Writer: writer}, group)
			if !apierrors.IsConflict(err) || done || s.writes != nil {
				t.Errorf("with a Cluster of the past: done %v, error %v, writes %q", done, err, s.writes)
			}
		})
	}
}

// rollingController is a controller that can follow rollouts.
func rollingController(s *shown, writer *Writer) *Controller {
	return &Controller{
		Config: Config{Client: s, Memory: &world.Memory{}, Now: noon}, reader: Reader{Client: s}, writer: writer,
		reporter: &Reporter{Recorder: events.NewFakeRecorder(9)},
	}
}
