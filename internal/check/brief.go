package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// Brief says in one line whether a manager renews its Lease, and in another one which of the checks of an installation
// that only read and are quick have failed. Not everybody who has Clusters may look for the installation: then its
// namespace is that of o.
func Brief(ctx context.Context, o Options) string {
	var list appsv1.DeploymentList
	err := o.Client.List(ctx, &list, ours, maxList)
	i := slices.IndexFunc(list.Items, func(d appsv1.Deployment) bool { return d.Labels[roleLabel] == roleManager })
	if i >= 0 {
		o.Namespace = list.Items[i].Namespace
	}
	c := newChecker(o)
	var text string
	switch lease := c.lease(ctx); lease.Status {
	case OK:
		text = fmt.Sprintf("A manager renews Lease %s/%s.\n", o.Namespace, contract.Domain)
	case Failed:
		text = fmt.Sprintf("The table may be old: %s.\n", bounded(lease.Message))
	default:
		text = fmt.Sprintf("The table may be old: cannot read Lease %s/%s of the manager: %s\n", o.Namespace, contract.Domain,
			bounded(lease.Message))
	}
	if err != nil || i < 0 {
		return text
	}
	var failures []string
	for _, result := range c.group(ctx, "Installation", one{CodeDeployments, c.available}, one{CodeLease, c.lease},
		one{CodeCertificates, c.certificates}, one{CodeHooks, c.hooks}).Checks {
		if result.Status == Failed {
			failures = append(failures, string(result.Check))
		}
	}
	if len(failures) > 0 {
		text += fmt.Sprintf("The installation in namespace %s does not work (%s): run %s check --manager-namespace %s\n",
			o.Namespace, strings.Join(failures, ", "), contract.Name, o.Namespace)
	}
	return text
}
