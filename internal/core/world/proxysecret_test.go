package world

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// TestProxySecrets_OfStrangersTakeLittleMemory has 100 labelled Secrets of 1 MiB pass through the transform of the cache,
// and measures what is kept. It is not parallel: other tests would count.
//
//nolint:paralleltest // see above
func TestProxySecrets_OfStrangersTakeLittleMemory(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	for name, data := range map[string]func() map[string][]byte{
		"an unknown key": func() map[string][]byte { return map[string][]byte{"x": bytes.Repeat([]byte("x"), 1<<20)} },
		"certificates": func() map[string][]byte {
			return map[string][]byte{contract.KeyTrustedCA: bytes.Repeat([]byte("x"), 1<<20)}
		},
		"keys": func() map[string][]byte {
			data := map[string][]byte{}
			for i := range 4000 {
				data[fmt.Sprintf("%0250d", i)] = nil
			}
			return data
		},
	} {
		before, cached := heap(), make([]any, 100)
		for i := range cached {
			var err error
			cached[i], err = trimSecret(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{
					Name: fmt.Sprintf("s-%d", i), Labels: map[string]string{contract.LabelProxySecret: ""},
					Annotations: map[string]string{"a": strings.Repeat("x", 100<<10)}, Finalizers: []string{strings.Repeat("x", 10<<10)},
				},
				Data: data(),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		took := int64(heap()) - int64(before) //nolint:gosec // no heap has so many bytes
		runtime.KeepAlive(cached)
		t.Logf("%s: %d KiB are kept of 100 Secrets of 1 MiB", name, took>>10)
		if took > 5<<19 {
			t.Errorf("%s: %d KiB are kept", name, took>>10)
		}
	}
}
