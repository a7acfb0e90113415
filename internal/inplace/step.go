// Package inplace changes the files of running nodes for Clusters with RolloutInPlace. It is a step of the pass over a
// Cluster: it applies the files of a version and DaemonSets to the workload cluster, labels the Nodes that get files
// once, and looks at Nodes, Pods and slots while something changes. Nodes take turns by themselves, by the Leases of
// slots (package agent). A function of values decides (Decide). No connection stays open.
package inplace

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/remote"
)

const (
	// lookDelay is when a workload cluster is looked at again while its nodes change, and labelDelay while Nodes are
	// labelled.
	lookDelay, labelDelay = 30 * time.Second, 2 * time.Second
	// nodeMemory is for how long the Node of a Machine is remembered.
	nodeMemory = 24 * time.Hour
)

// Step implements controller.Step. Its methods can be called concurrently.
type Step struct {
	clusters *remote.Clusters
	live     client.Reader
	pods     NodePods
	now      func() time.Time
	// nodes are the names of the Nodes of Machines, which stay the same, by the UID of the Machine.
	nodes *cache.Expiring
}

// NewStep returns a Step. live reads from the API server of the management cluster, and now is the clock.
func NewStep(clusters *remote.Clusters, live client.Reader, pods NodePods, now func() time.Time) *Step {
	return &Step{clusters: clusters, live: live, pods: pods, now: now, nodes: cache.NewExpiring()}
}

// Needs implements controller.Step.
func (*Step) Needs(cluster *clusterv1.Cluster) bool {
	return cluster.Annotations[AnnotationInPlaceApplied] != ""
}

// Run implements controller.Step. A Cluster that has asked for updates in place until its label was removed has its
// nodes restored first. What is in the workload cluster of one that does not ask any more is deleted.
func (s *Step) Run(ctx context.Context, p *controller.Pass) (out controller.Outcome, err error) {
	applied := p.Cluster.Annotations[AnnotationInPlaceApplied]
	asks := p.View.Enabled && p.Options.Rollout == RolloutInPlace
	removes := settings.StateOf(p.Cluster.Labels) == settings.Disabled && applied != "" && applied != RestoredValue &&
		p.Cluster.Annotations[contract.AnnotationRollout] == RolloutInPlace
	switch {
	case asks && s.pods.Image == "":
		out.Add(ReasonInPlaceNotInstalled, "annotation %s is %s, and the manager runs without --node-image; add it, "+
			"or remove the annotation", contract.AnnotationRollout, RolloutInPlace)
		return out, nil
	case asks || removes && s.pods.Image != "":
		return s.follow(ctx, p)
	case applied == "":
		return out, nil
	}
	if err := p.CheckCurrent(ctx); err != nil {
		return out, err //nolint:wrapcheck // it is a conflict
	}
	return s.withdraw(ctx, p)
}

// follow brings the present files to nodes, records which Machines have them, and reports about the others. Nodes of a
// Cluster that is not enabled lose all files, which is recorded on the Cluster when all have.
func (s *Step) follow(ctx context.Context, p *controller.Pass) (out controller.Outcome, err error) {
	view := View{Removes: !p.View.Enabled}
	if view.Removes {
		if err := p.CheckCurrent(ctx); err != nil {
			return out, err //nolint:wrapcheck // it is a conflict
		}
	}
	if view.Members, err = s.members(ctx, p); err != nil {
		return out, err
	}
	if !view.Removes && !slices.ContainsFunc(view.Members, func(m Member) bool { return m.Node != "" }) {
		return out, nil
	}
	wanted, updates, err := s.wanted(ctx, p, &view, &out)
	if err != nil {
		return out, err
	}
	if err := mark(ctx, p, contract.AppliedValue); err != nil {
		return out, err
	}
	var decision Decision
	reached, err := s.visit(ctx, p, &out, func(ctx context.Context, w *workload) error {
		slots := slotsOf(p.Cluster)
		found, _, err := setOf(p.Cluster.Name, slots, wanted, kept(view.Wants)).Apply(ctx, w, p.Cluster)
		if out.Join(found); err != nil {
			return err
		}
		if err := w.look(ctx, &view); err != nil {
			return err
		}
		decision = Decide(view)
		taken, err := w.change(ctx, decision, slots)
		if taken != "" {
			out.Add(contract.ReasonNameTaken, "updates in place: Lease %s/%s of the workload cluster exists and was not "+
				"written by %s for this Cluster; delete or rename it", NodesNamespace, taken, contract.Name)
		}
		return err
	})
	if err != nil || !reached {
		return out, err
	}
	out.AddAll(decision.Findings...)
	if decision.Changes || len(out.Findings) > 0 {
		out.RequeueIn(lookDelay)
	}
	if len(decision.Labels)+len(decision.Free) > 0 {
		out.RequeueIn(labelDelay)
	}
	if !view.Removes {
		return out, record(ctx, p, decision.Current, updates)
	}
	if err := recordRemoval(ctx, p, decision.Current); err != nil || !decision.Removed {
		return out, err
	}
	if err := mark(ctx, p, RestoredValue); err != nil {
		return out, err
	}
	return s.withdraw(ctx, p)
}

