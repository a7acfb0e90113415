// Package hooks serves Cluster API's runtime hooks. For a Cluster with a ClusterClass the topology controller asks
// it for patches on every reconcile and writes them into the templates: the same entries that the controller and the
// webhooks write for a classic Cluster, decided by package plan.
//
// An answer is a function of its request: hooks need no API server and keep no state.
package hooks

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// Handlers are the handlers of all hooks. They can be called concurrently and keep no state between requests.
type Handlers struct {
	// Rendered counts decisions by outcome; nil counts none.
	Rendered func(outcome string)
}

// ValidateTopology answers with all findings about variables and annotations at once.
func (h *Handlers) ValidateTopology(_ context.Context, q *runtimehooksv1.ValidateTopologyRequest,
	response *runtimehooksv1.ValidateTopologyResponse,
) {
	templates := make([]template, 0, len(q.Items))
	for _, item := range q.Items {
		templates = append(templates, template{holder: item.HolderReference, variables: variablesOf(item.Variables)})
	}
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	if _, _, err := read(variablesOf(q.Variables), templates); err != nil {
		response.SetStatus(runtimehooksv1.ResponseStatusFailure)
		response.SetMessage(err.Error())
	}
}

// topology is what a request says about the Cluster.
type topology struct {
	name                string
	labels, annotations map[string]string
	settings            settings.ClusterSettings // with the pools in the order of the request
}

// read reads the Cluster and its settings in a request, and records the holder of each template. It reports whether any
// template of the Cluster can need a patch; if none can, there are no settings. Its error is for the user and the same
// for the same request.
func read(common variables, templates []template) (t topology, enabled bool, err error) {
	builtin, err := common.builtins()
	if err != nil {
		return t, false, err
	}
	if c := builtin.Cluster; c != nil {
		t.name = c.Name
		t.labels, t.annotations = metadata(c.Metadata)
	}
	if err := settings.CheckTopologyLabel(t.labels, t.annotations); err != nil {
		return t, false, err //nolint:wrapcheck // it names the label
	}
	hold, held := settings.FreezeOf(t.annotations)
	if !settings.WantsProxy(t.labels, t.annotations) && (!held || !hold.Enabled) {
		return t, false, nil
	}
	source := settings.Source{Annotations: t.annotations, Variable: common.own}
	for i := range templates {
		it := &templates[i]
		if !it.isControlPlane() && !it.isPool() {
			continue
		}
		if err := it.readHolder(); err != nil {
			return t, false, err
		}
		if it.isControlPlane() {
			source.ControlPlane = it.variables.own
			continue
		}
		source.Pools = append(source.Pools, settings.PoolSource{
			Kind: it.holder.Kind, Name: it.topologyName, Annotations: it.annotations, Variable: it.variables.own,
		})
	}
	if t.settings, err = settings.ReadSettings(source); err != nil {
		// The topology controller sends pools in the order of a map, and calls again at once whenever a message changes.
		slices.SortFunc(source.Pools, func(a, b settings.PoolSource) int {
			return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
		})
		_, err = settings.ReadSettings(source)
	}
	return t, true, err //nolint:wrapcheck // it names the field
}

// variables are the two that are read of a list, in JSON: that of the product, and the builtin one.
type variables struct{ own, builtin json.RawMessage }

func variablesOf(list []runtimehooksv1.Variable) (v variables) {
	for _, variable := range list {
		switch variable.Name {
		case contract.VariableName:
			v.own = variable.Value.Raw
		case runtimehooksv1.BuiltinsName:
			v.builtin = variable.Value.Raw
		}
	}
	return v
}

// builtins reads the builtin variable.
func (v variables) builtins() (b runtimehooksv1.Builtins, err error) {
	if v.builtin == nil {
		return b, nil
	}
	if err := kinds.Decode(v.builtin, &b); err != nil {
		return b, fmt.Errorf("reading variable %s: %w", runtimehooksv1.BuiltinsName, err)
	}
	return b, nil
}

func metadata(m *runtimehooksv1.ObjectMeta) (labels, annotations map[string]string) {
	if m == nil {
		return nil, nil
	}
	return m.Labels, m.Annotations
}
