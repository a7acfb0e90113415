package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// Brief says in one line whether a manager renews its Lease, and in another one which of the checks of an installation
// that only read and are quick have failed, if the user may look for it.
func Brief(ctx context.Context, o Options) string {
	c := newChecker(o)
	found, err := c.deployments(ctx)
	var text string
	switch lease := c.lease(ctx); lease.Status {
	case OK:
		text = fmt.Sprintf("A manager renews Lease %s/%s.\n", c.Namespace, contract.Domain)
	case Failed:
		text = fmt.Sprintf("The table may be old: %s.\n", bounded(lease.Message))
	default:
		text = fmt.Sprintf("The table may be old: cannot read Lease %s/%s of the manager: %s\n", c.Namespace, contract.Domain,
			bounded(lease.Message))
	}
	if err != nil || !slices.ContainsFunc(found, isManager) {
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
			c.Namespace, strings.Join(failures, ", "), contract.Name, c.Namespace)
	}
	return text
}
