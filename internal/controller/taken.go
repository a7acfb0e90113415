package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
)

// takenDelay is when to look again for a Secret in the way of a generated one, which nobody watches.
const takenDelay = time.Minute

func (r *reconciliation) names() lookup.GeneratedSecrets {
	return lookup.GeneratedSecrets{Cached: r.Client, Live: r.Live, Absences: r.Absences}
}

// whyTaken returns why nothing may refer to a generated Secret of a name, or "". It has the Cluster looked at again then.
func (r *reconciliation) whyTaken(ctx context.Context, name string) (string, error) {
	why, known := r.taken[name]
	if known {
		return why, nil
	}
	why, err := r.names().Taken(ctx, types.NamespacedName{Namespace: r.view.Namespace, Name: name}, r.view.Name)
	if err != nil {
		return "", err
	}
	r.refuse(name, why)
	return why, nil
}

// refuse notes why nothing may refer to a generated Secret of a name, or that it is free.
func (r *reconciliation) refuse(name, why string) {
	if r.taken == nil {
		r.taken = map[string]string{}
	}
	if r.taken[name] = why; why != "" {
		r.found.add(contract.ReasonNameTaken, "%s", why)
		r.lookAgain(takenDelay)
	}
}
