// Package extension serves Cluster API's runtime hooks. For a Cluster with a ClusterClass the topology controller asks
// it for patches on every reconcile and writes them into the templates: the same entries that the controller and the
// webhooks write for a classic Cluster, decided by package plan.
//
// An answer is a function of its request: hooks need no API server and keep no state.
package extension

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
)

// Handlers are the handlers of all hooks. They can be called concurrently and keep no state between requests.
type Handlers struct {
	// Rendered counts decisions by outcome, and Answered answers, like server.Options.Answered; nil counts none.
	Rendered func(outcome string)
	Answered func(name, path, outcome string, took time.Duration)
}

// asked has the settings in a request.
type asked struct {
	cluster  BuiltinCluster
	settings intent.Settings // with the pools in the order of the request
}

// ask reads the settings in a request, and whether any template of the Cluster can need a patch. Its error is for the
// user and the same for the same request.
func (h *Handlers) ask(q Request) (a asked, enabled bool, err error) {
	if a.cluster, _, err = DecodeBuiltin(q.Variables.Builtin); err != nil {
		return a, false, err
	}
	if err := intent.CheckTopologyLabel(a.cluster.Labels, a.cluster.Annotations); err != nil {
		return a, false, err
	}
	if !mayBeEnabled(a.cluster) {
		return a, false, nil
	}
	s, err := sourceOf(a.cluster, q)
	if err != nil {
		return a, false, err
	}
	if a.settings, err = intent.ReadSettings(s); err != nil {
		_, err = intent.ReadSettings(inOrder(s))
	}
	return a, true, err
}

// respondValidate answers ValidateTopology: all findings about variables and annotations at once.
func (h *Handlers) respondValidate(_ context.Context, body []byte, response *bytes.Buffer) error {
	q, err := Decode(body)
	if err != nil {
		return err
	}
	if _, _, err := h.ask(q); err != nil {
		return err
	}
	response.WriteString(`{"status":"Success"}`)
	return nil
}

// mayBeEnabled reports whether any template of the Cluster can need a patch.
func mayBeEnabled(c BuiltinCluster) bool {
	hold, held := intent.FreezeOf(c.Annotations)
	return held && hold.Enabled || intent.AsksForProxy(c.Labels, c.Annotations)
}

// maxOverrides is the most that the variables of all pools may have together, in bytes of JSON. They are in the
// Cluster, and etcd takes 1.5 MiB of it.
const maxOverrides = 4 << 20

var errOverrides = fmt.Errorf("spec.topology.workers: the variables %s of all pools have more than %d MiB together; "+
	"shorten their lists", contract.VariableName, maxOverrides>>20)

// sourceOf finds the settings in a request, and records the holder of each item. Pools are in the order
// of their items.
func sourceOf(c BuiltinCluster, q Request) (s intent.Source, err error) {
	overrides := 0
	s = intent.Source{Annotations: c.Annotations, Variable: q.Variables.Own}
	s.Pools = make([]intent.PoolSource, 0, len(q.Items)/2) // two templates of each
	for i := range q.Items {
		it := &q.Items[i]
		switch {
		case it.IsControlPlane():
			_, it.Holder, err = DecodeBuiltin(it.Variables.Builtin)
			s.ControlPlane = it.Variables.Own
		case it.IsPool():
			if overrides += len(it.Variables.Own); overrides > maxOverrides {
				return s, errOverrides
			}
			_, it.Holder, err = DecodeBuiltin(it.Variables.Builtin)
			s.Pools = append(s.Pools, intent.PoolSource{
				Kind: it.For.Kind, Name: it.Holder.TopologyName, Annotations: it.Holder.Annotations, Variable: it.Variables.Own,
			})
		}
		if err != nil {
			return s, err //nolint:wrapcheck // it names the variable
		}
	}
	return s, nil
}

// inOrder puts pools into a stable order: the topology controller sends them in the order of a map, and calls again at
// once whenever a message changes.
func inOrder(s intent.Source) intent.Source {
	slices.SortFunc(s.Pools, func(a, b intent.PoolSource) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return s
}
