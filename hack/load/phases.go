package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// quiet is how long nothing happens at the end of a phase: longer than any delay of the controller.
const quiet = 2500 * time.Millisecond

// measure runs all phases.
func measure(ctx context.Context, program string, clusters int) (f *figures, err error) {
	w, err := newWorld(ctx, program, clusters)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	var base, floor idle
	var seconds float64
	for _, phase := range []struct {
		name string
		run  func() error
	}{
		{"hooks", func() error { return w.hooks(ctx) }},
		{"render", func() error { return w.render(ctx) }},
		{"no Clusters", func() (err error) { base, err = w.empty(ctx); return err }},
		{fmt.Sprintf("creating %d Clusters", clusters), func() error {
			return each(writers, clusters, func(i int) error { return w.create(ctx, i) })
		}},
		{"from nothing to configured", func() error { return w.configure(ctx) }},
		{"command status", func() error { return w.status(ctx) }},
		{"floor of a restart and of webhooks", func() (err error) { floor, err = w.floor(ctx); return err }},
		{"restart", func() error { return w.restart(ctx, base, floor) }},
		{"webhooks", func() error { return w.admit(ctx, floor) }},
		{"one Secret for all", func() (err error) { seconds, err = w.change(ctx); return err }},
		{"created during a change of all", func() error { return w.newcomers(ctx) }},
		{"plain writer", func() error { return w.plainWriter(ctx, seconds) }},
		{"rest", func() error { return w.rest(ctx) }},
	} {
		w.progress(phase.name)
		if err := phase.run(); err != nil {
			return nil, fmt.Errorf("%s: %w", phase.name, err)
		}
	}
	return w.figures, nil
}

// phase is what the manager did in a part of the measurement.
type phase struct {
	requests        requests
	reconciles      float64
	cpuMilliseconds float64
}

// watch runs what begins a phase, and waits until nothing happens any more and done reports true. The manager is
// started by begin or before.
func (w *world) watch(ctx context.Context, begin func() error, done func(p phase) bool) (phase, error) {
	var f phase
	var reconciled, cpu float64
	before, err := w.audit.read()
	if err != nil {
		return f, err
	}
	if w.manager != nil {
		if reconciled, _, err = w.manager.progress(ctx); err != nil {
			return f, err
		}
		if cpu, err = w.manager.cpu(); err != nil {
			return f, err
		}
	}
	if err := begin(); err != nil {
		return f, err
	}
	for last, seen := time.Now(), -1.0; ; time.Sleep(100 * time.Millisecond) {
		reconciles, waiting, err := w.manager.progress(ctx)
		if err != nil {
			return f, err
		}
		all, err := w.audit.read()
		if err != nil {
			return f, err
		}
		f.requests, f.reconciles = all.minus(before), reconciles-reconciled
		if state := f.reconciles + 1e9*f.requests.total(); state != seen || waiting > 0 {
			last, seen = time.Now(), state
			now, err := w.manager.cpu()
			if err != nil {
				return f, err
			}
			f.cpuMilliseconds = now - cpu
		}
		if time.Since(last) > quiet && done(f) {
			return f, nil
		}
		if time.Since(last) > 2*time.Minute {
			return f, fmt.Errorf("it stopped before its end: %.0f reconciles, requests %v", f.reconciles, f.requests)
		}
	}
}

// reconciled reports that every Cluster was reconciled.
func (w *world) reconciled(p phase) bool { return p.reconciles >= float64(w.clusters) }

// rewritten reports that every generated Secret was written.
func (w *world) rewritten(p phase) bool { return p.requests["update secrets"] >= w.clusters }

// idle is what a program needs that has nothing to do.
type idle struct {
	residentMiB, liveKiB, readySeconds, cpuMilliseconds float64
	// scale and create are calls of its webhook.
	scale, create call
}

func (p *process) idle(ctx context.Context) (i idle, err error) {
	i.readySeconds = p.ready.Seconds()
	if i.cpuMilliseconds, err = p.cpu(); err != nil {
		return i, err
	}
	i.residentMiB, _ = p.resident()
	i.liveKiB, _, err = p.heap(ctx)
	return i, err
}

// empty measures a manager without Clusters.
func (w *world) empty(ctx context.Context) (base idle, err error) {
	var null *process
	for range 2 { // an API server that has just started lets the first watch of a kind wait for a second
		if null, err = w.null(ctx); err != nil {
			return base, err
		}
		null.stop()
	}
	if err := w.start(ctx); err != nil {
		return base, err
	}
	defer w.stop()
	if base, err = w.manager.idle(ctx); err != nil {
		return base, err
	}
	w.figures.addWithFloor("no Clusters: start to ready, s", base.readySeconds, null.ready.Seconds())
	w.figures.add("no Clusters: resident, MiB", base.residentMiB)
	return base, nil
}

