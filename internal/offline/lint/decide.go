package lint

import (
	"errors"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// CodeOverridden is a file or a command of a bootstrap spec that sets variables after the product's.
const CodeOverridden finding.Code = "overridden"

// errNotKnown reports settings that cannot be used. There is a finding about them.
var errNotKnown = errors.New("settings cannot be used")

// decide adds the findings of the controller's decisions about the bootstrap objects of a Cluster. values are its
// settings, by the name of the proxy Secret in a pool.
func (l *linter) decide(c clusters.Cluster, values map[string]plan.Values) error {
	want := plan.Want{Cluster: c.View.Name, Enabled: true, Options: c.Settings.Options}
	for _, member := range l.manifests.Members(c.Object) {
		override := ""
		decision, err := l.manifests.Decide(c.Object, member, want, func(of, _ string) (plan.Values, error) {
			override = of
			known, ok := values[of]
			if !ok {
				return known, errNotKnown
			}
			return known, nil
		})
		if errors.Is(err, errNotKnown) {
			continue
		}
		if err != nil {
			return err
		}
		l.decision(member, decision)
		if used := values[override].Resolution; decision.Recipe != nil && used != nil {
			l.mirrors(member, c.Settings.Options, *used)
		}
	}
	return nil
}

// decision adds the findings of a decision. Their code is the reason that the condition of the Cluster would have;
// without one, nothing is wrong.
func (l *linter) decision(member clusters.Member, decision plan.Decision) {
	for _, f := range decision.Findings {
		level := Note
		switch f.Reason {
		case "":
			continue
		case contract.ReasonSharedTemplate:
			level = Rejection
		}
		f.Code = finding.Code(f.Reason)
		l.add(member.Object, level, f)
	}
	if conflict, ok := errors.AsType[*patch.ConflictError](decision.Refused); ok {
		for _, f := range conflict.Conflicts {
			f.Code = contract.ReasonConflictingFile
			l.add(member.Object, Rejection, member.InSpec(f))
		}
	} else if decision.Refused != nil {
		l.add(member.Object, Rejection, finding.Finding{
			Code: contract.ReasonInvalidSettings, Message: decision.Refused.Error(),
		})
	}
	for _, f := range decision.Warnings {
		f.Code = CodeOverridden
		l.add(member.Object, Warning, member.InSpec(f))
	}
}
