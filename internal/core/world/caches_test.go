package world

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// TestCacheOptions_SelectSecretsByTheirLabel has a manager for one namespace, whose installation-wide Secret is in another.
func TestCacheOptions_SelectSecretsByTheirLabel(t *testing.T) {
	t.Parallel()
	for namespace, want := range map[string][]string{"": nil, "team": {"operators", "team"}, "operators": {"operators"}} {
		options, err := CacheOptions(namespace, "operators", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for kind, by := range options.ByObject {
			if _, isSecret := kind.(*corev1.Secret); !isSecret {
				continue
			}
			if got := slices.Sorted(maps.Keys(by.Namespaces)); !slices.Equal(got, want) {
				t.Errorf("of namespace %q: Secrets of %q are cached, want %q", namespace, got, want)
			}
			if !by.Label.Matches(labels.Set(settings.SecretLabels(settings.Cluster{Name: "one"}))) ||
				!by.Label.Matches(labels.Set{contract.LabelProxySecret: ""}) || by.Label.Matches(labels.Set{"other": ""}) {
				t.Errorf("selector %s", by.Label)
			}
			// A pass over a Cluster of the other namespace would fail, as its Cluster is not cached.
			if other := by.Namespaces["operators"].LabelSelector; namespace == "team" && (other == nil ||
				other.Matches(labels.Set(settings.SecretLabels(settings.Cluster{Name: "one"}))) ||
				!other.Matches(labels.Set{contract.LabelProxySecret: ""}) || other.Matches(labels.Set{"other": ""})) {
				t.Errorf("selector of the installation-wide Secret %s", other)
			}
			if own := by.Namespaces[namespace].LabelSelector; own != nil {
				t.Errorf("selector of namespace %q: %s", namespace, own)
			}
		}
	}
}

// TestCacheOptions_DropWhatNobodyReadsOfLabelledSecrets is about Secrets that anybody in a namespace can write.
func TestCacheOptions_DropWhatNobodyReadsOfLabelledSecrets(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		labels map[string]string
		want   []string // the keys with values
	}{
		"one-proxy-files":           {labels.Set{contract.LabelGenerated: "one"}, contract.GeneratedKeys()},
		"one.md-0.md.proxy-files":   {labels.Set{contract.LabelGenerated: "one"}, contract.GeneratedKeys()},
		"one-pods":                  {labels.Set{contract.LabelGenerated: "one", contract.LabelOutput: "pods"}, append(contract.GeneratedKeys(), "x", contract.KeyHTTPProxy)},
		"two-proxy-files":           {labels.Set{contract.LabelGenerated: "one"}, []string{contract.KeyHTTPProxy}},
		"one-pods-of-somebody-else": {labels.Set{contract.LabelGenerated: "one", contract.LabelOutput: "pods"}, []string{contract.KeyHTTPProxy}},
		"anything":                  {labels.Set{contract.LabelGenerated: "one"}, []string{contract.KeyHTTPProxy}},
		"a-proxy":                   {labels.Set{contract.LabelProxySecret: ""}, []string{contract.KeyHTTPProxy}},
		"one":                       {labels.Set{contract.LabelGenerated: ""}, []string{contract.KeyHTTPProxy}},
	} {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: test.labels}, Data: map[string][]byte{"x": []byte("x"), contract.KeyHTTPProxy: []byte("x")},
		}
		for _, key := range contract.GeneratedKeys() {
			secret.Data[key] = []byte("x")
		}
		if _, err := trimSecret(secret); err != nil {
			t.Fatal(err)
		}
		var got []string
		for key, value := range secret.Data {
			if len(value) > 0 {
				got = append(got, key)
			}
		}
		slices.Sort(got)
		slices.Sort(test.want)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if _, listed := secret.Data["x"]; !listed {
			t.Errorf("%s: key x is not there", name)
		}
	}
}
