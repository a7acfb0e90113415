package plan_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/sequence"
)

// stored is one bootstrap object in a model of an API server, and what its user wrote into it.
type stored struct {
	kind        string
	own         patch.Spec // what the user wrote
	spec        patch.Spec
	annotations map[string]string
	pools       []plan.Pool
	running     bool
	asked       bool // a decision has asked for a fact
	busy        bool // Cluster API has not confirmed a pause
	want        plan.Want
	values      plan.Values
	taken       string
}

// inTheWayPath is the path of a user's file that conflicts with a managed one.
const inTheWayPath = "/etc/systemd/system/kubelet.service.d/http-proxy.conf"

// manifests are what the user may write.
func manifests() map[string]patch.Spec {
	return map[string]patch.Spec{
		"nothing": {},
		"one":     own(),
		"two": {
			Files: []patch.File{
				{Path: "/a", Content: "%s \"$(x)\" {{ y }}"},
				{Path: "/b", Content: "# Managed by me"},
			},
			PreKubeadmCommands: []string{"`id`", "export HTTP_PROXY=mine", "'"}, PostKubeadmCommands: []string{"a\nb"},
		},
		"in the way": {
			Files: []patch.File{
				{Path: "/a", Content: "x"},
				{Path: inTheWayPath, Content: "[Service]\n"},
				{Path: "/b"},
			},
			PreKubeadmCommands: []string{"echo own"},
		},
		"only post": {PostKubeadmCommands: []string{"echo done", "echo done"}},
	}
}

func newStored(kind string) *stored {
	s := &stored{
		kind: kind, annotations: map[string]string{}, own: own(), spec: own(), busy: true,
	}
	s.want = plan.Want{Cluster: "prod", Admission: true, Options: settings.Options{
		Rollout: contract.RolloutOnNextRollout, Targets: contract.Targets(),
	}}
	if kind != plan.KindControlPlane {
		s.pools = []plan.Pool{{
			Pool: settings.Pool{Kind: settings.KindMachineDeployment, Name: "md"}, Object: "md",
			Cluster: "prod",
		}}
	}
	s.values = settingsOf("complete")
	return s
}

func settingsOf(what string) plan.Values {
	data := map[string][]byte{"httpProxy": []byte("http://proxy:3128")}
	switch what {
	case "unusable":
		return plan.Values{}
	case "with a password":
		data = map[string][]byte{"httpProxy": []byte("http://proxy:3128"), "username": []byte("u"), "password": []byte("%$'")}
	}
	proxy, err := settings.ParseSecret(data)
	if err != nil {
		panic(err)
	}
	return plan.Values{Resolution: &settings.Resolution{
		Settings: proxy, Complete: what != "incomplete", NoProxy: noproxy.Result{Value: "localhost"}, Files: filesOf(proxy),
	}}
}

// decide is Decide with the facts that the model has.
func (s *stored) decide(o plan.Object) plan.Decision {
	facts := &answers{values: s.values, taken: s.taken, begun: s.running}
	d, err := plan.Decide(o, s.want, facts)
	if err != nil {
		panic(err)
	}
	s.asked = s.asked || len(facts.asked) > 0
	return d
}

func (s *stored) object(spec patch.Spec, annotations map[string]string) plan.Object {
	return plan.Object{
		Kind: s.kind, Name: s.kind + " team/one", Annotations: annotations, Spec: spec, Pools: s.pools,
		Running: s.running, Busy: s.busy && s.kind == plan.KindControlPlane,
	}
}

// reconcile is one pass of the controller. It reports whether it has written anything.
func (s *stored) reconcile() bool {
	d := s.decide(s.object(s.spec, s.annotations))
	after := s.changed(d, s.annotations)
	wrote := len(d.Edits) > 0 || !maps.Equal(after, s.annotations)
	s.spec, s.annotations = patch.Apply(s.spec, d.Edits), after
	return wrote
}

// write is a user's write that passes the webhook. With rolls it changes the version of a control plane. One that
// changes the user's entries replaces Machines as well.
func (s *stored) write(asked patch.Spec, annotations map[string]string, rolls bool) error {
	o := s.object(asked, annotations)
	o.Write = &plan.Write{Stored: s.spec, Annotations: s.annotations}
	o.Rolls = s.running && s.kind == plan.KindControlPlane && (rolls || users(o.Spec) != users(s.spec))
	return s.during(true, o.Rolls, func() {
		d := s.decide(o)
		s.spec, s.annotations = patch.Apply(asked, d.Edits), s.changed(d, annotations)
	})
}

// changed are annotations after a decision.
func (*stored) changed(d plan.Decision, annotations map[string]string) map[string]string {
	after := maps.Clone(annotations)
	for key, value := range d.Annotations {
		if after[key] = value; value == "" {
			delete(after, key)
		}
	}
	return after
}

