package controller

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/backoff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// apiServer stores every patch as version 10.
type apiServer struct {
	client.Client

	// patches, if not nil, counts the patches.
	patches *int
	// applied, if not nil, gets the status that was applied last.
	applied *string
}

func (s apiServer) Status() client.SubResourceWriter { return statusWriter{applied: s.applied} }

type statusWriter struct {
	client.SubResourceWriter

	applied *string
}

func (s statusWriter) Apply(_ context.Context, status runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	data, err := json.Marshal(status)
	*s.applied = string(data)
	return err
}

func (s apiServer) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	object.SetResourceVersion("10")
	if s.patches != nil {
		*s.patches++
	}
	return nil
}

func (apiServer) GroupVersionKindFor(runtime.Object) (schema.GroupVersionKind, error) {
	return bootstrapv1.GroupVersion.WithKind(plan.KindConfig), nil
}

func TestPass_WaitsForACacheThatIsBehind(t *testing.T) {
	t.Parallel()
	guarded := backoff.New(apiServer{}, nil, func() time.Time { return time.Unix(0, 0) })
	c := &Controller{guarded: guarded, writer: &Writer{Client: guarded}}
	config := func(version string) *bootstrapv1.KubeadmConfig {
		return &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{UID: "one", ResourceVersion: version}}
	}
	if err := c.writer.Annotate(t.Context(), config("9"), map[string]string{"a": "b"}); err != nil {
		t.Fatal(err)
	}
	stale := config("9")
	_, _, err := c.decideObject(t.Context(), c.newPass(&clusterv1.Cluster{}, settings.Cluster{}),
		NewObject(stale, plan.KindConfig, false), plan.Want{})
	if !apierrors.IsConflict(err) {
		t.Errorf("a version of the past is decided about: %v", err)
	}
}

// TestFacts_OfACopyCostNoRequest has no reader: a request panics.
func TestFacts_OfACopyCostNoRequest(t *testing.T) {
	t.Parallel()
	c := &Controller{writer: &Writer{}}
	f := facts{controller: c, pass: c.newPass(&clusterv1.Cluster{}, settings.Cluster{}), ctx: t.Context(), out: &Outcome{}}
	if why, err := f.Taken(plan.Object{Copied: &plan.Copied{}}, "other-proxy-files"); err != nil || why != "" {
		t.Errorf("a Secret that was not checked is taken: %q, %v", why, err)
	}
}

// needing is a Step that every Cluster needs.
type needing struct{ Step }

func (needing) Needs(*clusterv1.Cluster) bool { return true }

// TestIsIdle_NotWhileAStepIsNeeded has no condition, as after clusterctl move, and no reader: a request panics.
func TestIsIdle_NotWhileAStepIsNeeded(t *testing.T) {
	t.Parallel()
	c := &Controller{Config: Config{Steps: []Step{needing{}}}, writer: &Writer{}}
	if idle, err := c.hasNothingOfOurs(t.Context(), c.newPass(&clusterv1.Cluster{}, settings.Cluster{})); err != nil || idle {
		t.Errorf("idle %v, error %v", idle, err)
	}
}

// TestIsIdle_NotWhileACopyHasTheProxy has no condition, and a copy of a template from before the label was removed.
func TestIsIdle_NotWhileACopyHasTheProxy(t *testing.T) {
	t.Parallel()
	rendered := generated("one-proxy-files")
	for name, test := range map[string]struct {
		// secret is the Secret that the copy refers to.
		secret  string
		objects []client.Object
		idle    bool
	}{
		"a copy without it":             {"", nil, true},
		"one with it":                   {rendered.Name, nil, false},
		"one with a Secret of render's": {rendered.Name, []client.Object{rendered}, true},
	} {
		config := configOf("m")
		if config.Status.DataSecretName = ""; test.secret != "" {
			config.Spec = referring(test.secret)
		}
		s, writer := show(t, append(test.objects, config)...)
		c := &Controller{reader: Reader{Client: s}, writer: writer}
		cluster := &clusterv1.Cluster{ObjectMeta: named("one")}
		p := c.newPass(cluster, settings.ClusterOf(cluster))
		if err := c.gather(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if idle, err := c.hasNothingOfOurs(t.Context(), p); err != nil || idle != test.idle {
			t.Errorf("%s: idle %v, error %v", name, idle, err)
		}
	}
}

// noKinds is an API server that cannot say which kinds it has.
type noKinds struct{ meta.RESTMapper }

func (noKinds) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errRefused
}

