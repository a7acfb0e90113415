package controller

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	proxysource "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/source"
)

// takenDelay is when to look again for a Secret in the way of a generated one, which nobody watches.
const takenDelay = time.Minute

func (r *reconciliation) names() proxysource.GeneratedSecrets {
	return proxysource.GeneratedSecrets{Cached: r.Client, Live: r.Live, Absences: r.Absences}
}

// isFree reports whether the Cluster may have a generated Secret of a name, and adds the finding if it may not.
func (r *reconciliation) isFree(ctx context.Context, name string) (bool, error) {
	if free, known := r.free[name]; known {
		return free, nil
	}
	why, err := r.names().Taken(ctx, types.NamespacedName{Namespace: r.view.Namespace, Name: name}, r.view.Name)
	if err != nil {
		return false, err
	}
	r.refuse(name, why)
	return why == "", nil
}

// refuse notes why the Cluster may not have a generated Secret of a name, or that it may.
func (r *reconciliation) refuse(name, why string) {
	if r.free == nil {
		r.free = map[string]bool{}
	}
	r.free[name] = why == ""
	if why != "" {
		r.found.add(contract.ReasonNameTaken, "%s", why)
		r.lookAgain(takenDelay)
	}
}

// takenReference returns a Secret of somebody else that o refers to as a generated one, as far as this pass knows, or "".
func (r *reconciliation) takenReference(o bootstrapObject) string {
	names := patch.References(o.spec)
	if i := slices.IndexFunc(names, func(name string) bool { free, known := r.free[name]; return known && !free }); i >= 0 {
		return names[i]
	}
	return ""
}

// takeBack takes our entries out of an object that refers to a Secret of somebody else, unless the change would replace
// Machines or come too late for bootstrap data.
func (r *reconciliation) takeBack(ctx context.Context, o *bootstrapObject, secret string, options proxysource.Options) error {
	keep := o.running || !refersTo(o.spec, secret)
	if !keep && o.kind == plan.KindControlPlane {
		var err error
		if keep, err = r.isBegun(ctx); err != nil {
			return err
		}
	}
	if keep {
		r.keepReferences(*o)
		return r.release(ctx, *o)
	}
	edits, err := r.take(ctx, *o)
	if err != nil {
		return err
	}
	return r.write(ctx, o, edits, 0, options)
}
