package settings_test

import (
	"fmt"
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
	want := settings.Options{Rollout: "OnNextRollout", Targets: contract.Targets()}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	got, err = settings.ParseOptions(map[string]string{
		contract.AnnotationRollout: "Immediate",
		contract.AnnotationTargets: " trust , containerd,trust", contract.AnnotationNoProxyGroups: "-metadata",
		percent: "25%", contract.AnnotationSecret: "any",
	})
	if err != nil {
		t.Fatal(err)
	}
	want = settings.Options{
		Rollout:    "Immediate",
		Targets:    []contract.Target{contract.TargetContainerd, contract.TargetTrust},
		OmitGroups: []noproxy.Group{noproxy.GroupMetadata},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for annotation, test := range map[string]struct{ value, want string }{
		contract.AnnotationRollout: {
			"now",
			`annotation capi-proxy-patcher.io/rollout: unknown value "now"; use OnNextRollout, Immediate or OnNodes`,
		},
		contract.AnnotationTargets: {
			"kubelet,",
			`annotation capi-proxy-patcher.io/targets: entry 2, "", is not a target; use a list of containerd, kubelet, commands, trust, static-pods`,
		},
		contract.AnnotationNoProxyGroups: {"metadata", "annotation capi-proxy-patcher.io/no-proxy-groups: "},
		percent:                          {"", `annotation capi-proxy-patcher.io/percent: "" is not 25%; write 25%`},
	} {
		_, err := settings.ParseOptions(map[string]string{annotation: test.value})
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s=%q gives %v, want %s", annotation, test.value, err, test.want)
		}
	}
}

// percent is an annotation of a capability.
const percent = contract.Domain + "/percent"

func TestMain(m *testing.M) {
	contract.Add(contract.Capability{Name: "test", Rollouts: []string{"OnNodes"}, Annotations: []contract.Annotation{{
		Key: percent, Check: func(value string) (message, advice string) {
			if value == "25%" {
				return "", ""
			}
			return fmt.Sprintf("%q is not 25%%", value), "write 25%"
		},
	}}})
	m.Run()
}
