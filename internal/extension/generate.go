package extension

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/topology"
)

// responder takes the patches of a request, one by one.
type responder interface {
	// add takes the JSON patch (RFC 6902) of the item with a UID in JSON. The patch may be changed after the call, unless it
	// is kept; then one that is at the same place in memory is the same.
	// An error ends the answer.
	add(uid, patch []byte, kept bool) error
}

// generator makes the patches of one request.
type generator struct {
	handlers *Handlers
	ctx      context.Context //nolint:containedctx // lives as long as the call it is made for
	state    State
	stored   *Stored                // once it has been asked for
	pools    map[topology.Pool]bool // those of stored, and the control plane
	cluster  cluster
	settings topology.Settings
	recipes  map[topology.Pool]*preparedRecipe
	base     *patch.Recipe // one that has been made, nil if there is none
	views    []template    // whose view has been decoded
	made     []madePatch
	files    []encodedFile
	scratch  []byte // the patch that is being written
}

// maxSeen is how much of one kind is kept for the rest of a request. To look through more costs more than it saves.
const maxSeen = 16

// preparedRecipe is a recipe that some templates of the request share.
type preparedRecipe struct {
	recipe  *patch.Recipe // nil: nothing is to be there
	waiting bool          // for the control-plane endpoint
}

// madePatch is a patch and all that it depends on. Pools of one class mostly have the same lists.
type madePatch struct {
	recipe           *preparedRecipe
	parents          int
	missing          int
	files, pre, post []byte
	patch            []byte
}

// generateBody is generate for the body of a request.
func (h *Handlers) generateBody(ctx context.Context, body []byte, to responder) error {
	q, err := decodeRequest(body)
	if err != nil {
		return err
	}
	return h.generate(ctx, q, to)
}

// generate makes the patches for a request. It is a function of the request alone, unless delivery is Inline.
// Its error is for the user and the same for the same request; what has been added is void then.
func (h *Handlers) generate(ctx context.Context, q request, to responder) error {
	c, _ := decodeBuiltin(q.variables.builtin)
	if err := topology.CheckLabel(c.labels, c.annotations); err != nil {
		return err
	}
	if !mayBeEnabled(c) {
		return nil
	}
	if err := h.outside(c); err != nil {
		return err
	}
	s := sourceOf(c, q)
	settings, err := topology.Of(s)
	if err != nil {
		_, err = topology.Of(inOrder(s))
		return err
	}
	g := &generator{handlers: h, ctx: ctx, state: h.State, cluster: c, settings: settings}
	windows := windowsMachines(q)
	var (
		problems []string
		pool     int
	)
	for i := range q.items {
		if ctx.Err() != nil {
			return errTooLong
		}
		it := &q.items[i]
		var (
			made []byte
			kept bool
			err  error
		)
		switch {
		case it.isControlPlane():
			made, kept, err = g.template(it, "KubeadmControlPlaneTemplate", controlplanev1.GroupVersion.Group, controlPlaneParents(), topology.Pool{})
		case it.isPool():
			holder := settings.Pools[pool]
			pool++
			if len(windows) > 0 && windows[it.key()] {
				continue
			}
			made, kept, err = g.template(it, "KubeadmConfigTemplate", bootstrapv1.GroupVersion.Group, poolParents(), holder)
		default:
			continue
		}
		if err != nil {
			problems = append(problems, err.Error())
		}
		if made != nil && it.uid != nil {
			if err := to.add(it.uid, made, kept); err != nil {
				return err
			}
		}
	}
	if len(problems) > 0 {
		slices.Sort(problems) // the order of pools in a request changes
		return errors.New(strings.Join(slices.Compact(problems), "; "))
	}
	return nil
}

// errTooLong says that nobody waits for the answer any more.
var errTooLong = errors.New("the answer takes longer than Cluster API waits for it; it asks again")

// windowsMachines returns the pools whose machine template asks for Windows. There are none in most requests.
func windowsMachines(q request) map[poolKey]bool {
	var found map[poolKey]bool
	for i := range q.items {
		if it := &q.items[i]; it.windowsField() != "" {
			if found == nil {
				found = map[poolKey]bool{}
			}
			found[it.key()] = true
		}
	}
	return found
}

