// Package backoff keeps the controllers from fighting with another manager of the same fields: a write that is reverted
// again and again is repeated once a minute, and reported.
package backoff

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// versionMemory is for how long a written version is remembered. A cache that is further behind stops Cluster API, too.
const versionMemory = time.Hour

// The verbs that differ from others.
const (
	status   = "status"
	deletion = "delete"
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
	// versions are the last written versions by object, and contests those of each Cluster.
	versions, contests *cache.Expiring
	// mutex protects the contests.
	mutex sync.Mutex
}

// New returns a Client. live reads from the API server, to name the manager that reverts a write.
func New(wrapped client.Client, live client.Reader, now func() time.Time) *Client {
	return &Client{Client: wrapped, memory: &memory{
		now: now, live: live, versions: cache.NewExpiring(), contests: cache.NewExpiring(),
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

type clusterKey struct{}

// ForCluster returns a context for a pass over a Cluster, by which Contested reports contested writes.
func (c *Client) ForCluster(ctx context.Context, cluster client.Object) context.Context {
	key := client.ObjectKeyFromObject(cluster)
	names := contract.UserAnnotations()
	values := append(make([]string, 0, 2+len(names)), string(cluster.GetUID()), cluster.GetLabels()[contract.LabelEnabled])
	for _, name := range names {
		values = append(values, cluster.GetAnnotations()[name])
	}
	desired := strings.Join(values, "\n")
	c.memory.mutex.Lock()
	defer c.memory.mutex.Unlock()
	if all := c.memory.of(key); all.desired != desired {
		*all = contests{desired: desired, writes: map[content]writes{}}
	}
	return context.WithValue(ctx, clusterKey{}, key)
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

// isUnconditional reports that the API server takes a write to an object that has changed.
func isUnconditional(verb string, data []byte) bool {
	return verb == status || !bytes.Contains(data, []byte("resourceVersion"))
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
	return c.whole(ctx, o, "create", func() error { return c.Client.Create(ctx, o, options...) })
}

// Update implements client.Writer.
func (c *Client) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	return c.whole(ctx, o, "update", func() error { return c.Client.Update(ctx, o, options...) })
}

// Delete implements client.Writer.
func (c *Client) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	return c.write(ctx, o, deletion, nil, func() error { return c.Client.Delete(ctx, o, options...) })
}

// whole writes a whole object.
func (c *Client) whole(ctx context.Context, o client.Object, verb string, send func() error) error {
	data, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encoding object: %w", err)
	}
	return c.write(ctx, o, verb, data, send)
}

// Patch implements client.Writer.
func (c *Client) Patch(ctx context.Context, o client.Object, change client.Patch, options ...client.PatchOption) error {
	data, err := change.Data(o)
	if err != nil {
		return fmt.Errorf("encoding patch: %w", err)
	}
	return c.write(ctx, o, "patch", data, func() error {
		return c.Client.Patch(ctx, o, client.RawPatch(change.Type(), data), options...)
	})
}

// Status implements client.StatusClient.
func (c *Client) Status() client.SubResourceWriter { return statusWriter{c.Client.Status(), c} }

type statusWriter struct {
	client.SubResourceWriter

	client *Client
}

// Apply implements client.SubResourceWriter. The resourceVersion of the configuration is that of the object that it was
// made for. It is no precondition: others may have written other conditions meanwhile.
func (s statusWriter) Apply(ctx context.Context, configuration runtime.ApplyConfiguration,
	options ...client.SubResourceApplyOption,
) error {
	data, err := json.Marshal(configuration)
	if err != nil {
		return fmt.Errorf("encoding configuration: %w", err)
	}
	applied := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &applied.Object); err != nil {
		return fmt.Errorf("decoding configuration: %w", err)
	}
	return s.client.write(ctx, applied, status, data, func() error {
		applied.SetResourceVersion("")
		return s.SubResourceWriter.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), options...)
	})
}

// write sends data to an object of the Cluster of ctx, or skips it. A skipped write changes nothing, and is no error.
func (c *Client) write(ctx context.Context, o client.Object, verb string, data []byte, send func() error) error {
	target, err := c.of(o)
	if err != nil {
		return err
	}
	m, now, previous := c.memory, c.memory.now(), o.GetResourceVersion()
	cluster, _ := ctx.Value(clusterKey{}).(types.NamespacedName)
	written := sha256.Sum256(volatile.ReplaceAll(data, nil))
	key := content{target, verb, written}
	if verb == status {
		key.bytes = [sha256.Size]byte{}
	}
	one := m.before(cluster, key, written, now)
	switch version, _ := m.versions.Get(target); {
	case one.isContested(now):
		ctrl.LoggerFrom(ctx).V(4).Info("Skipping contested write", "object", target.String())
		return nil
	case one.count > 0 && one.version == version && isUnconditional(verb, data) && isBefore(previous, one.version):
		return nil // the cache does not show the equal write before this one yet
	case one.count == limit-1:
		one.rival = c.rival(ctx, o, verb)
	}
	if err := send(); err != nil {
		return err
	}
	one.version = o.GetResourceVersion()
	m.versions.Set(target, one.version, versionMemory)
	if one.version != previous || verb == deletion { // else nothing was different
		m.count(cluster, key, one, now)
	}
	return nil
}

// rival returns who has written an object last, as far as the API server has recorded it: a manager that owns nothing,
// because it has emptied a list, is not recorded.
func (c *Client) rival(ctx context.Context, o client.Object, verb string) (name string) {
	kind, err := c.GroupVersionKindFor(o)
	if err != nil || c.remote != (types.NamespacedName{}) {
		return ""
	}
	stored := &metav1.PartialObjectMetadata{}
	stored.SetGroupVersionKind(kind)
	if err := c.memory.live.Get(ctx, client.ObjectKeyFromObject(o), stored); err != nil {
		return ""
	}
	latest := time.Time{}
	for _, entry := range stored.ManagedFields {
		if entry.Time == nil || (entry.Subresource == status) != (verb == status) || entry.Time.Time.Before(latest) {
			continue
		}
		if ours := strings.HasPrefix(entry.Manager, contract.Name); !ours {
			name, latest = entry.Manager, entry.Time.Time
		} else if entry.Time.After(latest) {
			name, latest = "", entry.Time.Time
		}
	}
	return name
}
