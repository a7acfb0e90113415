package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// labels looks for Clusters and Secrets without our label that have one whose key looks like it: nothing reads that.
func (c *checker) labels(ctx context.Context) Result {
	if c.Waiting {
		return skipped("not with --wait: it reads all Secrets")
	}
	var wrong []string
	do := ""
	for _, one := range []struct {
		kind       schema.GroupVersionKind
		key, value string
		only       []client.ListOption
	}{
		{clusterv1.GroupVersion.WithKind("Cluster"), contract.LabelEnabled, contract.LabelEnabledValue, nil},
		{
			corev1.SchemeGroupVersion.WithKind("Secret"), contract.LabelProxySecret, "",
			[]client.ListOption{client.MatchingFields{"type": string(corev1.SecretTypeOpaque)}},
		},
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(one.kind.GroupVersion().WithKind(one.kind.Kind + "List"))
		_, err := c.remaining(ctx, list, func(o client.Object) bool {
			if _, labelled := o.GetLabels()[one.key]; labelled {
				return false
			}
			for key := range o.GetLabels() {
				if !resembles(key, one.key) {
					continue
				}
				name := one.kind.Kind + " " + client.ObjectKeyFromObject(o).String()
				wrong = append(wrong, fmt.Sprintf("label %s of %s has no effect, did you mean %s?", key, name, one.key))
				if do == "" {
					do = fmt.Sprintf("kubectl -n %s label %s %s %s- %s=%s", o.GetNamespace(), strings.ToLower(one.kind.Kind),
						o.GetName(), key, one.key, one.value)
				}
				return true
			}
			return false
		}, append(one.only, client.InNamespace(c.Cluster.Namespace))...)
		if err != nil && len(wrong) == 0 {
			return unread(err)
		}
	}
	if len(wrong) > 0 {
		result := warning("%s", finding.Few(wrong))
		result.Do = do
		return result
	}
	return ok("no label looks like one of ours")
}

// resembles reports whether the key of a label may be meant as another one: it is similar, or has our name in it, and
// is no key of ours.
func resembles(key, ours string) bool {
	known := append(contract.ClusterLabels(), contract.ClusterAnnotations()...)
	for _, label := range []string{contract.LabelGenerated, contract.LabelOutput, contract.LabelProxySecret} {
		known = append(known, strings.TrimPrefix(label, contract.Domain+"/"))
	}
	if name, is := strings.CutPrefix(key, contract.Domain+"/"); is && slices.Contains(known, name) {
		return false // the manager warns of one that is an annotation
	}
	return strings.Contains(key, contract.Name) || finding.NearestName(key, []string{ours}) != ""
}