// mayBeEnabled reports whether any template of the Cluster can need a patch.
func mayBeEnabled(c cluster) bool {
	if hold, held := topology.HoldOf(c.annotations); held && hold.Enabled {
		return true
	}
	return topology.Asks(c.labels, c.annotations)
}

// sourceOf returns what a request says of the topology, and keeps the holder of each item on the way. Pools come in the
// order of the items that are pools.
func sourceOf(c cluster, q request) topology.Source {
	s := topology.Source{Annotations: c.annotations, Variable: q.variables.own}
	for i := range q.items {
		it := &q.items[i]
		switch {
		case it.isControlPlane():
			_, it.holder = decodeBuiltin(it.variables.builtin)
			s.ControlPlane = it.variables.own
		case it.isPool():
			_, it.holder = decodeBuiltin(it.variables.builtin)
			s.Pools = append(s.Pools, topology.PoolSource{
				Kind: it.holderKind, Name: it.holder.topologyName, Annotations: it.holder.annotations, Variable: it.variables.own,
			})
		}
	}
	return s
}

// template returns the patch of one template, nil if there is nothing to change, and whether it is kept.
func (g *generator) template(it *item, kind, group string, parents []string, pool topology.Pool) (made []byte, kept bool, err error) {
	if !topology.Enabled(g.cluster.labels, g.cluster.annotations, it.holder.version) {
		return nil, false, nil
	}
	t, err := decodeTemplate(it.object, kind, group, parents)
	if err != nil {
		return nil, false, fmt.Errorf("reading the %s of %s: %w", it.fieldPath, it.holderKind, err)
	}
	if !t.supported || patch.Unsupported(patch.Spec{Format: t.format, CRISockets: t.sockets, KubeletArgs: t.kubeletArgs}) != "" {
		return nil, false, nil
	}
	recipe, err := g.recipe(pool)
	if err != nil {
		return nil, false, err
	}
	if recipe.waiting {
		if patch.Unsupported(g.view(&t)) != "" {
			return nil, false, nil
		}
		made, err = holdBack(&t)
		return made, false, err
	}
	if recipe.recipe == nil {
		return nil, false, nil
	}
	for i := range g.made {
		if m := &g.made[i]; m.recipe == recipe && m.parents == len(parents) && m.missing == t.at.Missing &&
			bytes.Equal(m.files, t.files) && bytes.Equal(m.pre, t.pre) && bytes.Equal(m.post, t.post) {
			return m.patch, true, nil
		}
	}
	if made, err = g.operations(&t, recipe.recipe); err != nil || len(g.made) == maxSeen {
		return made, false, err
	}
	made = slices.Clone(made)
	g.made = append(g.made, madePatch{
		recipe: recipe, parents: len(parents), missing: t.at.Missing,
		files: t.files, pre: t.pre, post: t.post, patch: made,
	})
	return made, true, nil
}

// operations is what package patch says about a template. A conflict with a file of the user leaves the template alone;
// the controller reports it.
func (g *generator) operations(t *template, recipe *patch.Recipe) ([]byte, error) {
	spec := g.view(t)
	if patch.Unsupported(spec) != "" {
		return nil, nil
	}
	// The original stays in the template of the ClusterClass, which every request begins with.
	edits, err := patch.EnsureOrAdopt(spec, *recipe, g.settings.Options.Adopt)
	if err != nil {
		return nil, nil //nolint:nilerr // a conflict, which leaves the template alone
	}
	operations := patch.Operations(t.at, spec, edits)
	if len(operations) == 0 {
		return nil, nil
	}
	return g.encode(operations)
}

// view returns the lists of t, decoded once for all templates that have the same.
func (g *generator) view(t *template) patch.Spec {
	for i := range g.views {
		if v := &g.views[i]; bytes.Equal(v.files, t.files) && bytes.Equal(v.pre, t.pre) && bytes.Equal(v.post, t.post) {
			spec := v.lists
			spec.Format, spec.CRISockets, spec.KubeletArgs = t.format, t.sockets, t.kubeletArgs
			return spec
		}
	}
	t.lists = t.view()
	if len(g.views) < maxSeen {
		g.views = append(g.views, *t)
	}
	return t.lists
}
