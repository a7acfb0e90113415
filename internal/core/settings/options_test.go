package settings_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

func TestParseOptions(t *testing.T) {
	t.Parallel()
	got, err := settings.ParseOptions(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := settings.Options{Rollout: "OnNextRollout", Targets: contract.Targets(), MaxUnavailable: "1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	got, err = settings.ParseOptions(map[string]string{
		contract.AnnotationRollout: "Immediate",
		contract.AnnotationTargets: " trust , containerd,trust", contract.AnnotationNoProxyGroups: "-metadata",
		contract.AnnotationInPlaceMaxUnavailable: "25%",
	})
	if err != nil {
		t.Fatal(err)
	}
	want = settings.Options{
		Rollout: "Immediate", MaxUnavailable: "25%",
		Targets:    []contract.Target{contract.TargetContainerd, contract.TargetTrust},
		OmitGroups: []noproxy.Group{noproxy.GroupMetadata},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for value, valid := range map[string]bool{
		"1": true, "999999": true, "1%": true, "100%": true, "": false, "0": false, "0%": false, "101%": false, "-1": false,
		"01": false, "1000000": false, "1.5": false, "1 2": false, "%": false, "1\n": false, "one": false,
	} {
		got, err := settings.ParseOptions(map[string]string{
			contract.AnnotationInPlaceMaxUnavailable: value, contract.AnnotationRollout: "InPlace",
		})
		if (err == nil) != valid || valid && (got.MaxUnavailable != value || got.Rollout != contract.RolloutInPlace) {
			t.Errorf("%q: %q, %v", value, got.MaxUnavailable, err)
		}
	}
	for annotation, test := range map[string]struct{ value, want string }{
		contract.AnnotationRollout: {
			"now",
			`annotation capi-proxy-patcher.io/rollout: unknown value "now"; use OnNextRollout, Immediate or InPlace`,
		},
		contract.AnnotationTargets: {
			"kubelet,",
			`annotation capi-proxy-patcher.io/targets: entry 2, "", is not a target; use a list of containerd, kubelet, commands, trust, static-pods`,
		},
		contract.AnnotationNoProxyGroups: {"metadata", "annotation capi-proxy-patcher.io/no-proxy-groups: "},
	} {
		_, err := settings.ParseOptions(map[string]string{annotation: test.value})
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s=%q gives %v, want %s", annotation, test.value, err, test.want)
		}
	}
}
