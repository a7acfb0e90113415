package generated

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/bootstrap"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/contest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
)

// TestOriginals_WaitForACacheThatIsBehind has a pass ask for the originals of files that the pass before it has stored:
// without them it would remove our files and not bring back the user's.
func TestOriginals_WaitForACacheThatIsBehind(t *testing.T) {
	t.Parallel()
	at := func(version string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: "one-proxy-files", ResourceVersion: version,
			Labels: map[string]string{contract.LabelGenerated: "one"},
		}}
	}
	for name, row := range map[string]struct {
		before, cache, live *corev1.Secret
		waits               bool
		requests            int
	}{
		"created, and not in the cache yet": {nil, nil, at("10"), true, 2},
		"changed, and not in the cache yet": {at("9"), at("9"), at("10"), true, 0},
		"in the cache":                      {at("9"), at("10"), at("10"), false, 0},
		"changed by somebody since":         {at("9"), at("11"), at("11"), false, 0},
		"deleted by somebody since":         {at("9"), nil, nil, false, 1},
	} {
		live := &cached{secret: row.live}
		writer := &bootstrap.Writer{
			Client: secrets{}, Live: live, Contests: &contest.Contests{}, Now: func() time.Time { return time.Unix(1, 0) },
		}
		store := Store{Reader: bootstrap.Reader{Client: &cached{secret: row.cache}}, Writer: writer}
		pass := func() *Secrets {
			return store.Of(&clusterv1.Cluster{}, intent.Cluster{Namespace: "a", Name: "one"}, nil)
		}
		if err := pass().writeOriginals(t.Context(), row.before, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, _, err := pass().originals(t.Context()); apierrors.IsConflict(err) != row.waits || err != nil && !row.waits {
				t.Errorf("%s: %v, want that it waits: %t", name, err, row.waits)
			}
		}
		if live.reads != row.requests {
			t.Errorf("%s: %d requests, want %d", name, live.reads, row.requests)
		}
	}
}

// secrets stores every Secret as version 10.
type secrets struct{ client.Client }

func (secrets) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	object.SetResourceVersion("10")
	return nil
}

func (secrets) Update(_ context.Context, object client.Object, _ ...client.UpdateOption) error {
	object.SetResourceVersion("10")
	return nil
}
