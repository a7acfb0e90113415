// Package world shows a management cluster to decisions: it defines what is cached, in which form and with which
// indexes, reads facts for decisions, and finds the Clusters that a change of an object concerns. A Reader shows
// objects in memory as the cache does.
package world

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// Memory reads proxy Secrets and objects of infrastructure providers, and remembers some. A process has one, for
// its controllers and webhooks. Its methods can be called concurrently.
type Memory struct {
	// Cached reads the Secrets with contract.LabelProxySecret from a cache. Nil means that there are none.
	Cached client.Reader
	// Live reads from the API server: Secrets one by name and never a list.
	Live client.Reader
	// Secrets reads proxy Secrets in the place of Cached and Live, nil for those.
	Secrets settings.SecretReader
	// Mapper knows the kinds of the API server.
	Mapper meta.RESTMapper
	// Installation is the installation-wide proxy Secret, or the zero value.
	Installation settings.Installation
	// Now is the clock.
	Now func() time.Time

	// Known are the proxy Secrets that did not exist, and infrastructure templates, for a while; nil remembers none.
	// After a crash, each is read once more.
	Known *cache.Expiring

	// networks are the facts of infrastructure clusters, by Cluster. After a crash, they are in the generated Secret.
	networks map[types.NamespacedName]infrastructure.Memory
	// made is when bootstrap data was first generated, by the UID of the KubeadmConfig. After a crash, a Machine whose
	// data was generated twice may count as current.
	made  map[types.UID]time.Time
	mutex sync.Mutex
	// parsed is the last proxy Secret. After a crash, it is parsed once more.
	parsed settings.Parsed
}

// Resolve finds the settings of a Cluster or, if override is not "", of the pool that names it. r has the caller's
// choices. If no Secret is found, each candidate is read again the next time.
func (m *Memory) Resolve(ctx context.Context, r settings.Resolver, cluster settings.Cluster, options settings.Options,
	override string,
) (settings.Resolution, error) {
	r.Secrets, r.Default, r.Infrastructure, r.Parsed = m, m.Installation, m, &m.parsed
	r.WarnUnlabelled = m.Secrets == nil // nobody watches others
	resolution, err := r.Resolve(ctx, cluster, options, override)
	if m.Known != nil && finding.Of(err).Has(contract.ReasonSettingsNotFound) {
		for _, name := range append(settings.SecretCandidates(cluster, override), m.Installation.Secret) {
			m.Known.Delete(absentKey(name))
		}
	}
	return resolution, err
}

// maxMade is how many times FirstMade remembers. Beyond that they are dropped, with the loss of a crash.
const maxMade = 100_000

// FirstMade returns the earlier of made and the remembered time. With a cache that is behind, Cluster API generates
// bootstrap data once more and updates its condition, while the Machine has booted with the first data.
func (m *Memory) FirstMade(config types.UID, made time.Time) time.Time {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if first, seen := m.made[config]; seen && first.Before(made) {
		return first
	}
	if m.made == nil || len(m.made) >= maxMade {
		m.made = map[types.UID]time.Time{}
	}
	m.made[config] = made
	return made
}
