package model_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/sequence"
)

// crashes runs each operation, and all that the product writes until it rests, once undisturbed and once for each
// disturbance of each write.
type crashes struct {
	now *model
	// before is the world before the last operation.
	before *model
	// calm leaves operations undisturbed. done is how many there were, which chooses disturbances: a seed repeats them.
	calm bool
	done int
	*tally
}

// tally counts what all sequences have done.
type tally struct {
	// A step is a pass of a controller over a Cluster, or of Cluster API.
	operations, runs, steps int
	// writes counts those of the product by verb and kind.
	writes map[string]int
	// failed has each disturbance follow each write from then on, so that a failure does not depend on its turn.
	failed bool
}

// begin returns the crashes of a world.
func (done *tally) begin(w *model) *crashes {
	w.steps = &done.steps
	return &crashes{now: w, before: w, tally: done}
}

func (done *tally) log(t *testing.T) {
	t.Helper()
	t.Logf("%d operations, %d disturbed runs, %d steps", done.operations, done.runs, done.steps)
}

// enough is how many operations have the product write everything, and make test have 100,000 steps.
const enough = 920

func TestModel_OfCrashes(t *testing.T) {
	t.Parallel()
	quiet()
	valid := map[string]bool{}
	done := &tally{writes: map[string]int{}}
	sequence.Test[*crashes]{
		New:        func() *crashes { return done.begin(newWorld(t, valid)) },
		Operations: crashOperations(), Check: func(*crashes) error { return nil },
		Finish: func(c *crashes) error { return c.now.finish() },
		Steps:  enough, Length: 20,
	}.Run(t)
	done.log(t)
	for _, verb := range []string{"create Secret", "update Secret", "delete Secret"} {
		if done.operations >= enough && done.writes[verb] == 0 {
			t.Errorf("no sequence had the product %s: the model does not get where it should", verb)
		}
	}
}

// crashOperations are the operations of users and others. What the product does after each is not random.
func crashOperations() []sequence.Operation[*crashes] {
	return disturbed(slices.Concat(clusterOperations(), crossOperations(), secretOperations(), poolOperations(),
		objectOperations(), otherOperations()))
}

// disturbed are operations after which the product works with each disturbance.
func disturbed(operations []operation) []sequence.Operation[*crashes] {
	var all []sequence.Operation[*crashes]
	for _, o := range operations {
		if slices.Contains([]string{"reconcile", "settle", "the cache of", "restart", "the webhooks are"}, o.Name) {
			continue
		}
		do := o.Do
		all = append(all, sequence.Operation[*crashes]{
			Name: o.Name, Args: o.Args, Weight: o.Weight,
			Do: func(c *crashes, arg string) error {
				err := c.do(func(w *model) error { return do(w, arg) })
				c.failed = c.failed || err != nil
				return err
			},
		})
	}
	return all
}

// crossOperations are those of features that single operations of the other model do not need.
func crossOperations() []operation {
	return []operation{
		{Name: "label of prod", Args: []string{"true"}, Weight: 6, Do: func(w *model, value string) error {
			edit(w, key{"Cluster", prod}, func(c *clusterv1.Cluster) { c.Labels = map[string]string{contract.LabelEnabled: value} })
			return nil
		}},
		annotation(output.AnnotationPublish, "env", "env,annotations,values", "annotations", "bad"),
		annotation(contract.AnnotationRollout, inplace.RolloutInPlace, contract.RolloutImmediate, "bad"),
		annotation(contract.AnnotationTargets, "static-pods,containerd,kubelet,commands,trust", "trust"),
		{Name: "Kubernetes version", Args: []string{"v1.36.4", "v1.37.0"}, Do: func(w *model, version string) error {
			k := key{"KubeadmControlPlane", prod}
			controlPlane, _ := copyOf(w.live[k]).(*controlplanev1.KubeadmControlPlane)
			if controlPlane.Spec.Version == version {
				return nil
			}
			controlPlane.Spec.Version = version
			w.change(controlPlane)
			w.due = true
			return nil
		}},
		{Name: "Cluster API creates worker", Args: []string{"md", "md", "mp"}, Weight: 2, Do: func(w *model, pool string) error {
			if pool == "md" && w.live[key{"KubeadmConfig", "worker"}] == nil {
				w.worker()
			}
			return nil
		}},
		{Name: "the first Machine runs", Weight: 2, Do: func(w *model, _ string) error {
			cluster, _ := copyOf(w.live[key{"Cluster", prod}]).(*clusterv1.Cluster)
			_, paused := w.controlPlane().Annotations[clusterv1.PausedAnnotation]
			if w.firstMachine() == nil && !paused && (cluster.Spec.Paused == nil || !*cluster.Spec.Paused) { // Cluster API creates none then
				w.machine(*w.controlPlane().Spec.KubeadmConfigSpec.DeepCopy())
				cluster.Status.Initialization.ControlPlaneInitialized = new(true)
				w.put(w.keyOf(cluster), cluster)
			}
			return nil
		}},
		{Name: "clusterctl move", Do: func(w *model, _ string) error { w.move(); return nil }},
	}
}

