// Package backoff keeps the controllers from fighting with another manager of the same fields: a write that is reverted
// again and again is repeated once a minute, and reported.
package backoff

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

const (
	// limit is how many equal writes of a field in a row count as reverted by another manager.
	limit = 3
	// window is for how long a write counts: one that is repeated later was not reverted by something that always does.
	window = 10 * time.Minute
	// delay is the time between two equal writes once they are contested. A write that lasts that long ends the contest.
	delay = time.Minute
	// versionMemory is for how long a written version is remembered. A cache that is further behind stops Cluster API,
	// too.
	versionMemory = time.Hour
)

// Client writes like the client that it wraps, except that it skips a write that is contested, and one that an object
// from a cache that is behind asks for a second time. A skipped write succeeds and leaves its object unchanged. Reads
// are those of the wrapped client. Its methods can be called concurrently.
type Client struct {
	client.Client

	memory *memory
	// remote names the workload cluster that is written to; the zero value is the management cluster.
	remote types.NamespacedName
}

// memory has the writes of the Clients of one controller. A restart loses it, which costs a few writes.
type memory struct {
	now  func() time.Time
	live client.Reader
	// series are the last writes by field, versions the last written versions by object. Of each Cluster, contests are
	// those by field, and asked is what it asks for.
	series, versions, contests, asked *cache.Expiring
	// mutex protects the replacement of the contests of a Cluster.
	mutex sync.Mutex
}

// New returns a Client. live reads from the API server, to name the manager that reverts a write.
func New(wrapped client.Client, live client.Reader, now func() time.Time) *Client {
	return &Client{Client: wrapped, memory: &memory{
		now: now, live: live, series: cache.NewExpiring(), versions: cache.NewExpiring(), contests: cache.NewExpiring(),
		asked: cache.NewExpiring(),
	}}
}

// Remote returns a Client for the workload cluster of a Cluster, with the memory of c.
func (c *Client) Remote(wrapped client.Client, cluster types.NamespacedName) *Client {
	return &Client{Client: wrapped, memory: c.memory, remote: cluster}
}

// object is an object of a cluster, whatever its UID: one that is deleted again and again is contested, too.
type object struct {
	remote types.NamespacedName
	kind   schema.GroupKind
	name   types.NamespacedName
}

// String returns the object as findings name it.
func (o object) String() string {
	return o.kind.Kind + " " + strings.TrimPrefix(o.name.String(), string(types.Separator))
}

// series is a series of equal writes to a field, for a Cluster that asks for the same.
type series struct {
	digest  digest
	asked   asked
	count   int
	last    time.Time
	version string
	rival   string
}

// asked has the settings of a Cluster.
type asked struct {
	cluster types.NamespacedName
	digest  digest
	// changes counts them: a user who sets the label, removes it and sets it again makes us repeat writes that nobody
	// else has reverted.
	changes int
}

type askedKey struct{}

// ForCluster returns a context for a pass over a Cluster, by which Contested reports contested writes.
func (c *Client) ForCluster(ctx context.Context, cluster client.Object) context.Context {
	keys := contract.UserAnnotations()
	texts := make([]string, 0, len(keys)+2) //nolint:mnd // UID and label
	texts = append(texts, string(cluster.GetUID()), cluster.GetLabels()[contract.LabelEnabled])
	for _, key := range keys {
		texts = append(texts, cluster.GetAnnotations()[key])
	}
	now := asked{cluster: client.ObjectKeyFromObject(cluster), digest: digestOf(texts)}
	stored, _ := c.memory.asked.Get(now.cluster)
	if before, known := stored.(asked); known {
		if now.changes = before.changes; before.digest != now.digest {
			now.changes++
		}
	}
	c.memory.asked.Set(now.cluster, now, window)
	return context.WithValue(ctx, askedKey{}, now)
}

// IsBehind reports whether an object comes from a cache that does not show the last write to it yet. With such a cache
// a removal finds nothing to remove, and forgets the Cluster.
func (c *Client) IsBehind(o client.Object) bool {
	target, err := c.of(o)
	if err != nil {
		return false
	}
	written, known := c.memory.versions.Get(target)
	version, _ := written.(string)
	return known && isBefore(o.GetResourceVersion(), version)
}

func isBefore(version, written string) bool {
	order, err := resourceversion.CompareResourceVersion(version, written)
	return err == nil && order < 0
}

