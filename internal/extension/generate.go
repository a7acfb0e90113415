package extension

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/extension/request"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// generator makes the patches of one request.
type generator struct {
	asked

	handlers *Handlers
	ctx      context.Context              //nolint:containedctx // lives as long as the call it is made for
	stored   *Stored                      // once it has been asked for
	pools    map[intent.Pool]bool         // those of stored, and the control plane
	values   map[intent.Pool]*plan.Values // by recipeKey
	made     map[madeOf][]byte            // in base64
	encoder  patch.Encoder
}

// madeOf is everything that a patch depends on. Pools of one class mostly have the same template.
type madeOf struct {
	template     string
	controlPlane bool
	recipe       intent.Pool // see recipeKey
}

// respond answers GeneratePatches in the form in which encoding/json writes a GeneratePatchesResponse. The answer is a
// function of the request alone, unless delivery is Inline. Its error is for the user and the same for the same
// request.
func (h *Handlers) respond(ctx context.Context, body []byte, response *bytes.Buffer) error {
	q, err := request.Decode(body)
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
			asked: a, handlers: h, ctx: ctx, values: map[intent.Pool]*plan.Values{}, made: map[madeOf][]byte{},
		}
		if err := g.generate(q, &items{response: response, limit: maxAnswer(len(body))}); err != nil {
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
}

// add writes the item with a UID in JSON and a patch in base64.
func (i *items) add(uid, patch []byte) error {
	if i.response.Len()+len(patch) > i.limit {
		return fmt.Errorf("the response would have more than %d bytes; split the pools of the Cluster among several Clusters",
			i.limit)
	}
	start := `,"items":[{"uid":`
	if i.count++; i.count > 1 {
		start = `,{"uid":`
	}
	i.response.WriteString(start)
	i.response.Write(uid)
	i.response.WriteString(`,"patchType":"JSONPatch","patch":"`)
	i.response.Write(patch)
	i.response.WriteString(`"}`)
	return nil
}

func (i *items) end() {
	if i.count > 0 {
		i.response.WriteByte(']')
	}
}

// generate makes the patches for a request.
func (g *generator) generate(q request.Request, to *items) error {
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
		made, err := g.template(it, pool)
		if err != nil {
			problems = append(problems, err.Error())
		}
		if made != nil && it.UID != nil {
			if err := to.add(it.UID, made); err != nil {
				return err
			}
		}
	}
	to.end()
	if len(problems) > 0 {
		slices.Sort(problems) // the order of pools in a request changes
		return errors.New(strings.Join(slices.Compact(problems), "; "))
	}
	return nil
}

// errTooLong reports that Cluster API no longer waits for the response.
var errTooLong = errors.New("the response takes longer than the timeout of Cluster API, which retries")

// windowsMachines returns the pools whose machine template asks for Windows. There are none in most requests.
func windowsMachines(q request.Request) (map[request.PoolKey]bool, error) {
	found := map[request.PoolKey]bool{}
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

// template returns the patch of one template in base64, nil if there is nothing to change.
func (g *generator) template(it *request.Item, pool intent.Pool) ([]byte, error) {
	if !intent.IsEnabledAt(g.cluster.Labels, g.cluster.Annotations, it.Holder.Version) {
		return nil, nil
	}
	recipe := g.recipeKey(pool)
	if made, found := g.made[madeOf{string(it.Object), it.IsControlPlane(), recipe}]; found {
		return made, nil
	}
	made, err := g.make(it, pool)
	if err == nil && len(g.settings.Pools) > 1 { // one template of each kind is like no other
		g.made[madeOf{string(it.Object), it.IsControlPlane(), recipe}] = made
	}
	return made, err
}

// make is template for one that differs from those before.
func (g *generator) make(it *request.Item, pool intent.Pool) ([]byte, error) {
	t, err := it.Template()
	if err != nil {
		return nil, err
	}
	if !t.Supported {
		return nil, nil
	}
	decision, err := g.decide(t.Spec, it, pool)
	if err != nil {
		return nil, err
	}
	operations := patch.Operations(t.At, t.Spec, decision.Edits)
	if decision.Incomplete {
		operations, err = holdBack(&t)
	}
	if err != nil || len(operations) == 0 {
		return nil, err
	}
	text, err := g.encoder.Encode(operations)
	if err != nil {
		return nil, fmt.Errorf("writing a patch: %w", err)
	}
	return base64.StdEncoding.AppendEncode(nil, text), nil
}
