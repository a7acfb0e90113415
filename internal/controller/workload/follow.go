package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/reconcile"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/nodes"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/status"
)

// Follower follows the updates in place of all Clusters. Its methods can be called concurrently.
type Follower struct {
	// Clusters connects to the workload clusters of Clusters that ask for updates in place, and to no other.
	Clusters clustercache.ClusterCache
	// Live reads from the API server of the management cluster.
	Live client.Reader
	// Writer writes the records of Machines.
	Writer *reconcile.Writer
	// Now is the clock.
	Now func() time.Time
	// Controller is the one whose pass calls Follow. Events of workload clusters enqueue their Clusters there.
	Controller clustercache.SourceWatcher[ctrl.Request]

	// nodes are the names of the Nodes of Machines, which stay the same, by the UID of the Machine.
	nodes *cache.Expiring
	// away are the Clusters whose workload cluster has not answered, and until when it is not asked again.
	away *cache.Expiring
}

// NewFollower returns a Follower.
func NewFollower(clusters clustercache.ClusterCache, live client.Reader, writer *reconcile.Writer, now func() time.Time,
) *Follower {
	return &Follower{
		Clusters: clusters, Live: live, Writer: writer, Now: now, nodes: cache.NewExpiring(), away: cache.NewExpiring(),
	}
}

const (
	// nodeMemory is for how long the Node of a Machine is remembered.
	nodeMemory = 24 * time.Hour
	// remoteTime is how long one pass waits for a workload cluster, and awayTime for how long it is left alone after one
	// that has waited in vain. Whoever has the workload cluster decides how it answers.
	remoteTime = 3 * time.Second
	awayTime   = 30 * time.Second
	// maxLabels is how many Nodes one pass labels.
	maxLabels = 25
)

// Pass is one pass over a Cluster.
type Pass struct {
	Cluster *kinds.Cluster
	Configs *reconcile.Configs
	Secrets *reconcile.Secrets
	Options intent.Options
	// Objects are the bootstrap objects.
	Objects []reconcile.Settled
	// Behind are the Machines that are behind.
	Behind []status.Group
}

// Source brings a pass over a Cluster when its workload cluster is connected, is no longer, or cannot be.
func Source(clusters clustercache.ClusterCache, controller string) source.Source {
	return clusters.GetClusterSource(controller, func(_ context.Context, cluster client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(cluster)}}
	}, clustercache.WatchForProbeFailure(time.Minute))
}

// Follow labels Nodes, records which Machines have the present files, and reports about the others.
func (f *Follower) Follow(ctx context.Context, p Pass) (out report.Outcome, err error) {
	members, err := f.members(ctx, p)
	if err != nil || !slices.ContainsFunc(members, func(m Member) bool { return m.Node != "" }) {
		return out, err
	}
	wants, changed, err := wantsOf(ctx, p, members)
	if err != nil {
		return out, err
	}
	key := client.ObjectKeyFromObject(p.Cluster)
	unknown := func(again time.Duration) (report.Outcome, error) {
		out.Add(contract.ReasonInPlaceUnknown, "cannot tell which nodes have the current files: the workload cluster "+
			"does not answer with the kubeconfig of Secret %s-kubeconfig; the log of the manager has the details", key)
		out.LookAgain(again)
		return out, nil
	}
	stored, _ := f.away.Get(p.Cluster.UID)
	if until, _ := stored.(time.Time); until.After(f.Now()) {
		return unknown(until.Sub(f.Now()))
	}
	remote, err := f.Clusters.GetClient(ctx, key)
	if err != nil {
		// The first try has not ended yet. It brings another pass in any case.
		out.Holds = f.Clusters.GetHealthCheckingState(ctx, key).LastProbeTime.IsZero()
		return unknown(0)
	}
	remoteCtx, cancel := context.WithTimeout(ctx, remoteTime)
	defer cancel()
	decision, err := f.decide(remoteCtx, key, remote, wants, members)
	if err == nil {
		err = label(remoteCtx, f.Writer.Client.Remote(remote, key), &decision)
	}
	if err != nil {
		if ctx.Err() != nil {
			return out, err
		}
		ctrl.LoggerFrom(ctx).Error(err, "Following an update in place", "workloadCluster", key)
		f.away.Set(p.Cluster.UID, f.Now().Add(awayTime), awayTime)
		return unknown(awayTime)
	}
	out.Find(decision.Findings...)
	out.LookAgain(decision.Again)
	return out, f.record(ctx, p, decision.Current, changed)
}

