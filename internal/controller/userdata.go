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
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// userData warns if the user data of Machines of o, with its entries, is larger than their cloud takes. A machine
// template that cannot be read says nothing about it.
func (p *pass) userData(ctx context.Context, o *reconcile.Reconciled, out *report.Outcome) {
	recipe, settings := o.Decision.Recipe, cmp.Or(o.Decision.Resolution, &resolve.Resolution{})
	if recipe == nil || len(recipe.Files) == 0 {
		return
	}
	all, ours := patch.UserData(o.Spec, *recipe, settings.Files, o.Kind == plan.KindControlPlane)
	kind, limit := p.view.Infrastructure.Kind, p.view.Facts.UserData
	for _, from := range o.Infrastructure() {
		if !strings.HasPrefix(from.Kind, "AWS") || all <= 16_384 { // only there it decides about the limit
			continue
		}
		if template, err := p.Memory.Template(ctx, p.view.Namespace, from, false); err == nil && template.UserData > 0 {
			kind, limit = from.Kind, template.UserData
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
}
