package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
)

// Follower follows the updates in place of all Clusters. Its methods can be called concurrently.
type Follower struct {
	// Clusters connects to the workload clusters of Clusters that ask for updates in place, and to no other.
	Clusters clustercache.ClusterCache
	// Live reads from the API server of the management cluster.
	Live client.Reader
	// Connect connects to the workload cluster of a Cluster to label Nodes, as Applier.Connect does.
	Connect func(context.Context, client.ObjectKey) (client.Client, func(), error)
	// Pods is how Pods on nodes are made.
	Pods NodePods
	// Now is the clock.
	Now func() time.Time

	// watcher is the controller of which f is a step. Events of workload clusters enqueue their Clusters there.
	watcher clustercache.SourceWatcher[ctrl.Request]
	// nodes are the names of the Nodes of Machines, which stay the same, by the UID of the Machine.
	nodes *cache.Expiring
	// away are the Clusters whose workload cluster has not answered, and until when it is not asked again.
	away *cache.Expiring
	// waits are for how long the Clusters wait that wait for a version to be delivered.
	waits *cache.Expiring
	// lacking are the nodes without a Pod, by Cluster.
	lacking *cache.Expiring
}

// NodePods is how Pods on nodes are made.
type NodePods struct {
	// Image is their image, "" if updates in place are not installed.
	Image string
	// PullSecret and PullPolicy are those of publish.NodeFiles.
	PullSecret, PullPolicy string
}

// Input is what the objects for nodes of a generated Secret are made of, without files if they cannot be made.
func (n NodePods) Input(cluster string, options settings.Options, secret *corev1.Secret) publish.NodeFiles {
	data, err := plan.NodeData(options, secret.Data)
	if err != nil {
		data = nil // condition ProxyConfigured has the reason, and what is applied stays
	}
	return publish.NodeFiles{
		Cluster: cluster, Secret: secret.Name, Data: data, Key: publish.NodeKey(secret.UID),
		Image: n.Image, PullSecret: n.PullSecret, PullPolicy: n.PullPolicy,
	}
}

// Restore is what the objects are made of that restore nodes of a Cluster: a version without files. It is the same
// after clusterctl move. Nothing is pulled for it, since a node without the proxy may not be able to.
func (n NodePods) Restore(cluster string) (publish.NodeFiles, error) {
	data, err := patch.NodeData(nil, patch.Recipe{})
	if err != nil {
		return publish.NodeFiles{}, err //nolint:wrapcheck // it says what failed
	}
	return publish.NodeFiles{
		Cluster: cluster, Secret: settings.GeneratedSecretName(cluster), Data: data, Key: []byte(contract.RestoredValue),
		Image: n.Image, PullSecret: n.PullSecret, PullPolicy: string(corev1.PullIfNotPresent),
	}, nil
}

// Init makes the memory of f.
func (f *Follower) Init() *Follower {
	f.nodes, f.away, f.waits = cache.NewExpiring(), cache.NewExpiring(), cache.NewExpiring()
	f.lacking = cache.NewExpiring()
	return f
}

const (
	// nodeMemory is for how long the Node of a Machine is remembered.
	nodeMemory = 24 * time.Hour
	// remoteTime is how long one pass waits for a workload cluster, and awayTime for how long it is left alone after one
	// that has waited in vain. The owner of the workload cluster decides how it answers.
	remoteTime = 3 * time.Second
	awayTime   = 30 * time.Second
	// maxLabels is how many Nodes one pass labels, and labelDelay when it goes on.
	maxLabels  = 25
	labelDelay = time.Second
	// minWait is when it is first asked again whether a version is delivered. The time doubles, up to retryDelay.
	minWait = time.Second
)

