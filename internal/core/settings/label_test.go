package settings_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

func TestStateOf_HasThreeStates(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]settings.State{
		"true": settings.Enabled, "false": settings.Disabled,
		"True": settings.Unclear, "TRUE": settings.Unclear, "yes": settings.Unclear, "1": settings.Unclear, "": settings.Unclear, " true": settings.Unclear, //nolint:gocritic // a space is what is tested
		"no": settings.Unclear, "${PROXY}": settings.Unclear, "%s\n\"": settings.Unclear,
	} {
		labels := map[string]string{contract.LabelEnabled: value}
		if got := settings.StateOf(labels); got != want || settings.IsEnabled(labels) != (want == settings.Enabled) {
			t.Errorf("%q: state %d, want %d", value, got, want)
		}
		err := settings.CheckLabel(labels)
		if finding.Of(err).Has(contract.ReasonInvalidSettings) != (want == settings.Unclear) {
			t.Errorf("%q: error %v", value, err)
		}
	}
	for _, labels := range []map[string]string{nil, {"enabled": "true"}, {contract.LabelEnabled + "d": "true"}} {
		if got := settings.StateOf(labels); got != settings.Disabled || settings.CheckLabel(labels) != nil {
			t.Errorf("%v: state %d", labels, got)
		}
	}
	const want = `label capi-proxy-patcher.io/enabled: unknown value "%s\n\"", which changes nothing; use "true" or "false"`
	if err := settings.CheckLabel(map[string]string{contract.LabelEnabled: "%s\n\""}); err.Error() != want ||
		finding.Of(err)[0].Code != settings.CodeBadLabel {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestCheckNames_SuggestsTheNearest(t *testing.T) {
	t.Parallel()
	texts := func(warnings []finding.Finding) []string {
		var all []string
		for _, warning := range warnings {
			all = append(all, warning.String())
		}
		return all
	}
	labels := map[string]string{
		contract.LabelEnabled: "yes", "capi-proxy-patcher.io/enable": "true", "capi-proxy-patcher.io/rollout": "Immediate",
		"example.com/enable":       "x",
		"capi-proxy-patcher.iox/a": "",
	}
	annotations := map[string]string{
		"capi-proxy-patcher.io/rolout": "Immediate", "capi-proxy-patcher.io/enabled": "true", "capi-proxy-patcher.io/": "", "capi-proxy-patcher.io/zebra\n%s": "x",
		contract.AnnotationSecret: "", contract.AnnotationRollout: "", contract.AnnotationTargets: "",
		contract.AnnotationNoProxyGroups: "", contract.AnnotationTopologyHold: "", contract.AnnotationEnabledBefore: "",
		contract.AnnotationOutputVersion: "", "example.com/rolout": "",
	}
	const known = "known names are secret, rollout, targets, no-proxy-groups, percent, topology-hold, enabled-before, output-version, machines-behind"
	if diff := cmp.Diff([]string{
		"unknown-name: label capi-proxy-patcher.io/enable: unknown label, ignored; did you mean capi-proxy-patcher.io/enabled?",
		"unknown-name: label capi-proxy-patcher.io/rollout: unknown label, ignored; set it as an annotation",
		"unknown-name: annotation capi-proxy-patcher.io/: unknown annotation, ignored; " + known,
		"unknown-name: annotation capi-proxy-patcher.io/enabled: unknown annotation, ignored; set it as a label",
		"unknown-name: annotation capi-proxy-patcher.io/rolout: unknown annotation, ignored; did you mean capi-proxy-patcher.io/rollout?",
		"unknown-name: annotation capi-proxy-patcher.io/zebra\n%s: unknown annotation, ignored; " + known,
	}, texts(settings.CheckCluster(labels, annotations))); diff != "" {
		t.Errorf("Cluster (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"unknown-name: annotation capi-proxy-patcher.io/rollout: unknown annotation, ignored; set it as an annotation of the Cluster",
		"unknown-name: annotation capi-proxy-patcher.io/secrets: unknown annotation, ignored; did you mean capi-proxy-patcher.io/secret?",
	}, texts(settings.CheckPool(map[string]string{
		contract.AnnotationSecret: "none", contract.AnnotationRollout: "", "capi-proxy-patcher.io/secrets": "", "a/b": "",
	}))); diff != "" {
		t.Errorf("pool (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"unknown-name: label capi-proxy-patcher.io/enable: unknown label, ignored; did you mean capi-proxy-patcher.io/enabled?",
		"unknown-name: annotation capi-proxy-patcher.io/x of MachineDeployment md-0 of spec.topology: unknown annotation, ignored; known names are secret",
	}, texts(settings.CheckNames(map[string]string{"capi-proxy-patcher.io/enable": ""}, settings.Source{
		Pools: []settings.PoolSource{{Kind: "MachineDeployment", Name: "md-0", Annotations: map[string]string{"capi-proxy-patcher.io/x": ""}}},
	}))); diff != "" {
		t.Errorf("topology (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"unknown-name: annotation capi-proxy-patcher.io/rollout: unknown annotation, ignored; set it as an annotation of the Cluster",
	}, texts(settings.CheckBootstrap(map[string]string{
		contract.AnnotationRollout: "Immediate", contract.AnnotationOutputVersion: "1", contract.AnnotationNudge: "x", "mine": "y",
	}))); diff != "" {
		t.Errorf("bootstrap object (-want +got):\n%s", diff)
	}
	if got := append(settings.CheckCluster(nil, nil), settings.CheckPool(nil)...); got != nil {
		t.Errorf("warnings %v of nothing", got)
	}
}
