package reconcile

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
)

func TestAsksTheSame_ComparesWhatUsersAskFor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*kinds.Cluster)
		same   bool
	}{
		"the same":                    {func(*kinds.Cluster) {}, true},
		"a status, a label of others": {func(c *kinds.Cluster) { c.ResourceVersion, c.Labels["a"] = "2", "b" }, true},
		"the label":                   {func(c *kinds.Cluster) { delete(c.Labels, contract.LabelEnabled) }, false},
		"an annotation":               {func(c *kinds.Cluster) { c.Annotations[contract.AnnotationRollout] = contract.RolloutImmediate }, false},
		"the freeze":                  {func(c *kinds.Cluster) { c.Annotations[contract.AnnotationTopologyHold] = "disabled@v1" }, false},
		"a spec":                      {func(c *kinds.Cluster) { c.Generation++ }, false},
		"another Cluster of the name": {func(c *kinds.Cluster) { c.UID = "2" }, false},
		"one that is being deleted":   {func(c *kinds.Cluster) { c.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0))) }, false},
	} {
		before := &kinds.Cluster{ObjectMeta: named("one", contract.LabelEnabled, contract.LabelEnabledValue)}
		before.UID, before.Annotations = "1", map[string]string{}
		now := before.DeepCopy()
		test.change(now)
		if got := asksTheSame(now, before); got != test.same {
			t.Errorf("%s: %t", name, got)
		}
	}
}
