// Package extension serves Cluster API's runtime hooks. For a Cluster with a ClusterClass the topology controller asks
// it for patches on every reconcile and writes them into the templates: the same entries that the controller and the
// webhooks write for a classic Cluster, decided by package plan.
//
// With Reference delivery the answer is a function of the request, so hooks can run alone, without an API server. State
// has what needs one: Inline delivery, unknown Secrets, and delaying the creation of a Cluster until its Secret exists.
package extension

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/counters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/extension/request"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
)

// Values are what Inline delivery writes into templates.
type Values struct {
	Settings proxyconfig.Settings
	NoProxy  string
	// Complete reports whether NO_PROXY is complete: the control-plane endpoint is known, or the user left it out.
	Complete bool
}

// Stored is a Cluster as it is stored. The content of a request cannot be trusted, so Secrets are read only for a
// stored Cluster, and only those that it names itself.
type Stored struct {
	intent.Cluster

	// Labels are those of the Cluster.
	Labels map[string]string
	// Settings are what its topology asks for.
	Settings intent.Topology
}

// State is what hooks know in addition to the request. Its errors are returned to the user verbatim: they contain no
// secrets and are stable while the state is unchanged.
type State interface {
	// Stored returns the Cluster of a name, nil if none is known.
	Stored(ctx context.Context, namespace, name string) (*Stored, error)
	// Values returns what the Cluster, or a pool with an override, gets.
	Values(ctx context.Context, cluster *Stored, override string) (Values, error)
	// Taken returns why templates of a Cluster may not refer to a generated Secret of a name, because that Secret is
	// not ours, or nil.
	Taken(ctx context.Context, cluster *Stored, secret string) error
	// Check returns why the proxy Secret of a Cluster, or the one that override names for a pool, cannot be used, or
	// nil.
	Check(ctx context.Context, cluster *Stored, override string) error
}

// Handlers are the handlers of all hooks. They can be called concurrently and keep no state between requests.
type Handlers struct {
	// State is nil if hooks run alone.
	State State
	// MaxWait is how long after its creation a Cluster may wait for its proxy Secret; 0 is not at all. Used with State.
	MaxWait time.Duration
	// Scope is whose Clusters are answered for.
	Scope intent.Scope
	// Now is the clock. Used with MaxWait and Counters.
	Now func() time.Time
	// Counters count decisions and answers; nil counts none.
	Counters *counters.Counters
}

// asked is what a request asks for.
type asked struct {
	cluster  request.Cluster
	settings intent.Topology // with the pools in the order of the request
}

// ask reads what a request asks for, and whether any template of the Cluster can need a patch. Its error is for the
// user and the same for the same request.
func (h *Handlers) ask(q request.Request) (a asked, enabled bool, err error) {
	a.cluster, _ = request.DecodeBuiltin(q.Variables.Builtin)
	if err := intent.CheckTopologyLabel(a.cluster.Labels, a.cluster.Annotations); err != nil {
		return a, false, err
	}
	if !mayBeEnabled(a.cluster) {
		return a, false, nil
	}
	if err := h.checkScope(a.cluster); err != nil {
		return a, false, err
	}
	s := sourceOf(a.cluster, q)
	if a.settings, err = intent.ReadTopology(s); err != nil {
		_, err = intent.ReadTopology(inOrder(s))
	}
	return a, true, err
}

// checkScope refuses a Cluster that another manager is responsible for: templates without patches would remove the
// proxy from it.
func (h *Handlers) checkScope(c request.Cluster) error {
	switch {
	case !h.Scope.HasNamespace(c.Namespace):
		return fmt.Errorf("this manager serves only --namespace %[3]s, not Cluster %[1]s/%[2]s; "+
			"exclude its namespace in the namespaceSelector of the ExtensionConfig", c.Namespace, c.Name, h.Scope.Namespace)
	case !h.Scope.Has(c.Namespace, c.Labels):
		return fmt.Errorf("this manager serves only --watch-filter %[3]s, not Cluster %[1]s/%[2]s with %[4]s %[5]q; "+
			"in its ClusterClass name the hooks of the manager that serves it", c.Namespace, c.Name, h.Scope.WatchFilter,
			clusterv1.WatchLabel, c.Labels[clusterv1.WatchLabel])
	}
	return nil
}

// respondValidate answers ValidateTopology: all findings about variables and annotations at once and, with State, about
// Secrets that they name and that do not exist or cannot be used.
func (h *Handlers) respondValidate(ctx context.Context, body []byte, response *bytes.Buffer) error {
	q, err := request.Decode(body)
	if err != nil {
		return err
	}
	a, enabled, err := h.ask(q)
	if err != nil {
		return err
	}
	if enabled && h.State != nil {
		stored, err := h.State.Stored(ctx, a.cluster.Namespace, a.cluster.Name)
		if err != nil {
			return err
		}
		// Nothing is reported about the Secrets of a Cluster that is not stored or not labelled.
		if stored != nil && mayBeEnabled(stored.cluster()) {
			if findings := h.secrets(ctx, stored, false); len(findings) > 0 {
				return errors.New(strings.Join(findings, "; "))
			}
		}
	}
	response.WriteString(`{"status":"Success"}`)
	return nil
}

