package lint

import (
	"cmp"
	"context"
	"errors"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// decide adds the findings of the controller's decisions about the bootstrap objects of a Cluster.
func (l *linter) decide(ctx context.Context, c clusters.Cluster) error {
	if class, _ := l.manifests.Class(c.Object); class != nil {
		l.addWarnings(class, clusters.CheckPatches(class))
	}
	decided, err := l.passes.Run(ctx, c.Object)
	for _, o := range decided {
		l.decision(cmp.Or(o.Object, c.Object), o)
	}
	return err
}

// decision adds the findings of a decision. Their code is the reason that the condition of the Cluster would have;
// without one, nothing is wrong.
func (l *linter) decision(at *manifest.Object, o clusters.Decided) {
	for _, f := range o.Decision.Findings {
		level := Note
		switch f.Reason {
		case "":
			continue
		case contract.ReasonSharedTemplate, contract.ReasonNameTaken:
			level = Rejection
		}
		f.Code = finding.Code(f.Reason)
		l.add(at, level, f)
	}
	if conflict, ok := errors.AsType[*patch.ConflictError](o.Decision.Refused); ok {
		for _, f := range conflict.Conflicts {
			f.Code = contract.ReasonConflictingFile
			l.add(at, Rejection, o.InSpec(f))
		}
	} else if o.Decision.Refused != nil {
		l.add(at, Rejection, finding.Finding{
			Code: contract.ReasonInvalidSettings, Message: o.Decision.Refused.Error(),
		})
	}
	for _, f := range o.Decision.Warnings {
		l.addWarnings(at, []finding.Finding{o.InSpec(f)})
	}
	for _, f := range o.Decision.Notes {
		l.add(at, Note, o.InSpec(f))
	}
}
