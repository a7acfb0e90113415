package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// Brief makes the checks of an installation that only read and are quick. It returns one line if one of them failed,
// and else "": also if no installation can be seen, because not everybody who has Clusters may look at it.
func Brief(ctx context.Context, o Options) string {
	var list appsv1.DeploymentList
	if err := o.Client.List(ctx, &list, ours, maxList); err != nil {
		return ""
	}
	i := slices.IndexFunc(list.Items, func(d appsv1.Deployment) bool { return d.Labels[roleLabel] == roleManager })
	if i < 0 {
		return ""
	}
	o.Namespace = list.Items[i].Namespace
	c := newChecker(o)
	var failures []string
	for _, result := range c.group(ctx, "Installation", one{CodeDeployments, c.available}, one{CodeLease, c.lease},
		one{CodeCertificates, c.certificates}, one{CodeHooks, c.hooks}).Checks {
		if result.Status == Failed {
			failures = append(failures, string(result.Check))
		}
	}
	if len(failures) == 0 {
		return ""
	}
	return fmt.Sprintf("The installation in namespace %s does not work (%s): run %s check --manager-namespace %s",
		o.Namespace, strings.Join(failures, ", "), contract.Name, o.Namespace)
}
