package extension

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// generator makes the patches of one request.
type generator struct {
	asked

	handlers *Handlers
	ctx      context.Context               //nolint:containedctx // lives as long as the call it is made for
	recipes  map[intent.Pool]*patch.Recipe // by recipeKey
	to       items
}

// respond answers GeneratePatches in the form in which encoding/json writes a GeneratePatchesResponse. Its error is
// for the user and the same for the same request.
func (h *Handlers) respond(ctx context.Context, body []byte, response *bytes.Buffer) error {
	q, err := Decode(body)
	if err != nil {
		return err
	}
	a, enabled, err := h.ask(q)
	if err != nil {
		return err
	}
	response.WriteString(`{"status":"Success"`)
	if enabled {
		g := &generator{
			asked: a, handlers: h, ctx: ctx, recipes: map[intent.Pool]*patch.Recipe{},
			to: items{response: response, limit: maxAnswer(len(body))},
		}
		if err := g.generate(q); err != nil {
			return err
		}
	}
	response.WriteByte('}')
	return nil
}

// items writes the items of an answer.
type items struct {
	response *bytes.Buffer
	limit    int // of the response in bytes
	count    int
	full     bool // the response would have had more
}

// add writes the item with a UID in JSON and a patch.
func (i *items) add(uid, patch []byte) {
	if i.begin(uid, base64.StdEncoding.EncodedLen(len(patch))) {
		_, _ = i.response.Write(base64.StdEncoding.AppendEncode(i.response.AvailableBuffer(), patch))
		i.response.WriteString(`"}`)
	}
}

// begin writes an item up to its patch, and makes room for a patch of a size.
func (i *items) begin(uid []byte, size int) bool {
	if i.full = i.full || i.response.Len()+size > i.limit; i.full {
		return false
	}
	start := `,"items":[{"uid":`
	if i.count++; i.count > 1 {
		start = `,{"uid":`
	}
	i.response.WriteString(start)
	i.response.Write(uid)
	i.response.WriteString(`,"patchType":"JSONPatch","patch":"`)
	i.response.Grow(size)
	return true
}

func (i *items) end() {
	if i.count > 0 {
		i.response.WriteByte(']')
	}
}

// generate makes the patches for a request.
func (g *generator) generate(q Request) error {
	windows, err := windowsMachines(q)
	if err != nil {
		return err
	}
	var problems []string
	pools := g.settings.Pools
	for i := range q.Items {
		if g.ctx.Err() != nil {
			return errTooLong
		}
		it := &q.Items[i]
		var pool intent.Pool // the zero pool is the control plane
		switch {
		case it.IsControlPlane():
		case it.IsPool():
			pool, pools = pools[0], pools[1:]
			if windows[it.Key()] {
				continue
			}
		default:
			continue
		}
		if err := g.template(it, pool); err != nil {
			problems = append(problems, err.Error())
		}
		if g.to.full {
			return fmt.Errorf(
				"the response would have more than %d bytes; split the pools of the Cluster among several Clusters", g.to.limit)
		}
	}
	g.to.end()
	if len(problems) > 0 {
		slices.Sort(problems) // the order of pools in a request changes
		return errors.New(strings.Join(slices.Compact(problems), "; "))
	}
	return nil
}

// errTooLong reports that Cluster API no longer waits for the response.
var errTooLong = errors.New("the response takes longer than the timeout of Cluster API, which retries")

// windowsMachines returns the pools whose machine template asks for Windows. There are none in most requests.
func windowsMachines(q Request) (map[PoolKey]bool, error) {
	found := map[PoolKey]bool{}
	for i := range q.Items {
		it := &q.Items[i]
		asks, err := it.AsksForWindows()
		if err != nil {
			return nil, err
		}
		if asks {
			found[it.Key()] = true
		}
	}
	return found, nil
}

// template writes the patch of one template, if there is something to change.
func (g *generator) template(it *Item, pool intent.Pool) error {
	if !intent.IsEnabledAt(g.cluster.Labels, g.cluster.Annotations, it.Holder.Version) {
		return nil
	}
	text, err := g.make(it, pool)
	if text != nil && it.UID != nil {
		g.to.add(it.UID, text)
	}
	return err
}

// make returns the patch of one template in JSON, nil if there is nothing to change. It is valid until the next call.
func (g *generator) make(it *Item, pool intent.Pool) ([]byte, error) {
	t, err := it.Template()
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, nil
	}
	spec := t.Bootstrap().View()
	decision, err := g.decide(spec, it, pool)
	if err != nil {
		return nil, err
	}
	at := t.Location()
	at.Alone = 0 // a hook leaves no spec empty
	operations := patch.Operations(at, spec, decision.Edits)
	if len(operations) == 0 {
		return nil, nil
	}
	return patch.EncodePatch(operations)
}
