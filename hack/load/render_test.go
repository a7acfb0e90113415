package main

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// BenchmarkRender measures command render for 1,000 Clusters, and compares it with a quarter of them. With -short, only
// the comparison has a bound: seconds are those of the machine.
func BenchmarkRender(b *testing.B) {
	const all, part = 1000, 250
	seconds := map[int]float64{}
	for _, count := range []int{part, all} {
		text := manifests(b, count)
		var out, problems bytes.Buffer
		before := cpu(b)
		args := []string{"render", "-f", "-", "--default-proxy-secret", mgmt.SystemNamespace + "/" + secretName}
		status := cli.Main(b.Context(), args, kit.Streams{In: strings.NewReader(text), Out: &out, Err: &problems}, offline.New())
		seconds[count] = (cpu(b) - before).Seconds()
		patched := bytes.Count(out.Bytes(), []byte(contract.AnnotationOutputVersion))
		if status != 0 || patched != (1+pools)*count {
			b.Fatalf("status %d, %d patched objects of %d Clusters: %s", status, patched, count, &problems)
		}
	}
	ratio := seconds[all] / (seconds[part] * all / part)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(seconds[all], "CPU-s/1000-Clusters")
	b.ReportMetric(ratio, "times-four-times-250")
	if seconds[all] > 12 && !testing.Short() {
		b.Errorf("1,000 Clusters take %.1f s of CPU, at most 12", seconds[all])
	}
	if ratio > 1.3 {
		b.Errorf("1,000 Clusters take %.2f times as much as four times 250, at most 1.3", ratio)
	}
}

// manifests returns those of Clusters and of their proxy Secret.
func manifests(b *testing.B, clusters int) string {
	b.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		b.Fatal(err)
	}
	objects := []client.Object{proxySecret("proxy-1.example.com")}
	for i := range clusters {
		of, err := classic(i)
		if err != nil {
			b.Fatal(err)
		}
		objects = append(objects, of...)
	}
	var text strings.Builder
	for _, object := range objects {
		kind, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			b.Fatal(err)
		}
		object.GetObjectKind().SetGroupVersionKind(kind)
		document, err := yaml.Marshal(object)
		if err != nil {
			b.Fatal(err)
		}
		text.WriteString("---\n")
		text.Write(document)
	}
	return text.String()
}

// cpu returns the CPU time of all threads so far.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
