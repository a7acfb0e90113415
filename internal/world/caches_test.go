package world

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// TestCacheOptions_DropWhatNobodyReadsOfLabelledSecrets is about Secrets that anybody in a namespace can write.
func TestCacheOptions_DropWhatNobodyReadsOfLabelledSecrets(t *testing.T) {
	t.Parallel()
	options, err := CacheOptions("", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	type labels map[string]string
	for name, test := range map[string]struct {
		labels labels
		want   []string // the keys with values
	}{
		"one-proxy-files":           {labels{contract.LabelGenerated: "one"}, contract.GeneratedKeys()},
		"one.md-0.md.proxy-files":   {labels{contract.LabelGenerated: "one"}, contract.GeneratedKeys()},
		"one-pods":                  {labels{contract.LabelGenerated: "one", contract.LabelOutput: "pods"}, append(contract.GeneratedKeys(), "x")},
		"two-proxy-files":           {labels{contract.LabelGenerated: "one"}, nil},
		"one-pods-of-somebody-else": {labels{contract.LabelGenerated: "one", contract.LabelOutput: "pods"}, nil},
		"anything":                  {labels{contract.LabelGenerated: "one"}, nil},
		"one":                       {labels{contract.LabelGenerated: ""}, nil},
	} {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: test.labels}, Data: map[string][]byte{"x": []byte("x")},
		}
		for _, key := range contract.GeneratedKeys() {
			secret.Data[key] = []byte("x")
		}
		for kind, by := range options.ByObject {
			if _, isSecret := kind.(*corev1.Secret); isSecret {
				if _, err := by.Transform(secret); err != nil {
					t.Fatal(err)
				}
			}
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
		if _, listed := secret.Data["x"]; listed != (test.want != nil) {
			t.Errorf("%s: key x is there: %t", name, listed)
		}
	}
}
