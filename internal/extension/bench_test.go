package extension

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
)

// BenchmarkGeneratePatches measures what Cluster API's server does with a body: it decodes it, calls a handler and
// encodes the answer. "empty" is a handler that does nothing, which the others are compared with.
func BenchmarkGeneratePatches(b *testing.B) {
	type handler func(context.Context, *runtimehooksv1.GeneratePatchesRequest, *runtimehooksv1.GeneratePatchesResponse)
	empty := func(_ context.Context, _ *runtimehooksv1.GeneratePatchesRequest, r *runtimehooksv1.GeneratePatchesResponse) {
		r.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	}
	ours := (&Handlers{}).GeneratePatches
	for _, pools := range []int{1, 10, 100} {
		for name, c := range map[string]struct {
			options hookrequests.Options
			handler handler
		}{
			"empty":      {hookrequests.Options{Pools: pools, Distinct: true}, empty},
			"distinct":   {hookrequests.Options{Pools: pools, Distinct: true}, ours},
			"alike":      {hookrequests.Options{Pools: pools}, ours},
			"overrides":  {hookrequests.Options{Pools: pools, EverySecond: `{"secretName":"other"}`}, ours},
			"unlabelled": {hookrequests.Options{Pools: pools, Unlabelled: true}, ours},
		} {
			b.Run(fmt.Sprintf("pools=%d/%s", pools, name), func(b *testing.B) {
				q, err := hookrequests.Generate(c.options)
				if err != nil {
					b.Fatal(err)
				}
				body, err := json.Marshal(q)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					var request runtimehooksv1.GeneratePatchesRequest
					var response runtimehooksv1.GeneratePatchesResponse
					if err := json.Unmarshal(body, &request); err != nil {
						b.Fatal(err)
					}
					c.handler(b.Context(), &request, &response)
					if _, err := json.Marshal(response); err != nil || response.Status != runtimehooksv1.ResponseStatusSuccess {
						b.Fatal(response.Message, err)
					}
				}
			})
		}
	}
}