// configure measures a manager that starts when all Clusters are new.
func (w *world) configure(ctx context.Context) error {
	p, err := w.watch(ctx, func() error { return w.start(ctx) }, w.reconciled)
	if err != nil {
		return err
	}
	defer w.stop()
	if ok, err := w.configured(ctx, w.clusters-1); err != nil || !ok {
		return errors.Join(err, errors.New("the last Cluster is not configured"))
	}
	n := float64(w.clusters)
	w.figures.addWithFloor("new: requests a Cluster", p.requests.total()/n, 7)
	for _, kind := range slices.Sorted(maps.Keys(p.requests)) {
		w.figures.add("new:   "+kind+" a Cluster", float64(p.requests[kind])/n)
	}
	w.figures.addWithFloor("new: reconciles a Cluster", p.reconciles/n, 1)
	w.figures.add("new: CPU a Cluster, ms", p.cpuMilliseconds/n)
	now, peak := w.manager.resident()
	w.figures.add("new: resident, MiB", now)
	w.figures.add("new: peak of resident, MiB", peak)
	return nil
}

// status measures command status for all Clusters.
func (w *world) status(ctx context.Context) error {
	before, err := w.audit.read()
	if err != nil {
		return err
	}
	began := time.Now()
	output, err := exec.CommandContext(ctx, w.program, "status", "-A", "--kubeconfig", w.kubeconfig).CombinedOutput() //nolint:gosec // the program that is measured
	w.figures.add("status -A: time, s", time.Since(began).Seconds())
	if rows := bytes.Count(output, []byte("Configured")); err != nil || rows != w.clusters {
		return errors.Join(err, fmt.Errorf("status shows %d Clusters as configured, want %d", rows, w.clusters))
	}
	after, err := w.audit.read()
	w.figures.add("status -A: reads", after.minus(before).reads())
	return err
}

// floor measures the manager that does nothing.
func (w *world) floor(ctx context.Context) (floor idle, err error) {
	null, err := w.null(ctx)
	if err != nil {
		return floor, err
	}
	defer null.stop()
	if floor, err = null.idle(ctx); err != nil {
		return floor, err
	}
	scaled, created, err := w.reviews(ctx)
	if err != nil {
		return floor, err
	}
	if floor.scale, err = w.callWebhook(ctx, null, scaled); err != nil {
		return floor, err
	}
	floor.create, err = w.callWebhook(ctx, null, created)
	return floor, err
}

// restart measures a manager that starts when all Clusters are configured, and leaves it running.
func (w *world) restart(ctx context.Context, base, floor idle) error {
	p, err := w.watch(ctx, func() error { return w.start(ctx) }, w.reconciled)
	if err != nil {
		return err
	}
	now, err := w.manager.idle(ctx)
	if err != nil {
		return err
	}
	n := float64(w.clusters)
	w.figures.addWithFloor("restart: writes", p.requests.writes(), 0)
	w.figures.addWithFloor("restart: reads", p.requests.reads(), 0)
	w.figures.addWithFloor("restart: start to ready, s", now.readySeconds, floor.readySeconds)
	w.figures.addWithFloor("restart: CPU, ms", p.cpuMilliseconds, floor.cpuMilliseconds)
	w.figures.addWithFloor("restart: live heap a Cluster, KiB", (now.liveKiB-base.liveKiB)/n,
		(floor.liveKiB-base.liveKiB)/n)
	w.figures.addWithFloor("restart: resident, MiB", now.residentMiB, floor.residentMiB)
	return nil
}

// setProxy writes the proxy Secret; touch is an annotation of it.
func (w *world) setProxy(ctx context.Context, host, touch string) error {
	secret := w.secret(host)
	secret.Annotations = map[string]string{"example.com/touched": touch}
	current := &corev1.Secret{}
	if err := w.client.Get(ctx, client.ObjectKeyFromObject(secret), current); err != nil {
		return err
	}
	secret.ResourceVersion, w.written = current.ResourceVersion, time.Now()
	return w.client.Update(ctx, secret)
}

