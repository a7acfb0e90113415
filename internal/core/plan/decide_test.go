package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// scene is an object of Cluster prod, what the Cluster asks for, and the facts.
type scene struct {
	object  plan.Object
	want    plan.Want
	answers answers
}

// answers are facts that are known, and errors that take their place.
type answers struct {
	values         plan.Values
	taken          string // why the names of generated Secrets are taken
	infrastructure plan.Infrastructure
	begun          bool
	errs           map[string]error // by what asked gets
	// asked gets what was asked for.
	asked []string
}

func (a *answers) ask(what string) error {
	a.asked = append(a.asked, what)
	return a.errs[what]
}

func (a *answers) Values(plan.Object) (plan.Values, error) {
	return a.values, a.ask("values")
}

func (a *answers) Taken(_ plan.Object, secret string) (string, error) {
	return a.taken, a.ask(secret)
}

func (a *answers) Infrastructure(plan.Object) (plan.Infrastructure, error) {
	return a.infrastructure, a.ask("infrastructure")
}

func (a *answers) Begun() (bool, error) { return a.begun, a.ask("begun") }

// is changes a scene.
type is func(*scene)

// filesOf are the data of a generated Secret.
func filesOf(proxy settings.Proxy) map[string][]byte {
	files, err := settings.Files(proxy, "localhost")
	if err != nil {
		panic(err)
	}
	return files
}

