package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"text/tabwriter"
)

// results is all that was measured.
type results struct {
	Clusters int               `json:"clusters"`
	Pools    int               `json:"pools"`
	Phases   map[string]*phase `json:"phases"`

	// NullFirstReadySeconds is how long the manager that does nothing took to start at an API server that had just
	// started itself, NullEmptyReadySeconds how long after that.
	NullFirstReadySeconds float64 `json:"nullFirstReadySeconds"`
	NullEmptyReadySeconds float64 `json:"nullEmptyReadySeconds"`

	HooksReadySeconds float64 `json:"hooksReadySeconds"`
	HooksResidentMiB  float64 `json:"hooksResidentMiB"`

	EmptyReadySeconds  float64 `json:"emptyReadySeconds"`
	EmptyResidentMiB   float64 `json:"emptyResidentMiB"`
	EmptyLiveMiB       float64 `json:"emptyLiveMiB"`
	ReadySeconds       float64 `json:"readySeconds"`
	StatusSeconds      float64 `json:"statusSeconds"`
	PlainWriterSeconds float64 `json:"plainWriterSeconds"`
	NullReadySeconds   float64 `json:"nullReadySeconds"`
	NullCPUSeconds     float64 `json:"nullCPUSeconds"`
	NullResidentMiB    float64 `json:"nullResidentMiB"`
	NullLiveMiB        float64 `json:"nullLiveMiB"`

	// StatusRequests are those of command status for all Clusters.
	StatusRequests requests `json:"statusRequests"`

	// QueuedSeconds is how long it took from the change of the proxy Secret until all its Clusters were queued, as far as
	// metrics show it, WatchedSeconds until another client had the Secret.
	QueuedSeconds  float64 `json:"queuedSeconds"`
	WatchedSeconds float64 `json:"watchedSeconds"`

	// Newcomers is how many Clusters were created while others waited for their turn, NewcomerSeconds how long half of
	// them took at most until they were configured, NewcomerP99Seconds how long 99 % of them did, and NewcomerBehind the
	// most others that got a write in this time. AloneSeconds is how long half of those took that were created before.
	Newcomers          int     `json:"newcomers"`
	NewcomerSeconds    float64 `json:"newcomerSeconds"`
	NewcomerP99Seconds float64 `json:"newcomerP99Seconds"`
	NewcomerBehind     int     `json:"newcomerBehind"`
	AloneSeconds       float64 `json:"aloneSeconds"`

	Webhook struct {
		Scale          call     `json:"scale"`
		Create         call     `json:"create"`
		NullScale      call     `json:"nullScale"`
		NullCreate     call     `json:"nullCreate"`
		ScaleRequests  requests `json:"scaleRequests"`
		CreateRequests requests `json:"createRequests"`
	} `json:"webhook"`

	ProgramMB float64 `json:"programMB"`
	// Seconds is how long the measurement took.
	Seconds float64 `json:"seconds"`
}

