//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/management"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// serverSide are the flags of kubectl apply for the side of the server.
var serverSide = []string{"--server-side", "--field-manager=gitops", "--force-conflicts"}

// interval is how long a GitOps tool pauses. An apply takes half a second of processor time.
const interval = 3 * time.Second

// gitops applies the manifest of a cluster again and again.
type gitops struct {
	*cluster

	flags            []string
	applied, refused atomic.Int64
}

// loop applies until ctx ends.
func (g *gitops) loop(ctx context.Context) {
	for ctx.Err() == nil {
		command := exec.CommandContext(ctx, management.Program("kubectl"), append([]string{
			"--kubeconfig", g.world.cluster.Kubeconfig, "--namespace", g.namespace, "apply", "-f", "-",
		}, g.flags...)...)
		command.Stdin = strings.NewReader(g.manifest)
		switch text, err := command.CombinedOutput(); {
		case err == nil:
			g.applied.Add(1)
		case strings.Contains(string(text), "webhook is not responding"):
			g.refused.Add(1)
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
}

// waitMore waits until a counter of every tool has grown.
func waitMore(t *testing.T, tools []*gitops, of func(*gitops) *atomic.Int64) {
	t.Helper()
	var before []int64
	for _, g := range tools {
		before = append(before, of(g).Load())
	}
	eventually(t, func() error {
		for i, g := range tools {
			if of(g).Load() == before[i] {
				return fmt.Errorf("%s: %d applied, %d refused", g.name, g.applied.Load(), g.refused.Load())
			}
		}
		return nil
	})
}

// upgradeUnderGitOps applies manifests of running clusters again and again, on the side of the client and of the server, while
// clusterctl upgrades the product, while it is drained and when it is killed. The second guard keeps their control planes.
func (r *repository) upgradeUnderGitOps(t *testing.T, version string, client, server *cluster) {
	t.Helper()
	tools := []*gitops{{cluster: client}, {cluster: server, flags: serverSide}}
	generations, planes := map[string]map[string]int64{}, map[string]map[string]int64{}
	for _, g := range tools {
		generations[g.name], planes[g.name] = vocabulary.Generations(g.specified(t)...), vocabulary.Generations(g.controlPlane(t))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var loops sync.WaitGroup
	end := func() { cancel(); loops.Wait() }
	t.Cleanup(end)
	for _, g := range tools {
		loops.Go(func() { g.loop(ctx) })
	}
	applied := func(g *gitops) *atomic.Int64 { return &g.applied }
	refused := func(g *gitops) *atomic.Int64 { return &g.refused }
	waitMore(t, tools, applied)
	for _, g := range tools {
		diff := cmp.Diff(generations[g.name], vocabulary.Generations(g.specified(t)...))
		if diff != "" && !g.missedWebhook(t, g.specified(t)...) {
			t.Errorf("generations of %s (-before +after its manifest was applied again):\n%s", g.name, diff)
		}
	}

	r.run(t, "upgrade", "apply", "--runtime-extension", "capi-proxy-patcher:"+version, "--wait-providers",
		"--wait-provider-timeout", "600")
	r.runs(t, version, mgmt.SystemNamespace)
	waitMore(t, tools, applied)

	r.scaleManager(t, 0)
	waitMore(t, tools, refused)
	r.scaleManager(t, 2)
	waitMore(t, tools, applied)
	was := r.pods.Diagnostics(mgmt.SystemNamespace, manager)
	r.pods.Kill(mgmt.SystemNamespace, manager)
	eventually(t, func() error {
		if now := r.pods.Diagnostics(mgmt.SystemNamespace, manager); now == "" || now == was {
			return errors.New("the manager has not been started again")
		}
		return nil
	})
	waitMore(t, tools, applied)
	end()
	for _, g := range tools {
		results.note("GitOps tool of Cluster %s: %d applies, %d refused", g.name, g.applied.Load(), g.refused.Load())
		if diff := cmp.Diff(planes[g.name], vocabulary.Generations(g.controlPlane(t))); diff != "" {
			t.Errorf("control plane of %s (-before +after):\n%s", g.name, diff)
		}
	}
}
