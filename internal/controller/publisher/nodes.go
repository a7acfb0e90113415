package publisher

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/owners"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/nodes"
)

// Workload deletes what contract.RolloutInPlace has in workload clusters; see workload.Cleaner.
type Workload interface {
	Clean(ctx context.Context, cluster client.ObjectKey, keep map[string]string) (left bool, err error)
}

// When a workload cluster is looked at again, because nothing of it is watched here.
const (
	// withdrawDelay is how soon while something is withdrawn.
	withdrawDelay = 2 * time.Second
	// cleanDelay is how soon while nodes use earlier versions of files, or if the workload cluster cannot be reached.
	cleanDelay = time.Minute
	// cleanPeriod is how soon if there was nothing to delete.
	cleanPeriod = time.Hour
)

// workloadTime is how long one pass waits for a workload cluster. Whoever has it decides how it answers.
const workloadTime = 5 * time.Second

// installed reports whether files can be brought to nodes, and taken back.
func (c *Controller) installed() bool { return c.Deliver && c.NodeImage != "" && c.Workload != nil }

// isNodes reports whether a Secret delivers files to nodes, and which generated Secret it delivers.
func isNodes(secret *corev1.Secret) (generated string, ok bool) {
	o, known := publish.Delivered(secret.Annotations)
	return o.Argument, known && o.Name == publish.Nodes
}

