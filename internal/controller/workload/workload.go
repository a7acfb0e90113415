// Package workload connects the manager to workload clusters, by Cluster API's own cache of connections. There it
// follows updates in place (contract.RolloutInPlace): it labels the Nodes that get files, records which Machines have
// got them, and reports how far that is; a function of values decides (Decide). Cluster API applies the objects and
// deletes none, so the Cleaner deletes them. Only Clusters that ask for updates in place are connected to, and those
// that may have something left of them.
package workload

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/nodes"
)

// Clients has a client for each workload cluster, as Cluster API's clustercache does.
type Clients interface {
	// GetUncachedClient returns a client that caches nothing. Its error says that there is no connection.
	GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error)
}

// Cleaner deletes what is ours and not wanted any more.
type Cleaner struct{ Clients Clients }

// Clean deletes the objects of generated Secrets that are not in keep, and takes the label from their Nodes. keep maps
// the label value of a generated Secret to the digest of its files: Secrets with other files are deleted as far as no
// Pod uses them. With the digest "" nothing of the generated Secret is touched. If keep is empty, the Namespace is
// deleted, too. Objects without our labels stay, unless the Namespace goes.
//
// It reports whether anything was found that has to go: then it has to be called again. An error is one of the
// connection to the workload cluster or of its API server.
func (c Cleaner) Clean(ctx context.Context, cluster client.ObjectKey, keep map[string]string) (left bool, err error) {
	remote, err := c.Clients.GetUncachedClient(ctx, cluster)
	if err != nil {
		return false, fmt.Errorf("connecting to the workload cluster of Cluster %s: %w", cluster, err)
	}
	w := cleaning{Client: remote, cluster: cluster.Name, keep: keep}
	for _, step := range []func(context.Context) error{w.daemonSets, w.secrets, w.nodes, w.namespace} {
		if err := step(ctx); err != nil {
			return false, fmt.Errorf("cleaning the workload cluster of Cluster %s: %w", cluster, err)
		}
	}
	return w.left, nil
}

// cleaning is one call of Clean.
type cleaning struct {
	client.Client

	cluster string
	keep    map[string]string
	left    bool
}

// list lists the metadata of objects of a kind.
func (w *cleaning) list(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) (
	[]metav1.PartialObjectMetadata, error,
) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	if err := w.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing %ss: %w", kind.Kind, err)
	}
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(kind)
	}
	return list.Items, nil
}

// ours selects our objects in the namespace.
func (w *cleaning) ours() []client.ListOption {
	return []client.ListOption{client.InNamespace(contract.NodesNamespace), client.MatchingLabels(nodes.Marks(w.cluster))}
}

// isKept reports whether the generated Secret of an object is in keep.
func (w *cleaning) isKept(object client.Object) bool {
	_, kept := w.keep[object.GetLabels()[contract.LabelNodeFiles]]
	return kept
}

// remove deletes an object, if that has not begun.
func (w *cleaning) remove(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	w.left = true
	if !object.DeletionTimestamp.IsZero() {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Deleting object of the workload cluster", object.Kind, klog.KObj(object))
	err := w.Delete(ctx, object, client.Preconditions{UID: &object.UID},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s: %w", object.Kind, klog.KObj(object), err)
	}
	return nil
}

func (w *cleaning) daemonSets(ctx context.Context) error {
	sets, err := w.list(ctx, appsv1.SchemeGroupVersion.WithKind("DaemonSet"), w.ours()...)
	if err != nil {
		return err
	}
	for i := range sets {
		if w.isKept(&sets[i]) {
			continue
		}
		if err := w.remove(ctx, &sets[i]); err != nil {
			return err
		}
	}
	return nil
}

// secrets deletes the Secrets that no Pod uses, and waits for the Pods that are on their way out.
func (w *cleaning) secrets(ctx context.Context) error {
	pods, err := w.list(ctx, corev1.SchemeGroupVersion.WithKind("Pod"), w.ours()...)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for i := range pods {
		labels := pods[i].Labels
		used[nodes.SecretName(labels[contract.LabelNodeFiles], labels[contract.LabelFilesDigest])] = true
		w.left = w.left || !w.isKept(&pods[i])
	}
	secrets, err := w.list(ctx, corev1.SchemeGroupVersion.WithKind("Secret"), w.ours()...)
	if err != nil {
		return err
	}
	for i := range secrets {
		secret := &secrets[i]
		if digest, kept := w.keep[secret.Labels[contract.LabelNodeFiles]]; kept &&
			(digest == "" || digest == secret.Labels[contract.LabelFilesDigest]) {
			continue
		}
		if used[secret.Name] {
			w.left = true
			continue
		}
		if err := w.remove(ctx, secret); err != nil {
			return err
		}
	}
	return nil
}

// nodes takes the label from the Nodes of generated Secrets that are not kept.
func (w *cleaning) nodes(ctx context.Context) error {
	labelled, err := w.list(ctx, corev1.SchemeGroupVersion.WithKind("Node"), client.HasLabels{contract.LabelNodeFiles})
	if err != nil {
		return err
	}
	for i := range labelled {
		node := &labelled[i]
		if w.isKept(node) {
			continue
		}
		w.left = true
		before := node.DeepCopy()
		delete(node.Labels, contract.LabelNodeFiles)
		if err := w.Patch(ctx, node, client.MergeFrom(before),
			client.FieldOwner(contract.Name)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("taking label %s from Node %s: %w", contract.LabelNodeFiles, node.Name, err)
		}
	}
	return nil
}

// namespace deletes the Namespace if nothing is kept. The objects in it go with it.
func (w *cleaning) namespace(ctx context.Context) error {
	if len(w.keep) > 0 {
		return nil
	}
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := w.Get(ctx, client.ObjectKey{Name: contract.NodesNamespace}, namespace)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Namespace %s: %w", contract.NodesNamespace, err)
	}
	for label, value := range nodes.Marks(w.cluster) {
		if namespace.Labels[label] != value {
			return nil // another's
		}
	}
	return w.remove(ctx, namespace)
}
