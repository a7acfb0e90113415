package workload

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/backoff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
)

const (
	// passTime is how long one pass waits for a workload cluster. Its owner decides how it answers.
	passTime = 5 * time.Second
	// retryDelay is when a workload cluster that did not answer, or refused an object, is asked again, and cleanDelay
	// when one that deletes what is not wanted any more.
	retryDelay = 30 * time.Second
	cleanDelay = 2 * time.Second
	// turnDelay is when a Cluster tries again that waits for its turn.
	turnDelay = time.Second
	// appliedTime is for how long applied objects are not compared again, whatever events come. It is shorter than the
	// resync by which changes of others are corrected.
	appliedTime = 5 * time.Minute
	// stateMemory is for how long the answers of a workload cluster are remembered.
	stateMemory = 24 * time.Hour
	// firstTurns is how many workload clusters are asked at a time that have not answered yet.
	firstTurns = 4
	// pageSize and maxPages bound a list.
	pageSize, maxPages = 100, 100
	// labelManagedBy marks, with contract.LabelGenerated, every object that is applied.
	labelManagedBy = "app.kubernetes.io/managed-by"
)

// deletable are the kinds of applied objects, in the order in which they are deleted.
func deletable() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		appsv1.SchemeGroupVersion.WithKind("DaemonSet"),
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicyBinding"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicy"},
		{Group: "policies.kyverno.io", Version: "v1", Kind: "MutatingPolicy"},
		ofCore("ConfigMap"),
		ofCore(kindSecret),
		ofCore(kindNamespace),
	}
}

func ofCore(kind string) schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind(kind) }

const (
	kindSecret    = "Secret"
	kindNamespace = "Namespace"
)

// newMapper maps the kinds that are read and written. Nothing is discovered: the answer would be another's.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range append(deletable(), ofCore("Node"), ofCore("Event")) {
		switch kind.Kind {
		case "DaemonSet", "ConfigMap", kindSecret, "Event":
			mapper.Add(kind, meta.RESTScopeNamespace)
		default:
			mapper.Add(kind, meta.RESTScopeRoot)
		}
	}
	return mapper
}

// Applier applies objects to workload clusters by server-side apply, and deletes those that are not wanted any more.
// Nothing that is applied is stored. Its methods can be called concurrently.
type Applier struct {
	// Connect connects to the workload cluster of a Cluster. The returned function closes the connection.
	Connect func(context.Context, client.ObjectKey) (client.Client, func(), error)

	// applied are digests of what was applied last, and done of what was applied lately, by the UID of the Cluster.
	// Clusters in answered have answered, those in slow have not the last time. A restart loses all of it, which costs
	// a pass over each Cluster.
	applied, done, answered, slow *cache.Expiring
	// first and last are the turns of Clusters that have not answered yet, and of those that are slow.
	first, last chan struct{}
}

// NewApplier returns an Applier.
func NewApplier(connect func(context.Context, client.ObjectKey) (client.Client, func(), error)) *Applier {
	return &Applier{
		Connect: connect, applied: cache.NewExpiring(), done: cache.NewExpiring(), answered: cache.NewExpiring(),
		slow: cache.NewExpiring(), first: make(chan struct{}, firstTurns), last: make(chan struct{}, 1),
	}
}

// turn waits for nobody: it reports whether it is the turn of a Cluster. Slow workload clusters wait for each other,
// and never take the workers of the others.
func (a *Applier) turn(uid types.UID) (leave func(), ok bool) {
	turns := a.first
	if _, slow := a.slow.Get(uid); slow {
		turns = a.last
	} else if _, answers := a.answered.Get(uid); answers {
		return func() {}, true
	}
	select {
	case turns <- struct{}{}:
		return func() { <-turns }, true
	default:
		return nil, false
	}
}