// members returns the nodes whose bootstrap data refers to a generated Secret.
func (f *Follower) members(ctx context.Context, p Pass) (members []Member, err error) {
	configs, err := p.Configs.List(ctx)
	if err != nil {
		return nil, err
	}
	machines := map[types.UID]int{} // the positions of those whose node is not known
	for i := range configs {
		config := &configs[i]
		owner := metav1.GetControllerOf(config)
		secret := SecretOf(config.Bootstrap().View())
		if owner == nil || owner.Kind != "Machine" || secret == "" {
			continue
		}
		stored, known := f.nodes.Get(owner.UID)
		node, _ := stored.(string)
		if !known && config.Status.DataSecretName != "" {
			machines[owner.UID] = len(members)
		}
		members = append(members, Member{
			Node: node, Secret: secret, Config: config.Name, Machine: owner.Name,
			Leaving: !config.DeletionTimestamp.IsZero(),
		})
	}
	if len(machines) > 0 {
		if err := f.find(ctx, p.Cluster, machines, members); err != nil {
			return nil, err
		}
	}
	pools, err := f.pools(ctx, p)
	return append(members, pools...), err
}

// SecretOf returns the generated Secret from which a node with a spec has its variables, or "".
func SecretOf(spec patch.Spec) string {
	for _, file := range spec.Files {
		if path.Clean(file.Path) == contract.PathProxyEnv && patch.IsManagedFile(file) {
			return file.ContentFrom.Name
		}
	}
	return ""
}

// find finds the Nodes of Machines. A Machine that has none yet changes when it gets one.
func (f *Follower) find(ctx context.Context, cluster *kinds.Cluster, positions map[types.UID]int,
	members []Member,
) error {
	var machines kinds.MachineList
	if err := f.Live.List(ctx, &machines, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}); err != nil {
		return fmt.Errorf("listing Machines: %w", err)
	}
	for i := range machines.Items {
		machine := &machines.Items[i]
		position, asked := positions[machine.UID]
		if node := machine.Status.NodeRef.Name; asked && node != "" {
			members[position].Node = node
			f.nodes.Set(machine.UID, node, nodeMemory)
		}
	}
	return nil
}

// pools returns the nodes of MachinePools.
func (f *Follower) pools(ctx context.Context, p Pass) (members []Member, err error) {
	secrets := map[string]string{}
	for _, o := range p.Objects {
		if secret := SecretOf(o.Spec); o.Kind == plan.KindConfig && secret != "" {
			for _, pool := range o.Pools {
				secrets[pool.Object] = secret
			}
		}
	}
	if len(secrets) == 0 {
		return nil, nil
	}
	var pools kinds.MachinePoolList
	if err := f.Live.List(ctx, &pools, client.InNamespace(p.Cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("listing MachinePools: %w", err)
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		secret := secrets[pool.Name]
		if secret == "" || pool.Spec.ClusterName != p.Cluster.Name {
			continue
		}
		if len(pool.Status.NodeRefs) == 0 {
			members = append(members, Member{Secret: secret})
		}
		for _, node := range pool.Status.NodeRefs {
			members = append(members, Member{Node: node.Name, Secret: secret, Leaving: !pool.DeletionTimestamp.IsZero()})
		}
	}
	return members, nil
}

// wantsOf returns what the nodes of each generated Secret should have, and when it last changed.
func wantsOf(ctx context.Context, p Pass, members []Member) (wants []Want, changed map[string]time.Time, err error) {
	changed = map[string]time.Time{}
	for _, m := range members {
		if slices.ContainsFunc(wants, func(w Want) bool { return w.Secret == m.Secret }) {
			continue
		}
		secret := &corev1.Secret{}
		exists, err := p.Secrets.Get(ctx, p.Cluster.Namespace, m.Secret, secret)
		if err != nil {
			return nil, nil, err
		}
		want := Want{Secret: m.Secret}
		if exists && nodes.IsComplete(secret.Data) && secret.Labels[contract.LabelGenerated] == p.Cluster.Name {
			// Digest and time are of the same version of the Secret.
			if data, err := plan.NodeData(p.Options, secret.Data); err == nil { // otherwise nothing of it is applied
				want.Digest = nodes.Digest(nodes.KeyOf(secret.UID), data)
				changed[m.Secret] = reconcile.ChangedAt(secret)
			}
		}
		wants = append(wants, want)
	}
	return wants, changed, nil
}

// decide reads a workload cluster, from its second pass on without a request, and decides.
func (f *Follower) decide(ctx context.Context, cluster client.ObjectKey, remote client.Reader, wants []Want,
	members []Member,
) (Decision, error) {
	for _, watch := range f.watches(cluster) {
		if err := f.Clusters.Watch(ctx, cluster, watch); err != nil {
			return Decision{}, fmt.Errorf("watching workload cluster: %w", err)
		}
	}
	var labelled metav1.PartialObjectMetadataList
	labelled.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := remote.List(ctx, &labelled, client.UnsafeDisableDeepCopy); err != nil {
		return Decision{}, fmt.Errorf("listing Nodes: %w", err)
	}
	var list corev1.PodList
	if err := remote.List(ctx, &list, client.InNamespace(contract.NodesNamespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return Decision{}, fmt.Errorf("listing Pods: %w", err)
	}
	labels := make(map[string]string, len(labelled.Items))
	for i := range labelled.Items {
		labels[labelled.Items[i].Name] = labelled.Items[i].Labels[contract.LabelNodeFiles]
	}
	pods := make([]Pod, 0, len(list.Items))
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp.IsZero() {
			pods = append(pods, PodOf(&list.Items[i]))
		}
	}
	return Decide(wants, members, labels, pods, f.Now()), nil
}

// watches are those by which a change in a workload cluster brings a pass over its Cluster.
func (f *Follower) watches(cluster client.ObjectKey) []clustercache.Watcher {
	enqueue := handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: cluster}}
	})
	watch := func(name string, kind client.Object, changes func(before, now client.Object) bool) clustercache.Watcher {
		return clustercache.NewWatcher(clustercache.WatcherOptions{
			Name: name, Watcher: f.Controller, Kind: kind, EventHandler: enqueue,
			Predicates: []predicate.TypedPredicate[client.Object]{predicate.Funcs{
				UpdateFunc: func(e event.UpdateEvent) bool { return changes(e.ObjectOld, e.ObjectNew) },
			}},
		})
	}
	return []clustercache.Watcher{
		watch("inplace-nodes", NodeMetadata(), func(before, now client.Object) bool {
			return before.GetLabels()[contract.LabelNodeFiles] != now.GetLabels()[contract.LabelNodeFiles]
		}),
		watch("inplace-pods", &corev1.Pod{}, func(before, now client.Object) bool {
			was, isPod := before.(*corev1.Pod)
			is, arePods := now.(*corev1.Pod)
			return !isPod || !arePods || PodOf(was) != PodOf(is) ||
				was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero()
		}),
	}
}

