package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

// topologyOf is the topology of Cluster one, which is enabled and has pool workers with MachineDeployment md.
func topologyOf(t *testing.T, annotations map[string]string, objects ...client.Object) (*Topology, *shown) {
	t.Helper()
	secrets, shown := secretsOf(t, objects...)
	cluster := &clusterv1.Cluster{ObjectMeta: named("one", contract.LabelEnabled, contract.LabelEnabledValue)}
	cluster.Annotations = annotations
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{Kind: plan.KindControlPlane, Name: "cp"}
	cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "class"}}
	cluster.Spec.Topology.Workers.MachineDeployments = []clusterv1.MachineDeploymentTopology{{Name: "workers"}}
	asks, err := settings.Of(cluster)
	if err != nil {
		t.Fatal(err)
	}
	resolution := complete(t)
	resolution.Secret.Name.Name = "proxy"
	return &Topology{
		Cluster: cluster, View: settings.ClusterOf(cluster), Settings: asks, Version: patch.OutputVersion,
		Reader: secrets.reader, Writer: secrets.writer, Secrets: secrets, Now: noon,
		resolutions: map[string]*settings.Resolution{"": &resolution},
	}, shown
}

// want is what Cluster one asks for.
func (t *Topology) want() plan.Want {
	return plan.Want{Cluster: "one", Enabled: true, Options: t.Settings.Options}
}

// patched is a spec as the hook makes it.
func patched(t *testing.T, spec patch.Spec, targets ...contract.Target) patch.Spec {
	t.Helper()
	recipe, err := patch.NewRecipe(patch.Options{Targets: targets, SecretName: settings.GeneratedSecretName("one")})
	if err != nil {
		t.Fatal(err)
	}
	goal, err := patch.Ensure(spec, recipe)
	if err != nil {
		t.Fatal(err)
	}
	return patch.Apply(spec, goal.Edits)
}

// templateOf is the template of pool workers, which runs Kubernetes v1.30.0.
func templateOf(spec patch.Spec) Object {
	template := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: named("t", clusterv1.ClusterTopologyOwnedLabel, "")}
	o := NewObject(template, plan.KindTemplate, false)
	o.Spec = spec
	o.Pools = []plan.Pool{{
		Pool:   settings.Pool{Kind: settings.KindMachineDeployment, Name: "workers", Topology: true},
		Object: "md", Version: "v1.30.0", Bootstrap: clusterv1.ContractVersionedObjectReference{Kind: plan.KindTemplate, Name: "t"},
	}}
	return o
}

// reasons lists the reasons of findings, with "-" for none.
func reasons(out Outcome) string {
	var all []string
	for _, f := range out.Findings {
		all = append(all, cmp.Or(f.Reason, "-"))
	}
	return strings.Join(all, " ")
}

func frozen(value string) map[string]string {
	return map[string]string{contract.AnnotationTopologyHold: value}
}