// print writes the table.
func (r *results) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, floor, wanted, format string, values ...any) {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", name, fmt.Sprintf(format, values...), floor, wanted)
	}
	n := float64(r.Clusters)
	_, _ = fmt.Fprintf(table, "%d Clusters, %d pools each\tmeasured\tfloor\twanted with 10,000\n", r.Clusters, r.Pools)
	converge, restart, changed, same, rest := r.Phases["converge"], r.Phases["restart"], r.Phases["changed"],
		r.Phases["same"], r.Phases["rest"]
	row("resident memory, converged (peak)", fmt.Sprintf("%.0f MiB", r.NullResidentMiB), "250 MiB", "%.0f (%.0f) MiB",
		converge.ResidentMiB, converge.PeakMiB)
	row("resident memory, after a restart (peak)", fmt.Sprintf("%.0f MiB", r.NullResidentMiB), "250 MiB",
		"%.0f (%.0f) MiB", restart.ResidentMiB, restart.PeakMiB)
	row("live heap, after a restart", fmt.Sprintf("%.1f MiB", r.NullLiveMiB), "120 MiB", "%.1f MiB", restart.LiveMiB)
	row("  a Cluster, beyond a manager without any", fmt.Sprintf("%.1f KiB", (r.NullLiveMiB-r.EmptyLiveMiB)*1024/n),
		"10 KiB", "%.1f KiB", r.clusterKiB())
	row("reconciles a Cluster, to converge", "1", "1.2", "%.2f", converge.Reconciles/n)
	row("requests a Cluster, to converge", "7", "8", "%.2f", float64(converge.Requests.total())/n)
	for _, kind := range slices.Sorted(maps.Keys(converge.Requests)) {
		if count := converge.Requests[kind]; count > 1 {
			row("  "+kind, "", "", "%.2f", float64(count)/n)
		}
	}
	row("restart: writes, reads", "0, 0", "0, 10", "%d, %d", restart.Requests.writes(), restart.Requests.reads())
	row("restart: reconciles a Cluster", "1", "", "%.2f", restart.Reconciles/n)
	row("restart: seconds, of CPU", fmt.Sprintf("%.2f, %.2f", r.NullReadySeconds, r.NullCPUSeconds), "1.5x",
		"%.2f, %.2f (%.2fx)",
		restart.Seconds, restart.CPUSeconds, restart.CPUSeconds/r.NullCPUSeconds)
	row("Secret changed: writes, reads", fmt.Sprintf("%d, 0", r.Clusters), "the same", "%d, %d", changed.Requests.writes(),
		changed.Requests.reads())
	row("Secret changed: reconciles a Cluster", "1", "1.05", "%.2f", changed.Reconciles/n)
	row("Secret changed: seconds", fmt.Sprintf("%.2f", r.PlainWriterSeconds), "1.1x", "%.2f (%.2fx)",
		changed.AnsweredSeconds, changed.AnsweredSeconds/r.PlainWriterSeconds)
	row("Secret changed: until its Clusters are queued", fmt.Sprintf("%.0f ms", 1000*r.WatchedSeconds), "100 ms",
		"%.0f ms", 1000*r.QueuedSeconds)
	row("same bytes: writes, reads", "0, 0", "0, 10", "%d, %d", same.Requests.writes(), same.Requests.reads())
	row("same bytes: reconciles", "0", "0", "%.0f", same.Reconciles)
	row("command status: reads", "", "2", "%d", r.StatusRequests.reads())
	row("command status: seconds", "", "2 s", "%.2f s", r.StatusSeconds)
	row("rest, two resyncs: requests", "0", "0", "%d", rest.Requests.total())
	row("rest: CPU with a resync each ten minutes", "0", "0.1 %", "%.3f %%",
		100*rest.CPUSeconds/rest.Reconciles*n/steadyResyncs/600)
	row("created in a fan-out: writes before it", "", "", "%d of %d (%d Clusters)", r.NewcomerBehind,
		r.Clusters, r.Newcomers)
	row("created in a fan-out: p50, p99", fmt.Sprintf("%.2f s", r.AloneSeconds), "2 s", "%.2f, %.2f s", r.NewcomerSeconds,
		r.NewcomerP99Seconds)
	for _, c := range []struct {
		name       string
		ours, null call
		asked      requests
	}{
		{"scales", r.Webhook.Scale, r.Webhook.NullScale, r.Webhook.ScaleRequests},
		{"creates", r.Webhook.Create, r.Webhook.NullCreate, r.Webhook.CreateRequests},
	} {
		row(fmt.Sprintf("webhook, %s a control plane (%d bytes): CPU", c.name, c.ours.Bytes),
			fmt.Sprintf("%.3f ms", c.null.CPUMilliseconds), "3x",
			"%.3f ms (%.2fx)", c.ours.CPUMilliseconds, c.ours.CPUMilliseconds/c.null.CPUMilliseconds)
		row("  allocations", fmt.Sprintf("%.0f", c.null.Allocations), "400", "%.0f", c.ours.Allocations)
		row("  reads", "0", "0", "%d", c.asked.reads())
	}
	row("start to ready, without Clusters", fmt.Sprintf("%.2f s (%.2f s at a new API server)", r.NullEmptyReadySeconds,
		r.NullFirstReadySeconds), "1.5 s", "%.2f s", r.EmptyReadySeconds)
	row("start to ready", fmt.Sprintf("%.2f s", r.NullReadySeconds), "1.5 s", "%.2f s", r.ReadySeconds)
	row("resident memory without Clusters", "", "", "%.0f MiB", r.EmptyResidentMiB)
	row("hooks: start to ready", "", "0.05 s", "%.3f s", r.HooksReadySeconds)
	row("hooks: resident memory", "", "30 MiB", "%.1f MiB", r.HooksResidentMiB)
	row("program", "", "40 MB", "%.1f MB", r.ProgramMB)
	_ = table.Flush()
}