// users is spec without managed entries.
func users(spec patch.Spec) string {
	own := patch.Apply(spec, patch.Remove(spec))
	return fmt.Sprintf("%+v %q %q", own.Files, own.PreKubeadmCommands, own.PostKubeadmCommands)
}

func (s *stored) clone() *stored {
	c := *s
	c.annotations = maps.Clone(s.annotations)
	return &c
}

// settle has the controller and Cluster API do what they will without anybody else.
func (s *stored) settle() error {
	for range 6 {
		wrote := s.reconcile()
		_, paused := s.annotations[clusterv1.PausedAnnotation]
		noticed := s.busy != !paused
		if s.busy = !paused; !wrote && !noticed {
			return nil
		}
	}
	return fmt.Errorf("the controller writes again and again")
}

// check holds the object to what is promised at any time.
func (s *stored) check() error {
	if got, want := users(s.spec), users(s.own); got != want {
		return fmt.Errorf("the user's entries are\n%s and were\n%s", got, want)
	}
	settled := s.clone()
	if err := settled.settle(); err != nil {
		return err
	}
	off := s.clone()
	off.want.Enabled, off.want.Frozen, off.want.Unusable, off.want.Options.Rollout = false, false, nil,
		contract.RolloutImmediate
	if plan.IsPausedByUser(off.annotations) {
		delete(off.annotations, clusterv1.PausedAnnotation)
	}
	if err := off.settle(); err != nil {
		return err
	}
	if s.kind == plan.KindConfig && s.running || s.isOthers() {
		return nil // it stays as its data was made
	}
	if got, want := users(off.spec), users(s.own); got != want || patch.IsPatched(off.spec) ||
		len(off.annotations) > 0 {
		return fmt.Errorf("without the label, the object is\n%s\n%v\nand was\n%s", got, off.annotations, want)
	}
	return nil
}

// managed are the managed entries of spec, without the file in whose place the user has another now.
func (s *stored) managed(spec patch.Spec) []string {
	displaced := slices.ContainsFunc(s.own.Files, func(f patch.File) bool { return f.Path == inTheWayPath })
	var entries []string
	for _, f := range spec.Files {
		if patch.IsManagedFile(f) && (f.Path != inTheWayPath || !displaced) {
			entries = append(entries, fmt.Sprintf("%+v", f))
		}
	}
	for _, list := range [][]string{spec.PreKubeadmCommands, spec.PostKubeadmCommands} {
		for _, command := range list {
			if patch.IsPatched(patch.Spec{PreKubeadmCommands: []string{command}}) {
				entries = append(entries, command)
			}
		}
	}
	slices.Sort(entries)
	return entries
}

// inUse is why most objects must not change.
const inUse = "the object is in use"

// rests returns why the managed entries must not change, "" if they may.
func (s *stored) rests(rolls bool) string {
	controlPlane := s.kind == plan.KindControlPlane
	switch {
	case s.want.Frozen, s.want.Unusable != nil:
		return "the Cluster wants nothing changed"
	case plan.IsPausedByUser(s.annotations):
		return "the object is paused"
	case !s.want.Enabled && s.isOthers():
		return "the entries are another Cluster's"
	case s.running && !rolls && (!controlPlane || s.want.Options.Rollout != contract.RolloutImmediate):
		return inUse
	case controlPlane && !s.running && s.busy:
		return "Cluster API may be making the first Machine"
	}
	return ""
}

// isOthers reports whether the object carries the proxy of another Cluster.
func (s *stored) isOthers() bool { return slices.Contains(patch.References(s.spec), otherSecret) }

const otherSecret = "prod-eu-proxy-files"

// during carries out a change, and returns an error if it changes managed entries that must stay, or adds a reference
// to a Secret that is not ours.
func (s *stored) during(write, rolls bool, change func()) error {
	before, why := s.spec, s.rests(rolls)
	s.asked = false
	change()
	if write && why == inUse && s.asked {
		return errors.New("a write to an object in use costs requests")
	}
	for _, name := range patch.References(s.spec) {
		if s.taken != "" && !slices.Contains(patch.References(before), name) {
			return fmt.Errorf("a reference to Secret %s, which is somebody else's", name)
		}
	}
	if was, is := s.managed(before), s.managed(s.spec); why != "" && !slices.Equal(was, is) {
		return fmt.Errorf("%s, and managed entries have changed from\n%q\nto\n%q", why, was, is)
	}
	return nil
}

// apply writes a manifest that has none of our entries.
func (s *stored) apply(name string, rolls bool) error {
	again := users(manifests()[name]) == users(s.own) && !rolls && !s.clone().reconcile()
	before := s.spec
	s.own = manifests()[name]
	kept := map[string]string{}
	if value, paused := s.annotations[clusterv1.PausedAnnotation]; paused && plan.IsPausedByUser(s.annotations) {
		kept[clusterv1.PausedAnnotation] = value
	}
	err := s.write(s.own, kept, rolls)
	if was, is := fmt.Sprintf("%+v", before), fmt.Sprintf("%+v", s.spec); err == nil && again && was != is {
		err = fmt.Errorf("a manifest that is applied again changes the object from\n%s\nto\n%s", was, is)
	}
	return err
}