// TestInspect_FindsHowAnObjectDiffers has the template of a pool, or the control plane.
func TestInspect_FindsHowAnObjectDiffers(t *testing.T) {
	t.Parallel()
	all := patched(t, patch.Spec{}, contract.Targets()...)
	first := all
	first.PreKubeadmCommands = append([]string{"echo user"}, all.PreKubeadmCommands...)
	const frozenNow = "disabled@v1.30.0"
	certificates, err := settings.ParseSecret(map[string][]byte{contract.KeyTrustedCA: []byte(pki.Text(t))})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		spec        patch.Spec
		pool        string
		override    string
		annotations map[string]string
		change      func(*Topology)
		drift       Drift
		// outcome is that of the object, "" for unchanged.
		outcome string
		// found are reasons; "-" is a finding without one.
		found string
		// proxy reports that the object should have the proxy.
		proxy bool
	}{
		"as it should be":              {spec: all, proxy: true},
		"without entries":              {drift: Lacking, outcome: plan.OutcomeWaiting, proxy: true},
		"with other targets":           {spec: patched(t, patch.Spec{}, contract.TargetContainerd), drift: Stale, outcome: plan.OutcomeWaiting, proxy: true},
		"with a user's command first":  {spec: first, outcome: plan.OutcomeLeftAlone, proxy: true},
		"with one that overrides it":   {spec: patched(t, patch.Spec{PreKubeadmCommands: []string{"rm " + contract.PathProxyEnv}}, contract.Targets()...), found: "-", proxy: true},
		"of a pool that is removed":    {pool: "gone", outcome: plan.OutcomeLeftAlone},
		"of a pool without the proxy":  {override: contract.SecretNone, outcome: plan.OutcomeLeftAlone},
		"of one that has it":           {spec: all, override: contract.SecretNone, drift: Stale, outcome: plan.OutcomeWaiting},
		"frozen without":               {annotations: frozen(frozenNow), outcome: plan.OutcomeLeftAlone, found: contract.ReasonWaitingForRollout},
		"frozen at an earlier version": {annotations: frozen("disabled@v1.29.9"), drift: Lacking, outcome: plan.OutcomeWaiting, proxy: true},
		"frozen with":                  {spec: all, annotations: frozen("enabled@v1.30.0"), proxy: true},
		"frozen, and for Windows":      {spec: patch.Spec{KubeletArgs: []string{"windows-service="}}, annotations: frozen(frozenNow), outcome: plan.OutcomeLeftAlone, found: "-"},
		"for Windows":                  {spec: patch.Spec{KubeletArgs: []string{"windows-service="}}, outcome: plan.OutcomeLeftAlone, found: "-"},
		"with a file of the user":      {spec: patch.Spec{Files: []patch.File{{Path: contract.PathProxyEnv, Content: "x"}}}, outcome: plan.OutcomeLeftAlone, found: contract.ReasonConflictingFile, proxy: true},
		"with a name that is taken":    {spec: patch.Spec{}, change: func(t *Topology) { t.Secrets.taken["one-proxy-files"] = "it is theirs" }, outcome: plan.OutcomeLeftAlone, found: contract.ReasonNameTaken},
		"with certificates alone and targets without trust": {spec: all, change: func(t *Topology) {
			t.resolutions[""].Settings = certificates
			t.Settings.Options.Targets = []contract.Target{contract.TargetKubelet}
		}, outcome: plan.OutcomeLeftAlone, found: contract.ReasonInvalidSettings, proxy: true},
		"with settings that are unusable":    {spec: all, change: func(t *Topology) { t.resolutions[""] = nil }},
		"of the control plane, without":      {pool: "-", drift: Lacking, outcome: plan.OutcomeWaiting, proxy: true},
		"of the control plane, as it is":     {pool: "-", spec: all, proxy: true},
		"of a control plane with no version": {pool: "-", annotations: frozen("disabled@v1.30.0"), drift: Lacking, outcome: plan.OutcomeWaiting, proxy: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topology, _ := topologyOf(t, test.annotations)
			topology.Settings.Pools[0].Override = test.override
			if test.change != nil {
				test.change(topology)
			}
			o := templateOf(test.spec)
			switch test.pool {
			case "-":
				o = Object{BootstrapObject: &controlplanev1.KubeadmControlPlane{ObjectMeta: named("cp")}, Kind: plan.KindControlPlane, Spec: test.spec}
			case "gone":
				o.Pools[0].Name = test.pool
			}
			reconciled, out, err := topology.inspect(o, topology.want())
			if err != nil {
				t.Fatal(err)
			}
			outcome := test.outcome
			if outcome == "" {
				outcome = plan.OutcomeUnchanged
			}
			if reconciled.Drift != test.drift || reconciled.outcome != outcome || reasons(out) != test.found ||
				(reconciled.Proxy != "") != test.proxy {
				t.Errorf("drift %d, outcome %s, findings %+v, object %+v", reconciled.Drift, reconciled.outcome, out.Findings, reconciled)
			}
			for _, name := range patch.References(test.spec) {
				if !topology.Secrets.needed[name] {
					t.Errorf("Secret %s is not kept", name)
				}
			}
		})
	}
}