// worker has Cluster API create, or replace, the Machine of MachineDeployment prod-md.
func (w *model) worker() {
	md, _ := w.live[key{"MachineDeployment", prod + "-md"}].(*clusterv1.MachineDeployment)
	template, _ := w.live[key{"KubeadmConfigTemplate", md.Spec.Template.Spec.Bootstrap.ConfigRef.Name}].(*bootstrapv1.KubeadmConfigTemplate)
	labels := map[string]string{clusterv1.ClusterNameLabel: prod, clusterv1.MachineDeploymentNameLabel: md.Name}
	if _, owned := md.Labels[clusterv1.ClusterTopologyOwnedLabel]; owned {
		labels[clusterv1.ClusterTopologyOwnedLabel] = ""
	}
	for _, kind := range []string{"Machine", "KubeadmConfig"} {
		w.put(key{kind, "worker"}, nil)
	}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "worker", Labels: labels}}
	machine.Spec = *md.Spec.Template.Spec.DeepCopy()
	w.change(machine)
	w.change(&bootstrapv1.KubeadmConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "worker", Labels: labels, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "worker", UID: "x", Controller: new(true),
		}}},
		Spec: *template.Spec.Template.Spec.DeepCopy(),
	})
}

// bootstrap makes the bootstrap data of the worker once all that it refers to exists, and replaces a worker that
// rollout.after is later than.
func (w *model) bootstrap() {
	config, _ := w.live[key{"KubeadmConfig", "worker"}].(*bootstrapv1.KubeadmConfig)
	md, _ := w.live[key{"MachineDeployment", prod + "-md"}].(*clusterv1.MachineDeployment)
	if cluster, _ := w.live[key{"Cluster", prod}].(*clusterv1.Cluster); config == nil || md == nil ||
		cluster.Spec.Paused != nil && *cluster.Spec.Paused {
		return
	}
	if after := md.Spec.Rollout.After; !after.IsZero() && config.CreationTimestamp.Before(&after) && !after.After(w.now) {
		w.worker()
		config, _ = w.live[key{"KubeadmConfig", "worker"}].(*bootstrapv1.KubeadmConfig)
	}
	missing := slices.ContainsFunc(patch.References(w.readOf(&config.Spec).view),
		func(name string) bool { return w.live[key{"Secret", name}] == nil })
	if config.Status.DataSecretName != "" || missing {
		return
	}
	config = copyOf(config)
	config.Status.DataSecretName = "worker"
	config.Status.Conditions = []metav1.Condition{{
		Type: bootstrapv1.KubeadmConfigDataSecretAvailableCondition, Status: metav1.ConditionTrue, Reason: "Available",
		LastTransitionTime: metav1.NewTime(w.now),
	}}
	w.put(w.keyOf(config), config)
}

