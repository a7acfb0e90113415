package workload

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/backoff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
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
func (a *Applier) Apply(ctx context.Context, cluster *clusterv1.Cluster, guarded *backoff.Client,
	wanted []publish.Secret,
) (out controller.Outcome, left bool, err error) {
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
		out.RequeueIn(turnDelay)
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
		out.RequeueIn(retryDelay)
		return out, true, nil
	case err != nil:
		ctrl.LoggerFrom(ctx).Info("Waiting for the workload cluster", "Cluster", klog.KObj(cluster), "cause", err.Error())
		_, answers := a.answered.Get(cluster.UID)
		a.away(&out, key, len(wanted) == 0, answers)
		if p.Client != nil { // else there is no kubeconfig
			a.slow.Set(cluster.UID, true, stateMemory)
		}
		out.RequeueIn(retryDelay)
		return out, true, nil
	}
	a.slow.Delete(cluster.UID)
	a.answered.Set(cluster.UID, true, stateMemory)
	last, _ := a.applied.Get(cluster.UID)
	a.applied.Set(cluster.UID, digest, stateMemory)
	switch contested, _ := guarded.Contested(key); {
	case len(contested) > 0 || p.incomplete:
	case p.changed && last == digest: // others have changed it, and may do so again
		out.RequeueIn(time.Minute)
	default:
		a.done.Set(cluster.UID, digest, appliedTime)
	}
	return out, p.left, nil
}

// away reports that a workload cluster does not answer.
func (a *Applier) away(out *controller.Outcome, key client.ObjectKey, withdraws, failed bool) {
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
