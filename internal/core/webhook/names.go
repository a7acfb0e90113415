package webhook

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// This webhook warns of labels and annotations of Clusters and pools that have no effect or an unknown value. It
// changes nothing, and nothing depends on it.
//
// +kubebuilder:webhook:path=/warn-cluster-x-k8s-io-v1beta2,mutating=true,failurePolicy=ignore,matchPolicy=Equivalent,sideEffects=None,timeoutSeconds=5,admissionReviewVersions=v1,groups=cluster.x-k8s.io,resources=clusters;machinedeployments;machinepools,verbs=create;update,versions=v1beta2,name=names.capi-proxy-patcher.io

// KindNames names the webhook that only checks names, of Clusters and pools.
const KindNames = "Names"

const (
	// maxWarnings is how many warnings are given; the others are counted.
	maxWarnings = 8
	// maxWarning is the longest warning, in bytes. The API server cuts after 256 characters if all are more than 4,096.
	maxWarning = 512
)

// admitNames warns of the unknown names in an object that is written, if its Cluster is in the scope.
func (w *Webhook) admitNames(ctx context.Context, request *admissionv1.AdmissionRequest) (answer, error) {
	if w.Scope.WatchFilter != "" {
		var object struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
			Spec     struct {
				ClusterName string `json:"clusterName"`
			} `json:"spec"`
		}
		if err := kinds.Decode(request.Object.Raw, &object); err != nil {
			return answer{}, nil //nolint:nilerr // the API server refuses it
		}
		labels := object.Metadata.Labels
		if request.Kind.Kind != KindCluster {
			cluster := &clusterv1.Cluster{}
			key := client.ObjectKey{Namespace: request.Namespace, Name: object.Spec.ClusterName}
			if err := w.Cached.Get(ctx, key, cluster); err != nil {
				return answer{}, client.IgnoreNotFound(err)
			}
			labels = cluster.Labels
		}
		if !w.Scope.Has(request.Namespace, labels) {
			return answer{}, nil
		}
	}
	return answer{warnings: unknownNames(request)}, nil
}

// unknownNames returns warnings of the unknown names in an object. One that cannot be decoded has none.
func unknownNames(request *admissionv1.AdmissionRequest) []string {
	var warnings []string
	warn := func(text string) { warnings = append(warnings, finding.Cut(contract.Name+": "+text, maxWarning)) }
	var found []finding.Finding
	if request.Kind.Kind == KindCluster {
		var cluster clusterv1.Cluster
		if kinds.Decode(request.Object.Raw, &cluster) != nil {
			return nil
		}
		if err := settings.CheckLabel(cluster.Labels); err != nil {
			warn(err.Error())
		}
		found = settings.CheckNames(cluster.Labels, settings.SourceOf(&cluster))
	} else {
		var pool metav1.PartialObjectMetadata
		if kinds.Decode(request.Object.Raw, &pool) != nil || plan.IsTopologyOwned(pool.Labels) {
			return nil
		}
		found = settings.CheckPool(pool.Annotations)
	}
	for i, warning := range found {
		if i == maxWarnings {
			warn(fmt.Sprintf("%d more labels or annotations are unknown", len(found)-i))
			break
		}
		warn(warning.String())
	}
	return warnings
}
