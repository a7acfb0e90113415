package source_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/source"
)

// TestFindingsAreWhatTheMessageTells checks that programs find in an error what people read in it.
func TestFindingsAreWhatTheMessageTells(t *testing.T) {
	t.Parallel()
	cluster := source.Cluster{Namespace: "team", Name: "one"}
	resolve := func(data map[string]string) error {
		reader := &secrets{data: map[string]map[string]string{"team/http-proxy": data}}
		_, err := source.Resolver{Secrets: reader}.Resolve(t.Context(), cluster, source.Options{}, "")
		return err
	}
	options := func(annotation, value string) error {
		_, err := source.ParseOptions(map[string]string{annotation: value})
		return err
	}
	for name, test := range map[string]struct {
		err  error
		want []noproxy.Error
	}{
		"a Secret": {resolve(map[string]string{"httpProxy": "p:1", "proxy": ""}), []noproxy.Error{
			{Code: "unknown-key", Where: `Secret team/http-proxy key "proxy"`}, {Code: noproxy.CodeBadProxyURL, Where: "Secret team/http-proxy key httpProxy"},
		}},
		"a list": {resolve(map[string]string{"httpProxy": "http://p:1", "noProxy": "a,b/c d:x"}), []noproxy.Error{
			{Code: noproxy.CodeURLEntry, Where: "Secret team/http-proxy key noProxy entry 2"}, {Code: noproxy.CodeBadPort, Where: "Secret team/http-proxy key noProxy entry 3"},
		}},
		"delivery": {options(contract.AnnotationDelivery, "x"), []noproxy.Error{{Code: source.CodeBadAnnotation, Where: "annotation " + contract.AnnotationDelivery}}},
		"targets":  {options(contract.AnnotationTargets, "x"), []noproxy.Error{{Code: source.CodeBadAnnotation, Where: "annotation " + contract.AnnotationTargets}}},
		"groups":   {options(contract.AnnotationNoProxyGroups, "x"), []noproxy.Error{{Code: source.CodeBadAnnotation, Where: "annotation " + contract.AnnotationNoProxyGroups}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []noproxy.Error
			for _, finding := range noproxy.Errors(test.err) {
				if finding.Why == "" || !strings.Contains(test.err.Error(), finding.Why) || !strings.Contains(test.err.Error(), finding.Fix) {
					t.Errorf("%q does not tell %+v", test.err, finding)
				}
				got = append(got, noproxy.Error{Code: finding.Code, Where: finding.Where})
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestResolveComposesForTheProfile(t *testing.T) {
	t.Parallel()
	reader := &secrets{data: map[string]map[string]string{"team/http-proxy": proxy("x")}}
	cluster := source.Cluster{Namespace: "team", Name: "one", EndpointHost: "cp.example.com", PodCIDRs: []string{"fd00:1::/64"}}
	for profile, want := range map[noproxy.Profile]bool{"": true, noproxy.ProfileService: true, noproxy.ProfileShell: false} {
		got, err := source.Resolver{Secrets: reader, Profile: profile}.Resolve(t.Context(), cluster, source.Options{}, "")
		if err != nil || strings.Contains(got.NoProxy.Value, "fd00:1::/64") != want {
			t.Errorf("profile %q: %s, error %v", profile, got.NoProxy.Value, err)
		}
	}
}