// change changes the proxy of all Clusters, and then writes its Secret again with the same bytes. It returns how many
// seconds passed from the change to the answer to the last request after it.
func (w *world) change(ctx context.Context) (float64, error) {
	p, err := w.watch(ctx, func() error { return w.setProxy(ctx, "proxy-2.example.com", "") }, w.rewritten)
	if err != nil {
		return 0, err
	}
	n, seconds := float64(w.clusters), w.audit.last.Sub(w.written).Seconds()
	w.figures.addWithFloor("one Secret for all: writes a Cluster", p.requests.writes()/n, 1)
	w.figures.addWithFloor("one Secret for all: reads", p.requests.reads(), 0)
	p, err = w.watch(ctx, func() error { return w.setProxy(ctx, "proxy-2.example.com", "again") },
		func(phase) bool { return true })
	w.figures.addWithFloor("the same bytes again: requests a Cluster", p.requests.total()/n, 0)
	return seconds, err
}

// newcomers measures how long new Clusters take while nothing else happens, and while the proxy of all changes.
func (w *world) newcomers(ctx context.Context) error {
	const atOnce = 5
	count, next := min(50, max(atOnce, w.clusters/20)), w.clusters
	create := func() (p50, p99 float64, err error) {
		var mutex sync.Mutex
		var took []float64
		err = each(atOnce, count, func(i int) error {
			began := time.Now()
			if err := w.create(ctx, next+i); err != nil {
				return err
			}
			for ok := false; !ok; time.Sleep(20 * time.Millisecond) {
				if ok, err = w.configured(ctx, next+i); err != nil {
					return err
				}
				if time.Since(began) > 10*time.Minute {
					return fmt.Errorf("%s is not configured", clusterName(next+i))
				}
			}
			mutex.Lock()
			defer mutex.Unlock()
			took = append(took, time.Since(began).Seconds())
			return nil
		})
		if err != nil {
			return 0, 0, err
		}
		next += count
		slices.Sort(took)
		return took[(len(took)-1)/2], took[len(took)-1], nil
	}
	alone, slowestAlone, err := create()
	if err != nil {
		return err
	}
	_, err = w.watch(ctx, func() error {
		if err := w.setProxy(ctx, "proxy-3.example.com", ""); err != nil {
			return err
		}
		median, slowest, err := create()
		w.figures.addWithFloor("created during a change of all: median, s", median, alone)
		w.figures.addWithFloor("created during a change of all: slowest, s", slowest, slowestAlone)
		return err
	}, w.rewritten)
	w.stop()
	return err
}

// plainWriter compares the seconds of a change of all with those of a client that writes all generated Secrets, as the
// ServiceAccount of the product, while the manager that does nothing watches them.
func (w *world) plainWriter(ctx context.Context, seconds float64) error {
	null, err := w.null(ctx)
	if err != nil {
		return err
	}
	defer null.stop()
	writer, err := client.New(w.account, client.Options{Scheme: w.client.Scheme(), Mapper: w.client.RESTMapper()})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	secrets := &corev1.SecretList{}
	if err := w.client.List(ctx, secrets, client.InNamespace(namespace),
		client.HasLabels{contract.LabelGenerated}); err != nil {
		return err
	}
	began := time.Now()
	err = each(writers, w.clusters, func(i int) error {
		secrets.Items[i].Data["plain"] = []byte("written by a plain client")
		return writer.Update(ctx, &secrets.Items[i])
	})
	plain := time.Since(began).Seconds()
	w.figures.addWithFloor("one Secret for all: time, s", seconds, plain)
	w.figures.add("one Secret for all: time, in times of a plain writer", seconds/plain)
	return err
}

// rest measures a manager that keeps reconciling Clusters although nothing changes.
func (w *world) rest(ctx context.Context) error {
	period := max(5*time.Second, time.Duration(w.clusters)*5*time.Millisecond)
	// The plain writer has written into the generated Secrets: the manager repairs them first.
	start := func() error { return w.start(ctx, "--sync-period", period.String()) }
	if _, err := w.watch(ctx, start, w.rewritten); err != nil {
		return err
	}
	defer w.stop()
	const periods = 2
	p, err := w.watch(ctx, func() error { time.Sleep(periods * period); return nil }, func(phase) bool { return true })
	if err != nil {
		return err
	}
	if p.reconciles == 0 {
		return errors.New("no Cluster was reconciled")
	}
	w.figures.addWithFloor("rest: requests", p.requests.total(), 0)
	w.figures.add("rest: CPU with a resync every 10 minutes, % of a core", p.cpuMilliseconds/periods/(10*60*1000)*100)
	return nil
}
