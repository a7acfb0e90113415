package publisher

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
)

// nodes returns the objects that bring files to running nodes, for each generated Secret of the Cluster. Those that are
// applied stay as long as it is not known what the Cluster asks for, or its files.
func (p *pass) nodes(ctx context.Context) ([]publish.Secret, error) {
	if !p.view.Enabled {
		return p.restoring()
	}
	options, err := p.options()
	switch found := finding.Of(err); {
	case len(found) > 0:
		kept := p.keptNodes()
		if len(kept) > 0 {
			p.out.Find(found...)
		}
		return kept, nil
	case err != nil:
		return nil, err
	case options.Rollout != contract.RolloutInPlace:
		return nil, nil
	case p.NodePods.Image == "":
		p.out.Add(contract.ReasonInPlaceNotInstalled, "annotation %s is %s, and the manager runs without "+
			"--node-image; add it, or remove the annotation", contract.AnnotationRollout, contract.RolloutInPlace)
		return p.keptNodes(), nil
	}
	var generated corev1.SecretList
	if err := p.Client.List(ctx, &generated, client.InNamespace(p.cluster.Namespace),
		client.MatchingFields{world.IndexLabel: p.cluster.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing generated Secrets: %w", err)
	}
	slices.SortFunc(generated.Items, func(a, b corev1.Secret) int { return strings.Compare(a.Name, b.Name) })
	var wanted []publish.Secret
	for i := range generated.Items {
		if world.IsOutput(&generated.Items[i]) {
			continue
		}
		secret, found, err := publish.OfNodes(p.NodePods.Input(p.cluster.Name, options, &generated.Items[i]))
		if err != nil {
			return nil, err
		}
		p.out.Find(found...)
		wanted = append(wanted, secret)
	}
	if len(wanted) == 0 { // the generated Secrets of a Cluster that is enabled again are written in a moment
		return p.keptNodes(), nil
	}
	return wanted, nil
}

// restoring returns the objects that restore running nodes, until all are restored. Without an image there can be none,
// and the files stay.
func (p *pass) restoring() ([]publish.Secret, error) {
	if !settings.Restores(p.cluster.Labels, p.cluster.Annotations) || p.NodePods.Image == "" ||
		p.cluster.Annotations[contract.AnnotationApplied] == contract.RestoredValue {
		return nil, nil
	}
	in, err := p.NodePods.Restore(p.cluster.Name)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what failed
	}
	secret, found, err := publish.OfNodes(in)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what failed
	}
	p.out.Find(found...)
	p.out.Add(contract.ReasonWithdrawing, "running nodes are restored first; condition %s says how far they are",
		contract.ConditionProxyConfigured)
	return []publish.Secret{secret}, nil
}

// asksForNodes reports whether files of a Cluster are to be on running nodes, or may be in its workload cluster.
func asksForNodes(cluster client.Object) bool {
	annotations := cluster.GetAnnotations()
	return annotations[contract.AnnotationRollout] == contract.RolloutInPlace ||
		annotations[contract.AnnotationApplied] != ""
}

// ofFiles finds the Cluster whose running nodes get the content of a generated Secret.
func (c *Controller) ofFiles(ctx context.Context, secret client.Object) []reconcile.Request {
	return slices.DeleteFunc(world.ClusterOfGeneratedSecret(ctx, secret), func(request reconcile.Request) bool {
		cluster := &clusterv1.Cluster{}
		return c.Client.Get(ctx, request.NamespacedName, cluster) != nil || !asksForNodes(cluster)
	})
}

// keptNodes are the objects for nodes that may be in the workload cluster, to be left as they are.
func (p *pass) keptNodes() []publish.Secret {
	if p.cluster.Annotations[contract.AnnotationApplied] == "" {
		return nil
	}
	return []publish.Secret{publish.KeptNodes()}
}

// apply has the workload cluster brought to what is wanted there, and reports whether anything may be left in it. An
// annotation of the Cluster says so before the first object is applied, and until the last one is deleted.
func (p *pass) apply(ctx context.Context, wanted []publish.Secret) (left bool, err error) {
	begins := slices.ContainsFunc(wanted, func(s publish.Secret) bool { return !s.Kept })
	if !begins && p.cluster.Annotations[contract.AnnotationApplied] == "" {
		return false, nil
	}
	if begins {
		if err := p.markApplied(ctx, true); err != nil {
			return true, err
		}
	}
	out, left, err := p.Applier.Apply(ctx, p.cluster, p.guarded, wanted)
	p.out.Join(out)
	if err != nil || left {
		return true, err //nolint:wrapcheck // it says what failed
	}
	return len(wanted) > 0, p.markApplied(ctx, len(wanted) > 0)
}

// markApplied writes or removes the annotation that says whether objects of the product may be in the workload cluster.
func (p *pass) markApplied(ctx context.Context, there bool) error {
	return p.change(ctx, "annotation "+contract.AnnotationApplied, func(cluster *clusterv1.Cluster) {
		if delete(cluster.Annotations, contract.AnnotationApplied); !there {
			return
		}
		if cluster.Annotations == nil {
			cluster.Annotations = map[string]string{}
		}
		cluster.Annotations[contract.AnnotationApplied] = contract.AppliedValue
	})
}