// Watch implements controller.Step: a pass over a Cluster comes when its workload cluster is connected, is no longer,
// or cannot be.
func (f *Follower) Watch(watcher ctrlcontroller.Controller) error {
	f.watcher = watcher
	source := f.Clusters.GetClusterSource(controller.Name, func(_ context.Context, cluster client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(cluster)}}
	}, clustercache.WatchForProbeFailure(time.Minute))
	return watcher.Watch(source) //nolint:wrapcheck // it says what failed
}

// Run implements controller.Step for Clusters that ask for updates in place. If one has, until its label was removed,
// its running nodes are restored: the condition stays until nothing is left in the workload cluster.
func (f *Follower) Run(ctx context.Context, p *controller.Pass) (out controller.Outcome, err error) {
	switch restores := settings.Restores(p.Cluster.Labels, p.Cluster.Annotations); {
	case p.View.Enabled:
		if p.Options.Rollout != contract.RolloutInPlace {
			return out, nil
		}
	case !restores:
		return out, nil
	case p.Cluster.Annotations[contract.AnnotationApplied] == contract.RestoredValue:
		out.Add(contract.ReasonInPlaceProgressing, "%s", RestoredMessage)
		return out, nil
	default:
		if err := p.CheckCurrent(ctx); err != nil {
			return out, err //nolint:wrapcheck // it is a conflict
		}
	}
	return f.follow(ctx, p)
}

// follow lets nodes apply the present files in their turn, records which Machines have them, and reports about the
// others. Nodes of a Cluster that is not enabled lose all files, which is recorded on the Cluster when all have.
func (f *Follower) follow(ctx context.Context, p *controller.Pass) (out controller.Outcome, err error) {
	members, rolls, err := f.members(ctx, p)
	if err != nil || p.View.Enabled && !slices.ContainsFunc(members, func(m Member) bool { return m.Node != "" }) {
		return out, err
	}
	wants, updates, err := f.wantsOf(ctx, p, members)
	if err != nil {
		return out, err
	}
	key := client.ObjectKeyFromObject(p.Cluster)
	unknown := func(again time.Duration) (controller.Outcome, error) {
		const text = "cannot tell which nodes %s: the workload cluster does not answer with the kubeconfig of Secret " +
			"%s-kubeconfig; the log of the manager has the details%s"
		if !p.View.Enabled {
			out.Add(contract.ReasonInPlaceUnknown, text, "are restored", key,
				"; to leave the files on them, remove annotation "+contract.AnnotationRollout)
		} else {
			out.Add(contract.ReasonInPlaceUnknown, text, "have the current files", key, "")
		}
		out.RequeueIn(again)
		return out, nil
	}
	stored, _ := f.away.Get(p.Cluster.UID)
	if until, _ := stored.(time.Time); until.After(f.Now()) {
		return unknown(until.Sub(f.Now()))
	}
	remote, err := f.Clusters.GetClient(ctx, key)
	if err != nil {
		// The first try has not ended yet. It brings another pass in any case.
		out.Keep = f.Clusters.GetHealthCheckingState(ctx, key).LastProbeTime.IsZero()
		return unknown(0)
	}
	decision, err := f.turn(ctx, p, key, remote, View{
		Wants: wants, Members: members, MaxUnavailable: p.Options.MaxUnavailable, ControlPlaneRolls: rolls,
		Restores: !p.View.Enabled,
	})
	if err != nil {
		if ctx.Err() != nil {
			return out, err
		}
		ctrl.LoggerFrom(ctx).Error(err, "Following an update in place", "workloadCluster", key)
		f.away.Set(p.Cluster.UID, f.Now().Add(awayTime), awayTime)
		return unknown(awayTime)
	}
	out.Find(decision.Findings...)
	out.RequeueIn(decision.Again)
	if p.View.Enabled {
		return out, record(ctx, p, decision.Current, updates)
	}
	if err := recordRemoval(ctx, p, decision.Current); err != nil || !decision.Restored {
		return out, err
	}
	out.Add(contract.ReasonInPlaceProgressing, "%s", RestoredMessage)
	return out, p.Writer.Annotate(ctx, p.Cluster.DeepCopy(), //nolint:wrapcheck // it says what it wrote
		map[string]string{contract.AnnotationApplied: contract.RestoredValue})
}