// TestRun_WritesWhatComesBeforeAnError has a control plane, and a pool whose machine template cannot be read.
func TestRun_WritesWhatComesBeforeAnError(t *testing.T) {
	t.Parallel()
	cluster := &clusterv1.Cluster{ObjectMeta: named("one", contract.LabelEnabled, contract.LabelEnabledValue)}
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "cp.example.com", Port: 6443}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{Kind: plan.KindControlPlane, Name: "cp"}
	s, _ := show(t, cluster, &controlplanev1.KubeadmControlPlane{ObjectMeta: named("cp")},
		&bootstrapv1.KubeadmConfigTemplate{ObjectMeta: named("t")}, poolOf("a", plan.KindTemplate, "t"))
	c, err := New(Config{
		Client: s, Live: s, Recorder: events.NewFakeRecorder(10), Now: noon,
		Memory: &world.Memory{Secrets: proxySecrets{"http-proxy"}, Mapper: noKinds{}, Now: noon},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Preview(t.Context(), cluster)
	var writes []string
	for _, write := range s.writes {
		writes = append(writes, strings.Join(strings.Fields(write)[:2], " "))
	}
	if want := []string{"create one-proxy-files", "patch cp"}; !errors.Is(err, errRefused) || !slices.Equal(writes, want) {
		t.Errorf("writes %q, error %v", writes, err)
	}
}

// TestConclude_RepeatsAPassAfterAConflict must not wait for an event: that of our own record, for example, brings none.
func TestConclude_RepeatsAPassAfterAConflict(t *testing.T) {
	t.Parallel()
	c := &Controller{reporter: &Reporter{}}
	conflict := CacheBehind(plan.KindControlPlane, &clusterv1.Cluster{})
	got, err := c.conclude(t.Context(), &clusterv1.Cluster{}, Result{}, conflict)
	if err != nil || got.RequeueAfter != conflictDelay {
		t.Errorf("again after %s, error %v", got.RequeueAfter, err)
	}
}

// TestConclude_ReportsAContestedRemoval has somebody else put back what three passes without the label have removed.
func TestConclude_ReportsAContestedRemoval(t *testing.T) {
	t.Parallel()
	now, applied := time.Unix(0, 0), ""
	guarded := backoff.New(apiServer{applied: &applied}, &oneCluster{err: errRefused}, func() time.Time { return now })
	c := &Controller{
		guarded: guarded, writer: &Writer{Client: guarded},
		reporter: &Reporter{Client: guarded, Now: func() time.Time { return now }, Recorder: events.NewFakeRecorder(10)},
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "one", UID: "one", ResourceVersion: "1"}}
	conclude := func() time.Duration {
		t.Helper()
		applied = ""
		result, err := c.conclude(t.Context(), cluster, Result{gone: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	for i := range 3 {
		if again := conclude(); again != 0 || applied != "" {
			t.Errorf("after %d removals: again after %s, status %s", i, again, applied)
		}
		config := &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", ResourceVersion: strconv.Itoa(i)}}
		if err := c.writer.Annotate(guarded.ForCluster(t.Context(), cluster), config, map[string]string{"a": "b"}); err != nil {
			t.Fatal(err)
		}
	}
	if again := conclude(); again != time.Minute || !strings.Contains(applied, `"reason":"Contested"`) {
		t.Errorf("again after %s, status %s", again, applied)
	}
	now = now.Add(time.Minute)
	cluster.Status.Conditions = []metav1.Condition{{Type: contract.ConditionProxyConfigured}}
	if again := conclude(); again != 0 || !strings.Contains(applied, `"conditions":[]`) {
		t.Errorf("what was removed a minute ago: again after %s, status %s", again, applied)
	}
}

// TestConclude_KeepsTheTimeOfEarlierSteps has a step find something to look at again, before another ends the pass with
// a finding.
func TestConclude_KeepsTheTimeOfEarlierSteps(t *testing.T) {
	t.Parallel()
	now, applied := func() time.Time { return time.Unix(0, 0) }, ""
	guarded := backoff.New(apiServer{applied: &applied}, &oneCluster{err: errRefused}, now)
	c := &Controller{
		guarded:  guarded,
		reporter: &Reporter{Client: guarded, Now: now, Recorder: events.NewFakeRecorder(10)},
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "one", UID: "one"}}
	done := Result{}
	done.RequeueIn(time.Minute)
	got, err := c.conclude(t.Context(), cluster, done, finding.Errors{{Reason: contract.ReasonInvalidSettings, Message: "no"}})
	if err != nil || got.RequeueAfter != time.Minute || !strings.Contains(applied, contract.ReasonInvalidSettings) {
		t.Errorf("again after %s, %v, status %s", got.RequeueAfter, err, applied)
	}
}

// oneCluster has one Cluster, and counts how often it is read.
type oneCluster struct {
	client.Reader

	cluster *clusterv1.Cluster
	err     error
	reads   int
}

func (s *oneCluster) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.reads++
	if into, isCluster := into.(*clusterv1.Cluster); isCluster && s.err == nil {
		s.cluster.DeepCopyInto(into)
	}
	return s.err
}

// TestApplyOne_RemovesAndReplacesForTheClusterOfTheAPIServer writes two objects in one pass.
func TestApplyOne_RemovesAndReplacesForTheClusterOfTheAPIServer(t *testing.T) {
	t.Parallel()
	const version = 1
	notFound := apierrors.NewNotFound(schema.GroupResource{}, "one")
	edits := []patch.Edit{{List: patch.ListPre, Op: patch.OpAdd, Command: "true"}}
	add, remove := plan.Decision{Edits: edits, Version: version}, plan.Decision{Edits: edits}
	annotated := func(name string) func(*clusterv1.Cluster) {
		return func(c *clusterv1.Cluster) { c.Annotations = map[string]string{name: "x"} }
	}
	for name, test := range map[string]struct {
		decision plan.Decision
		running  bool
		// live changes the Cluster since the cache has read it.
		live          func(*clusterv1.Cluster)
		err           error
		reads, writes int
		conflict      bool
	}{
		"entries are added":                      {decision: add, live: func(c *clusterv1.Cluster) { c.Labels = nil }, writes: 2},
		"entries are added to running Machines":  {decision: add, running: true, reads: 1, writes: 2},
		"entries are removed":                    {decision: remove, reads: 1, writes: 2},
		"annotations only":                       {decision: plan.Decision{Annotations: map[string]string{"a": "b"}}, running: true, writes: 2},
		"nothing":                                {running: true},
		"replaced, though the label is gone":     {decision: add, running: true, live: func(c *clusterv1.Cluster) { c.Labels = nil }, reads: 1, conflict: true},
		"removed, though the label is there":     {decision: remove, live: func(c *clusterv1.Cluster) { c.Labels[contract.LabelEnabled] = "True" }, reads: 1, conflict: true},
		"the rollout is another":                 {decision: remove, live: annotated(contract.AnnotationRollout), reads: 1, conflict: true},
		"the topology is held":                   {decision: remove, live: annotated(contract.AnnotationTopologyHold), reads: 1, conflict: true},
		"the Cluster is paused by an annotation": {decision: remove, live: annotated(clusterv1.PausedAnnotation), reads: 1, conflict: true},
		"its spec is another":                    {decision: remove, live: func(c *clusterv1.Cluster) { c.Generation++ }, reads: 1, conflict: true},
		"it is another Cluster":                  {decision: remove, live: func(c *clusterv1.Cluster) { c.UID = "other" }, reads: 1, conflict: true},
		"it is being deleted":                    {decision: remove, live: func(c *clusterv1.Cluster) { c.DeletionTimestamp = new(metav1.Now()) }, reads: 1, conflict: true},
		"it is gone":                             {decision: remove, err: notFound, reads: 1, conflict: true},
		"it cannot be read":                      {decision: remove, err: errRefused, reads: 1},
		"others annotate it":                     {decision: remove, live: annotated("example.com/team"), reads: 1, writes: 2},
		"others label it":                        {decision: remove, live: func(c *clusterv1.Cluster) { c.Labels["example.com/team"] = "x" }, reads: 1, writes: 2},
		"its status is another":                  {decision: remove, live: func(c *clusterv1.Cluster) { c.ResourceVersion = "8" }, reads: 1, writes: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: "one", UID: "one", ResourceVersion: "7", Generation: 1,
				Labels: map[string]string{contract.LabelEnabled: contract.LabelEnabledValue},
			}}
			live := &oneCluster{cluster: cluster.DeepCopy(), err: test.err}
			if test.live != nil {
				test.live(live.cluster)
			}
			writes := 0
			c := &Controller{}
			c.Live, c.Now = live, func() time.Time { return time.Unix(0, 0) }
			c.writer = &Writer{Client: backoff.New(apiServer{patches: &writes}, nil, c.Now), Live: live}
			p := c.newPass(cluster, settings.ClusterOf(cluster))
			var err error
			for _, name := range []string{"a", "b"} {
				config := &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "9"}}
				one := Reconciled{Object: NewObject(config, plan.KindConfig, test.running), Decision: test.decision}
				if _, err = c.applyOne(t.Context(), p, &one); err != nil {
					break
				}
			}
			failed := test.conflict || test.err != nil
			if live.reads != test.reads || writes != test.writes || (err != nil) != failed || apierrors.IsConflict(err) != test.conflict {
				t.Errorf("%d reads, %d writes, error %v", live.reads, writes, err)
			}
		})
	}
}

