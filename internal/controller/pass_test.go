package controller

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/backoff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/reconcile"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// apiServer stores every patch as version 10.
type apiServer struct{ client.Client }

func (apiServer) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	object.SetResourceVersion("10")
	return nil
}

func (apiServer) GroupVersionKindFor(runtime.Object) (schema.GroupVersionKind, error) {
	return bootstrapv1.GroupVersion.WithKind(plan.KindConfig), nil
}

func TestSettle_WaitsForACacheThatIsBehind(t *testing.T) {
	t.Parallel()
	guarded := backoff.New(apiServer{}, nil, func() time.Time { return time.Unix(0, 0) })
	c := &Controller{guarded: guarded, writer: &reconcile.Writer{Client: guarded}}
	config := func(version string) *kinds.KubeadmConfig {
		return &kinds.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{UID: "one", ResourceVersion: version}}
	}
	if err := c.writer.Annotate(t.Context(), config("9"), map[string]string{"a": "b"}); err != nil {
		t.Fatal(err)
	}
	stale := config("9")
	_, _, _, err := c.newPass(&kinds.Cluster{}, intent.Cluster{}).
		settle(t.Context(), reconcile.NewObject(stale, plan.KindConfig, false), plan.Want{}, nil)
	if !apierrors.IsConflict(err) {
		t.Errorf("a version of the past is decided about: %v", err)
	}
}

// TestFacts_OfACopyCostNoRequest has no reader: a request panics.
func TestFacts_OfACopyCostNoRequest(t *testing.T) {
	t.Parallel()
	c := &Controller{writer: &reconcile.Writer{}}
	f := facts{pass: c.newPass(&kinds.Cluster{}, intent.Cluster{}), ctx: t.Context(), out: &report.Outcome{}}
	if why, err := f.Taken(plan.Object{Copied: &plan.Copied{}}, "other-proxy-files"); err != nil || why != "" {
		t.Errorf("a Secret that was not checked is taken: %q, %v", why, err)
	}
}

// TestConclude_RepeatsAPassAfterAConflict must not wait for an event: that of our own record, for example, brings none.
func TestConclude_RepeatsAPassAfterAConflict(t *testing.T) {
	t.Parallel()
	c := &Controller{reporter: &report.Reporter{}}
	conflict := reconcile.CacheBehind(plan.KindControlPlane, &kinds.Cluster{})
	got, err := c.conclude(t.Context(), &kinds.Cluster{}, result{}, conflict)
	if err != nil || got.RequeueAfter != conflictDelay {
		t.Errorf("again after %s, error %v", got.RequeueAfter, err)
	}
}