// RestoredMessage is that of the condition between the last node that is restored and the last object that is deleted.
const RestoredMessage = "all nodes are restored; condition " + contract.ConditionProxyPublished +
	" says what is left in the workload cluster"

// turn decides about the nodes of a workload cluster, and labels those whose turn it is.
func (f *Follower) turn(ctx context.Context, p *controller.Pass, key client.ObjectKey, remote client.Reader,
	view View,
) (Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, remoteTime)
	defer cancel()
	if err := f.look(ctx, key, remote, &view); err != nil {
		return Decision{}, err
	}
	decision := Decide(view)
	if len(decision.Labels) == 0 {
		refused, again := f.refused(ctx, key, view, decision.Lacking)
		if len(refused) > 0 {
			view.Refused = refused
			decision = Decide(view)
		}
		decision.lookAgain(again)
		return decision, nil
	}
	live, closeConnection, err := f.Connect(ctx, key)
	if err != nil {
		return Decision{}, err
	}
	defer closeConnection()
	labeller := labeller{Client: p.Writer.Client.Remote(live, key), view: view}
	decision, err = labeller.label(ctx)
	stored, _ := f.waits.Get(key)
	delay, _ := stored.(time.Duration)
	if f.waits.Delete(key); labeller.waits { // no event says when it is delivered
		delay = min(max(2*delay, minWait), retryDelay)
		f.waits.Set(key, delay, nodeMemory)
		decision.lookAgain(delay)
	}
	return decision, err
}

// look reads the Nodes and Pods of a workload cluster, from its second pass on without a request.
func (f *Follower) look(ctx context.Context, cluster client.ObjectKey, remote client.Reader, view *View) error {
	for _, watch := range f.watches(cluster) {
		if err := f.Clusters.Watch(ctx, cluster, watch); err != nil {
			return fmt.Errorf("watching workload cluster: %w", err)
		}
	}
	var list corev1.NodeList
	if err := remote.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	var pods corev1.PodList
	if err := remote.List(ctx, &pods, client.InNamespace(contract.NodesNamespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing Pods: %w", err)
	}
	view.Now, view.Nodes = f.Now(), make(map[string]Node, len(list.Items))
	for i := range list.Items {
		view.Nodes[list.Items[i].Name] = NodeOf(&list.Items[i])
	}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp.IsZero() {
			view.Pods = append(view.Pods, PodOf(&pods.Items[i]))
		}
	}
	return nil
}

// watches are those by which a change in a workload cluster brings a pass over its Cluster.
func (f *Follower) watches(cluster client.ObjectKey) []clustercache.Watcher {
	enqueue := handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: cluster}}
	})
	watch := func(name string, kind client.Object, changes func(before, now client.Object) bool) clustercache.Watcher {
		return clustercache.NewWatcher(clustercache.WatcherOptions{
			Name: name, Watcher: f.watcher, Kind: kind, EventHandler: enqueue,
			Predicates: []predicate.TypedPredicate[client.Object]{predicate.Funcs{
				UpdateFunc: func(e event.UpdateEvent) bool { return changes(e.ObjectOld, e.ObjectNew) },
			}},
		})
	}
	return []clustercache.Watcher{
		watch("inplace-nodes", &corev1.Node{}, func(before, now client.Object) bool {
			was, isNode := before.(*corev1.Node)
			is, areNodes := now.(*corev1.Node)
			return !isNode || !areNodes || NodeOf(was) != NodeOf(is)
		}),
		watch("inplace-pods", &corev1.Pod{}, func(before, now client.Object) bool {
			was, isPod := before.(*corev1.Pod)
			is, arePods := now.(*corev1.Pod)
			return !isPod || !arePods || PodOf(was) != PodOf(is) ||
				was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero()
		}),
	}
}