// TestLeave_ReportsWhatStillHasTheProxy of a Cluster that is disabled.
func TestLeave_ReportsWhatStillHasTheProxy(t *testing.T) {
	t.Parallel()
	all := patched(t, patch.Spec{}, contract.Targets()...)
	for name, test := range map[string]struct {
		spec    patch.Spec
		freeze  string
		message string
		drift   Drift
	}{
		"nothing":          {},
		"frozen with":      {all, "enabled@v1.30.0", "keeps the proxy until the next upgrade of Kubernetes from v1.30.0", None},
		"frozen in v1.29":  {all, "enabled@v1.29.0", "until the topology controller removes it", Stale},
		"until it is gone": {all, "", "until the topology controller removes it", Stale},
	} {
		topology, _ := topologyOf(t, frozen(test.freeze))
		drift, out := topology.leave(templateOf(test.spec))
		if drift != test.drift || (len(out.Findings) > 0) != (test.message != "") ||
			test.message != "" && !strings.Contains(out.Findings[0].Message, test.message) {
			t.Errorf("%s: got %+v", name, out)
		}
		if kept := topology.Secrets.needed[settings.GeneratedSecretName("one")]; kept != (test.message != "") {
			t.Errorf("%s: the Secret is kept: %t", name, kept)
		}
	}
}

func TestCheckNames_NamesThePoolWhoseAnnotationNothingReads(t *testing.T) {
	t.Parallel()
	o := templateOf(patch.Spec{})
	misspelt := map[string]string{contract.AnnotationSecret + "s": "x"}
	of := plan.Pool{Pool: settings.Pool{Kind: settings.KindMachineDeployment, Name: "own"}, Object: "own", Annotations: misspelt}
	ofTopology := of
	ofTopology.Object, ofTopology.Topology = "theirs", true
	o.Pools = []plan.Pool{of, ofTopology}
	found := checkNames([]Object{o})
	if len(found) != 1 || !strings.Contains(found[0].String(), of.String()) {
		t.Errorf("found %v, want one of %s", found, of)
	}
}

// TestEnsureSecrets_WritesThoseThatTemplatesWillReferTo has one pool, and its object with an annotation of the class.
func TestEnsureSecrets_WritesThoseThatTemplatesWillReferTo(t *testing.T) {
	t.Parallel()
	const main, own = "one-proxy-files", "one.workers.tmd.proxy-files"
	taken := generated(main)
	taken.Labels[contract.LabelGenerated] = "two"
	for name, test := range map[string]struct {
		override, ofClass string
		objects           []client.Object
		unusable          bool
		created           []string
		kept              []string
		found             string
	}{
		"the Cluster's":               {created: []string{main}, kept: []string{main}},
		"the pool's own":              {override: "s", created: []string{main, own}, kept: []string{main, own}},
		"the class's":                 {ofClass: "s", created: []string{main, own}, kept: []string{main, own}},
		"the pool's before the class": {override: contract.SecretNone, ofClass: "s", created: []string{main}, kept: []string{main}},
		"unusable settings":           {override: "s", unusable: true, created: []string{main}, kept: []string{main, own}, found: contract.ReasonInvalidSettings},
		"a name that is taken":        {objects: []client.Object{taken}, kept: []string{main}, found: contract.ReasonNameTaken},
	} {
		topology, shown := topologyOf(t, nil, test.objects...)
		topology.Settings.Pools[0].Override = test.override
		o := templateOf(patch.Spec{})
		o.Pools[0].Override = test.ofClass
		resolution, other := complete(t), complete(t)
		out, err := topology.decideSecrets(t.Context(), []Object{o}, &resolution,
			func(override, pool string) (found *settings.Resolution, out Outcome, err error) {
				if override != "s" || pool != "MachineDeployment workers of spec.topology" {
					t.Errorf("%s: Secret %q of pool %q is read", name, override, pool)
				}
				if test.unusable {
					out.Add(contract.ReasonInvalidSettings, "bad")
					return nil, out, nil
				}
				return &other, out, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := topology.ensureSecrets(t.Context()); err != nil {
			t.Fatal(err)
		}
		var created []string
		for _, write := range shown.writes {
			created = append(created, strings.TrimPrefix(write, "create "))
		}
		for _, secret := range test.kept {
			if !topology.Secrets.needed[secret] {
				t.Errorf("%s: Secret %s is not kept", name, secret)
			}
		}
		if !slices.Equal(created, test.created) || len(topology.Secrets.needed) != len(test.kept) || reasons(out) != test.found {
			t.Errorf("%s: created %q, needed %v, findings %+v", name, created, topology.Secrets.needed, out.Findings)
		}
	}
}

// TestCopiedFrom_IsTheTemplateOfThePool has template t, which is patched.
func TestCopiedFrom_IsTheTemplateOfThePool(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change          func(*Topology, *Object)
		patched, recipe bool
	}{
		"a pool":                      {func(*Topology, *Object) {}, true, true},
		"no pool":                     {func(_ *Topology, o *Object) { o.Pools = nil }, false, false},
		"a template that is gone":     {func(_ *Topology, o *Object) { o.Pools[0].Bootstrap.Name = "u" }, false, false},
		"a pool that is removed":      {func(_ *Topology, o *Object) { o.Pools[0].Name = "gone" }, true, false},
		"a pool without the proxy":    {func(t *Topology, _ *Object) { t.Settings.Pools[0].Override = contract.SecretNone }, true, false},
		"a Cluster that is disabled":  {func(t *Topology, _ *Object) { t.View.Enabled = false }, true, false},
		"a topology that is frozen":   {func(t *Topology, _ *Object) { t.Cluster.Annotations = frozen("disabled@v1.30.0") }, true, false},
		"one that was frozen earlier": {func(t *Topology, _ *Object) { t.Cluster.Annotations = frozen("disabled@v1.29.0") }, true, true},
	} {
		template := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: named("t")}
		template.Spec.Template.Spec = referring("one-proxy-files")
		topology, _ := topologyOf(t, nil, template)
		o := templateOf(patch.Spec{})
		test.change(topology, &o)
		from, err := topology.copiedFrom(t.Context(), o, topology.want())
		if err != nil || from.Patched != test.patched || (from.Recipe != nil) != test.recipe {
			t.Errorf("%s: got %+v, error %v", name, from, err)
		}
	}
}

