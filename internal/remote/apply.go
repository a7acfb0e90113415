package remote

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/backoff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
)

const (
	// cleanDelay is when a workload cluster is asked again that deletes what is not wanted any more.
	cleanDelay = 2 * time.Second
	// appliedTime is for how long applied objects are not compared again, whatever events come. It is shorter than the
	// resync by which changes of others are corrected.
	appliedTime = 5 * time.Minute
)

// Set is what one capability has in the workload cluster of a Cluster.
type Set struct {
	Objects []Object
	// Kinds are those of all objects that the set ever has, in the order in which objects that are not wanted are deleted.
	Kinds []Kind
	// Labels are those of all objects, by which they are found.
	Labels map[string]string
	// Keeps reports whether an object that is not wanted stays; nil keeps none.
	Keeps func(metav1.Object) bool
	// Failed is the reason of findings about objects that the workload cluster refuses.
	Failed string
}

// Object is an object to be applied.
type Object struct {
	*unstructured.Unstructured

	// Of says in messages what it belongs to.
	Of string
}

// Kind is a kind of objects of a Set.
type Kind struct {
	schema.GroupVersionKind

	// Namespace is that of all of them, "" if they are in several or in none.
	Namespace string
	// Named reports whether the set may have an object of a name. No other is changed or deleted.
	Named func(name string) bool
}

// application brings one workload cluster to a Set.
type application struct {
	client.Client

	set     Set
	cluster *clusterv1.Cluster
	out     *controller.Outcome
	// existing is the metadata of our objects in the workload cluster, by kind.
	existing map[schema.GroupVersionKind][]metav1.PartialObjectMetadata
	// changed reports that an object was written, incomplete that the next pass has something to do, and left that
	// an object of the product is there.
	changed, incomplete, left bool
}

// Apply brings a workload cluster to what a Set wants, by server-side apply. left reports that something of it is
// there.
func (s Set) Apply(ctx context.Context, remote client.Client, cluster *clusterv1.Cluster) (
	out controller.Outcome, left bool, err error,
) {
	p := &application{Client: remote, set: s, cluster: cluster, out: &out}
	err = p.run(ctx)
	return out, p.left, err
}

func (p *application) run(ctx context.Context) error {
	if err := p.list(ctx); err != nil {
		return err
	}
	for _, object := range p.set.Objects {
		if err := p.apply(ctx, object); err != nil {
			return err
		}
	}
	return p.clean(ctx)
}

// wants reports whether an object is one of those to be applied.
func (p *application) wants(object client.Object) bool {
	return slices.ContainsFunc(p.set.Objects, func(w Object) bool {
		return w.GetObjectKind().GroupVersionKind() == object.GetObjectKind().GroupVersionKind() &&
			client.ObjectKeyFromObject(w) == client.ObjectKeyFromObject(object)
	})
}

// list lists our objects.
func (p *application) list(ctx context.Context) error {
	p.existing = map[schema.GroupVersionKind][]metav1.PartialObjectMetadata{}
	for _, kind := range p.set.Kinds {
		all, err := Metadata(ctx, p, kind.GroupVersionKind, client.MatchingLabels(p.set.Labels),
			client.InNamespace(kind.Namespace))
		if err != nil {
			return err
		}
		p.existing[kind.GroupVersionKind] = slices.DeleteFunc(all, func(o metav1.PartialObjectMetadata) bool {
			return !IsOurs(&o) || !kind.Named(o.Name)
		})
	}
	return nil
}

// apply applies an object, unless another has its name.
func (p *application) apply(ctx context.Context, object Object) error {
	kind, key := object.GroupVersionKind(), client.ObjectKeyFromObject(object)
	name := kind.Kind + " " + key.String()
	if key.Namespace == "" {
		name = kind.Kind + " " + key.Name
	}
	applied := object.DeepCopy()
	labels := applied.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, p.set.Labels)
	applied.SetLabels(labels)
	current, err := p.current(ctx, kind, key, applied)
	if current != nil {
		if !current.DeletionTimestamp.IsZero() {
			p.later(retryDelay)
			return nil
		}
		// Nobody else's object is changed: the version is the one that we have written.
		applied.SetUID(current.UID)
		applied.SetResourceVersion(current.ResourceVersion)
		err = p.write(ctx, applied, false)
	}
	switch {
	case err == nil:
		p.changed = p.changed || current == nil || applied.GetResourceVersion() != current.ResourceVersion
		p.left = true
		return nil
	case apierrors.IsAlreadyExists(err):
		p.out.Add(contract.ReasonNameTaken, "%s: %s of the workload cluster exists and was not written by %s for this "+
			"Cluster; delete or rename it", object.Of, name, contract.Name)
	case apierrors.IsConflict(err):
	case apierrors.IsInvalid(err) && current != nil: // of an immutable Secret, or another field that cannot change
		p.incomplete = true
		p.out.RequeueIn(cleanDelay)
		return p.remove(ctx, current)
	case apierrors.IsNotFound(err) && key.Namespace != "" && p.isMissing(ctx, key.Namespace):
		p.out.Add(p.set.Failed, "%s: the workload cluster has no Namespace %s; create it", object.Of, key.Namespace)
	case apierrors.IsNotFound(err):
		p.out.Add(p.set.Failed, "%s: the workload cluster does not know kind %s of %s; install it", object.Of, kind.Kind,
			kind.GroupVersion())
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		return fmt.Errorf("applying %s: %w", name, err)
	default: // its text is another's, and may quote what was applied
		p.out.Add(p.set.Failed, "%s: the workload cluster refuses %s (status %d)", object.Of, name, statusOf(err))
	}
	p.later(retryDelay)
	return nil
}