// NodeMetadata is the form in which Nodes are read.
func NodeMetadata() *metav1.PartialObjectMetadata {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return node
}

// label writes the labels of Nodes.
func label(ctx context.Context, remote client.Writer, d *Decision) error {
	names := slices.Sorted(maps.Keys(d.Labels))
	if len(names) > maxLabels {
		names, d.Again = names[:maxLabels], time.Second
	}
	for _, name := range names {
		node := NodeMetadata()
		node.Name = name
		if err := client.IgnoreNotFound(Label(ctx, remote, node, d.Labels[name])); err != nil {
			return err
		}
	}
	return nil
}

// Label sets contract.LabelNodeFiles of a Node; "" removes it.
func Label(ctx context.Context, remote client.Writer, node *metav1.PartialObjectMetadata, value string) error {
	labels := map[string]any{contract.LabelNodeFiles: value}
	if value == "" {
		labels[contract.LabelNodeFiles] = nil
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return fmt.Errorf("encoding label of Node: %w", err)
	}
	if err := remote.Patch(ctx, node, client.RawPatch(types.MergePatchType, data),
		client.FieldOwner(contract.Name)); err != nil {
		return fmt.Errorf("labelling Node %s: %w", node.Name, err)
	}
	return nil
}

// record writes contract.AnnotationUpdatedAt for Machines that are behind, and whose nodes have the present files.
func (f *Follower) record(ctx context.Context, p Pass, current []Member, changed map[string]time.Time) error {
	behind := map[string]bool{}
	for _, group := range p.Behind {
		for _, machine := range group.Machines {
			behind[machine.Name] = machine.Lag == plan.OldContent
		}
	}
	configs, err := p.Configs.List(ctx)
	if err != nil {
		return err
	}
	for _, m := range current {
		at := changed[m.Secret]
		if !behind[m.Machine] || at.IsZero() {
			continue
		}
		i := slices.IndexFunc(configs, func(c kinds.KubeadmConfig) bool { return c.Name == m.Config })
		if err := f.Writer.Annotate(ctx, configs[i].DeepCopy(), map[string]string{
			contract.AnnotationUpdatedAt: at.UTC().Format(time.RFC3339),
		}); err != nil {
			return err //nolint:wrapcheck // it says what it wrote
		}
	}
	return nil
}