// move creates all objects anew, as clusterctl move does on another management cluster: without status, and with other
// UIDs.
func (w *model) move() {
	uids := map[types.UID]types.UID{}
	objects := w.live
	w.live, w.cached = map[key]client.Object{}, map[key]client.Object{}
	for _, k := range sortedKeys(objects) {
		object := copyOf(objects[k])
		old := object.GetUID()
		object.SetUID("")
		switch o := object.(type) {
		case *clusterv1.Cluster:
			o.Status = clusterv1.ClusterStatus{Initialization: o.Status.Initialization} // Cluster API sets it again
		case *bootstrapv1.KubeadmConfig:
			o.Status.Conditions = nil // the data is found again by its Secret
		case *controlplanev1.KubeadmControlPlane:
			o.Status.Conditions = nil
		}
		w.put(k, object)
		uids[old] = object.GetUID()
	}
	for _, k := range sortedKeys(w.live) {
		references := slices.Clone(w.live[k].GetOwnerReferences())
		for i := range references {
			if uid := uids[references[i].UID]; uid != "" {
				references[i].UID = uid
			}
		}
		object := copyOf(w.live[k])
		object.SetOwnerReferences(references)
		w.put(k, object)
	}
	w.read = nil
	w.start()
}

func sortedKeys(objects map[key]client.Object) []key {
	return slices.SortedFunc(maps.Keys(objects), key.compare)
}

// fork returns a copy of the world, in which nothing runs.
func (w *model) fork() *model {
	forked, stored := *w, *w.server
	forked.server = &stored
	forked.own, stored.live, stored.cached = maps.Clone(w.own), maps.Clone(w.live), maps.Clone(w.cached)
	stored.behind, stored.nodes = maps.Clone(w.behind), w.nodes.clone()
	stored.writes, stored.rollouts, stored.disturb = nil, 0, nil
	stored.written = forked.checkWrite
	forked.controller, forked.publisher, stored.hooks = nil, nil, nil
	return &forked
}

// death is the end of a process after a write.
type death struct{}

// survives runs f, and reports whether the process has survived it.
func survives(f func() error) (alive bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			if _, dead := p.(death); !dead {
				panic(p)
			}
		}
	}()
	err = f()
	return true, err
}

// round has Cluster API and all controllers work once.
func (w *model) round() error {
	w.looks()
	w.kubelets()
	for _, name := range []string{prod, prodEU} {
		if err := w.reconcile(name); err != nil {
			return err
		}
		if err := w.publishes(name); err != nil {
			return err
		}
	}
	return w.check()
}

// publishes is a pass of the publisher over a Cluster.
func (w *model) publishes(name string) error {
	*w.steps++
	cached := w.cached[key{"Cluster", name}]
	if cached == nil {
		return nil
	}
	_, err := w.publisher.Reconcile(context.Background(), clusterOf(cached)) //nolint:forbidigo // as above
	if w.failure != nil {
		return w.failure
	}
	if err != nil && len(w.behind) == 0 {
		return fmt.Errorf("publishing for %s: %w", name, err)
	}
	return nil
}

// rests has all controllers work until nobody writes any more.
func (w *model) rests() error {
	for range 12 {
		before := w.version
		if err := w.round(); err != nil {
			return err
		}
		if w.version != before {
			continue
		}
		w.reconcilesTopology()
		if w.bootstrap(); w.version == before { // once nobody else writes, so that all runs are alike
			return nil
		}
	}
	return fmt.Errorf("the product goes on writing: %v", w.writes[max(0, len(w.writes)-6):])
}

// disturbance is what happens at a write of the product.
type disturbance struct {
	name string
	// kills reports that the process dies after the write. Its successor begins with caches of older, or, if nil, of all
	// kinds that are as old as the last operation.
	kills bool
	older []string
	// reordered reports that caches are so old that the product decides as if the operation came after its writes, which
	// may leave something else: a template that is shared by then keeps its entries, and a label that is not there yet
	// has them removed and added again.
	reordered bool
	// refuses and loses report that the API server refuses the write, or that its answer is lost.
	refuses, loses bool
	// meanwhile is what another does after the write. lasts reports that it may leave something else than what it finds.
	meanwhile func(w *model) error
	lasts     bool
}

var errAway = errors.New("the API server is away")

