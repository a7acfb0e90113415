//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// steady is how long requests are counted when all is done.
const steady = 20 * time.Second

// figures are what is printed in the end.
type figures struct {
	mu    sync.Mutex
	lines []string
}

// note adds a line.
func (f *figures) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines = append(f.lines, fmt.Sprintf(format, args...))
}

// write adds the figures of the audit log and writes the lines to a file.
func (f *figures) write(ctx context.Context, w *world, path string) error {
	if err := f.steadyState(ctx, w); err != nil {
		return err
	}
	if err := f.storm(w); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return os.WriteFile(path, []byte(strings.Join(f.lines, "\n")+"\n"), 0o644) //nolint:gosec // anybody may read it
}

// steadyState counts requests of the product while nobody does anything.
func (f *figures) steadyState(ctx context.Context, w *world) error {
	begin := time.Now() //nolint:forbidigo // what is measured
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(steady):
	}
	requests, err := w.cluster.Requests(func(r mgmt.Request) bool {
		return r.User.Username == w.product.User && r.Received.After(begin) && r.Verb != "watch" &&
			r.ObjectRef.Resource != "leases"
	})
	if err != nil {
		return err
	}
	f.note("requests of the product in steady state: %d in %s, leases left out", len(requests), steady)
	return nil
}

// storm computes the cost and the duration for one of the Clusters that were applied at once.
func (f *figures) storm(w *world) error {
	const namespace = "storm"
	requests, err := w.cluster.Requests(func(r mgmt.Request) bool {
		return r.ObjectRef.Namespace == namespace && r.IsWrite() && r.Succeeded()
	})
	if err != nil {
		return err
	}
	applied := map[string]time.Time{} // by Cluster
	first := map[string]time.Time{}   // bootstrap data
	var patched, generated, data []time.Duration
	writes := map[string]int{}
	for _, r := range requests {
		name, resource := r.ObjectRef.Name, r.ObjectRef.Resource
		ours := r.User.Username == w.product.User
		if ours && resource != "events" {
			writes[strings.TrimSuffix(r.Verb+" "+resource+"/"+r.ObjectRef.Subresource, "/")]++
		}
		cluster := name[:min(len(name), len("storm-000"))]
		switch {
		case r.Verb == "create" && resource == "clusters":
			applied[name] = r.Received
		case r.Verb == "create" && resource == "kubeadmcontrolplanes":
			patched = append(patched, r.Answered.Sub(r.Received))
		case ours && r.Verb == "create" && name == cluster+contract.GeneratedSecretSuffix:
			generated = append(generated, r.Answered.Sub(applied[cluster]))
		case resource == "secrets" && strings.HasPrefix(r.UserAgent, "capi-bootstrap") && first[cluster].IsZero():
			first[cluster] = r.Answered
			data = append(data, r.Answered.Sub(applied[cluster]))
		}
	}
	if len(applied) == 0 {
		return nil
	}
	f.times("create of a KubeadmControlPlane, patched at admission", patched)
	f.times("Cluster to generated Secret", generated)
	f.times("Cluster to bootstrap data of its first Machine", data)
	sum := 0
	var parts []string
	for kind, count := range writes {
		sum += count
		parts = append(parts, fmt.Sprintf("%d %s", count, kind))
	}
	slices.Sort(parts)
	f.note("writes of the product: %.1f a Cluster (%s for %d)", float64(sum)/float64(len(applied)),
		strings.Join(parts, ", "), len(applied))
	return nil
}

// times notes the middle and the worst of times.
func (f *figures) times(what string, times []time.Duration) {
	if len(times) == 0 {
		return
	}
	slices.SortFunc(times, cmp.Compare[time.Duration])
	at := func(p float64) time.Duration { return times[int(p*float64(len(times)-1))].Round(time.Millisecond) }
	f.note("%s: p50 %s, p99 %s, n %d", what, at(0.5), at(0.99), len(times))
}