// TestFinish_EndsAFreezeThatAppliesToNothing has the template of a pool that runs v1.30.0, without the proxy.
func TestFinish_EndsAFreezeThatAppliesToNothing(t *testing.T) {
	t.Parallel()
	remove := func(key string) string {
		return fmt.Sprintf(`patch one [{"op":"replace","path":"/metadata/resourceVersion","value":"7"},{"op":"remove","path":%q}]`,
			"/metadata/annotations/"+strings.ReplaceAll(key, "/", "~1"))
	}
	hold := remove(contract.AnnotationTopologyHold)
	for name, test := range map[string]struct {
		annotations map[string]string
		incomplete  bool
		disabled    bool
		write       string
	}{
		"no annotation":                 {},
		"another annotation":            {annotations: map[string]string{"theirs": "x"}},
		"a value of the label before":   {annotations: map[string]string{contract.AnnotationEnabledBefore: "true"}, write: remove(contract.AnnotationEnabledBefore)},
		"a freeze that applies":         {annotations: frozen("disabled@v1.30.0")},
		"a freeze of later versions":    {annotations: frozen("disabled@v1.31.0")},
		"a freeze of an earlier one":    {annotations: frozen("disabled@v1.29.0"), write: hold},
		"the same, an object missing":   {annotations: frozen("disabled@v1.29.0"), incomplete: true},
		"a freeze to what is asked for": {annotations: frozen("enabled@v1.30.0"), incomplete: true, write: hold},
		"one of a disabled Cluster":     {annotations: frozen("disabled@v1.30.0"), disabled: true, incomplete: true, write: hold},
		"a removal of nothing":          {annotations: frozen("enabled@v1.30.0"), disabled: true, write: hold},
		"a value that is not ours":      {annotations: frozen("soon")},
		"a rollout": {annotations: map[string]string{
			contract.AnnotationTopologyHold: "disabled@v1.30.0",
			contract.AnnotationRollout:      contract.RolloutImmediate,
		}, incomplete: true, write: hold},
	} {
		template := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: named("old", clusterv1.ClusterTopologyOwnedLabel, "", clusterv1.ClusterNameLabel, "one")}
		template.Spec.Template.Spec = referring("kept")
		pool := poolOf("md", plan.KindTemplate, "t")
		pool.Labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel] = "workers"
		topology, shown := topologyOf(t, test.annotations, template, pool)
		topology.View.Enabled = !test.disabled
		out, err := topology.finish(t.Context(), &Result{Reconciled: []Reconciled{{Object: templateOf(patch.Spec{})}}}, !test.incomplete)
		if err != nil || len(out.Findings) > 0 || strings.Join(shown.writes, "\n") != test.write || !topology.Secrets.needed["kept"] {
			t.Errorf("%s: writes %q, findings %+v, needed %v, error %v", name, shown.writes, out.Findings, topology.Secrets.needed, err)
		}
	}
}