func disturbances() []disturbance {
	all := []string{
		"Cluster", "KubeadmControlPlane", "KubeadmConfigTemplate", "KubeadmConfig", "MachineDeployment", "Machine", "Secret",
	}
	out := []disturbance{
		{name: "the process dies", kills: true},
		{name: "the process dies, all caches are older", kills: true, older: all, reordered: true},
		{name: "the write is refused", refuses: true},
		{name: "the answer is lost", loses: true},
		{name: "another manager passes", meanwhile: func(w *model) error {
			other := w.fork()
			other.server = w.server
			other.start()
			return other.another()
		}},
		{name: "Cluster API looks", meanwhile: func(w *model) error { w.looks(); return nil }},
		{name: "a GitOps tool applies", lasts: true, meanwhile: func(w *model) error { w.gitOps(); return nil }},
	}
	for _, kind := range all {
		out = append(out, disturbance{
			name: "the process dies, the cache of " + kind + " is older", kills: true, older: []string{kind},
			reordered: kind == "MachineDeployment",
		})
	}
	return out
}

// always are the disturbances of every write; one of the others follows, in turn.
const always = 2

// do carries an operation out, and then lets the product work, undisturbed and with each disturbance.
func (c *crashes) do(operation func(*model) error) error {
	clear(c.now.texts)
	clear(c.now.forms)
	clear(c.now.specs)
	after := c.now.fork()
	after.start()
	if err := operation(after); err != nil {
		return err
	}
	earlier := c.olderThan(after)
	if after.failure != nil {
		return after.failure
	}
	c.operations++
	c.done++
	calm := after.fork()
	calm.start()
	writes := 0
	calm.disturb = func(done bool) error {
		if done {
			writes++
		}
		return nil
	}
	if err := calm.rests(); err != nil {
		return err
	}
	calm.disturb = nil
	for _, write := range calm.writes {
		verb, _, _ := strings.Cut(write, " "+prod)
		c.writes[verb]++
	}
	all := disturbances()
	for n := 1; n <= writes && !c.calm; n++ {
		turn := always + (c.done+n)%(len(all)-always)
		chosen := slices.Concat(all[:always], all[turn:turn+1])
		if c.failed {
			chosen = all
		}
		for _, d := range chosen {
			c.runs++
			disturbed := after.fork()
			if err := d.run(disturbed, n, earlier); err != nil {
				return fmt.Errorf("%s at write %d (%s) of %d: %w", d.name, n, at(disturbed.writes, n), writes, err)
			}
			if d.reordered {
				continue
			}
			want := calm
			if d.lasts {
				want = calm.fork()
				want.start()
				want.rollouts = calm.rollouts
				if err := errors.Join(d.meanwhile(want), want.rests()); err != nil {
					return err
				}
			}
			if problem := differs(want, disturbed); problem != "" {
				return fmt.Errorf("%s at write %d (%s) of %d: %s\nwrites undisturbed:\n%q\ndisturbed:\n%q", d.name, n,
					at(calm.writes, n), writes, problem, calm.writes, disturbed.writes)
			}
		}
	}
	c.before, c.now = c.now, calm
	return nil
}

// olderThan returns the world that an older cache of a world may show: none from before a move, because that was another
// management cluster.
func (c *crashes) olderThan(w *model) *model {
	uid := func(w *model) types.UID { return w.live[key{"Cluster", prod}].GetUID() }
	for _, earlier := range []*model{c.before, c.now} {
		if uid(earlier) == uid(w) {
			return earlier
		}
	}
	return w
}

func at(writes []string, n int) string {
	if n > len(writes) {
		return "none"
	}
	return writes[n-1]
}

// run lets the product work with a disturbance of its write n. earlier is the world that older caches show.
func (d disturbance) run(w *model, n int, earlier *model) error {
	w.start()
	count, hit := 0, false
	w.disturb = func(done bool) error {
		if !done {
			if d.refuses && count == n-1 && !hit {
				hit = true
				return errAway
			}
			return nil
		}
		if count++; count != n || hit {
			return nil
		}
		hit = true
		switch {
		case d.kills:
			panic(death{})
		case d.loses:
			return errAway
		case d.meanwhile != nil:
			return d.meanwhile(w)
		}
		return nil
	}
	alive, err := survives(w.rests)
	w.disturb = nil
	switch {
	case w.failure != nil:
		return w.failure
	case !alive:
		for _, kind := range d.older {
			w.shows(kind, earlier, d.reordered)
		}
		w.start()
		if len(d.older) > 0 { // Cluster API waits: data that it made before the product knows would be another story
			if err := w.round(); err != nil {
				return err
			}
		}
		w.catchUpAll()
	case err != nil && !errors.Is(err, errAway) && d.meanwhile == nil:
		return err
	}
	return w.rests()
}

