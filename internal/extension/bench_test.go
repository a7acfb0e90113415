package extension

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
)

func bodyOf(tb testing.TB, o hookrequests.Options) []byte {
	tb.Helper()
	q, err := hookrequests.Generate(o)
	if err != nil {
		tb.Fatal(err)
	}
	body, err := json.Marshal(q)
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

// BenchmarkGeneratePatches measures everything between reading a body and writing an answer.
func BenchmarkGeneratePatches(b *testing.B) {
	for _, pools := range []int{1, 10, 100} {
		for name, o := range map[string]hookrequests.Options{
			"alike": {Pools: pools}, "distinct": {Pools: pools, Distinct: true}, "overrides": {Pools: pools, EverySecond: `{"secretName":"other"}`},
			"unlabelled": {Pools: pools, Unlabelled: true},
		} {
			b.Run(fmt.Sprintf("pools=%d/%s", pools, name), func(b *testing.B) {
				body := bodyOf(b, o)
				h := &Handlers{}
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				response := &bytes.Buffer{}
				for b.Loop() {
					response.Reset()
					if err := h.respond(b.Context(), body, response); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
