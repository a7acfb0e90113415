package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// labeller labels the Nodes of a workload cluster in their turn. It reads from its API server.
type labeller struct {
	client.Client

	view View
	// nodes are the Nodes as they were read, by name.
	nodes map[string]*metav1.PartialObjectMetadata
	// waits reports that the turn of a node has come for a version that is not delivered yet.
	waits bool
}

// label decides by the present labels, and writes those that change. Labels that go are written first: whoever keeps
// one may still change. Each write is to the version that was decided about.
func (l *labeller) label(ctx context.Context) (Decision, error) {
	if err := l.read(ctx); err != nil {
		return Decision{}, err
	}
	decision, err := l.decide(ctx)
	if err != nil {
		return Decision{}, err
	}
	names := slices.Sorted(maps.Keys(decision.Labels))
	slices.SortStableFunc(names, func(a, b string) int {
		return min(len(decision.Labels[a]), 1) - min(len(decision.Labels[b]), 1)
	})
	if len(names) > maxLabels {
		names = names[:maxLabels]
		decision.lookAgain(labelDelay)
	}
	for _, name := range names {
		switch err := Label(ctx, l, l.nodes[name], decision.Labels[name]); {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			decision.lookAgain(labelDelay)
			return decision, nil
		case err != nil:
			return Decision{}, err
		}
	}
	return decision, nil
}

// decide decides. A node keeps its version until the next one is delivered: its Pod would end, and no other begin.
func (l *labeller) decide(ctx context.Context) (Decision, error) {
	decision := Decide(l.view)
	granted := slices.Collect(maps.Values(decision.Labels))
	wants := slices.Clone(l.view.Wants)
	for i, want := range wants {
		if want.Version == "" || !slices.Contains(granted, want.Version) {
			continue
		}
		delivered, err := l.isDelivered(ctx, want.Version)
		if err != nil {
			return Decision{}, err
		}
		if !delivered {
			wants[i].Version, l.waits = "", true
		}
	}
	if !l.waits {
		return decision, nil
	}
	l.view.Wants = wants
	return Decide(l.view), nil
}

// read reads the labels of all Nodes.
func (l *labeller) read(ctx context.Context) error {
	all, err := metadata(ctx, l, ofCore("Node"))
	if err != nil {
		return err
	}
	cached := l.view.Nodes
	l.view.Nodes, l.nodes = map[string]Node{}, map[string]*metav1.PartialObjectMetadata{}
	for i := range all {
		node, known := cached[all[i].Name]
		if !known {
			node.NotReady = l.view.Now // whether it is ready is not known yet
		}
		node.Version = all[i].Labels[contract.LabelNodeFiles]
		l.view.Nodes[all[i].Name], l.nodes[all[i].Name] = node, &all[i]
	}
	return nil
}

// isDelivered reports whether the objects of a version have been applied. The DaemonSet is the last of them.
func (l *labeller) isDelivered(ctx context.Context, version string) (bool, error) {
	set := &metav1.PartialObjectMetadata{}
	set.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
	err := l.Get(ctx, client.ObjectKey{Namespace: contract.NodesNamespace, Name: version}, set)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading DaemonSet %s: %w", version, err)
	}
	return err == nil && set.DeletionTimestamp.IsZero() && set.Labels[contract.LabelNodeFiles] == version, nil
}

// Label sets contract.LabelNodeFiles of a Node, if it still has the version that was read; "" removes it.
func Label(ctx context.Context, remote client.Writer, node *metav1.PartialObjectMetadata, value string) error {
	labels := map[string]any{contract.LabelNodeFiles: value}
	if value == "" {
		labels[contract.LabelNodeFiles] = nil
	}
	metadata := map[string]any{"labels": labels}
	if node.ResourceVersion != "" {
		metadata["resourceVersion"] = node.ResourceVersion
	}
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encoding label of Node: %w", err)
	}
	if err := remote.Patch(ctx, node, client.RawPatch(types.MergePatchType, data),
		client.FieldOwner(contract.Name)); err != nil {
		return fmt.Errorf("labelling Node %s: %w", node.Name, err)
	}
	return nil
}