// clusterKiB is the live heap that a Cluster takes after a restart.
func (r *results) clusterKiB() float64 {
	return (r.Phases["restart"].LiveMiB - r.EmptyLiveMiB) * 1024 / float64(r.Clusters)
}

// limit is what a count may be.
type limit struct {
	Value float64 `json:"value"`
	// Tolerance is by how much of the value it may grow.
	Tolerance float64 `json:"tolerance"`
}

// counts are what is compared: figures that do not depend on how busy the machine is, with the tolerance of a new
// baseline. Races decide whether a status is written once or twice, hence not 0.
func (r *results) counts() map[string]limit {
	all, n := map[string]limit{}, float64(r.Clusters)
	round := func(value float64) float64 { return math.Round(value*100) / 100 }
	for _, name := range []string{"converge", "restart", "changed", "same"} {
		f := r.Phases[name]
		all[name+": reconciles a Cluster"] = limit{round(f.Reconciles / n), 0.25}
		for kind, count := range f.Requests {
			tolerance := 0.05
			if kind == "patch clusters/status" || kind == "create events" || kind == "get secrets" {
				tolerance = 0.25
			}
			all[name+": "+kind+" a Cluster"] = limit{round(float64(count) / n), tolerance}
		}
	}
	all["rest: requests"] = limit{float64(r.Phases["rest"].Requests.total()), 0.25}
	all["webhook, scales: allocations"] = limit{math.Round(r.Webhook.Scale.Allocations), 0.05}
	all["webhook, creates: allocations"] = limit{math.Round(r.Webhook.Create.Allocations), 0.05}
	all["webhook, scales: reads"] = limit{float64(r.Webhook.ScaleRequests.reads()), 0}
	all["restart: KiB a Cluster"] = limit{round(r.clusterKiB()), 0.15}
	return all
}

// writeBaseline writes the counts into a file.
func (r *results) writeBaseline(file string) error {
	text, err := json.MarshalIndent(r.counts(), "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the baseline: %w", err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil { //nolint:gosec // anybody may read it
		return fmt.Errorf("writing the baseline: %w", err)
	}
	return nil
}

// slack is by how much a count a Cluster may grow whatever its tolerance: a handful of requests of a whole run.
const slack = 0.1

// compare fails if a count has grown more than its tolerance.
func (r *results) compare(file string, out io.Writer) error {
	text, err := os.ReadFile(file) //nolint:gosec // the developer names the file
	if err != nil {
		return fmt.Errorf("reading the baseline: %w", err)
	}
	var baseline map[string]limit
	if err := json.Unmarshal(text, &baseline); err != nil {
		return fmt.Errorf("reading the baseline %s: %w", file, err)
	}
	_, _ = fmt.Fprintln(out)
	grown := 0
	counts := r.counts()
	for _, name := range slices.SortedFunc(maps.Keys(counts), cmp.Compare[string]) {
		before, known := baseline[name]
		now := counts[name].Value
		switch allowed := before.Value*(1+before.Tolerance) + slack; {
		case now > allowed:
			grown++
			_, _ = fmt.Fprintf(out, "GROWN   %s: %g, was %g, at most %.2f\n", name, now, before.Value, allowed)
		case known && now < before.Value*(1-before.Tolerance)-slack:
			_, _ = fmt.Fprintf(out, "less    %s: %g, was %g; write the baseline anew with make bench-baseline\n", name,
				now, before.Value)
		}
	}
	if grown > 0 {
		return errors.New(
			"counts have grown: mend it, or say in the commit why, and write the baseline anew with make bench-baseline")
	}
	_, _ = fmt.Fprintf(out, "%d counts compared with %s: none has grown\n", len(counts), file)
	return nil
}
