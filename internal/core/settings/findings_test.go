package settings_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// TestFindings_AreInTheMessage checks that programs find in an error what people read in it.
func TestFindings_AreInTheMessage(t *testing.T) {
	t.Parallel()
	cluster := settings.Cluster{Namespace: "team", Name: "one"}
	resolved := func(data map[string]string) error {
		reader := &secrets{data: map[string]map[string]string{"team/http-proxy": data}}
		_, err := settings.Resolver{Secrets: reader}.Resolve(t.Context(), cluster, settings.Options{}, "")
		return err
	}
	options := func(annotation, value string) error {
		_, err := settings.ParseOptions(map[string]string{annotation: value})
		return err
	}
	secret := func(key string) finding.Place { return finding.Key(key).Of("Secret team/http-proxy") }
	for name, test := range map[string]struct {
		err  error
		want []finding.Finding
	}{
		"a Secret": {resolved(map[string]string{"httpProxy": "p:1", "proxy": ""}), []finding.Finding{
			{Code: "unknown-key", Place: secret("proxy")}, {Code: noproxy.CodeBadProxyURL, Place: secret("httpProxy")},
		}},
		"a list": {resolved(map[string]string{"httpProxy": "http://p:1", "noProxy": "a,b/c d:x"}), []finding.Finding{
			{Code: noproxy.CodeURLEntry, Place: secret("noProxy").At(2)}, {Code: noproxy.CodeBadPort, Place: secret("noProxy").At(3)},
		}},
		"a URL and a list": {resolved(map[string]string{"httpProxy": "p:1", "noProxy": "a,b:x"}), []finding.Finding{
			{Code: noproxy.CodeBadProxyURL, Place: secret("httpProxy")}, {Code: noproxy.CodeBadPort, Place: secret("noProxy").At(2)},
		}},
		"targets": {options(contract.AnnotationTargets, "x"), []finding.Finding{{Code: settings.CodeBadAnnotation, Place: finding.Annotation(contract.AnnotationTargets)}}},
		"groups":  {options(contract.AnnotationNoProxyGroups, "x"), []finding.Finding{{Code: settings.CodeBadAnnotation, Place: finding.Annotation(contract.AnnotationNoProxyGroups)}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []finding.Finding
			for _, f := range finding.Of(test.err) {
				if f.Message == "" || !strings.Contains(test.err.Error(), f.Message) ||
					!strings.Contains(test.err.Error(), f.Advice) {
					t.Errorf("%q does not say %+v", test.err, f)
				}
				if f.Reason == "" {
					continue // a warning beside what is rejected
				}
				if f.Reason != contract.ReasonInvalidSettings {
					t.Errorf("%s has reason %q", f, f.Reason)
				}
				got = append(got, finding.Finding{Code: f.Code, Place: f.Place})
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFindings_SayTheirPlaceAndWhatToDo(t *testing.T) {
	t.Parallel()
	reader := &secrets{data: map[string]map[string]string{"team/http-proxy": {"httpProxy": "p:1", "noProxy": "a,b:x"}}}
	_, unusable := settings.Resolver{Secrets: reader}.Resolve(t.Context(), settings.Cluster{Namespace: "team", Name: "one"},
		settings.Options{}, "")
	_, annotations := settings.ParseOptions(map[string]string{
		contract.AnnotationRollout: "a\n\"b",
	})
	var got []string
	for _, f := range finding.Of(errors.Join(annotations, unusable)) {
		got = append(got, f.String())
	}
	want := []string{
		`annotation capi-proxy-patcher.io/rollout: unknown value "a\n\"b"; use OnNextRollout, Immediate or OnNodes`,
		"Secret team/http-proxy, key httpProxy: the scheme is missing (bad-proxy-url); write http:// or https:// in front",
		"Secret team/http-proxy, key noProxy entry 2 \"b…\": the port is not a number from 1 to 65535 (bad-port); write host:port or only the host",
		"no-pod-network: spec.clusterNetwork.pods.cidrBlocks: the field is empty; nodes reach Pods through the proxy; set the field to the network that the CNI gives to Pods; if noProxy has that network, leave out group pods",
		"single-label: Secret team/http-proxy, key noProxy entry 1 \"a\": a name of one label also covers every name that ends in it; write the full name",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestResolve_NamesThePoolWhoseSecretIsMissing(t *testing.T) {
	t.Parallel()
	for override, want := range map[string]string{
		"edge": "Secret team/edge does not exist; create it or change annotation capi-proxy-patcher.io/secret of MachineDeployment md",
		"../x": `annotation capi-proxy-patcher.io/secret of MachineDeployment md: "../x" cannot be the name of a Secret; name a Secret in the Cluster's namespace, without the namespace`,
	} {
		_, err := settings.Resolver{Secrets: &secrets{}, Object: "MachineDeployment md"}.Resolve(t.Context(),
			settings.Cluster{Namespace: "team", Name: "one"}, settings.Options{}, override)
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestResolve_ComposesForTheProfile(t *testing.T) {
	t.Parallel()
	reader := &secrets{data: map[string]map[string]string{"team/http-proxy": proxy("x")}}
	cluster := settings.Cluster{
		Namespace: "team", Name: "one", EndpointHost: "cp.example.com",
		PodCIDRs: []string{"fd00:1::/64"},
	}
	for profile, want := range map[noproxy.Profile]bool{
		"": true, noproxy.ProfileService: true,
		noproxy.ProfileShell: false,
	} {
		got, err := settings.Resolver{Secrets: reader, Profile: profile}.Resolve(t.Context(), cluster, settings.Options{}, "")
		if err != nil || strings.Contains(got.NoProxy.Value, "fd00:1::/64") != want {
			t.Errorf("profile %q: %s, error %v", profile, got.NoProxy.Value, err)
		}
	}
}