// current returns the metadata of our object of a name. If there is none, it creates applied. An object of ours without
// its labels is found when that fails.
func (p *application) current(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey,
	applied *unstructured.Unstructured,
) (*metav1.PartialObjectMetadata, error) {
	for i := range p.existing[kind] {
		if client.ObjectKeyFromObject(&p.existing[kind][i]) == key {
			return &p.existing[kind][i], nil
		}
	}
	err := p.write(ctx, applied, true)
	if !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(kind)
	if failed := p.Get(ctx, key, found); failed != nil {
		return nil, failed //nolint:wrapcheck // the caller names the object
	}
	found.SetGroupVersionKind(kind)
	if owner, labelled := found.Labels[contract.LabelGenerated]; !IsOurs(found) || labelled && owner != p.cluster.Name {
		return nil, err
	}
	return found, nil
}

// write applies an object that exists, and creates one that does not. Creating fails if the name is taken, where an
// apply would change the object of another. Server-side apply then gets the fields that create wrote: it removes no
// field that it does not manage.
func (p *application) write(ctx context.Context, object *unstructured.Unstructured, created bool) error {
	owner := client.FieldOwner(contract.Name)
	var err error
	if created {
		err = p.Create(ctx, object, owner)
	} else {
		//nolint:staticcheck // Apply of client.Client returns no version
		err = p.Patch(ctx, object, client.Apply, owner, client.ForceOwnership)
	}
	if err != nil {
		return err
	}
	data, err := csaupgrade.UpgradeManagedFieldsPatch(object, sets.New(contract.Name), contract.Name)
	if err != nil || data == nil {
		return err
	}
	if !created { // an earlier process created it and ended; only the next apply removes fields of it
		p.later(cleanDelay)
	}
	return p.Patch(ctx, object, client.RawPatch(types.JSONPatchType, data))
}

// clean deletes our objects that are not wanted any more.
func (p *application) clean(ctx context.Context) error {
	for _, kind := range p.set.Kinds {
		for i := range p.existing[kind.GroupVersionKind] {
			object := &p.existing[kind.GroupVersionKind][i]
			if p.wants(object) || p.set.Keeps != nil && p.set.Keeps(object) {
				p.left = true
				continue
			}
			p.later(cleanDelay)
			if err := p.remove(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *application) remove(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	ctrl.LoggerFrom(ctx).Info("Deleting object of the workload cluster", object.Kind, klog.KObj(object))
	return Delete(ctx, p, object)
}

func (p *application) isMissing(ctx context.Context, namespace string) bool {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return apierrors.IsNotFound(p.Get(ctx, client.ObjectKey{Name: namespace}, object))
}

// statusOf returns the HTTP status of an error of an API server.
func statusOf(err error) int32 {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

func (p *application) later(delay time.Duration) {
	p.incomplete, p.left = true, true
	p.out.RequeueIn(delay)
}

// Applier applies Sets, and leaves a workload cluster alone for appliedTime that has all of one. Its methods can be
// called concurrently.
type Applier struct {
	*Clusters

	// applied are digests of what was applied last, and done of what was applied lately, by the UID of the Cluster. A
	// restart loses both, which costs a pass over each Cluster.
	applied, done *cache.Expiring
}

// NewApplier returns an Applier.
func NewApplier(clusters *Clusters) *Applier {
	return &Applier{Clusters: clusters, applied: cache.NewExpiring(), done: cache.NewExpiring()}
}

// Apply brings the workload cluster of a Cluster to what a Set wants. left reports that something of it is there, or
// may be. Errors are those of Visit.
func (a *Applier) Apply(ctx context.Context, cluster *clusterv1.Cluster, guarded *backoff.Client, set Set,
	token string,
) (
	out controller.Outcome, left bool, err error,
) {
	connection, err := a.Open(ctx, cluster)
	if err != nil {
		return out, true, err
	}
	defer connection.Close()
	digest := set.digest(connection.Server, token)
	if done, _ := a.done.Get(cluster.UID); done == digest {
		return out, len(set.Objects) > 0 || token != "", nil
	}
	a.done.Delete(cluster.UID) // a pass that fails half-way leaves neither
	key := client.ObjectKeyFromObject(cluster)
	p := &application{Client: guarded.Remote(connection, key), set: set, cluster: cluster, out: &out}
	if err := a.Visit(ctx, cluster, p.run); err != nil {
		return controller.Outcome{Findings: out.Findings}, true, err
	}
	last, _ := a.applied.Get(cluster.UID)
	a.applied.Set(cluster.UID, digest, memoryTime)
	switch contested, _ := guarded.Contested(key); {
	case len(contested) > 0 || p.incomplete:
	case p.changed && last == digest: // others have changed it, and may do so again
		out.RequeueIn(time.Minute)
	default:
		a.done.Set(cluster.UID, digest, appliedTime)
	}
	return out, p.left, nil
}

// digest identifies what is wanted, and where. It stays in memory. token is what Keeps depends on.
func (s Set) digest(server, token string) string {
	text, _ := json.Marshal([]any{token, s.Objects}) //nolint:errchkjson // it was decoded from YAML
	return fmt.Sprintf("%x", sha256.Sum256(append([]byte(server), text...)))
}
