//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/management"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// gitops applies the manifest of a cluster every second.
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
		case <-time.After(time.Second):
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

// TestGuard_KeepsMachinesWhileNoWebhookAnswers applies manifests of running clusters every second, on the side of the
// client and of the server, while clusterctl upgrades the product, while it is drained and when it is killed.
func TestGuard_KeepsMachinesWhileNoWebhookAnswers(t *testing.T) {
	t.Parallel()
	const first, second, deployment = "v0.1.0", "v0.1.1", "deployment/capi-proxy-patcher-controller-manager"
	other := start(t)
	takeTurn(t)
	w := newManagement(t, other)
	r := newRepository(t, w, t.TempDir())
	r.release(t, first)
	r.install(t, first)
	r.kubectl(t, "", "apply", "-f", filepath.Join(r.dir, management.ProviderLabel, first, "guard.yaml"))
	client := newCluster(t, w, options{controlPlanes: 1, workers: 1})
	server := &cluster{world: w, namespace: client.namespace, name: "server"}
	server.manifest = server.generate(t, server.name, options{controlPlanes: 1, workers: 1})
	client.apply(t)
	server.kubectl(t, server.manifest, "apply", "-f", "-", "--server-side", "--field-manager=gitops")
	tools := []*gitops{
		{cluster: client},
		{cluster: server, flags: []string{"--server-side", "--field-manager=gitops", "--force-conflicts"}},
	}
	machines, generations := map[string]identity{}, map[string]int64{}
	for _, g := range tools {
		machines[g.name] = g.waitRunning(t, 3)
		g.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
		generations[g.name] = g.controlPlane(t).GetGeneration()
	}
	r.release(t, second)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	for _, g := range tools {
		go g.loop(ctx)
	}
	applied := func(g *gitops) *atomic.Int64 { return &g.applied }
	refused := func(g *gitops) *atomic.Int64 { return &g.refused }
	waitMore(t, tools, applied)

	r.run(t, "upgrade", "apply", "--runtime-extension", "capi-proxy-patcher:"+second, "--wait-providers",
		"--wait-provider-timeout", "600")
	r.runs(t, second, mgmt.SystemNamespace)
	waitMore(t, tools, applied)

	system := &cluster{world: w, namespace: mgmt.SystemNamespace}
	system.kubectl(t, "", "scale", deployment, "--replicas=0")
	waitMore(t, tools, refused)
	system.kubectl(t, "", "scale", deployment, "--replicas=2")
	waitMore(t, tools, applied)
	r.pods.Kill(mgmt.SystemNamespace, "capi-proxy-patcher-controller-manager")
	waitMore(t, tools, applied)
	cancel()
	for _, g := range tools {
		t.Logf("%s: %d applied, %d refused", g.name, g.applied.Load(), g.refused.Load())
		g.staysCalm(t, machines[g.name])
		g.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
		if now := g.controlPlane(t).GetGeneration(); now != generations[g.name] {
			t.Errorf("the control plane of %s has generation %d, had %d", g.name, now, generations[g.name])
		}
	}
}
