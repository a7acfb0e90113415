package publisher

import (
	"slices"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/remote"
)

// TestApplied_AreTheObjectsOfTheOutputs makes every output for workload clusters. An object that is not listed would stay
// there.
func TestApplied_AreTheObjectsOfTheOutputs(t *testing.T) {
	t.Parallel()
	list := make([]string, 0, 4)
	for _, output := range output.KeptDelivered() {
		list = append(list, output.Delivered.String())
	}
	proxy, err := settings.ParseSecret(map[string][]byte{"httpProxy": []byte("http://p:1")})
	if err != nil {
		t.Fatal(err)
	}
	left := applied()
	for _, list := range []string{strings.Join(list, ","), "pods=kyverno"} {
		asks, err := output.ParseList(list)
		if err != nil {
			t.Fatal(err)
		}
		result, err := output.Of(asks, output.Input{Cluster: "prod", Settings: proxy, NoProxy: "a", Version: "v1.36.0"})
		if err != nil {
			t.Fatal(err)
		}
		set, _, err := setOf("prod", append(result.Secrets, result.Secrets...))
		if err != nil || len(set.Objects) == 0 {
			t.Fatalf("%s: %v, %v", list, set.Objects, err)
		}
		for i, object := range set.Objects {
			is := func(kind remote.Kind) bool {
				return kind.GroupVersionKind == object.GroupVersionKind() && kind.Named(object.GetName())
			}
			if !slices.ContainsFunc(applied(), is) {
				t.Errorf("%s: %s %s would not be deleted", object.Of, object.GetKind(), object.GetName())
			}
			left = slices.DeleteFunc(left, is)
			for _, other := range set.Objects[:i] {
				if other.GroupVersionKind() == object.GroupVersionKind() && other.GetName() == object.GetName() &&
					other.GetNamespace() == object.GetNamespace() {
					t.Errorf("%s: %s %s is there twice", object.Of, object.GetKind(), object.GetName())
				}
			}
		}
	}
	for _, kind := range left {
		t.Errorf("no output has a %s", kind.Kind)
	}
}
