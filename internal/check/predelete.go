package check

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// PreDelete checks whether the product can be removed: nothing needs it any more.
func PreDelete(ctx context.Context, o Options) Report {
	return newChecker(o).report(ctx, 0, func(c *checker) {
		c.add(ctx, "Removal", one{CodeStillLabelled, c.stillLabelled}, one{CodeEntriesLeft, c.entriesLeft},
			one{CodeWorkloadLeft, c.workloadLeft}, one{CodeRegistered, c.registered})
	})
}

// stillLabelled looks for Clusters whose label does not say false: another value than true keeps the entries.
func (c *checker) stillLabelled(ctx context.Context) Result {
	found, err := c.remaining(ctx, &clusterv1.ClusterList{}, func(o client.Object) bool {
		value, labelled := o.GetLabels()[contract.LabelEnabled]
		return labelled && value != contract.LabelDisabledValue
	})
	return removed(found, err, "has label "+contract.LabelEnabled, "no Cluster has label "+contract.LabelEnabled)
}

// entriesLeft looks for what would keep or wait for the product in specs that Cluster API makes Machines of. A
// KubeadmConfig of a Machine was read when it booted.
func (c *checker) entriesLeft(ctx context.Context) Result {
	var all []string
	for _, list := range []client.ObjectList{
		&controlplanev1.KubeadmControlPlaneList{}, &bootstrapv1.KubeadmConfigTemplateList{}, &bootstrapv1.KubeadmConfigList{},
	} {
		found, err := c.remaining(ctx, list, func(o client.Object) bool {
			owner := metav1.GetControllerOf(o)
			if _, config := o.(*bootstrapv1.KubeadmConfig); config && owner != nil && owner.Kind != "MachinePool" {
				return false
			}
			return plan.IsPausedByUs(o.GetAnnotations()) || patch.IsPatched(kinds.View(o))
		})
		if err != nil && !meta.IsNoMatchError(err) {
			return removed(nil, err, "", "")
		}
		all = append(all, found...)
	}
	return removed(all, nil, "has entries of "+contract.Name+", or waits for them",
		"no spec has entries of "+contract.Name)
}

// workloadLeft looks for Clusters in whose workload cluster the product may have objects.
func (c *checker) workloadLeft(ctx context.Context) Result {
	found, err := c.remaining(ctx, &clusterv1.ClusterList{}, func(o client.Object) bool {
		return slices.ContainsFunc(contract.AppliedAnnotations(),
			func(key string) bool { return o.GetAnnotations()[key] != "" })
	})
	return removed(found, err, "has objects of "+contract.Name+" in its workload cluster",
		"no workload cluster has objects of "+contract.Name)
}

// registered looks for the registration of the hooks, and for ClusterClasses that name it.
func (c *checker) registered(ctx context.Context) Result {
	var all []string
	configs := extensionConfigs()
	if err := c.Client.List(ctx, configs); err != nil && !meta.IsNoMatchError(err) {
		return removed(nil, err, "", "")
	}
	for _, config := range configs.Items {
		if !c.isOurs(&config) {
			continue
		}
		found, err := c.remaining(ctx, &clusterv1.ClusterClassList{}, func(o client.Object) bool {
			class, _ := o.(*clusterv1.ClusterClass)
			return refersTo(class, "."+config.GetName())
		})
		if err != nil {
			return removed(nil, err, "", "")
		}
		all = append(append(all, found...), "ExtensionConfig "+config.GetName())
	}
	return removed(all, nil, "calls the hooks", "nothing calls the hooks")
}

// refersTo reports whether a patch of a class names a handler whose name ends like this.
func refersTo(class *clusterv1.ClusterClass, end string) bool {
	for _, one := range class.Spec.Patches {
		if one.External != nil && (strings.HasSuffix(one.External.GeneratePatchesExtension, end) ||
			strings.HasSuffix(one.External.ValidateTopologyExtension, end) ||
			strings.HasSuffix(one.External.DiscoverVariablesExtension, end)) {
			return true
		}
	}
	return false
}

// remaining returns the objects of all namespaces to which a question applies.
func (c *checker) remaining(ctx context.Context, list client.ObjectList, applies func(client.Object) bool,
	options ...client.ListOption,
) ([]string, error) {
	var found []string
	for {
		page := append([]client.ListOption{maxList, client.Continue(list.GetContinue())}, options...)
		if err := c.Client.List(ctx, list, page...); err != nil {
			return nil, err //nolint:wrapcheck // the result is the error
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			if o, is := item.(client.Object); is && applies(o) {
				kind, err := c.Client.GroupVersionKindFor(o)
				found = append(found, kind.Kind+" "+o.GetNamespace()+"/"+o.GetName())
				return err //nolint:wrapcheck // the scheme has the kind
			}
			return nil
		})
		if err != nil || list.GetContinue() == "" {
			return found, err //nolint:wrapcheck // the scheme has the kind
		}
	}
}

// removed is the result of a check that has looked for what is left. Who may not look does not know.
func removed(left []string, err error, has, none string) Result {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return Result{
			Status: Unknown, Message: "you may not look for what is left: " + err.Error(), Do: "ask as a cluster-admin",
		}
	case err != nil:
		return unread(err)
	case len(left) > 0:
		return failed("%s %s", finding.Few(left), has)
	}
	return ok("%s", none)
}