// refusing answers every read with an error.
type refusing struct {
	client.Reader

	answer error
}

func (r refusing) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return r.answer
}

// TestFinish_SaysWhatTheTopologyControllerWaitsFor has conditions of the Cluster and of its class.
func TestFinish_SaysWhatTheTopologyControllerWaitsFor(t *testing.T) {
	t.Parallel()
	condition := func(kind string, status metav1.ConditionStatus, reason, message string, age time.Duration) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(noon().Add(-age))}
	}
	ours := func(status metav1.ConditionStatus, reason string, age time.Duration) metav1.Condition {
		return condition(contract.ConditionProxyConfigured, status, reason, "", age)
	}
	class := func(status metav1.ConditionStatus) client.Object {
		object := &clusterv1.ClusterClass{ObjectMeta: named("class")}
		object.Status.Conditions = []metav1.Condition{condition(clusterv1.ClusterClassVariablesReadyCondition, status, "NotReady", "no\nextension", 0)}
		return object
	}
	done := condition(clusterv1.ClusterTopologyReconciledCondition, metav1.ConditionTrue, "Reconciled", "", 0)
	waiting := condition(clusterv1.ClusterTopologyReconciledCondition, metav1.ConditionFalse, "Paused", "it is\nlate", 0)
	silent := condition(clusterv1.ClusterTopologyReconciledCondition, metav1.ConditionFalse, "Paused", "", 0)
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "class", nil)
	drifting := func(drift Drift, names ...string) (all []Reconciled) {
		for _, name := range names {
			all = append(all, Reconciled{
				Object: Object{BootstrapObject: &bootstrapv1.KubeadmConfig{ObjectMeta: named(name)}, Kind: "T"}, Drift: drift,
			})
		}
		return all
	}
	existing, theirs := poolOf("md", "OtherTemplate", "t"), poolOf("md", "OtherTemplate", "t")
	existing.Labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel] = "workers"
	theirs.Labels, theirs.Spec.ClusterName = existing.Labels, "two"
	lacking, stale := drifting(Lacking, "A"), drifting(Stale, "A", "B", "C", "D", "E")
	for name, test := range map[string]struct {
		drifts     []Reconciled
		conditions []metav1.Condition
		class      client.Object // or a pool
		live       error
		change     func(*Topology)
		// found are parts of the messages, in order.
		found []string
		again time.Duration
		fails bool
	}{
		"nothing":                        {conditions: []metav1.Condition{done}},
		"a pool that does not exist":     {class: class(metav1.ConditionFalse), found: []string{"has not created MachineDeployment workers of spec.topology yet", "is not ready, its"}, again: causeDelay},
		"one that exists":                {class: existing},
		"one of another Cluster":         {class: theirs, found: []string{"has not created", "class does not exist"}, again: causeDelay},
		"one that gets no proxy":         {change: func(t *Topology) { t.Settings.Pools[0].Override = contract.SecretNone }},
		"one that can never exist":       {conditions: []metav1.Condition{waiting}, class: class(metav1.ConditionTrue), found: []string{"has not created", "has reason Paused: it is late"}, again: causeDelay},
		"no control plane":               {change: func(t *Topology) { t.View.ControlPlaneKind = "" }, conditions: []metav1.Condition{done}, found: []string{"has not created the control plane yet"}},
		"a disabled Cluster":             {change: func(t *Topology) { t.View.Enabled = false }, drifts: lacking},
		"three names":                    {drifts: drifting(Stale, "A", "B", "C"), conditions: []metav1.Condition{done}, found: []string{"has not updated T team/A, T team/B, T team/C to the current"}},
		"many names":                     {drifts: stale, conditions: []metav1.Condition{done}, found: []string{"has not updated T team/A, T team/B, T team/C and 2 more to"}},
		"lacking":                        {drifts: lacking, conditions: []metav1.Condition{done}, found: []string{"has not patched T team/A yet"}, again: delay},
		"lacking, configured before":     {drifts: lacking, conditions: []metav1.Condition{done, ours(metav1.ConditionTrue, contract.ReasonConfigured, time.Hour)}, found: []string{"has not patched T team/A yet"}, again: delay},
		"lacking for four seconds":       {drifts: lacking, conditions: []metav1.Condition{done, ours(metav1.ConditionUnknown, contract.ReasonWaitingForObjects, 4*time.Second)}, found: []string{"has not patched T team/A yet"}, again: 6 * time.Second},
		"lacking for ten seconds":        {drifts: lacking, conditions: []metav1.Condition{done, ours(metav1.ConditionUnknown, contract.ReasonWaitingForObjects, delay)}, found: []string{"must be {name:"}},
		"lacking, and blamed before":     {drifts: lacking, conditions: []metav1.Condition{done, ours(metav1.ConditionFalse, contract.ReasonTemplateNotSupported, 0)}, found: []string{"must be {name:"}},
		"a controller that was blocked":  {drifts: lacking, conditions: []metav1.Condition{waiting, ours(metav1.ConditionUnknown, contract.ReasonWaitingForObjects, time.Hour)}, class: class(metav1.ConditionTrue), found: []string{"has reason Paused", "it is late"}, again: causeDelay},
		"lacking, with a class not here": {drifts: lacking, conditions: []metav1.Condition{waiting}, found: []string{"has reason Paused", "ClusterClass team/class does not exist"}, again: causeDelay},
		"a class that is not ready":      {drifts: lacking, conditions: []metav1.Condition{waiting}, class: class(metav1.ConditionFalse), found: []string{"has reason Paused", "is not ready, its condition VariablesReady has reason NotReady: no extension"}, again: causeDelay},
		"a class that is ready":          {drifts: lacking, conditions: []metav1.Condition{waiting}, class: class(metav1.ConditionTrue), found: []string{"has reason Paused", "of the Cluster has reason Paused: it is late"}, again: causeDelay},
		"a class that says nothing":      {drifts: lacking, conditions: []metav1.Condition{waiting}, class: &clusterv1.ClusterClass{ObjectMeta: named("class")}, found: []string{"has reason Paused", "of the Cluster has reason Paused: it is late"}, again: causeDelay},
		"nobody says anything":           {drifts: lacking, conditions: []metav1.Condition{silent}, class: class(metav1.ConditionTrue), found: []string{"has reason Paused"}, again: causeDelay},
		"a class that nobody shows":      {drifts: lacking, conditions: []metav1.Condition{waiting}, live: forbidden, found: []string{"has reason Paused", "it is late"}, again: causeDelay},
		"a class that cannot be read":    {drifts: lacking, conditions: []metav1.Condition{waiting}, live: errors.New("refused"), found: []string{"has reason Paused"}, again: causeDelay, fails: true},
		"no condition yet":               {drifts: lacking, class: class(metav1.ConditionTrue), found: []string{"has not patched T team/A yet"}, again: delay},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topology, shown := topologyOf(t, nil)
			if test.class != nil {
				shown.world.Add(test.class)
			}
			if test.live != nil {
				topology.Writer.Live = refusing{answer: test.live}
			}
			if test.change != nil {
				test.change(topology)
			}
			topology.Cluster.Status.Conditions = test.conditions
			out, err := topology.finish(t.Context(), &Result{Reconciled: test.drifts}, true)
			matches := len(out.Findings) == len(test.found)
			for i := 0; matches && i < len(test.found); i++ {
				matches = strings.Contains(out.Findings[i].Message, test.found[i])
			}
			if !matches || out.RequeueAfter != test.again || (err != nil) != test.fails {
				t.Errorf("again in %v, error %v, findings %+v", out.RequeueAfter, err, out.Findings)
			}
		})
	}
}