// Apply brings the workload cluster of a Cluster to what is wanted, of which objects that are kept stay as they are.
// It reports whether anything is left there, or may be.
func (a *Applier) Apply(ctx context.Context, cluster *kinds.Cluster, guarded *backoff.Client, wanted []publish.Secret,
) (out report.Outcome, left bool, err error) {
	p := &application{cluster: cluster, wanted: wanted, out: &out}
	if err := p.read(); err != nil {
		return out, true, err
	}
	digest := p.digest()
	if done, _ := a.done.Get(cluster.UID); done == digest {
		return out, len(wanted) > 0, nil
	}
	key := client.ObjectKeyFromObject(cluster)
	leave, ok := a.turn(cluster.UID)
	if !ok {
		_, slow := a.slow.Get(cluster.UID)
		a.away(&out, key, len(wanted) == 0, slow)
		out.LookAgain(turnDelay)
		return out, true, nil
	}
	defer leave()
	a.done.Delete(cluster.UID) // a pass that fails half-way leaves neither
	remoteCtx, cancel := context.WithTimeout(ctx, passTime)
	defer cancel()
	err = a.reconcile(remoteCtx, p, guarded)
	switch refused, isRefusal := err.(*refusedError); { //nolint:errorlint // made here
	case ctx.Err() != nil:
		return out, true, ctx.Err() //nolint:wrapcheck // the manager stops
	case isRefusal:
		out.Add(contract.ReasonDeliveryFailed, "%s", refused.why)
		out.LookAgain(retryDelay)
		return out, true, nil
	case err != nil:
		ctrl.LoggerFrom(ctx).Info("Waiting for the workload cluster", "Cluster", klog.KObj(cluster), "cause", err.Error())
		_, answers := a.answered.Get(cluster.UID)
		a.away(&out, key, len(wanted) == 0, answers)
		if p.Client != nil { // else there is no kubeconfig
			a.slow.Set(cluster.UID, true, stateMemory)
		}
		out.LookAgain(retryDelay)
		return out, true, nil
	}
	a.slow.Delete(cluster.UID)
	a.answered.Set(cluster.UID, true, stateMemory)
	last, _ := a.applied.Get(cluster.UID)
	a.applied.Set(cluster.UID, digest, stateMemory)
	switch contested, _ := guarded.Contested(key); {
	case len(contested) > 0 || p.incomplete:
	case p.changed && last == digest: // others have changed it, and may do so again
		out.LookAgain(time.Minute)
	default:
		a.done.Set(cluster.UID, digest, appliedTime)
	}
	return out, p.left, nil
}

// away reports that a workload cluster does not answer.
func (a *Applier) away(out *report.Outcome, key client.ObjectKey, withdraws, failed bool) {
	const text = "the workload cluster does not answer with the kubeconfig of Secret %s-kubeconfig; the log of the " +
		"manager has the details"
	switch {
	case withdraws:
		out.Add(contract.ReasonWithdrawing, text, key)
	case failed:
		out.Add(contract.ReasonDeliveryFailed, text, key)
	default:
		out.Add(contract.ReasonDelivering, text, key)
	}
}

func (a *Applier) reconcile(ctx context.Context, p *application, guarded *backoff.Client) error {
	key := client.ObjectKeyFromObject(p.cluster)
	remote, closeConnection, err := a.Connect(ctx, key)
	if err != nil {
		return err
	}
	defer closeConnection()
	p.Client = guarded.Remote(remote, key)
	if err := p.list(ctx); err != nil {
		return err
	}
	for _, object := range p.objects {
		if err := p.apply(ctx, object); err != nil {
			return err
		}
	}
	return p.clean(ctx)
}

// application is one pass over a workload cluster.
type application struct {
	client.Client

	cluster *kinds.Cluster
	wanted  []publish.Secret
	out     *report.Outcome
	// objects are those to be applied.
	objects []wantedObject
	// existing is the metadata of our objects in the workload cluster, by kind.
	existing map[schema.GroupVersionKind][]metav1.PartialObjectMetadata
	// changed reports that an object was written, incomplete that the next pass has something to do, and left that
	// an object of the product is there.
	changed, incomplete, left bool
}

type wantedObject struct {
	*unstructured.Unstructured

	output publish.Output
}

// marks are the labels by which, and only by which, objects are changed and deleted.
func (p *application) marks() map[string]string {
	return map[string]string{labelManagedBy: contract.Name, contract.LabelGenerated: p.cluster.Name}
}