// nodes returns the Secrets that bring files to running nodes, one for each generated Secret of the Cluster. What is
// out stays as long as it is not known what the Cluster asks for, or its files.
func (p *pass) nodes(ctx context.Context) ([]publish.Secret, error) {
	if !p.view.Enabled {
		return nil, nil
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
	case !p.installed():
		p.out.Add(contract.ReasonInPlaceNotInstalled, "annotation %s asks for %s, and the manager runs without "+
			"--node-image; add it, or remove the annotation", contract.AnnotationRollout, contract.RolloutInPlace)
		return p.keptNodes(), nil
	}
	var generated corev1.SecretList
	if err := p.Client.List(ctx, &generated, client.InNamespace(p.cluster.Namespace),
		client.MatchingFields{lookup.IndexLabel: p.cluster.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing generated Secrets: %w", err)
	}
	slices.SortFunc(generated.Items, func(a, b corev1.Secret) int { return strings.Compare(a.Name, b.Name) })
	var wanted []publish.Secret
	for i := range generated.Items {
		secret, found, err := publish.OfNodes(nodes.Input{
			Cluster: p.cluster.Name, Secret: generated.Items[i].Name, Data: generated.Items[i].Data,
			Key: p.keyOf(generated.Items[i].Name), Image: p.NodeImage, MaxUnavailable: options.MaxUnavailable,
		})
		if err != nil {
			return nil, err
		}
		p.out.Find(found...)
		wanted = append(wanted, secret)
	}
	return wanted, nil
}

// asksForNodes reports whether files of a Cluster are to be, or may be, on running nodes by us.
func asksForNodes(cluster client.Object) bool {
	annotations := cluster.GetAnnotations()
	return annotations[contract.AnnotationRollout] == contract.RolloutInPlace ||
		annotations[contract.AnnotationInPlace] != ""
}

// ofFiles finds the Cluster whose running nodes get the content of a generated Secret.
func (c *Controller) ofFiles(ctx context.Context, secret client.Object) []reconcile.Request {
	return slices.DeleteFunc(owners.OfGeneratedSecret(ctx, secret), func(request reconcile.Request) bool {
		cluster := &kinds.Cluster{}
		return c.Client.Get(ctx, request.NamespacedName, cluster) != nil || !asksForNodes(cluster)
	})
}

// keptNodes are the Secrets that exist, to be left as they are.
func (p *pass) keptNodes() (kept []publish.Secret) {
	for _, name := range slices.Sorted(maps.Keys(p.existing)) {
		if generated, ok := isNodes(p.existing[name]); ok {
			kept = append(kept, publish.KeptNodes(p.cluster.Name, generated))
		}
	}
	return kept
}

// keyOf returns the key of the digest of a generated Secret's files: the one that it has, or a new one.
func (p *pass) keyOf(generated string) []byte {
	if secret := p.existing[publish.KeptNodes(p.cluster.Name, generated).Name]; secret != nil {
		if key, usable := nodes.KeyOf(secret.Annotations); usable {
			return key
		}
	}
	key := make([]byte, nodes.KeyBytes)
	_, _ = rand.Read(key) // it never fails
	return key
}

// markInPlace writes or removes the annotation that says whether anything may be in the workload cluster.
func (p *pass) markInPlace(ctx context.Context, there bool) error {
	return p.change(ctx, "annotation "+contract.AnnotationInPlace, func(cluster *kinds.Cluster) {
		if delete(cluster.Annotations, contract.AnnotationInPlace); !there {
			return
		}
		if cluster.Annotations == nil {
			cluster.Annotations = map[string]string{}
		}
		cluster.Annotations[contract.AnnotationInPlace] = contract.InPlaceValue
	})
}

// clean deletes in the workload cluster what withdrawn Secrets have brought to it, and versions of files that no node
// uses any more. It reports whether the withdrawn Secrets can go, and with the last of them the annotation of the
// Cluster.
func (p *pass) clean(ctx context.Context, set *addonsv1.ClusterResourceSet, withdrawn []*corev1.Secret) (bool, error) {
	keep, settled, err := p.keep(ctx, set, withdrawn)
	if err != nil || p.cluster.Annotations[contract.AnnotationInPlace] == "" {
		return err == nil, err
	}
	withdraws := len(withdrawn) > 0 || len(keep) == 0 // the Secret itself may have been deleted by others
	if !p.installed() {
		if withdraws {
			p.out.Add(contract.ReasonInPlaceNotInstalled, "Namespace %s of the workload cluster is to be deleted, and the "+
				"manager runs without --node-image; add it until that is done", contract.NodesNamespace)
		}
		return false, nil
	}
	state := fmt.Sprint(keep)
	if done, _ := p.cleaned.Get(p.cluster.UID); !withdraws && (!settled || done == state) {
		return false, nil
	}
	remoteCtx, cancel := context.WithTimeout(ctx, workloadTime)
	defer cancel()
	switch left, err := p.Workload.Clean(remoteCtx, client.ObjectKeyFromObject(p.cluster), keep); {
	case err != nil:
		ctrl.LoggerFrom(ctx).Info("Waiting for the workload cluster", "Cluster", klog.KObj(p.cluster), "cause", err.Error())
		if withdraws {
			p.out.Add(contract.ReasonWithdrawing, "the workload cluster cannot be reached, so what %s has brought to it is not "+
				"deleted yet", contract.RolloutInPlace)
		}
		p.out.LookAgain(cleanDelay)
		return false, nil
	case left && withdraws:
		p.out.Add(contract.ReasonWithdrawing, "what %s has brought to the workload cluster is being deleted",
			contract.RolloutInPlace)
		p.out.LookAgain(withdrawDelay)
		return false, nil
	case left:
		p.out.LookAgain(cleanDelay)
		return false, nil
	}
	p.cleaned.Set(p.cluster.UID, state, cleanPeriod)
	return withdraws, nil
}

// keep returns what stays in the workload cluster, as workload.Cleaner wants it: the labels of the generated Secrets
// whose delivery is not withdrawn, each with the digest of its files, or "" as long as that is not applied. settled
// reports whether all are applied.
func (p *pass) keep(ctx context.Context, set *addonsv1.ClusterResourceSet, withdrawn []*corev1.Secret) (
	keep map[string]string, settled bool, err error,
) {
	keep, settled = map[string]string{}, true
	for _, secret := range p.files {
		if p.existing[secret.Name] == nil {
			keep[nodes.Label(secret.Delivered.Argument)], settled = "", false
		}
	}
	for _, secret := range p.existing {
		generated, ok := isNodes(secret)
		if !ok || slices.Contains(withdrawn, secret) {
			continue
		}
		state, _, err := p.state(ctx, set, secret)
		if err != nil {
			return nil, false, err
		}
		digest := ""
		if state == applied {
			digest = secret.Labels[contract.LabelFilesDigest]
		}
		keep[nodes.Label(generated)] = digest
		settled = settled && digest != ""
	}
	return keep, settled, nil
}