var errRefused = errors.New("refused")

// TestWaiting_IsANoteWhileAllNodesHaveTheFiles has a control plane whose spec waits for the next rollout.
func TestWaiting_IsANoteWhileAllNodesHaveTheFiles(t *testing.T) {
	t.Parallel()
	waits := finding.Finding{Reason: contract.ReasonWaitingForRollout, Message: "it waits"}
	other := finding.Finding{Reason: contract.ReasonConflictingFile, Message: "a file"}
	controlPlane := []outdated.Group{{Kind: plan.KindControlPlane, Name: "cp"}}
	pool := []outdated.Group{{Kind: settings.KindMachineDeployment, Name: "md"}}
	for name, test := range map[string]struct {
		rollout, kind string
		disabled      bool
		behind        []outdated.Group
		note          bool
	}{
		"all have them":                       {rollout: "OnNodes", kind: plan.KindControlPlane, note: true},
		"those of a pool have not":            {rollout: "OnNodes", kind: plan.KindControlPlane, behind: pool, note: true},
		"those of the control plane have not": {rollout: "OnNodes", kind: plan.KindControlPlane, behind: controlPlane},
		"no node gets them":                   {rollout: contract.RolloutOnNextRollout, kind: plan.KindControlPlane},
		"the label is gone":                   {rollout: "OnNodes", kind: plan.KindControlPlane, disabled: true},
		"another object":                      {rollout: "OnNodes", kind: plan.KindTemplate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "cp", UID: "u", ResourceVersion: "9"}}
			c := &Controller{}
			c.Now = func() time.Time { return time.Unix(0, 0) }
			c.writer = &Writer{Client: backoff.New(apiServer{}, nil, c.Now)}
			p := c.newPass(&clusterv1.Cluster{}, settings.Cluster{Enabled: !test.disabled})
			p.Options.Rollout = test.rollout
			one, out := Reconciled{Object: NewObject(object, test.kind, true)}, Outcome{}
			c.accept(p, &one, plan.Decision{Findings: []finding.Finding{waits, other}}, &out)
			out.AddAll(waiting([]Reconciled{one}, test.behind)...)
			want := map[string]int{other.Reason: 1, waits.Reason: 1}
			if test.note {
				want = map[string]int{other.Reason: 1, "": 1}
			}
			reasons := map[string]int{}
			for _, f := range out.Findings {
				reasons[f.Reason]++
			}
			if !maps.Equal(reasons, want) {
				t.Errorf("findings are %+v", out.Findings)
			}
		})
	}
}