// read reads the objects that are wanted, each once.
func (p *application) read() error {
	for _, secret := range p.wanted {
		all, err := secret.Objects()
		if err != nil {
			return fmt.Errorf("reading output %s: %w", secret.Delivered, err)
		}
		for _, content := range all {
			object := &unstructured.Unstructured{Object: content}
			labels := object.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			maps.Copy(labels, p.marks())
			labels[contract.LabelOutput] = string(secret.Delivered.Name)
			object.SetLabels(labels)
			if !p.wants(object) {
				p.objects = append(p.objects, wantedObject{object, *secret.Delivered})
			}
		}
	}
	return nil
}

// digest identifies what is wanted. It stays in memory.
func (p *application) digest() string {
	kept := make([]string, 0, len(p.wanted))
	for _, secret := range p.wanted {
		kept = append(kept, fmt.Sprint(secret.Delivered, secret.Kept))
	}
	text, _ := json.Marshal([]any{kept, p.objects}) //nolint:errchkjson // it was decoded from YAML
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// wants reports whether an object is one of those to be applied.
func (p *application) wants(object client.Object) bool {
	return slices.ContainsFunc(p.objects, func(w wantedObject) bool {
		return w.GetObjectKind().GroupVersionKind() == object.GetObjectKind().GroupVersionKind() &&
			client.ObjectKeyFromObject(w) == client.ObjectKeyFromObject(object)
	})
}

// keeps reports whether an object stays as it is, because its output has no content now.
func (p *application) keeps(object client.Object) bool {
	labels := object.GetLabels()
	return slices.ContainsFunc(p.wanted, func(w publish.Secret) bool {
		isOf := labels[contract.LabelOutput] == string(w.Delivered.Name)
		if w.Delivered.Name != publish.Nodes || !isOf {
			return w.Kept && isOf
		}
		version := labels[contract.LabelNodeFiles] // the Namespace has none
		return version == "" || w.Kept && (w.Delivered.Argument == "" ||
			publish.NodeLabelOf(version) == publish.NodeLabel(w.Delivered.Argument))
	})
}

// list lists our objects.
func (p *application) list(ctx context.Context) (err error) {
	p.existing = map[schema.GroupVersionKind][]metav1.PartialObjectMetadata{}
	for _, kind := range deletable() {
		p.existing[kind], err = metadata(ctx, p, kind, client.MatchingLabels(p.marks()))
		if err != nil {
			return err
		}
	}
	return nil
}

// metadata lists the metadata of objects of a kind. A kind that the API server does not know has none.
func metadata(ctx context.Context, remote client.Reader, kind schema.GroupVersionKind, options ...client.ListOption) (
	all []metav1.PartialObjectMetadata, err error,
) {
	page := client.ListOptions{Limit: pageSize}
	for range maxPages {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := remote.List(ctx, list, append(slices.Clone(options), &page)...)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing %ss: %w", kind.Kind, err)
		}
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(kind)
			list.Items[i].SetManagedFields(nil)
		}
		all = append(all, list.Items...)
		if page.Continue = list.Continue; page.Continue == "" {
			return all, nil
		}
	}
	return nil, fmt.Errorf("listing %ss: more than %d pages", kind.Kind, maxPages)
}

