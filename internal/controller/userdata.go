package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/reconcile"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// userData warns if the user data of Machines of o, with its entries, is larger than their cloud takes.
func (p *pass) userData(ctx context.Context, o *reconcile.Reconciled, out *report.Outcome) error {
	recipe, settings := o.Decision.Recipe, cmp.Or(o.Decision.Resolution, &resolve.Resolution{})
	if recipe == nil || len(recipe.Files) == 0 || o.Decision.InPlace {
		return nil
	}
	all, ours := patch.UserData(o.Spec, *recipe, settings.Files, o.Kind == plan.KindControlPlane)
	kind, limit := p.view.Infrastructure.Kind, p.view.Facts.UserData
	pools := slices.Clone(o.Pools)
	if controlPlane, ok := o.BootstrapObject.(*kinds.KubeadmControlPlane); ok {
		of := controlPlane.Spec.MachineTemplate
		pools = append(pools, plan.Pool{Infrastructure: cmp.Or(of.Spec.InfrastructureRef, of.InfrastructureRef)})
	}
	for _, pool := range pools {
		one := pool.Infrastructure
		if !strings.HasPrefix(one.Kind, "AWS") || all <= 16_384 { // only there it decides about the limit
			continue
		}
		template, err := p.Memory.Template(ctx, p.view.Namespace, one, false)
		if err != nil {
			return err //nolint:wrapcheck // it names the object
		}
		if template.UserData > 0 {
			kind, limit = one.Kind, template.UserData
		}
	}
	if limit > 0 && all > limit {
		large := finding.Finding{
			Code: patch.CodeUserData,
			Message: fmt.Sprintf("user data has at least %d bytes, %d of them of this product; %s takes %d", all, ours, kind,
				limit),
			Advice: "shorten files, commands, trustedCA or noProxy, or put files into the image of the Machines",
		}
		o.Decision.Warnings = append(slices.Clip(o.Decision.Warnings), large)
		out.Note("%s: %s", o, large)
	}
	return nil
}