// newScene is an object at rest of an enabled Cluster with delivery Reference, about which every answer is favourable.
func newScene(t *testing.T, kind string, changes ...is) scene {
	t.Helper()
	proxy, err := settings.ParseSecret(map[string][]byte{"httpProxy": []byte("http://proxy:3128")})
	if err != nil {
		t.Fatal(err)
	}
	resolution := &settings.Resolution{
		Settings: proxy, Complete: true, NoProxy: noproxy.Result{Value: "localhost"}, Files: filesOf(proxy),
	}
	s := scene{
		object: plan.Object{
			Kind: kind, Name: kind + " team/one", Spec: own(),
		},
		want: plan.Want{Cluster: "prod", Enabled: true, Admission: true, Options: settings.Options{
			Rollout: contract.RolloutOnNextRollout, Targets: contract.Targets(),
		}},
		answers: answers{values: plan.Values{Resolution: resolution}},
	}
	if kind != plan.KindControlPlane {
		s.object.Pools = []plan.Pool{{
			Pool: settings.Pool{Kind: settings.KindMachineDeployment, Name: "md"}, Object: "md",
			Cluster: "prod",
		}}
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

// outcome describes a decision in words: what happens to the managed entries and to the pause, what waits, the reported
// reasons ("note" for none), and after a slash the facts that were asked for.
func (s scene) outcome(t *testing.T) string {
	t.Helper()
	d, err := plan.Decide(s.object, s.want, &s.answers)
	if err != nil {
		t.Fatal(err)
	}
	before := s.object.Spec
	if w := s.object.Write; w != nil {
		before = w.Stored
	}
	after := patch.Apply(s.object.Spec, d.Edits)
	words := []string{"leaves"}
	managed := func(spec patch.Spec) int {
		return len(slices.DeleteFunc(slices.Clone(spec.Files), func(f patch.File) bool { return !patch.IsManagedFile(f) }))
	}
	switch differs := len(patch.Keep(after, before)) > 0 || managed(after) != managed(before); {
	case differs && patch.IsPatched(after):
		words[0] = "brings"
	case differs:
		words[0] = "takes"
	}
	if value, found := d.Annotations[clusterv1.PausedAnnotation]; found &&
		value != s.object.Annotations[clusterv1.PausedAnnotation] {
		words = append(words, map[string]string{
			"": "resumes", contract.PausedForPatch: "pauses for the patch",
		}[value])
	}
	if value, found := d.Annotations[contract.AnnotationOutputVersion]; found && value == "" && len(d.Edits) == 0 &&
		s.object.Annotations[contract.AnnotationOutputVersion] != "" {
		words = append(words, "forgets the version")
	}
	if d.Waits {
		words = append(words, "waits")
	}
	for _, found := range d.Report() {
		if found.Reason == "" {
			found.Reason = "note"
		}
		words = append(words, found.Reason)
	}
	text := strings.Join(words, ", ")
	if len(s.answers.asked) > 0 {
		text += " / " + strings.Join(s.answers.asked, " ")
	}
	return text
}

var (
	disabled is = func(s *scene) { s.want.Enabled = false }
	frozen   is = func(s *scene) { s.want.Frozen = true }
	unusable is = func(s *scene) {
		s.want.Unusable = &finding.Finding{Reason: contract.ReasonInvalidSettings, Message: "label"}
	}
	onNodes   is = func(s *scene) { s.want.Options.Rollout = "OnNodes" } // of a capability
	immediate is = func(s *scene) { s.want.Options.Rollout = contract.RolloutImmediate }

	running   is = func(s *scene) { s.object.Running = true }
	busy      is = func(s *scene) { s.object.Busy = true }
	rolling   is = func(s *scene) { s.object.Rolls = true }
	deleted   is = func(s *scene) { s.object.Deleted = true }
	ofMachine is = func(s *scene) { s.object.OfMachine = true }
	unused    is = func(s *scene) { s.object.Pools = nil }
	owned     is = func(s *scene) { s.object.Labels = map[string]string{clusterv1.ClusterTopologyOwnedLabel: ""} }
	windows   is = func(s *scene) { s.object.Spec.Files = append(s.object.Spec.Files, patch.File{Path: `c:\a`}) }
	shared    is = func(s *scene) {
		s.object.Foreign = &plan.Pool{Pool: settings.Pool{Kind: settings.KindMachineDeployment}, Object: "x", Cluster: "other"}
	}
	divided is = func(s *scene) {
		s.object.Pools = append(s.object.Pools, plan.Pool{Pool: settings.Pool{Override: "other"}, Object: "b"})
	}
	inTheWay is = func(s *scene) {
		s.object.Spec.Files = append(s.object.Spec.Files,
			patch.File{Path: "/etc/systemd/system/kubelet.service.d/http-proxy.conf"})
	}

	begun      is = func(s *scene) { s.answers.begun = true }
	taken      is = func(s *scene) { s.answers.taken = "it is somebody else's" }
	rejected   is = func(s *scene) { s.answers.values = plan.Values{} }
	onWindows  is = func(s *scene) { s.answers.infrastructure.Windows = "os" }
	noMachines is = func(s *scene) { s.answers.infrastructure.Missing = "DemoMachineTemplate a" }
	others     is = func(s *scene) { s.want.Cluster = "prod-eu" }
)

func override(secret string) is {
	return func(s *scene) { s.object.Pools[0].Override = secret }
}

func paused(value string) is {
	return func(s *scene) { s.object.Annotations = map[string]string{clusterv1.PausedAnnotation: value} }
}

// recorded gives the object the record of a version.
func recorded(s *scene) {
	s.object.Annotations = map[string]string{contract.AnnotationOutputVersion: "1"}
}

// patched gives the object the entries of Cluster prod.
func patched(s *scene) {
	recipe, err := plan.Recipe(s.want.Options, patch.OutputVersion, s.answers.values.Resolution.Settings.IsTrustOnly(), "prod-proxy-files")
	if err != nil {
		panic(err)
	}
	ensured, err := patch.Ensure(s.object.Spec, recipe)
	if err != nil {
		panic(err)
	}
	s.object.Spec = patch.Apply(s.object.Spec, ensured.Edits)
}

// created marks the object as being created unchanged.
func created(s *scene) {
	s.object.Write = &plan.Write{
		Stored: s.object.Spec, Annotations: s.object.Annotations, Creates: true,
	}
}

// updated marks the object as being written unchanged.
func updated(s *scene) {
	created(s)
	s.object.Write.Creates = false
}

// applied is that the user applies a manifest again that has none of our entries.
func applied(s *scene) {
	updated(s)
	s.object.Spec = own()
}

// answered is that the webhook is asked again about the object as it has answered.
func answered(s *scene) {
	patched(s)
	s.object.Annotations = nil
}

const (
	controlPlane = plan.KindControlPlane
	template     = plan.KindTemplate
	config       = plan.KindConfig
)

// row is a row of the tables below.
type row struct {
	name string
	kind string
	is   []is
	want string
}

func check(t *testing.T, rows []row, always ...is) {
	t.Helper()
	for _, test := range rows {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := newScene(t, test.kind, slices.Concat(test.is, always)...).outcome(t); got != test.want {
				t.Errorf("\ngot  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestDecide_AtRest(t *testing.T) {
	t.Parallel()
	const secret = " prod-proxy-files"
	check(t, []row{
		{"a new control plane", controlPlane, nil, "brings / values" + secret + " begun"},
		{"a patched control plane costs no request", controlPlane, []is{patched}, "leaves / values" + secret},
		{"a patched control plane with Machines", controlPlane, []is{patched, running}, "leaves / values" + secret},
		{"a control plane with Machines", controlPlane, []is{running}, "leaves, waits, WaitingForRollout / values" + secret},
		{"one whose first Machine is in nobody's cache", controlPlane, []is{begun}, "leaves, waits, WaitingForRollout / values" + secret + " begun"},
		{"one with Machines, rollout of a capability", controlPlane, []is{running, onNodes}, "leaves, waits, WaitingForRollout / values" + secret},
		{"one with Machines, rollout Immediate", controlPlane, []is{running, immediate}, "brings / values" + secret},
		{"the same with a proxy Secret that cannot be used", controlPlane, []is{running, immediate, rejected}, "leaves, waits, WaitingForRollout / values" + secret},
		{"one with Machines that the user replaces", controlPlane, []is{running, rolling}, "brings / values" + secret},
		{"the same with a proxy Secret that cannot be used, so that no Machine comes up without the proxy", controlPlane, []is{running, rolling, rejected}, "brings / values" + secret},
		{"one that Cluster API works on", controlPlane, []is{busy}, "leaves, pauses for the patch, Configuring / values" + secret + " begun"},
		{"one that waits for Cluster API to notice the pause", controlPlane, []is{busy, paused(contract.PausedForPatch)}, "leaves, Configuring / values" + secret},
		{"one that Cluster API has paused", controlPlane, []is{paused(contract.PausedForPatch)}, "brings, resumes / values" + secret + " begun"},
		{"one that was paused and has Machines by now", controlPlane, []is{running, paused(contract.PausedForPatch)}, "leaves, resumes, waits, WaitingForRollout / values" + secret},
		{"a template", template, nil, "brings / values" + secret + " infrastructure"},
		{"a patched template costs no request", template, []is{patched}, "leaves / values" + secret},
		{"a template for Windows by its files", template, []is{windows}, "leaves, note"},
		{"a template for Windows by its machine template", template, []is{onWindows}, "leaves, note / values" + secret + " infrastructure"},
		{"a template before its machine template exists", template, []is{noMachines}, "leaves, WaitingForObjects / values" + secret + " infrastructure"},
		{"a template of another Cluster too", template, []is{shared}, "leaves, SharedTemplate"},
		{"a template of pools that disagree", template, []is{divided}, "leaves, SharedTemplate"},
		{"a template of a topology that is none of the Cluster's", template, []is{owned}, "leaves, TemplateNotSupported"},
		{"a paused template", template, []is{paused("true")}, "leaves, Paused"},
		{"a template with a pause of no value", template, []is{paused("")}, "leaves, Paused"},
		{"a template of a pool with its own Secret", template, []is{override("pool")}, "brings / values prod.md.md.proxy-files infrastructure"},
		{"a template of a pool without the proxy", template, []is{override(contract.SecretNone)}, "leaves"},
		{"a patched template of a pool without the proxy", template, []is{override(contract.SecretNone), patched}, "takes"},
		{"the KubeadmConfig of a Machine", config, []is{ofMachine}, "brings / values" + secret + " infrastructure"},
		{"that of a Machine whose machine template is gone", config, []is{ofMachine, noMachines}, "brings / values" + secret + " infrastructure"},
		{"a KubeadmConfig with bootstrap data, rollout Immediate", config, []is{running, immediate}, "leaves, waits, WaitingForRollout / values" + secret + " infrastructure"},
		{"a proxy Secret that cannot be used", template, []is{rejected}, "brings / values" + secret + " infrastructure"},
		{"a patched template and such a Secret", template, []is{patched, rejected}, "leaves / values" + secret},
		{"the name of the generated Secret is taken", template, []is{taken}, "leaves, NameTaken / values" + secret},
		{"it is taken and the template refers to it", template, []is{patched, taken}, "takes, NameTaken / values" + secret + ""},
		{"it is taken and a running control plane refers to it, rollout Immediate", controlPlane, []is{patched, running, taken, immediate}, "leaves, NameTaken / values" + secret},
		{"the same, and the user replaces the Machines", controlPlane, []is{patched, running, taken, rolling}, "takes, NameTaken / values" + secret + ""},
		{"it is taken and the first Machine is in nobody's cache", controlPlane, []is{patched, begun, taken}, "leaves, NameTaken / values" + secret + " begun"},
		{"a file in the way of one that is held back", controlPlane, []is{inTheWay, paused(contract.PausedForPatch)}, "leaves, resumes, ConflictingFile / values" + secret},
		{"held back and being deleted", controlPlane, []is{deleted, paused(contract.PausedForPatch)}, "leaves, resumes"},
		{"the Cluster is paused while one is held back", controlPlane, []is{frozen, paused(contract.PausedForPatch)}, "leaves, resumes"},
		{"the label is unclear while one is held back", controlPlane, []is{unusable, paused(contract.PausedForPatch)}, "leaves, resumes, InvalidSettings"},
	})
}

func TestDecide_WithoutTheLabel(t *testing.T) {
	t.Parallel()
	check(t, []row{
		{"never patched", controlPlane, nil, "leaves"},
		{"a control plane without Machines", controlPlane, []is{patched}, "takes / begun"},
		{"a control plane with Machines", controlPlane, []is{patched, running}, "leaves, waits, RemovalWaitingForRollout"},
		{"one with Machines, rollout Immediate", controlPlane, []is{patched, running, immediate}, "takes"},
		{"one with Machines that the user replaces", controlPlane, []is{patched, running, rolling}, "takes"},
		{"one that Cluster API works on", controlPlane, []is{patched, busy}, "leaves, pauses for the patch, Configuring / begun"},
		{"a template", template, []is{patched}, "takes"},
		{"a template that no pool uses any more", template, []is{patched, unused}, "takes"},
		{"a template with the entries of another Cluster", template, []is{patched, others}, "leaves"},
		{"a template for Windows that was patched", template, []is{windows, patched}, "takes"},
		{"a paused template", template, []is{patched, paused("true")}, "leaves, Paused"},
		{"a paused template that was never patched", template, []is{paused("true")}, "leaves"},
		{"a template of a topology", template, []is{patched, owned}, "leaves"},
		{"one whose entries are gone already", template, []is{recorded}, "leaves, forgets the version"},
		{"a paused one whose entries are gone already", template, []is{recorded, func(s *scene) {
			s.object.Annotations[clusterv1.PausedAnnotation] = "true"
		}}, "leaves"},
		{"held back", controlPlane, []is{paused(contract.PausedForPatch)}, "leaves, resumes"},
		{"a KubeadmConfig with bootstrap data", config, []is{patched, running}, "leaves, waits, RemovalWaitingForRollout"},
		{"a write that takes our pause off", controlPlane, []is{paused(contract.PausedForPatch), updated, func(s *scene) { s.object.Annotations = nil }}, "leaves"},
		{"a write that takes our entries along", template, []is{patched, updated}, "takes"},
		{"a write to a template that no pool uses", template, []is{patched, unused, updated}, "leaves"},
		{"a write to a running control plane", controlPlane, []is{patched, running, updated}, "leaves"},
	}, disabled)
}

// TestDecide_KnowsWhatMachinesShouldHave by the recipe: none if it is not known, and an empty one for no entry.
func TestDecide_KnowsWhatMachinesShouldHave(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		is           []is
		known, empty bool
	}{
		"the proxy":                      {nil, true, false},
		"no proxy":                       {[]is{patched, disabled}, true, true},
		"no proxy, never patched":        {[]is{disabled}, true, true},
		"a pool without the proxy":       {[]is{patched, override(contract.SecretNone)}, true, true},
		"entries of somebody's Secret":   {[]is{patched, taken}, false, false},
		"a template for Windows":         {[]is{windows}, false, false},
		"entries of another Cluster":     {[]is{patched, others, disabled}, false, false},
		"a template of a paused Cluster": {[]is{frozen}, false, false},
	} {
		s := newScene(t, template, test.is...)
		d, err := plan.Decide(s.object, s.want, &s.answers)
		if err != nil {
			t.Fatal(err)
		}
		if known := d.Recipe != nil; known != test.known || known && (len(d.Recipe.Files) == 0) != test.empty {
			t.Errorf("%s: recipe %+v", name, d.Recipe)
		}
	}
}

func TestDecide_InAWrite(t *testing.T) {
	t.Parallel()
	const secret = " prod-proxy-files"
	check(t, []row{
		{"a control plane is created", controlPlane, []is{created}, "brings / values" + secret + " begun"},
		{"one is created for a Cluster that has Machines", controlPlane, []is{created, begun}, "leaves, waits, WaitingForRollout / values" + secret + " begun"},
		{"the webhook is called again on its own answer", controlPlane, []is{paused(contract.PausedForPatch), updated, answered}, "brings / values" + secret + " begun"},
		{"a manifest is applied again", controlPlane, []is{patched, applied}, "leaves / values" + secret},
		{"a manifest is applied again, with Machines", controlPlane, []is{patched, running, applied}, "leaves"},
		{"a write to a control plane with Machines", controlPlane, []is{running, updated}, "leaves"},
		{"a write that rolls it", controlPlane, []is{running, rolling, updated}, "brings / values" + secret},
		{"a write to one with Machines, rollout Immediate", controlPlane, []is{running, immediate, updated}, "brings / values" + secret},
		{"a write to one that Cluster API works on", controlPlane, []is{busy, updated}, "leaves / values" + secret + " begun"},
		{"a template is created before its pool", template, []is{unused, created}, "leaves"},
		{"a template is written", template, []is{updated}, "brings / values" + secret + " infrastructure"},
		{"a template before its machine template", template, []is{noMachines, updated}, "leaves, WaitingForObjects / values" + secret + " infrastructure"},
		{"a template is applied again", template, []is{patched, applied}, "leaves / values" + secret},
		{"a KubeadmConfig is created", config, []is{ofMachine, created}, "brings / values" + secret + " infrastructure"},
		{"a KubeadmConfig with bootstrap data is written", config, []is{running, updated}, "leaves"},
		{"a paused object is written", template, []is{patched, paused("true"), applied}, "leaves, Paused"},
		{"the name of the generated Secret is taken", template, []is{taken, created}, "leaves, NameTaken / values" + secret},
		{"a file of the user's in the way", template, []is{inTheWay, created}, "leaves, ConflictingFile / values" + secret},
		{"it is removed in the write that rolls a control plane", controlPlane, []is{inTheWay, running, applied, rolling}, "brings / values" + secret},
	})
}

func TestDecide_ForTheTopologyHook(t *testing.T) {
	t.Parallel()
	const secret = " prod-proxy-files"
	hooked := func(s *scene) { s.object.Hooked = true }
	check(t, []row{
		{"a template of the control plane asks for no Machine", controlPlane, nil, "brings / values" + secret},
		{"what the topology controller has made of it", controlPlane, []is{patched, owned}, "leaves / values" + secret},
		{"what has other settings by now", template, []is{patched, owned, override("pool")}, "brings / values prod.md.md.proxy-files"},
		{"a template of a pool", template, nil, "brings / values" + secret + " infrastructure"},
		{"a template of a pool without the proxy", template, []is{override(contract.SecretNone)}, "leaves"},
		{"a template for Windows", template, []is{windows}, "leaves, note"},
		{"a file of the user's in the way", template, []is{inTheWay}, "leaves, ConflictingFile / values" + secret},
		{"the name of the generated Secret is taken", template, []is{taken}, "leaves, NameTaken / values" + secret},
	}, hooked)
}

func TestDecide_CopyFollowsTheTemplateOfItsPool(t *testing.T) {
	t.Parallel()
	recipe := reference(t)
	for _, test := range []struct {
		name string
		is   []is
		from plan.Copied
		want string
	}{
		{"patched", []is{patched}, plan.Copied{Patched: true, Recipe: &recipe}, "leaves / prod-proxy-files"},
		{"not patched, as the template is", nil, plan.Copied{Patched: true, Recipe: &recipe}, "brings / infrastructure"},
		{"the template has no proxy", nil, plan.Copied{Recipe: &recipe}, "leaves"},
		{"the recipe is not known", nil, plan.Copied{Patched: true}, "leaves"},
		{"a file in the way of this copy alone", []is{inTheWay}, plan.Copied{Patched: true, Recipe: &recipe}, "leaves"},
		{"for Windows", []is{onWindows}, plan.Copied{Patched: true, Recipe: &recipe}, "leaves, note / infrastructure"},
		{"the label is gone", []is{disabled}, plan.Copied{Patched: true, Recipe: &recipe}, "leaves"},
		{"paused by the user", []is{paused("true")}, plan.Copied{Patched: true, Recipe: &recipe}, "leaves"},
		{"it refers to a Secret of somebody else", []is{patched, taken}, plan.Copied{Patched: true, Recipe: &recipe}, "takes, NameTaken / prod-proxy-files"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, config, append(test.is, ofMachine)...)
			s.object.Copied = &test.from
			if got := s.outcome(t); got != test.want {
				t.Errorf("\ngot  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestDecide_ReturnsTheErrorOfAFact(t *testing.T) {
	t.Parallel()
	failed := errors.New("the API server is down")
	for what, kind := range map[string]string{
		"values": template, "prod-proxy-files": template, "infrastructure": template, "begun": controlPlane,
	} {
		s := newScene(t, kind)
		s.answers.errs = map[string]error{what: failed}
		d, err := plan.Decide(s.object, s.want, &s.answers)
		if !errors.Is(err, failed) || len(d.Edits) > 0 || d.Annotations != nil {
			t.Errorf("%s cannot be read: error %v and %d edits", what, err, len(d.Edits))
		}
		if last := s.answers.asked[len(s.answers.asked)-1]; last != what {
			t.Errorf("%s cannot be read, and %s is asked for after it", what, last)
		}
	}
}