func modelOperations() []sequence.Operation[*stored] {
	set := func(name string, values []string, change func(s *stored, value string)) sequence.Operation[*stored] {
		return sequence.Operation[*stored]{Name: name, Args: values, Do: func(s *stored, value string) error { change(s, value); return nil }}
	}
	specs := slices.Sorted(maps.Keys(manifests()))
	options := []sequence.Operation[*stored]{
		set("label", []string{"on", "on", "off", "wrong"}, func(s *stored, value string) {
			if s.want.Unusable = nil; value == "wrong" {
				s.want.Unusable = &finding.Finding{Reason: contract.ReasonInvalidSettings}
			}
			s.want.Enabled = value == "on"
		}),
		set("rollout", []string{contract.RolloutImmediate, contract.RolloutOnNextRollout, "OnNodes"},
			func(s *stored, v string) { s.want.Options.Rollout = v }),
		set("targets", []string{"4", "1", "2"}, func(s *stored, value string) {
			count, _ := strconv.Atoi(value)
			s.want.Options.Targets = contract.Targets()[:count]
		}),
		set("Cluster is paused", []string{"true", "false"}, func(s *stored, value string) { s.want.Frozen = value == "true" }),
		set("settings are", []string{"complete", "incomplete", "unusable", "with a password"}, func(s *stored, v string) { s.values = settingsOf(v) }),
		set("name of the Secret is", []string{"free", "taken"}, func(s *stored, value string) {
			if s.taken = ""; value == "taken" {
				s.taken = value
			}
		}),
		set("pool names Secret", []string{"", "none", "other"}, func(s *stored, value string) {
			if len(s.pools) > 0 {
				s.pools = []plan.Pool{s.pools[0]}
				s.pools[0].Override = value
			}
		}),
	}
	return append(options, []sequence.Operation[*stored]{
		{Name: "reconcile", Weight: 5, Do: func(s *stored, _ string) error {
			return s.during(false, false, func() { s.reconcile() })
		}},
		{Name: "apply", Args: specs, Weight: 3, Do: func(s *stored, name string) error { return s.apply(name, false) }},
		{Name: "roll out and apply", Args: specs, Do: func(s *stored, name string) error { return s.apply(name, true) }},
		{Name: "apply while webhooks are away", Args: specs, Do: func(s *stored, name string) error {
			s.own = manifests()[name]
			s.spec = s.own
			delete(s.annotations, contract.AnnotationOutputVersion)
			return nil
		}},
		{Name: "append a command", Weight: 2, Do: func(s *stored, _ string) error {
			s.own = patch.Apply(s.own, []patch.Edit{{List: patch.ListPre, Op: patch.OpAdd, Index: len(s.own.PreKubeadmCommands), Command: "more"}})
			asked := patch.Apply(s.spec, []patch.Edit{{List: patch.ListPre, Op: patch.OpAdd, Index: len(s.spec.PreKubeadmCommands), Command: "more"}})
			return s.write(asked, maps.Clone(s.annotations), false)
		}},
		{Name: "pause the object", Args: []string{"true", ""}, Do: func(s *stored, value string) error {
			if !plan.IsPausedByUs(s.annotations) {
				delete(s.annotations, clusterv1.PausedAnnotation)
				if value != "" {
					s.annotations[clusterv1.PausedAnnotation] = value
				}
			}
			return nil
		}},
		{Name: "another Cluster had the template", Do: func(s *stored, _ string) error {
			if s.kind != plan.KindTemplate || patch.IsPatched(s.spec) {
				return nil
			}
			recipe, err := plan.Recipe(s.want.Options, patch.OutputVersion, false, otherSecret)
			if err != nil {
				return err
			}
			if entries, err := patch.Ensure(s.spec, recipe); err == nil {
				s.spec = patch.Apply(s.spec, entries.Edits)
			}
			return nil
		}},
		{Name: "Cluster API looks", Weight: 2, Do: func(s *stored, _ string) error {
			_, paused := s.annotations[clusterv1.PausedAnnotation]
			s.busy = !paused
			return nil
		}},
		{Name: "Cluster API makes a Machine", Do: func(s *stored, _ string) error {
			if _, paused := s.annotations[clusterv1.PausedAnnotation]; !paused && s.kind != plan.KindTemplate {
				s.running, s.busy = true, true
			}
			return nil
		}},
	}...)
}

func TestModel_OfDecide(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{plan.KindControlPlane, plan.KindTemplate, plan.KindConfig} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			sequence.Test[*stored]{
				New: func() *stored { return newStored(kind) }, Operations: modelOperations(), Check: (*stored).check,
				Steps: 20_000, Length: 40,
			}.Run(t)
		})
	}
}
