package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimeserver "sigs.k8s.io/cluster-api/exp/runtime/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
)

// mostOfAnEmptyHandler is how many times the CPU of an empty handler GeneratePatches may take. Cluster API waits for it
// in each reconcile of a topology. docs/development/performance.md has the same bound.
const mostOfAnEmptyHandler = 8

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

// BenchmarkGeneratePatches compares the handler with an empty one, both on Cluster API's server. No two pools or Clusters are alike, and every second pool has a Secret of its own. Both get the
// same requests in turns.
func BenchmarkGeneratePatches(b *testing.B) {
	for _, pools := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("pools=%d", pools), func(b *testing.B) {
			empty := onServer(b, func(_ context.Context, _ *runtimehooksv1.GeneratePatchesRequest,
				response *runtimehooksv1.GeneratePatchesResponse,
			) {
				response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
			})
			full := onServer(b, (&Handlers{}).GeneratePatches)
			var bodies [][]byte
			for i := range 16 {
				bodies = append(bodies, bodyOf(b, hookrequests.Options{
					Cluster: i, Pools: pools, Distinct: true, EverySecond: `{"secretName":"other"}`,
				}))
			}
			var floor, ours time.Duration
			rounds := 0
			for b.Loop() {
				before := cpu(b)
				for _, body := range bodies {
					recorder := httptest.NewRecorder()
					request := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/", bytes.NewReader(body))
					empty.ServeHTTP(recorder, request)
					if !bytes.Contains(recorder.Body.Bytes(), []byte(`"status":"Success"`)) {
						b.Fatal(recorder.Body)
					}
				}
				between := cpu(b)
				for _, body := range bodies {
					recorder := httptest.NewRecorder()
					request := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/", bytes.NewReader(body))
					full.ServeHTTP(recorder, request)
					if patches := bytes.Count(recorder.Body.Bytes(), []byte(`"patch"`)); patches != pools+1 {
						b.Fatal(recorder.Body)
					}
				}
				after := cpu(b)
				floor, ours, rounds = floor+between-before, ours+after-between, rounds+1
			}
			calls, times := float64(rounds*len(bodies)), float64(ours)/float64(floor)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(ours.Seconds()*1000/calls, "CPU-ms")
			b.ReportMetric(floor.Seconds()*1000/calls, "CPU-ms/empty")
			b.ReportMetric(times, "times-empty")
			if times > mostOfAnEmptyHandler {
				b.Errorf("%.1f times an empty handler, at most %d", times, mostOfAnEmptyHandler)
			}
		})
	}
}

// onServer returns a handler as Cluster API's server calls it.
func onServer(b *testing.B, handler runtimecatalog.Hook) http.Handler {
	b.Helper()
	catalog := runtimecatalog.New()
	if err := runtimehooksv1.AddToCatalog(catalog); err != nil {
		b.Fatal(err)
	}
	server, err := runtimeserver.New(runtimeserver.Options{Catalog: catalog})
	if err != nil {
		b.Fatal(err)
	}
	const name = "benchmark"
	if err := server.AddExtensionHandler(runtimeserver.ExtensionHandler{
		Hook: runtimehooksv1.GeneratePatches, Name: name, HandlerFunc: handler,
	}); err != nil {
		b.Fatal(err)
	}
	gvh, err := catalog.GroupVersionHook(runtimehooksv1.GeneratePatches)
	if err != nil {
		b.Fatal(err)
	}
	routes := routes{handlers: map[string]http.Handler{}}
	server.Server = routes
	if err := server.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	return routes.handlers[runtimecatalog.GVHToPath(gvh, name)]
}

// routes is a server that keeps its handlers and listens nowhere.
type routes struct {
	ctrlwebhook.Server

	handlers map[string]http.Handler
}

func (r routes) Register(path string, handler http.Handler) { r.handlers[path] = handler }

func (r routes) Start(context.Context) error { return nil }

// cpu returns the CPU time of all threads so far.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
