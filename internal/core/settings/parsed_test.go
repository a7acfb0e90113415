package settings_test

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

// TestParsed_GivesEveryClusterItsOwnSecret has Clusters with different Secrets, one of which cannot be used, take turns.
func TestParsed_GivesEveryClusterItsOwnSecret(t *testing.T) {
	t.Parallel()
	data := map[string]map[string]string{
		"team/one-http-proxy": proxy("one"), "team/two-http-proxy": proxy("two"), "team/bad-http-proxy": {"httpProxy": "%"},
		"team/user-http-proxy": proxy("one"),
	}
	data["team/user-http-proxy"]["username"], data["team/user-http-proxy"]["password"] = "node", `"'$%\`+"`"
	memory := &settings.Parsed{}
	for _, name := range []string{"one", "one", "two", "one", "bad", "bad", "user", "one", "user", "two"} {
		cluster := settings.Cluster{Namespace: "team", Name: name, EndpointHost: "10.0.0.1"}
		got, err := settings.Resolver{Secrets: &secrets{data: data}, Parsed: memory}.Resolve(t.Context(), cluster, settings.Options{}, "")
		want, wantErr := settings.Resolver{Secrets: &secrets{data: data}}.Resolve(t.Context(), cluster, settings.Options{}, "")
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
			t.Errorf("%s: error %v, want %v", name, err, wantErr)
		}
		if !slices.Equal(got.Settings.Vars(""), want.Settings.Vars("")) {
			t.Errorf("%s gets the values of another Secret", name)
		}
	}
	// The Secret changes, and the memory is of the one before.
	data["team/one-http-proxy"] = maps.Clone(data["team/two-http-proxy"])
	cluster := settings.Cluster{Namespace: "team", Name: "one", EndpointHost: "10.0.0.1"}
	resolver := settings.Resolver{Secrets: &secrets{data: data}, Parsed: memory}
	if got, err := resolver.Resolve(t.Context(), cluster, settings.Options{}, ""); err != nil ||
		got.Settings.HTTPProxy.Reveal() != "http://two.example.com:3128" {
		t.Errorf("after a change: error %v, or the values before it", err)
	}
}

//nolint:paralleltest // allocations are those of the program
func TestParsed_ParsesCertificatesOfManyClustersOnce(t *testing.T) {
	with := proxy("one")
	with["trustedCA"] = pki.Bundle(t, 200_000) // some eight
	reader := &secrets{data: map[string]map[string]string{"system/default": with}}
	resolver := settings.Resolver{
		Secrets: reader, Parsed: &settings.Parsed{}, Default: settings.Installation{
			Secret: types.NamespacedName{Namespace: "system", Name: "default"}, Namespaces: settings.EveryNamespace{},
		},
	}
	each := func(resolver settings.Resolver) float64 {
		return testing.AllocsPerRun(10, func() {
			cluster := settings.Cluster{Namespace: "team", Name: "one", EndpointHost: "10.0.0.1"}
			if _, err := resolver.Resolve(t.Context(), cluster, settings.Options{}, ""); err != nil {
				t.Fatal(err)
			}
		})
	}
	once := each(resolver)
	resolver.Parsed = nil
	if always := each(resolver); always < once+200 {
		t.Errorf("%.0f allocations, and %.0f without the memory, want 200 more", once, always)
	}
}
