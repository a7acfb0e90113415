package envtest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

func TestContest_NamesTheRivalAndBacksOff(t *testing.T) {
	ns := namespace(t) // without webhooks, which would put entries back in the other's own request
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonConfigured)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			controlPlane := &controlplanev1.KubeadmControlPlane{}
			if err := shared.client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "one"}, controlPlane); err != nil {
				continue
			}
			if patch.IsPatched(api.Spec(&controlPlane.Spec.KubeadmConfigSpec)) {
				strip(controlPlane)
				err := shared.client.Update(ctx, controlPlane, client.FieldOwner("stubborn-operator"))
				if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
					t.Error(err)
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	writes := func() int {
		count := 0
		for _, request := range shared.requests.in(ns) {
			if strings.HasPrefix(request, "PATCH ") && strings.Contains(request, "/kubeadmcontrolplanes/") {
				count++
			}
		}
		return count
	}
	before := writes()
	c.eventuallyReports(contract.ReasonContested, "KubeadmControlPlane "+ns+
		"/one: another manager, stubborn-operator, keeps reverting our changes, which are repeated once a minute; enable the webhooks, or keep it from managing files and commands")
	time.Sleep(3 * time.Second)
	// The first patch of the Cluster was one of three, and writes that came too late were conflicts.
	if got := writes() - before; got > 8 {
		t.Errorf("%d writes against the other manager", got)
	}
	generation := c.controlPlane().Generation
	time.Sleep(2 * time.Second)
	if got := c.controlPlane().Generation; got != generation {
		t.Errorf("the generation goes from %d to %d while both should rest", generation, got)
	}

	// When the other gives up, the next try lasts.
	stop()
	done.Wait()
	within(t, 2*time.Minute, "condition", func() string {
		if got := c.condition(); got.Reason != contract.ReasonConfigured {
			return got.Message
		}
		return ""
	})
	c.wantPatched(t, everyObject...)
}
