package workload

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/backoff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
)

// BenchmarkApplier measures a pass that brings the output pods to a workload cluster of its own that has nothing, over
// one connection with TLS. The API server, which answers with the objects that it gets, is measured with it.
func BenchmarkApplier(b *testing.B) {
	var requests atomic.Int64
	var connections sync.Map
	server := hostile(b, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		connections.Store(r.RemoteAddr, true)
		switch {
		case r.Method == http.MethodPatch:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.Copy(w, r.Body)
		case strings.Contains(r.URL.RawQuery, "labelSelector"):
			emptyLists(w, r)
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		}
	})
	settings, err := proxyconfig.Parse(map[string][]byte{"httpProxy": []byte("http://proxy.example.com:3128")})
	if err != nil {
		b.Fatal(err)
	}
	asks, err := publish.ParseList("pods")
	if err != nil {
		b.Fatal(err)
	}
	wanted, err := publish.Of(asks, publish.Input{Cluster: "prod", Settings: settings, NoProxy: ".svc,10.0.0.0/8", Version: "v1.36.0"})
	if err != nil {
		b.Fatal(err)
	}
	connect, err := Connect(secrets{value: server})
	if err != nil {
		b.Fatal(err)
	}
	applier := NewApplier(connect)
	guarded := backoff.New(nil, nil, time.Now) //nolint:forbidigo // the time of writes
	b.ReportAllocs()
	passes, before := 0, live()
	for b.Loop() {
		passes++
		cluster := &kinds.Cluster{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "prod", UID: types.UID(fmt.Sprint(passes)),
		}}
		out, left, err := applier.Apply(b.Context(), cluster, guarded, wanted.Secrets)
		if err != nil || !left || len(out.Findings) > 0 {
			b.Fatal(out.Findings, left, err)
		}
	}
	b.ReportMetric(float64(requests.Load())/float64(passes), "requests/op")
	b.ReportMetric(max(0, live()-before)/float64(passes), "kept-B/op")
	made := 0
	connections.Range(func(any, any) bool { made++; return true })
	b.ReportMetric(float64(made)/float64(passes), "connections/op")
}

// live is the size of the live heap.
func live() float64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