// wanted returns the files of the generated Secrets of members as this pass has computed them, never as they are
// stored, and with them what Machines are recorded with.
func (s *Step) wanted(ctx context.Context, p *controller.Pass, view *View, out *controller.Outcome) (
	wanted []NodeFiles, updates map[string]plan.Update, err error,
) {
	if view.Removes {
		in, err := s.removal(p)
		view.Wants = []Want{{Secret: in.Secret, Version: in.Version()}}
		return []NodeFiles{in}, nil, err
	}
	names := map[string]bool{}
	for _, m := range view.Members {
		names[m.Secret] = true
	}
	updates = map[string]plan.Update{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		view.Wants = append(view.Wants, Want{Secret: name})
		data := p.Secrets.Desired(name)
		stored, err := p.Secrets.Read(ctx, name)
		if err != nil {
			return nil, nil, err //nolint:wrapcheck // it says what it read
		}
		if data == nil || stored == nil || p.Secrets.Taken(name) != "" {
			continue // condition ProxyConfigured says why, and what is applied stays
		}
		in := NodeFiles{NodePods: s.pods, Secret: name, Key: []byte(stored.UID), Slots: slotsOf(p.Cluster)}
		files := ""
		if in.Data, err = NodeData(p.Options, data); err == nil {
			files, err = filesOf(p.Options, data)
		}
		switch {
		case err != nil: // it is for the user, and reported already
			continue
		case in.isTooLarge():
			out.Add(contract.ReasonTooLarge, "%s", in.tooLarge())
			continue
		}
		view.Wants[len(view.Wants)-1].Version = in.Version()
		wanted = append(wanted, in)
		updates[name] = plan.Update{At: controller.ChangedAt(stored), Files: files}
	}
	return wanted, updates, nil
}

// removal is the version without files, the same after clusterctl move. Nothing is pulled for it, since a node without
// the proxy may not be able to.
func (s *Step) removal(p *controller.Pass) (NodeFiles, error) {
	data, err := patch.NodeData(nil, patch.Recipe{})
	in := NodeFiles{
		NodePods: s.pods, Secret: settings.GeneratedSecretName(p.Cluster.Name), Data: data,
		Key: []byte(RestoredValue), Slots: slotsOf(p.Cluster),
	}
	in.PullPolicy = string(corev1.PullIfNotPresent)
	return in, err //nolint:wrapcheck // it says what failed
}

// kept are the labels of generated Secrets whose objects stay as they are.
func kept(wants []Want) map[string]bool {
	labels := map[string]bool{}
	for _, want := range wants {
		if want.Version == "" {
			labels[NodeLabel(want.Secret)] = true
		}
	}
	return labels
}

// withdraw removes labels and objects from the workload cluster, and then the annotation that says that there are some.
// What is on nodes stays.
func (s *Step) withdraw(ctx context.Context, p *controller.Pass) (out controller.Outcome, err error) {
	left := false
	reached, err := s.visit(ctx, p, &out, func(ctx context.Context, w *workload) error {
		var view View // without Members: it removes all labels and slots
		if err := w.look(ctx, &view); err != nil {
			return err
		}
		decision := Decide(view)
		left = len(decision.Labels) > maxLabels || len(view.Slots) > 0
		if _, err := w.change(ctx, decision, 0); err != nil || len(decision.Labels) > maxLabels {
			return err
		}
		found, objects, err := setOf(p.Cluster.Name, 0, nil, nil).Apply(ctx, w, p.Cluster)
		left = left || objects
		out.Join(found)
		return err
	})
	switch {
	case err != nil || !reached:
		return out, err
	case !left:
		return out, mark(ctx, p, "")
	}
	reason := ReasonInPlaceProgressing
	if p.View.Enabled { // the Cluster is as it asks otherwise
		reason = ""
	}
	out.Add(reason, "what updates in place have in the workload cluster is being deleted")
	out.RequeueIn(labelDelay)
	return out, nil
}

// visit has a function use the workload cluster. If that is not reached, it reports so.
func (s *Step) visit(ctx context.Context, p *controller.Pass, out *controller.Outcome,
	visit func(context.Context, *workload) error,
) (reached bool, err error) {
	key := client.ObjectKeyFromObject(p.Cluster)
	connection, err := s.clusters.Open(ctx, p.Cluster)
	if err == nil {
		defer connection.Close()
		w := &workload{Client: p.Writer.Client.Remote(connection, key), cluster: p.Cluster.Name, now: s.now()}
		err = s.clusters.Visit(ctx, p.Cluster, func(ctx context.Context) error { return visit(ctx, w) })
	}
	if err == nil {
		return true, nil
	}
	advice := ""
	if !p.View.Enabled {
		advice = "; to leave nodes and workload cluster as they are, remove annotations " + contract.AnnotationRollout +
			" and " + AnnotationInPlaceApplied
	}
	if refused, ok := errors.AsType[*remote.RefusedError](err); ok {
		out.Add(ReasonInPlaceFailed, "updates in place: %s%s", refused, advice)
		out.RequeueIn(lookDelay)
		return false, nil
	}
	if away, ok := errors.AsType[*remote.AwayError](err); ok {
		out.Add(ReasonInPlaceUnknown, "cannot tell how far updates in place are: %s%s", away, advice)
		out.RequeueIn(away.RequeueAfter)
		return false, nil
	}
	return false, err
}

// mark writes AnnotationInPlaceApplied, or removes it for "".
func mark(ctx context.Context, p *controller.Pass, value string) error {
	if p.Cluster.Annotations[AnnotationInPlaceApplied] == value {
		return nil
	}
	err := p.Writer.Annotate(ctx, p.Cluster.DeepCopy(), map[string]string{AnnotationInPlaceApplied: value})
	return err //nolint:wrapcheck // it says what it wrote
}