// TestSummarize_CountsAnObjectWhoseNodesGetTheFiles has a spec without the proxy, and no finding with a reason.
func TestSummarize_CountsAnObjectWhoseNodesGetTheFiles(t *testing.T) {
	t.Parallel()
	object := func(change func(*Reconciled)) []Reconciled {
		controlPlane := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "cp"}}
		one := Reconciled{
			Object: NewObject(controlPlane, plan.KindControlPlane, true), Proxy: "team/http-proxy",
		}
		change(&one)
		return []Reconciled{one}
	}
	for name, test := range map[string]struct {
		change func(*Reconciled)
		reason string
	}{
		"a control plane that waits":        {func(s *Reconciled) { s.Waits = &finding.Finding{} }, contract.ReasonConfigured},
		"no entries, and nodes get nothing": {func(*Reconciled) {}, contract.ReasonWaitingForObjects},
	} {
		done := Result{Reconciled: object(test.change)}
		done.summarize(settings.Cluster{Namespace: "team", Name: "one"}, false)
		if got := finding.ConditionOf(done.Findings, done.summary); got.Reason != test.reason {
			t.Errorf("%s: condition %+v", name, got)
		}
	}
}

// TestRun_LeavesAPausedClusterAlone has a Controller that can neither read nor write.
func TestRun_LeavesAPausedClusterAlone(t *testing.T) {
	t.Parallel()
	for name, labels := range map[string]map[string]string{
		"with the label":    {contract.LabelEnabled: contract.LabelEnabledValue},
		"without the label": nil,
		"with a typo in it": {contract.LabelEnabled: "yes"},
	} {
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: clusterv1.ClusterSpec{Paused: new(true)}}
		if done, err := (&Controller{}).run(t.Context(), cluster); err != nil || !done.silent || done.gone {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
	}
}

func TestMain(m *testing.M) {
	contract.Add(contract.Capability{Name: "test", Rollouts: []string{"OnNodes"}})
	m.Run()
}