// mayBeEnabled reports whether any template of the Cluster can need a patch.
func mayBeEnabled(c request.Cluster) bool {
	hold, held := intent.FreezeOf(c.Annotations)
	return held && hold.Enabled || intent.AsksForProxy(c.Labels, c.Annotations)
}

// sourceOf returns what a request says about the topology, and records the holder of each item. Pools are in the order
// of their items.
func sourceOf(c request.Cluster, q request.Request) intent.TopologySource {
	s := intent.TopologySource{Annotations: c.Annotations, Variable: q.Variables.Own}
	s.Pools = make([]intent.PoolSource, 0, len(q.Items)/2) // two templates of each
	for i := range q.Items {
		it := &q.Items[i]
		switch {
		case it.IsControlPlane():
			_, it.Holder = request.DecodeBuiltin(it.Variables.Builtin)
			s.ControlPlane = it.Variables.Own
		case it.IsPool():
			_, it.Holder = request.DecodeBuiltin(it.Variables.Builtin)
			s.Pools = append(s.Pools, intent.PoolSource{
				Kind: it.HolderKind, Name: it.Holder.TopologyName, Annotations: it.Holder.Annotations, Variable: it.Variables.Own,
			})
		}
	}
	return s
}

// cluster returns the part of s that decides whether it is enabled.
func (s *Stored) cluster() request.Cluster {
	return request.Cluster{Labels: s.Labels, Annotations: s.Annotations}
}

// inOrder puts pools into a stable order: the topology controller sends them in the order of a map, and calls again at
// once whenever a message changes.
func inOrder(s intent.TopologySource) intent.TopologySource {
	slices.SortFunc(s.Pools, func(a, b intent.PoolSource) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return s
}

// secrets returns why proxy Secrets of a Cluster cannot be used: those that the topology names, and all others too if
// all is set. A Secret that several pools name is checked once.
func (h *Handlers) secrets(ctx context.Context, cluster *Stored, all bool) []string {
	var findings []string
	if cluster.Settings.SecretName != "" || all {
		if err := h.State.Check(ctx, cluster, ""); err != nil {
			findings = append(findings, err.Error())
		}
	}
	seen := map[string]bool{"": true, contract.SecretNone: true}
	for _, pool := range cluster.Settings.Pools {
		if seen[pool.Override] {
			continue
		}
		if ctx.Err() != nil {
			return append(findings, errTooLong.Error())
		}
		seen[pool.Override] = true
		if err := h.State.Check(ctx, cluster, pool.Override); err != nil {
			findings = append(findings, fmt.Sprintf("%s %s: %v", pool.Kind, pool.Name, err))
		}
	}
	return findings
}

const (
	// retryAfterSeconds is after which time Cluster API retries for a Cluster whose creation waits.
	retryAfterSeconds = 20
	// unknownAfterSeconds is after which time it retries for a Cluster that is not in the cache yet.
	unknownAfterSeconds = 1
)

// respondBeforeClusterCreate answers BeforeClusterCreate. It delays the creation of a labelled Cluster while its proxy
// Secret is missing or cannot be used, because the first Machine would wait for it, or start without the proxy. After
// Hold the creation continues, and the condition of the Cluster says what is missing. Of the request only the name
// counts; the rest is read from the stored Cluster.
func (h *Handlers) respondBeforeClusterCreate(ctx context.Context, body []byte, response *bytes.Buffer) error {
	q, err := request.DecodeNewCluster(body)
	if err != nil {
		return err
	}
	answer := &runtimehooksv1.BeforeClusterCreateResponse{}
	h.holdBack(ctx, q, answer)
	return json.NewEncoder(response).Encode(answer)
}

// holdBack writes the answer for a Cluster.
func (h *Handlers) holdBack(ctx context.Context, q request.NewCluster,
	response *runtimehooksv1.BeforeClusterCreateResponse,
) {
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	if h.State == nil || !h.Scope.HasNamespace(q.Namespace) || h.MaxWait <= 0 ||
		h.Now().Sub(q.Created) >= h.MaxWait {
		return
	}
	stored, err := h.State.Stored(ctx, q.Namespace, q.Name)
	var findings []string
	switch {
	case err != nil:
		findings = []string{err.Error()}
	case stored == nil:
		response.SetMessage(fmt.Sprintf("Cluster %s/%s is not known to the manager yet", q.Namespace, q.Name))
		response.SetRetryAfterSeconds(unknownAfterSeconds)
		return
	case !stored.Enabled || !h.Scope.Has(q.Namespace, stored.Labels):
		return
	default:
		findings = h.secrets(ctx, stored, true)
	}
	if len(findings) == 0 {
		return
	}
	ctrl.LoggerFrom(ctx).V(2).Info("Delaying creation of Cluster", "Cluster", q.Namespace+"/"+q.Name)
	response.SetMessage(fmt.Sprintf("Cluster %s/%s waits for its proxy Secret: %s; creation continues anyway after %s",
		q.Namespace, q.Name, strings.Join(findings, "; "), h.MaxWait))
	response.SetRetryAfterSeconds(retryAfterSeconds)
}
