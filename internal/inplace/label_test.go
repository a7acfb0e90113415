package workload

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
)

// TestLabel_DecidesByWhatTheAPIServerHas begins with a cache in which a and b have no version yet and gone has one, and
// an API server that has delivered version fresh.
func TestLabel_DecidesByWhatTheAPIServerHas(t *testing.T) {
	t.Parallel()
	labels := func(version string) map[string]string { return map[string]string{contract.LabelNodeFiles: version} }
	grant := func(node, rv string) string {
		return fmt.Sprintf(`patch {"metadata":{"labels":{%q:%q},"resourceVersion":%q}} Node %s`, contract.LabelNodeFiles, fresh, rv, node)
	}
	const revoke = `patch {"metadata":{"labels":{"` + contract.LabelNodeFiles + `":null},"resourceVersion":"4"}} Node gone`
	for name, test := range map[string]struct {
		remote func(*remote)
		writes []string
		again  time.Duration
		waits  bool
		err    bool
	}{
		"as in the cache": {writes: []string{revoke, grant("a", "2")}},
		"another node has been granted it": {
			remote: func(r *remote) { r.put("Node", "b", labels(fresh), nil) }, writes: []string{revoke},
		},
		"a node that the cache does not have takes a place": {
			remote: func(r *remote) { r.put("Node", "c", labels(stale), nil) }, writes: []string{revoke}, again: notReadyTime,
		},
		"a version that is not delivered": {
			remote: func(r *remote) { delete(r.objects, "DaemonSet "+contract.NodesNamespace+"/"+fresh) },
			writes: []string{revoke}, waits: true,
		},
		"a DaemonSet of another": {
			remote: func(r *remote) { r.put("DaemonSet", contract.NodesNamespace+"/"+fresh, nil, nil) },
			writes: []string{revoke}, waits: true,
		},
		"a DaemonSet that is being deleted": {
			remote: func(r *remote) {
				r.put("DaemonSet", contract.NodesNamespace+"/"+fresh, ours(publish.Nodes, contract.LabelNodeFiles, fresh),
					func(o *metav1.PartialObjectMetadata) { o.DeletionTimestamp = new(metav1.NewTime(noon)) })
			},
			writes: []string{revoke}, waits: true,
		},
		"a Node that changes meanwhile": {
			remote: func(r *remote) {
				r.refusals[revoke] = apierrors.NewConflict(schema.GroupResource{}, "gone", errors.New("x"))
			},
			writes: []string{revoke}, again: labelDelay,
		},
		"a write that is lost": {remote: func(r *remote) { r.refusals[revoke] = errors.New("x") }, writes: []string{revoke}, err: true},
		"lists without end":    {remote: func(r *remote) { r.endless = true }, err: true},
		"a read of what is delivered": {
			remote: func(r *remote) { r.refusals["get DaemonSet "+contract.NodesNamespace+"/"+fresh] = errors.New("x") },
			err:    true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &remote{objects: map[string]metav1.PartialObjectMetadata{}, refusals: map[string]error{}}
			r.put("DaemonSet", contract.NodesNamespace+"/"+fresh, ours(publish.Nodes, contract.LabelNodeFiles, fresh), nil)
			r.put("Node", "a", nil, nil)
			r.put("Node", "b", nil, nil)
			r.put("Node", "gone", labels(fresh), nil)
			if test.remote != nil {
				test.remote(r)
			}
			l := labeller{Client: r, view: View{
				Wants: []Want{{main, fresh}}, Now: noon,
				Members: []Member{machine("a", main), machine("b", main), machine("c", main)},
				Nodes:   map[string]Node{"a": {}, "b": {}, "gone": {Version: fresh}},
			}}
			decision, err := l.label(t.Context())
			if (err != nil) != test.err || !slices.Equal(r.writes, test.writes) || decision.Again != test.again ||
				l.waits != test.waits {
				t.Errorf("error %v, writes %q, again after %s", err, r.writes, decision.Again)
			}
		})
	}
}
