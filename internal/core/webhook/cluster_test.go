package webhook_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/webhook"
)

// clusterText is a Cluster in JSON as the tests of holds need it.
type clusterText struct {
	label, hold, rollout string
	// before is contract.AnnotationEnabledBefore.
	before string
	// version is that of the topology; classic has none.
	version string
	classic bool
	// fresh has no control plane yet, deleted is on its way out.
	fresh, deleted bool
}

func (c clusterText) String() string {
	labels, annotations := map[string]string{"a~b/c": `"{{ x }}'$(id)`}, map[string]string{"mine": "%n\n"}
	set := func(m map[string]string, key, value string) {
		if value != "" {
			m[key] = value
		}
	}
	set(labels, contract.LabelEnabled, c.label)
	set(annotations, contract.AnnotationTopologyHold, c.hold)
	set(annotations, contract.AnnotationRollout, c.rollout)
	set(annotations, contract.AnnotationEnabledBefore, c.before)
	metadata := map[string]any{"name": "one", "namespace": "ns", "labels": labels, "annotations": annotations, "future": 1}
	if c.deleted {
		metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	}
	spec := map[string]any{"future": []int{1}}
	if !c.classic {
		version := c.version
		if version == "" {
			version = "v1.36.3"
		}
		spec["topology"] = map[string]any{"classRef": map[string]any{"name": "quick-start"}, "version": version}
	}
	text, err := json.Marshal(map[string]any{
		"metadata": metadata, "spec": spec, "status": map[string]any{"initialization": map[string]any{"controlPlaneInitialized": !c.fresh}},
	})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// admit sends a write to the webhook of Clusters and returns the object after it, the warnings and the raw answer.
func admit(t *testing.T, stored, requested string, edit ...func(*admissionv1.AdmissionRequest)) (object string,
	warnings []string, patched bool,
) {
	t.Helper()
	handler := serve(t, newWorld(t), newWorld(t))
	update := func(r *admissionv1.AdmissionRequest) {
		r.Name, r.Operation, r.OldObject = "one", admissionv1.Update, runtime.RawExtension{Raw: []byte(stored)}
	}
	body := review(t, requested, append([]func(*admissionv1.AdmissionRequest){update}, edit...)...)
	answer := response(t, postTo(t, handler, webhook.KindCluster, body))
	return after(t, requested, answer), answer.Warnings, answer.Patch != nil
}

func holdIn(t *testing.T, object string) string {
	t.Helper()
	var cluster struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal([]byte(object), &cluster); err != nil {
		t.Fatal(err)
	}
	return cluster.Metadata.Annotations[contract.AnnotationTopologyHold]
}

func TestClusterWebhook_MaintainsTheFreeze(t *testing.T) {
	t.Parallel()
	const (
		on           = contract.LabelEnabledValue
		without      = "disabled@v1.36.3"
		keep         = "enabled@v1.36.3"
		warnGet      = "capi-proxy-patcher: Machines that run Kubernetes v1.36.3 get the proxy with their next upgrade, or when annotation capi-proxy-patcher.io/rollout is Immediate"
		warnLose     = "capi-proxy-patcher: Machines that run Kubernetes v1.36.3 lose the proxy with their next upgrade, or when annotation capi-proxy-patcher.io/rollout is Immediate"
		warnLoseNew  = "capi-proxy-patcher: Machines that run Kubernetes v1.37.0 lose the proxy with their next upgrade, or when annotation capi-proxy-patcher.io/rollout is Immediate"
		immediate    = contract.RolloutImmediate
		newerVersion = "v1.37.0"
	)
	for name, test := range map[string]struct {
		stored, requested clusterText
		want              string
		warning           string
	}{
		"the label comes while the Cluster runs":                   {clusterText{}, clusterText{label: on}, without, warnGet},
		"the label goes while the Cluster runs":                    {clusterText{label: on}, clusterText{}, keep, warnLose},
		"the version is that before the write":                     {clusterText{}, clusterText{label: on, version: newerVersion}, without, warnGet},
		"a Cluster that does not run yet":                          {clusterText{fresh: true}, clusterText{label: on, fresh: true}, "", ""},
		"whether it runs is what is stored":                        {clusterText{fresh: true}, clusterText{label: on}, "", ""},
		"a Cluster without a ClusterClass":                         {clusterText{classic: true}, clusterText{label: on, classic: true}, "", ""},
		"a Cluster that gets a ClusterClass":                       {clusterText{classic: true}, clusterText{label: on}, "", ""},
		"a Cluster that is deleted":                                {clusterText{}, clusterText{label: on, deleted: true}, "", ""},
		"Immediate in the same write":                              {clusterText{}, clusterText{label: on, rollout: immediate}, "", ""},
		"Immediate from the beginning":                             {clusterText{rollout: immediate}, clusterText{label: on, rollout: immediate}, "", ""},
		"Immediate taken off in the same write":                    {clusterText{rollout: immediate}, clusterText{label: on}, without, warnGet},
		"an unknown rollout is not Immediate":                      {clusterText{}, clusterText{label: on, rollout: "immediate"}, without, warnGet},
		"no label turns":                                           {clusterText{label: on}, clusterText{label: on}, "", ""},
		"a hold stays in other writes":                             {clusterText{label: on, hold: without}, clusterText{label: on, hold: without, version: newerVersion}, without, ""},
		"a hold stays if a manifest comes without it":              {clusterText{label: on, hold: without}, clusterText{label: on}, without, ""},
		"a hold of the removal stays, too":                         {clusterText{hold: keep}, clusterText{}, keep, ""},
		"a hold stays as it is":                                    {clusterText{label: on, hold: without}, clusterText{label: on, hold: "disabled@v0"}, without, ""},
		"a hold ends when the label is back":                       {clusterText{label: on, hold: without}, clusterText{hold: without}, "", ""},
		"a hold of the removal ends when the label is back":        {clusterText{hold: keep}, clusterText{label: on, hold: keep}, "", ""},
		"a hold ends with Immediate":                               {clusterText{label: on, hold: without}, clusterText{label: on, hold: without, rollout: immediate}, "", ""},
		"a hold of the removal ends with Immediate":                {clusterText{hold: keep}, clusterText{hold: keep, rollout: immediate}, "", ""},
		"a hold that says what the label says":                     {clusterText{label: on, hold: keep}, clusterText{label: on, hold: keep}, "", ""},
		"a label that is back after an upgrade has begun":          {clusterText{label: on, hold: without, version: newerVersion}, clusterText{hold: without, version: newerVersion}, "enabled@v1.37.0", warnLoseNew},
		"what is no hold is replaced":                              {clusterText{hold: "later"}, clusterText{label: on, hold: "later"}, without, warnGet},
		"what is no hold stays in other writes":                    {clusterText{hold: "later"}, clusterText{hold: "later"}, "later", ""},
		"a user who writes a hold where there is none may":         {clusterText{label: on}, clusterText{label: on, hold: without}, without, ""},
		"a hold of a Cluster whose control plane is not yet there": {clusterText{label: on, hold: without, fresh: true}, clusterText{hold: without, fresh: true}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stored, requested := test.stored.String(), test.requested.String()
			got, warnings, _ := admit(t, stored, requested)
			if hold := holdIn(t, got); hold != test.want {
				t.Errorf("hold %q, want %q", hold, test.want)
			}
			if text := strings.Join(warnings, "; "); text != test.warning {
				t.Errorf("warnings %q, want %q", text, test.warning)
			}
			again, _, patched := admit(t, stored, got)
			if patched {
				t.Errorf("a second call changed the object:\n%s", cmp.Diff(got, again))
			}
			// Nothing but the annotation is touched.
			test.requested.hold = test.want
			if diff := cmp.Diff(decodeText(t, test.requested.String()), decodeText(t, got)); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClusterWebhook_ReadsAnInvalidLabelAsTheOneBefore(t *testing.T) {
	t.Parallel()
	const (
		on, off, yes = contract.LabelEnabledValue, contract.LabelDisabledValue, "True"
		without      = "disabled@v1.36.3"
		keep         = "enabled@v1.36.3"
	)
	for name, test := range map[string]struct {
		stored, requested clusterText
		before, hold      string
	}{
		"after true":                      {stored: clusterText{label: on}, requested: clusterText{label: yes}, before: on},
		"after true, not running":         {stored: clusterText{label: on, fresh: true}, requested: clusterText{label: yes, fresh: true}, before: on},
		"after false":                     {stored: clusterText{label: off}, requested: clusterText{label: yes}, before: off},
		"after none":                      {stored: clusterText{}, requested: clusterText{label: yes}, before: off},
		"after another one":               {stored: clusterText{label: "yes", before: on}, requested: clusterText{label: yes}, before: on},
		"after one that nobody saw":       {stored: clusterText{label: "yes"}, requested: clusterText{label: yes}},
		"nobody else may write it":        {stored: clusterText{label: "yes"}, requested: clusterText{label: "yes", before: on}},
		"it comes back":                   {stored: clusterText{label: yes, before: on}, requested: clusterText{label: yes}, before: on},
		"a hold stays":                    {stored: clusterText{label: on, hold: without}, requested: clusterText{label: yes}, before: on, hold: without},
		"a hold stays with Immediate":     {stored: clusterText{label: on, hold: without}, requested: clusterText{label: yes, rollout: contract.RolloutImmediate}, before: on, hold: without},
		"a hold of the removal stays":     {stored: clusterText{hold: keep}, requested: clusterText{label: yes}, before: off, hold: keep},
		"back to true":                    {stored: clusterText{label: yes, before: on}, requested: clusterText{label: on, before: on}},
		"back to true with a hold":        {stored: clusterText{label: yes, before: on, hold: without}, requested: clusterText{label: on}, hold: without},
		"on to false":                     {stored: clusterText{label: yes, before: on}, requested: clusterText{label: off, before: on}, hold: keep},
		"on to none":                      {stored: clusterText{label: yes, before: on}, requested: clusterText{}, hold: keep},
		"on to true":                      {stored: clusterText{label: yes, before: off}, requested: clusterText{label: on}, hold: without},
		"on to false with Immediate":      {stored: clusterText{label: yes, before: on}, requested: clusterText{label: off, rollout: contract.RolloutImmediate}},
		"on from one that nobody saw":     {stored: clusterText{label: yes}, requested: clusterText{label: on}},
		"off from one that nobody saw":    {stored: clusterText{label: yes}, requested: clusterText{}},
		"no topology has nothing to keep": {stored: clusterText{label: on, classic: true}, requested: clusterText{label: yes, classic: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stored := test.stored.String()
			got, _, _ := admit(t, stored, test.requested.String())
			test.requested.before, test.requested.hold = test.before, test.hold
			if diff := cmp.Diff(decodeText(t, test.requested.String()), decodeText(t, got)); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			if again, _, patched := admit(t, stored, got); patched {
				t.Errorf("a second call changed the object:\n%s", cmp.Diff(got, again))
			}
		})
	}
}

func decodeText(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestClusterWebhook_PassesWritesUnchanged(t *testing.T) {
	t.Parallel()
	stored, requested := clusterText{}.String(), clusterText{label: contract.LabelEnabledValue}.String()
	for name, test := range map[string]struct {
		stored, requested string
		edit              func(*admissionv1.AdmissionRequest)
	}{
		"the manager's own write": {stored, requested, func(r *admissionv1.AdmissionRequest) {
			r.Options = runtime.RawExtension{Raw: []byte(`{"fieldManager": "capi-proxy-patcher"}`)}
		}},
		"a creation": {stored, requested, func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Create }},
		"a deletion": {stored, requested, func(r *admissionv1.AdmissionRequest) {
			r.Operation, r.Object = admissionv1.Delete, runtime.RawExtension{}
		}},
		"no old object":               {"null", requested, nil},
		"an object that is none":      {stored, "[]", nil},
		"annotations of another type": {stored, strings.Replace(requested, `"mine":"%n\n"`, `"mine":1`, 1), nil},
		"a status of another type":    {strings.Replace(stored, "true", `"true"`, 1), requested, nil},
		"an old object that is empty": {stored, requested, func(r *admissionv1.AdmissionRequest) { r.OldObject.Raw = []byte(`{}`) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			edit := test.edit
			if edit == nil {
				edit = func(*admissionv1.AdmissionRequest) {}
			}
			if got, warnings, patched := admit(t, test.stored, test.requested, edit); patched || len(warnings) > 0 {
				t.Errorf("patched to %s with warnings %q", got, warnings)
			}
		})
	}
}

func FuzzClusterWebhook(f *testing.F) {
	f.Add("true", "", "", "", "", "v1.36.3", true)
	f.Add("", "true", "disabled@v1.36.3", "", "Immediate", "v1.36.3", true)
	f.Add("true", "true", "enabled@", "disabled@v1@v2", "", "v1@v2", false)
	f.Add("true", "yes", "disabled@v1.36.3", "", "Immediate", "v1.36.3", true)
	f.Add("true", "", "disabled@\"\\n", "%", "OnNextRollout", "\x00\u2028{{", true)
	f.Fuzz(func(t *testing.T, was, is, held, requested, rollout, version string, running bool) {
		before := clusterText{label: was, hold: held, version: version, fresh: !running}
		after := clusterText{label: is, hold: requested, rollout: rollout, version: version, fresh: !running}
		got, _, _ := admit(t, before.String(), after.String())
		if again, _, patched := admit(t, before.String(), got); patched {
			t.Errorf("a second call turned\n%s\ninto\n%s", got, again)
		}
		hold := holdIn(t, got)
		parsed, isHold := settings.FreezeOf(map[string]string{contract.AnnotationTopologyHold: hold})
		if isHold && parsed.String() != hold {
			t.Errorf("hold %q reads as %q", hold, parsed)
		}
		enabled := func(label string) bool { return label == contract.LabelEnabledValue }
		unclear := func(label string) bool {
			return settings.StateOf(map[string]string{contract.LabelEnabled: label}) == settings.Unclear && label != ""
		}
		turned := enabled(was) != enabled(is) && !unclear(was) && !unclear(is)
		_, before1 := settings.FreezeOf(map[string]string{contract.AnnotationTopologyHold: held})
		switch {
		case rollout == contract.RolloutImmediate && before1 && hold != "" && !unclear(is):
			t.Errorf("Immediate left hold %q", hold)
		case turned && running && !before1 && rollout != contract.RolloutImmediate &&
			(!isHold || parsed.Enabled != enabled(was)):
			t.Errorf("the label turned on a Cluster that runs, and its hold is %q", hold)
		}
	})
}
