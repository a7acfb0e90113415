package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func measured() *results {
	r := &results{Clusters: 10, Phases: map[string]*phase{}}
	for _, name := range []string{"converge", "restart", "changed", "same", "rest"} {
		r.Phases[name] = &phase{Reconciles: 10, Requests: requests{"update secrets": 10}}
	}
	return r
}

// TestCompare_FailsWhenACountHasGrown changes one count at a time.
func TestCompare_FailsWhenACountHasGrown(t *testing.T) {
	t.Parallel()
	baseline := filepath.Join(t.TempDir(), "baseline.json")
	if err := measured().writeBaseline(baseline); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		change func(*results)
		says   string
	}{
		"nothing":                    {func(*results) {}, "none has grown"},
		"within the tolerance":       {func(r *results) { r.Phases["same"].Reconciles = 13 }, "none has grown"},
		"reconciles":                 {func(r *results) { r.Phases["same"].Reconciles = 20 }, "GROWN   same: reconciles a Cluster: 2, was 1"},
		"one more write of each":     {func(r *results) { r.Phases["changed"].Requests["update secrets"] = 20 }, "GROWN   changed: update secrets a Cluster: 2, was 1"},
		"a request that nobody sent": {func(r *results) { r.Phases["restart"].Requests["get secrets"] = 10 }, "GROWN   restart: get secrets a Cluster: 1, was 0"},
		"a request at rest":          {func(r *results) { r.Phases["rest"].Requests["get secrets"] = 10 }, "GROWN   rest: requests: 20, was 10"},
		"memory":                     {func(r *results) { r.Phases["restart"].LiveMiB = 1 }, "GROWN   restart: KiB a Cluster: 102.4, was 0"},
		"fewer requests":             {func(r *results) { r.Phases["changed"].Requests = requests{} }, "none has grown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, out := measured(), &bytes.Buffer{}
			row.change(r)
			err := r.compare(baseline, out)
			if (err != nil) != strings.Contains(row.says, "GROWN") || !strings.Contains(out.String(), row.says) {
				t.Errorf("got %v and\n%s", err, out)
			}
		})
	}
}

func TestPercentile_IsAValueThatWasMeasured(t *testing.T) {
	t.Parallel()
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[99-i] = float64(i + 1) // the slowest first
	}
	for _, row := range []struct {
		values     []float64
		part, want float64
	}{
		{nil, 0.99, 0},
		{[]float64{3}, 0.5, 3},
		{[]float64{3}, 0.99, 3},
		{[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{3, 1, 2}, 0.99, 3},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
	} {
		if got := percentile(row.values, row.part); got != row.want {
			t.Errorf("%g of %g: %g, want %g", row.part, row.values, got, row.want)
		}
	}
}

func TestAudit_CountsByVerbAndResource(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "audit.log")
	text := `{"verb":"patch","objectRef":{"resource":"clusters","subresource":"status"}}
{"verb":"get","requestURI":"/apis"}
{"verb":"create","objectRef":{"resource":"events"}}
{"verb":"get","objectRef":{"resource":"secr`
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a := audit{path: log}
	if got, err := a.read(); err != nil || len(got) != 2 || got["patch clusters/status"] != 1 || got.writes() != 1 ||
		got.total() != 2 {
		t.Errorf("got %v, %v", got, err)
	}
	if err := os.WriteFile(log, []byte(text+`ets"}}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := a.read(); err != nil || got["get secrets"] != 1 || got.reads() != 1 {
		t.Errorf("the rest of a line is lost: got %v, %v", got, err)
	}
}

func TestPlot_IsAnSVGWithEachRun(t *testing.T) {
	t.Parallel()
	var files []string
	for _, clusters := range []int{1000, 10} {
		r := measured()
		r.Clusters = clusters
		for _, f := range r.Phases {
			f.LiveMiB, f.ResidentMiB, f.CPUSeconds = float64(clusters), 50, 1
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "run.json")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	out := filepath.Join(t.TempDir(), "growth.svg")
	if err := writePlot(out, files); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	decoder := xml.NewDecoder(bytes.NewReader(text))
	for err == nil {
		_, err = decoder.Token()
	}
	if !errors.Is(err, io.EOF) || strings.Count(string(text), "<circle") != 2*len(curves()) || bytes.Contains(text, []byte("NaN")) {
		t.Errorf("error %v in\n%s", err, text)
	}
	if err := writePlot(out, files[:1]); err == nil {
		t.Error("one run is plotted")
	}
}