// apply applies an object, unless another has its name.
func (p *application) apply(ctx context.Context, object wantedObject) error {
	kind, key := object.GroupVersionKind(), client.ObjectKeyFromObject(object)
	name := object.GetKind() + " " + key.String()
	if key.Namespace == "" {
		name = object.GetKind() + " " + key.Name
	}
	i := slices.IndexFunc(p.existing[kind], func(o metav1.PartialObjectMetadata) bool {
		return client.ObjectKeyFromObject(&o) == key
	})
	applied := object.DeepCopy()
	options := []client.PatchOption{client.FieldOwner(contract.Name)}
	if i >= 0 {
		if !p.existing[kind][i].DeletionTimestamp.IsZero() {
			p.postpone()
			return nil
		}
		// Nobody else's object is changed: the version is one that has our labels.
		applied.SetUID(p.existing[kind][i].UID)
		applied.SetResourceVersion(p.existing[kind][i].ResourceVersion)
		options = append(options, client.ForceOwnership)
	} else {
		current := &metav1.PartialObjectMetadata{}
		current.SetGroupVersionKind(kind)
		switch err := p.Get(ctx, key, current); {
		case err == nil:
			p.out.Add(contract.ReasonNameTaken, "output %s: %s of the workload cluster exists and was not written by %s for "+
				"this Cluster; delete or rename it", object.output, name, contract.Name)
			p.postpone()
			return nil
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("reading %s: %w", name, err)
		}
	}
	before := applied.GetResourceVersion()
	//nolint:staticcheck // Apply of client.Client returns no version
	err := p.Patch(ctx, applied, client.Apply, options...)
	switch {
	case err == nil:
		p.changed = p.changed || applied.GetResourceVersion() != before
		p.left = true
		return nil
	case apierrors.IsConflict(err):
	case apierrors.IsInvalid(err) && i >= 0: // somebody has made it immutable
		p.incomplete = true
		p.out.LookAgain(cleanDelay)
		return p.remove(ctx, &p.existing[kind][i])
	case apierrors.IsNotFound(err) && key.Namespace != "" && p.isMissing(ctx, key.Namespace):
		p.out.Add(contract.ReasonDeliveryFailed, "output %s: the workload cluster has no Namespace %s; create it",
			object.output, key.Namespace)
	case apierrors.IsNotFound(err):
		p.out.Add(contract.ReasonDeliveryFailed, "output %s: the workload cluster does not know kind %s of %s; install it",
			object.output, kind.Kind, kind.GroupVersion())
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		return fmt.Errorf("applying %s: %w", name, err)
	default: // its text is another's, and may quote what was applied
		p.out.Add(contract.ReasonDeliveryFailed, "output %s: the workload cluster refuses %s (status %d)", object.output,
			name, statusOf(err))
	}
	p.postpone()
	return nil
}

// statusOf returns the HTTP status of an error of an API server.
func statusOf(err error) int32 {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

func (p *application) postpone() {
	p.incomplete, p.left = true, true
	p.out.LookAgain(retryDelay)
}

func (p *application) isMissing(ctx context.Context, namespace string) bool {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(ofCore(kindNamespace))
	return apierrors.IsNotFound(p.Get(ctx, client.ObjectKey{Name: namespace}, object))
}

// clean deletes our objects that are not wanted any more. An earlier version of files stays as long as a Node has its
// label, unless no files are wanted: then the labels go first.
func (p *application) clean(ctx context.Context) error {
	used, err := p.used(ctx)
	if err != nil {
		return err
	}
	for _, kind := range deletable() {
		for i := range p.existing[kind] {
			object := &p.existing[kind][i]
			switch version := object.Labels[contract.LabelNodeFiles]; {
			case p.wants(object), p.keeps(object):
				p.left = true
				continue
			case version != "" && used[version]:
				p.later(time.Minute)
				continue
			}
			p.later(cleanDelay)
			if err := p.remove(ctx, object); err != nil {
				return err
			}
		}
	}
	if p.incomplete && len(p.wanted) == 0 {
		p.out.Add(contract.ReasonWithdrawing, "what was applied to the workload cluster is being deleted")
	}
	return nil
}

func (p *application) later(delay time.Duration) {
	p.incomplete, p.left = true, true
	p.out.LookAgain(delay)
}

// remove deletes an object, if that has not begun.
func (p *application) remove(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	if !object.DeletionTimestamp.IsZero() {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Deleting object of the workload cluster", object.Kind, klog.KObj(object))
	err := p.Delete(ctx, object, client.Preconditions{UID: &object.UID},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s: %w", object.Kind, klog.KObj(object), err)
	}
	return nil
}

// used returns the versions of files that Nodes have the label of. If no files are wanted, it removes the labels.
func (p *application) used(ctx context.Context) (map[string]bool, error) {
	used := map[string]bool{}
	if len(p.existing[ofCore(kindNamespace)]) == 0 {
		return used, nil // nothing of nodes has been there
	}
	labelled, err := metadata(ctx, p, ofCore("Node"), client.HasLabels{contract.LabelNodeFiles})
	if err != nil {
		return nil, err
	}
	wanted := slices.ContainsFunc(p.wanted, func(w publish.Secret) bool { return w.Delivered.Name == publish.Nodes })
	for i := range labelled {
		if wanted {
			used[labelled[i].Labels[contract.LabelNodeFiles]] = true
			continue
		}
		labelled[i].SetResourceVersion("") // whatever it has
		if err := client.IgnoreNotFound(Label(ctx, p, &labelled[i], "")); err != nil {
			return nil, err
		}
	}
	return used, nil
}