// shows has the cache show a kind as it was in an earlier world, and not follow. An older proxy Secret has the product
// decide as if the operation came later, so only a disturbance that is reordered has it.
func (w *model) shows(kind string, earlier *model, reordered bool) {
	of := func(k key, object client.Object) bool {
		return k.kind == kind && (kind != "Secret" || reordered || object.GetLabels()[contract.LabelGenerated] != "")
	}
	maps.DeleteFunc(w.cached, of)
	for k, object := range earlier.cached {
		if of(k, object) {
			w.cached[k] = object
		}
	}
	w.behind[kind] = true
}

// another is a pass of another manager, which does not know of this one.
func (w *model) another() error {
	disturb := w.disturb
	w.disturb = nil
	defer func() { w.disturb = disturb }()
	now := w.now
	defer func() { w.now = now }()
	for _, name := range []string{prod, prodEU} {
		if err := w.reconcile(name); err != nil {
			return err
		}
		if err := w.publishes(name); err != nil {
			return err
		}
	}
	return nil
}

// gitOps applies what the user wrote again, through the webhooks.
func (w *model) gitOps() {
	for _, k := range slices.SortedFunc(maps.Keys(w.own), key.compare) {
		object := w.live[k]
		if object == nil {
			continue
		}
		if _, owned := object.GetLabels()[clusterv1.ClusterTopologyOwnedLabel]; owned {
			continue // they are in no manifest
		}
		object = copyOf(object)
		*specOf(object) = *w.own[k].DeepCopy()
		w.change(object)
	}
}

// canonical is an object without what differs between two equal runs: times, UIDs and versions.
func canonical(object client.Object) string {
	if cluster, isCluster := object.(*clusterv1.Cluster); isCluster {
		cluster = copyOf(cluster)
		slices.SortFunc(cluster.Status.Conditions, func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
		object = cluster
	}
	text, err := json.Marshal(object)
	must(err)
	return string(scrub(text))
}

// scrub replaces times and UIDs in JSON, and removes versions.
func scrub(text []byte) []byte {
	const date = "2006-01-02T15:04:05Z"
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		end := i
		for text[end] >= '0' && text[end] <= '9' { // JSON does not end with a digit
			end++
		}
		if end == i {
			out, i = append(out, text[i]), i+1
			continue
		}
		rest := text[i:]
		before := len(out)
		for _, field := range []string{`,"resourceVersion":"`, `,"generation":`, `,"observedGeneration":`} {
			out = bytes.TrimSuffix(out, []byte(field))
		}
		switch {
		case len(out) < before:
			if text[end] == '"' {
				end++
			}
		case len(rest) > len(date) && rest[4] == '-' && rest[10] == 'T' && rest[len(date)-1] == 'Z':
			out, end = append(out, '_'), i+len(date)
		case bytes.HasSuffix(out, []byte("uid-")), bytes.HasSuffix(out, []byte(`\"`)) && text[end] == '\\':
			out = append(out, '_')
		default:
			out = append(out, text[i:end]...)
		}
		i = end
	}
	return out
}

// differs returns how the state of a disturbed run differs from that of the undisturbed one, or "".
func differs(calm, disturbed *model) string {
	for _, k := range sortedKeys(calm.live) {
		want, got := calm.live[k], disturbed.live[k]
		if got == nil {
			return fmt.Sprintf("%v is missing", k)
		}
		if want != got && canonical(want) != canonical(got) {
			return fmt.Sprintf("%v is\n%s\nand undisturbed\n%s", k, canonical(got), canonical(want))
		}
	}
	for _, k := range sortedKeys(disturbed.live) {
		if calm.live[k] == nil {
			return fmt.Sprintf("%v is left: %s", k, canonical(disturbed.live[k]))
		}
	}
	if problem := calm.nodes.differ(disturbed.nodes); problem != "" {
		return problem
	}
	if calm.rollouts != disturbed.rollouts {
		return fmt.Sprintf("rollout.after was set %d times, and undisturbed %d times", disturbed.rollouts, calm.rollouts)
	}
	return ""
}
