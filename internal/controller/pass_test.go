package controller

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/bootstrap"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/passes"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// apiServer stores every patch as version 10.
type apiServer struct{ client.Client }

func (apiServer) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	object.SetResourceVersion("10")
	return nil
}

func TestSettle_WaitsForACacheThatIsBehind(t *testing.T) {
	t.Parallel()
	c := &Controller{writer: &bootstrap.Writer{Client: apiServer{}, Now: func() time.Time { return time.Unix(0, 0) }}}
	config := func(version string) *bootstrapv1.KubeadmConfig {
		return &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{UID: "one", ResourceVersion: version}}
	}
	if err := c.writer.Annotate(t.Context(), config("9"), map[string]string{"a": "b"}); err != nil {
		t.Fatal(err)
	}
	stale := config("9")
	_, _, _, err := c.newPass(&clusterv1.Cluster{}, intent.Cluster{}).
		settle(t.Context(), bootstrap.New(stale, plan.KindConfig, &stale.Spec, false), plan.Want{}, nil)
	if !apierrors.IsConflict(err) {
		t.Errorf("a version of the past is decided about: %v", err)
	}
}

// TestConclude_TellsWhetherResyncsAreNeeded counts the passes that ten resyncs bring after one that has done everything.
func TestConclude_TellsWhetherResyncsAreNeeded(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		out  report.Outcome
		want int
	}{
		"everything is watched": {report.Outcome{}, 1},
		"with a note":           {report.Outcome{Findings: []finding.Finding{{Message: "%"}}}, 1},
		"the proxy Secret is not watched": {
			report.Outcome{Unwatched: true, Findings: []finding.Finding{{Message: "%"}}}, 10,
		},
		"it is not configured": {
			report.Outcome{Findings: []finding.Finding{{Reason: contract.ReasonSettingsNotFound, Message: "%"}}}, 10,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "one", ResourceVersion: "1"}}
			c := &Controller{passes: passes.Passes{Resyncs: 10}, reporter: &report.Reporter{}}
			ctx, one := c.passes.Begin(t.Context(), client.ObjectKeyFromObject(cluster))
			if _, err := c.conclude(ctx, cluster, result{Outcome: row.out, gone: true, complete: true}, nil); err != nil {
				t.Fatal(err)
			}
			one.End()
			got, filter := 0, c.passes.OfOthers(nil)
			for range 10 {
				if filter.Update(event.UpdateEvent{ObjectOld: cluster, ObjectNew: cluster}) {
					got++
				}
			}
			if got != row.want {
				t.Errorf("%d passes, want %d", got, row.want)
			}
		})
	}
}