// of returns the object that a write is about.
func (c *Client) of(o client.Object) (object, error) {
	kind, err := c.GroupVersionKindFor(o)
	if err != nil {
		return object{}, fmt.Errorf("finding kind: %w", err)
	}
	return object{c.remote, kind.GroupKind(), client.ObjectKeyFromObject(o)}, nil
}

// Create implements client.Writer.
func (c *Client) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	return c.whole(ctx, o, "", func() error { return c.Client.Create(ctx, o, options...) })
}

// Update implements client.Writer.
func (c *Client) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	return c.whole(ctx, o, "", func() error { return c.Client.Update(ctx, o, options...) })
}

// Delete implements client.Writer.
func (c *Client) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	return c.whole(ctx, o, deletion, func() error { return c.Client.Delete(ctx, o, options...) })
}

// whole writes or deletes a whole object.
func (c *Client) whole(ctx context.Context, o client.Object, paths string, send func() error) error {
	data, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encoding object: %w", err)
	}
	w, err := read(data)
	if err != nil {
		return err
	}
	w.paths, w.lists, w.conditional = paths, nil, true
	return c.write(ctx, o, w, send)
}

// Patch implements client.Writer.
func (c *Client) Patch(ctx context.Context, o client.Object, change client.Patch, options ...client.PatchOption) error {
	data, err := change.Data(o)
	if err != nil {
		return fmt.Errorf("encoding patch: %w", err)
	}
	w, err := read(data)
	if err != nil {
		return err
	}
	return c.write(ctx, o, w, func() error {
		return c.Client.Patch(ctx, o, client.RawPatch(change.Type(), data), options...)
	})
}

// Status implements client.StatusClient.
func (c *Client) Status() client.SubResourceWriter { return status{c.Client.Status(), c} }

type status struct {
	client.SubResourceWriter

	client *Client
}

// Apply implements client.SubResourceWriter. The resourceVersion of the configuration is that of the object that it was
// made for. It is no precondition: others may have written other conditions meanwhile.
func (s status) Apply(ctx context.Context, configuration runtime.ApplyConfiguration,
	options ...client.SubResourceApplyOption,
) error {
	data, err := json.Marshal(configuration)
	if err != nil {
		return fmt.Errorf("encoding configuration: %w", err)
	}
	w, err := read(data)
	if err != nil {
		return err
	}
	w.conditional = false
	applied := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &applied.Object); err != nil {
		return fmt.Errorf("decoding configuration: %w", err)
	}
	return s.client.write(ctx, applied, w, func() error {
		applied.SetResourceVersion("")
		return s.SubResourceWriter.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), options...)
	})
}

// write sends a write to an object, or skips it.
func (c *Client) write(ctx context.Context, o client.Object, w write, send func() error) error {
	target, err := c.of(o)
	if err != nil {
		return err
	}
	var (
		m        = c.memory
		now      = m.now()
		changed  = field{target, w.paths}
		previous = o.GetResourceVersion()
	)
	stored, _ := m.series.Get(changed)
	last, _ := stored.(series)
	asked, _ := ctx.Value(askedKey{}).(asked)
	if last.digest != w.digest || last.asked != asked || now.Sub(last.last) >= window {
		last = series{digest: w.digest, asked: asked}
	}
	switch {
	case last.count >= limit && now.Sub(last.last) < delay:
		ctrl.LoggerFrom(ctx).V(4).Info("Skipping contested write", "object", target.String())
		return nil
	case !w.conditional && previous != "" && isBefore(previous, last.version):
		return nil // the cache does not show the equal write before this one yet
	case last.count == limit-1:
		last.rival = c.rival(ctx, o, w.lists)
	}
	if err := send(); err != nil {
		return err
	}
	version := o.GetResourceVersion()
	m.versions.Set(target, version, versionMemory)
	if version == previous && w.paths != deletion {
		return nil // nothing was different
	}
	last.count, last.last, last.version = last.count+1, now, version
	m.series.Set(changed, last, window)
	if last.count >= limit {
		m.mutex.Lock()
		defer m.mutex.Unlock()
		stored, _ := m.contests.Get(asked.cluster)
		known, _ := stored.(contests)
		all := contests{changed: {now, last.rival}}
		for other, one := range known {
			if other != changed {
				all[other] = one
			}
		}
		m.contests.Set(asked.cluster, all, delay)
	}
	return nil
}
