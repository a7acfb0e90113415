package remote

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// passTime is how long one pass waits for a workload cluster, and slowTime from when on one counts as slow.
	passTime, slowTime = 5 * time.Second, time.Second
	// retryDelay is when a workload cluster that did not answer, or refused an object, is asked again.
	retryDelay = 30 * time.Second
	// turnDelay is when a Cluster tries again that waits for its turn.
	turnDelay = 2 * time.Second
	// memoryTime is for how long the answers of a workload cluster are remembered.
	memoryTime = 24 * time.Hour
	// firstTurns is how many workload clusters are asked at a time that have not answered yet.
	firstTurns = 4
)

// Clusters connects to workload clusters. Slow ones wait for each other, and never take the workers of the others. Its
// methods can be called concurrently.
type Clusters struct {
	connect func(context.Context, client.ObjectKey) (Connection, error)
	now     func() time.Time
	// Clusters in answered, by UID, have answered, those in slow not the last time, or not fast. A restart loses both.
	answered, slow *cache.Expiring
	// first and last are the turns of Clusters that have not answered yet, and of those that are slow.
	first, last chan struct{}
}

// NewClusters returns Clusters. connect returns a connection, which sends nothing before it is used.
func NewClusters(connect func(context.Context, client.ObjectKey) (Connection, error), now func() time.Time) *Clusters {
	return &Clusters{
		connect: connect, now: now, answered: cache.NewExpiring(), slow: cache.NewExpiring(),
		first: make(chan struct{}, firstTurns), last: make(chan struct{}, 1),
	}
}

// AwayError is a workload cluster that was not asked, or has not answered.
type AwayError struct {
	// Secret has its kubeconfig.
	Secret types.NamespacedName
	// Failed reports that it has not answered, although it has before.
	Failed bool
	// RequeueAfter is when to ask again.
	RequeueAfter time.Duration
}

// Error implements error. The text is for the user, and the same each time.
func (e *AwayError) Error() string {
	return "the workload cluster does not answer with the kubeconfig of Secret " + e.Secret.String() +
		"; the log of the manager has the details"
}

// Open returns a connection to the workload cluster of a Cluster, which sends nothing before it is used in Visit. Its
// errors are those of Visit.
func (c *Clusters) Open(ctx context.Context, cluster *clusterv1.Cluster) (Connection, error) {
	connection, err := c.connect(ctx, client.ObjectKeyFromObject(cluster))
	if _, isRefusal := errors.AsType[*RefusedError](err); err == nil || isRefusal {
		return connection, err
	}
	return connection, c.away(ctx, cluster, err)
}

// Visit has a function use a connection to the workload cluster of a Cluster, when it is the turn of the Cluster. Its
// error is that of a context that ends, a RefusedError or an AwayError.
func (c *Clusters) Visit(ctx context.Context, cluster *clusterv1.Cluster, visit func(context.Context) error) error {
	leave, ok := c.acquire(cluster.UID)
	if !ok {
		_, slow := c.slow.Get(cluster.UID)
		return &AwayError{Secret: KubeconfigName(client.ObjectKeyFromObject(cluster)), Failed: slow, RequeueAfter: turnDelay}
	}
	defer leave()
	bounded, cancel := context.WithTimeout(ctx, passTime)
	defer cancel()
	begun := c.now()
	if err := visit(bounded); err != nil {
		c.slow.Set(cluster.UID, true, memoryTime)
		return c.away(ctx, cluster, err)
	}
	c.answered.Set(cluster.UID, true, memoryTime)
	if c.now().Sub(begun) > slowTime {
		c.slow.Set(cluster.UID, true, memoryTime)
	} else {
		c.slow.Delete(cluster.UID)
	}
	return nil
}

// acquire does not block: it reports whether it is the turn of a Cluster.
func (c *Clusters) acquire(uid types.UID) (leave func(), ok bool) {
	turns := c.first
	if _, slow := c.slow.Get(uid); slow {
		turns = c.last
	} else if _, answers := c.answered.Get(uid); answers {
		return func() {}, true
	}
	select {
	case turns <- struct{}{}:
		return func() { <-turns }, true
	default:
		return nil, false
	}
}

// away logs why a workload cluster does not answer, which may have a text of it, and returns the error for the user.
func (c *Clusters) away(ctx context.Context, cluster *clusterv1.Cluster, cause error) error {
	if ctx.Err() != nil {
		return ctx.Err() //nolint:wrapcheck // the manager stops
	}
	ctrl.LoggerFrom(ctx).Info("Waiting for the workload cluster", "Cluster", klog.KObj(cluster), "cause", cause.Error())
	_, answers := c.answered.Get(cluster.UID)
	return &AwayError{
		Secret: KubeconfigName(client.ObjectKeyFromObject(cluster)), Failed: answers, RequeueAfter: retryDelay,
	}
}
