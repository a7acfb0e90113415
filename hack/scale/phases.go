package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/hack/measure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// quiet is how long nothing happens at the end of a phase: longer than any delay of the controller.
const quiet = 2500 * time.Millisecond

// phase is what happened in a part of the measurement.
type phase struct {
	Reconciles float64  `json:"reconciles"`
	Requests   requests `json:"requests"`
	// Seconds is the time from its begin to the last thing that happened, AnsweredSeconds that from its last write of the
	// proxy Secret to the answer to the last request after it, 0 without any.
	Seconds         float64 `json:"seconds"`
	AnsweredSeconds float64 `json:"answeredSeconds"`
	CPUSeconds      float64 `json:"cpuSeconds"`
	ResidentMiB     float64 `json:"residentMiB"`
	PeakMiB         float64 `json:"peakMiB"`
	LiveMiB         float64 `json:"liveMiB"`
}

// manager starts the product, in its first phase.
func (w *world) manager(ctx context.Context, more ...string) (*process, error) {
	free, err := addresses(ctx, 3)
	if err != nil {
		return nil, err
	}
	w.runs++
	p := &process{env: w.managerEnv, health: free[0], metrics: free[1], pprof: free[2]}
	args := append([]string{
		"manager", "--kubeconfig", w.kubeconfig, "--health-addr", p.health,
		"--diagnostics-address", p.metrics, "--insecure-diagnostics",
		"--profiler-address", p.pprof,
		"--default-proxy-secret", proxyNamespace + "/" + proxySecret, "--default-proxy-namespaces",
		"kubernetes.io/metadata.name=" + namespace,
	}, more...)
	return p, launch(ctx, p, filepath.Join(w.folder, fmt.Sprintf("manager-%d.log", w.runs)), w.program,
		append(args, strings.Fields(w.args)...)...)
}

// null starts the manager that does nothing.
func (w *world) null(ctx context.Context, port, certDir string) (*process, error) {
	free, err := addresses(ctx, 2)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	p := &process{health: free[0], pprof: free[1]}
	return p, launch(ctx, p, filepath.Join(w.folder, "null.log"), self, "-null", "-null-kubeconfig", w.kubeconfig,
		"-null-health", p.health,
		"-null-pprof", p.pprof, "-null-port", port, "-null-cert-dir", certDir)
}

// hooks starts the product as a server of hooks, which needs no management cluster.
func (w *world) hooks(ctx context.Context, port, certDir string) (*process, error) {
	free, err := addresses(ctx, 1)
	if err != nil {
		return nil, err
	}
	p := &process{env: w.hooksEnv, health: free[0]}
	return p, launch(ctx, p, filepath.Join(w.folder, "hooks.log"), w.program, "hooks", "--port", port,
		"--bind-address", "127.0.0.1", "--cert-dir", certDir, "--health-addr", p.health, "--diagnostics-address", "0")
}

// watch runs what begins a phase and waits until nothing happens any more and done, if it is not nil, reports true. p
// is set by what starts a process.
func (w *world) watch(ctx context.Context, p **process, begin func() error,
	done func(reconciles float64, r requests) bool,
) (*phase, error) {
	before, err := w.audit.read()
	if err != nil {
		return nil, err
	}
	var cpu, reconciled float64
	if *p != nil {
		if cpu, err = measure.CPUMilliseconds((*p).pid()); err != nil {
			return nil, err
		}
		if reconciled, _, err = (*p).progress(ctx); err != nil {
			return nil, err
		}
	}
	started := time.Now()
	if err := begin(); err != nil {
		return nil, err
	}
	f, last, seen := &phase{}, time.Now(), -1.0
	for {
		reconciles, waiting, err := (*p).progress(ctx)
		if err != nil {
			return nil, err
		}
		all, err := w.audit.read()
		if err != nil {
			return nil, err
		}
		f.Requests, f.Reconciles = all.minus(before), reconciles-reconciled
		if state := f.Reconciles + 1e9*float64(f.Requests.total()); state != seen || waiting > 0 {
			last, seen = time.Now(), state
			now, err := measure.CPUMilliseconds((*p).pid())
			if err != nil {
				return nil, err
			}
			f.CPUSeconds = (now - cpu) / 1000
		}
		if time.Since(last) > quiet && (done == nil || done(f.Reconciles, f.Requests)) {
			break
		}
		if time.Since(last) > 2*time.Minute {
			return nil, fmt.Errorf("nothing happens, and it is not done: %.0f reconciles, requests %v", f.Reconciles, f.Requests)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	f.Seconds = last.Sub(started).Seconds()
	if w.written.After(started) {
		f.AnsweredSeconds = max(0, w.audit.last.Sub(w.written).Seconds())
	}
	f.ResidentMiB, f.PeakMiB = measure.ResidentMiB((*p).pid()), measure.PeakMiB((*p).pid())
	return f, nil
}

// measureAll runs all phases.
func measureAll(ctx context.Context, o options) (r *results, err error) {
	w, err := newWorld(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	r = &results{Clusters: o.clusters, Pools: o.pools, Phases: map[string]*phase{}}
	if err := w.empty(ctx, r); err != nil {
		return nil, err
	}
	w.progress(fmt.Sprintf("creating %d Clusters", o.clusters))
	if err := each(o.clusters, func(i int) error { return w.create(ctx, clusterName(i)) }); err != nil {
		return nil, err
	}
	if err := w.lifecycle(ctx, r); err != nil {
		return nil, err
	}
	if err := w.rest(ctx, r); err != nil {
		return nil, err
	}
	if err := w.webhook(ctx, r); err != nil {
		return nil, err
	}
	if info, err := os.Stat(o.program); err == nil {
		r.ProgramMB = float64(info.Size()) / 1e6
	}
	r.Seconds = time.Since(w.began).Seconds()
	return r, nil
}

// empty measures a manager without Clusters, the one that does nothing, and the server of hooks.
func (w *world) empty(ctx context.Context, r *results) error {
	w.progress("empty")
	folder := filepath.Join(w.folder, "empty")
	port, err := certified(ctx, folder)
	if err != nil {
		return err
	}
	start := func(start func() (*process, error)) (*process, error) {
		p, err := start()
		if err == nil {
			p.stop()
		}
		return p, err
	}
	null := func() (*process, error) { return w.null(ctx, port, folder) }
	// An API server that has just started tells the first who watches a kind to ask again after a second.
	p, err := start(null)
	if err != nil {
		return err
	}
	r.NullFirstReadySeconds = p.ready.Seconds()
	if p, err = start(null); err != nil {
		return err
	}
	r.NullEmptyReadySeconds = p.ready.Seconds()
	if p, err = w.manager(ctx); err != nil {
		return err
	}
	defer p.stop()
	r.EmptyReadySeconds, r.EmptyResidentMiB = p.ready.Seconds(), measure.ResidentMiB(p.pid())
	live, _, err := p.heap(ctx)
	if err != nil {
		return err
	}
	r.EmptyLiveMiB = live / (1 << 20)
	hooks, err := w.hooks(ctx, port, folder)
	if err != nil {
		return err
	}
	defer hooks.stop()
	r.HooksReadySeconds, r.HooksResidentMiB = hooks.ready.Seconds(), measure.ResidentMiB(hooks.pid())
	return nil
}

// lifecycle measures convergence, restart, and changes of the Secret.
func (w *world) lifecycle(ctx context.Context, r *results) error {
	var p *process
	defer func() {
		if p != nil {
			p.stop()
		}
	}()
	start := func() (err error) {
		if p != nil {
			p.stop()
		}
		p, err = w.manager(ctx)
		return err
	}
	run := func(name string, begin func() error, done func(float64, requests) bool) error {
		w.progress(name)
		f, err := w.watch(ctx, &p, begin, done)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.Phases[name] = f
		live, _, err := p.heap(ctx)
		f.LiveMiB = live / (1 << 20)
		return errors.Join(err, p.profile(ctx, w.profiles, "heap", name+".heap.pprof"),
			p.profile(ctx, w.profiles, "allocs", name+".allocs.pprof"))
	}
	all := func(reconciles float64, _ requests) bool { return reconciles >= float64(w.clusters) }
	if err := run("converge", start, all); err != nil {
		return err
	}
	if ok, err := w.configured(ctx, clusterName(w.clusters-1)); err != nil || !ok {
		return errors.Join(err, errors.New("the last Cluster is not configured"))
	}
	if err := w.status(ctx, r); err != nil {
		return err
	}
	p.stop()
	p = nil
	if err := run("restart", start, all); err != nil {
		return err
	}
	r.ReadySeconds = p.ready.Seconds()
	if err := run("changed", func() error { return w.measureFanOut(ctx, p, r) },
		func(_ float64, r requests) bool { return r["update secrets"] >= w.clusters }); err != nil {
		return err
	}
	if err := run("same", func() error { return w.setProxy(ctx, "proxy-2.example.com", "2") }, nil); err != nil {
		return err
	}
	if err := w.nullFloor(ctx, r); err != nil {
		return err
	}
	if err := run("newcomer", func() error { return w.measureNewcomers(ctx, r) },
		func(_ float64, r requests) bool { return r["update secrets"] >= w.clusters }); err != nil {
		return err
	}
	p.stop()
	p = nil
	return w.plainWriter(ctx, r)
}

// status measures command status for all Clusters.
func (w *world) status(ctx context.Context, r *results) error {
	w.progress("status")
	before, err := w.audit.read()
	if err != nil {
		return err
	}
	began := time.Now()
	output, err := exec.CommandContext(ctx, w.program, "status", "-A", "--kubeconfig", w.kubeconfig).CombinedOutput() //nolint:gosec // the program that is measured
	r.StatusSeconds = time.Since(began).Seconds()
	if rows := bytes.Count(output, []byte("Configured")); err != nil || rows != w.clusters {
		return errors.Join(err, fmt.Errorf("status shows %d Clusters as configured, want %d", rows, w.clusters))
	}
	after, err := w.audit.read()
	r.StatusRequests = after.minus(before)
	return err
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

// measureFanOut changes the proxy of all, and measures how long it takes until the Secret has arrived at a client that
// watches nothing else, and until the manager has queued all Clusters.
func (w *world) measureFanOut(ctx context.Context, p *process, r *results) error {
	before, err := p.queued(ctx)
	if err != nil {
		return err
	}
	watcher, err := client.NewWithWatch(w.cluster.Config(), client.Options{Scheme: w.client.Scheme()})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	secrets := &corev1.SecretList{}
	if err := watcher.List(ctx, secrets, client.InNamespace(proxyNamespace)); err != nil {
		return err
	}
	events, err := watcher.Watch(ctx, &corev1.SecretList{}, client.InNamespace(proxyNamespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: secrets.ResourceVersion}})
	if err != nil {
		return fmt.Errorf("watching Secrets: %w", err)
	}
	defer events.Stop()
	if err := w.setProxy(ctx, "proxy-2.example.com", "1"); err != nil {
		return err
	}
	written := time.Now()
	seen := make(chan time.Duration, 1)
	go func() {
		<-events.ResultChan()
		seen <- time.Since(written)
	}()
	for queued := before; queued < before+float64(w.clusters); {
		if time.Since(written) > time.Minute {
			return fmt.Errorf("%.0f of %d Clusters are queued a minute after their proxy Secret has changed", queued-before,
				w.clusters)
		}
		if queued, err = p.queued(ctx); err != nil {
			return err
		}
	}
	r.QueuedSeconds, r.WatchedSeconds = time.Since(written).Seconds(), (<-seen).Seconds()
	return nil
}

// measureNewcomers changes the proxy of all, creates Clusters meanwhile, and measures how long each takes. Before, it
// creates some while nothing else happens.
func (w *world) measureNewcomers(ctx context.Context, r *results) error {
	alone := func() (int, error) { return 0, nil }
	took, _, err := w.newcomers(ctx, "alone", alone)
	if err != nil {
		return err
	}
	r.AloneSeconds = percentile(took, 0.5)
	before, err := w.audit.read()
	if err != nil {
		return err
	}
	if err := w.setProxy(ctx, "proxy-3.example.com", "3"); err != nil {
		return err
	}
	took, r.NewcomerBehind, err = w.newcomers(ctx, "newcomer", func() (int, error) {
		now, err := w.audit.read()
		return now.minus(before)["update secrets"], err
	})
	r.Newcomers, r.NewcomerSeconds, r.NewcomerP99Seconds = len(took), percentile(took, 0.5), percentile(took, 0.99)
	return err
}

// newcomers creates Clusters, one in twenty of those that there are but five at least and fifty at most, five at once.
// It returns how long each took that was configured before fanned counted all others, or was the first of all, and the
// most that were counted meanwhile.
func (w *world) newcomers(ctx context.Context, prefix string, fanned func() (int, error),
) (took []float64, behind int, err error) {
	const atOnce = 5
	var mutex sync.Mutex
	counted := func() (int, error) {
		mutex.Lock()
		defer mutex.Unlock()
		return fanned()
	}
	err = some(atOnce, min(50, max(atOnce, w.clusters/20)), func(i int) error {
		name := fmt.Sprintf("%s-%d", prefix, i)
		created := time.Now()
		at, err := counted()
		if err != nil {
			return err
		}
		if err := w.create(ctx, name); err != nil {
			return err
		}
		for ok := false; !ok; time.Sleep(20 * time.Millisecond) {
			if ok, err = w.configured(ctx, name); err != nil {
				return err
			}
			if time.Since(created) > 10*time.Minute {
				return fmt.Errorf("%s is not configured", name)
			}
		}
		seconds := time.Since(created).Seconds()
		until, err := counted()
		mutex.Lock()
		defer mutex.Unlock()
		if until < w.clusters || i == 0 { // else none was before it
			took, behind = append(took, seconds), max(behind, until-at)
		}
		return err
	})
	return took, behind, err
}

// percentile returns the value that a part of all values does not exceed, 0 of none.
func percentile(values []float64, part float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[int(math.Ceil(part*float64(len(values))))-1]
}

// startNull starts the manager that does nothing.
func (w *world) startNull(ctx context.Context) (*process, error) {
	folder := filepath.Join(w.folder, "null")
	port, err := certified(ctx, folder)
	if err != nil {
		return nil, err
	}
	return w.null(ctx, port, folder)
}

// nullFloor measures the manager that does nothing.
func (w *world) nullFloor(ctx context.Context, r *results) error {
	w.progress("floor of a restart")
	p, err := w.startNull(ctx)
	if err != nil {
		return err
	}
	defer p.stop()
	r.NullReadySeconds = p.ready.Seconds()
	cpu, err := measure.CPUMilliseconds(p.pid())
	if err != nil {
		return err
	}
	r.NullCPUSeconds = cpu / 1000
	r.NullResidentMiB = measure.ResidentMiB(p.pid())
	live, _, err := p.heap(ctx)
	r.NullLiveMiB = live / (1 << 20)
	return err
}

// plainWriter measures a client that writes all generated Secrets, as the ServiceAccount of the product. The manager
// that does nothing watches them.
func (w *world) plainWriter(ctx context.Context, r *results) error {
	w.progress("floor of writes")
	p, err := w.startNull(ctx)
	if err != nil {
		return err
	}
	defer p.stop()
	config, err := clientcmd.BuildConfigFromFlags("", w.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading kubeconfig: %w", err)
	}
	config.QPS = -1
	writer, err := client.New(config, client.Options{Scheme: w.client.Scheme(), Mapper: w.client.RESTMapper()})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	secrets := &corev1.SecretList{}
	if err := w.client.List(ctx, secrets, client.InNamespace(namespace),
		client.HasLabels{contract.LabelGenerated}); err != nil {
		return err
	}
	started := time.Now()
	if err := each(len(secrets.Items), func(i int) error {
		secrets.Items[i].Data["plain"] = []byte("written by a plain client")
		return writer.Update(ctx, &secrets.Items[i])
	}); err != nil {
		return err
	}
	r.PlainWriterSeconds = time.Since(started).Seconds() * float64(w.clusters) / float64(len(secrets.Items))
	return nil
}

// steadyResyncs is how many resyncs bring one pass over a Cluster that is configured.
const steadyResyncs = 10

// rest measures a manager that keeps reconciling Clusters although nothing changes.
func (w *world) rest(ctx context.Context, r *results) error {
	w.progress("rest")
	period := max(5*time.Second, time.Duration(w.clusters)*5*time.Millisecond)
	p, err := w.manager(ctx, "--sync-period", period.String())
	if err != nil {
		return err
	}
	defer p.stop()
	// The plain writer has written into the generated Secrets: they are repaired first.
	if _, err := w.watch(ctx, &p, func() error { return nil }, nil); err != nil && ctx.Err() != nil {
		return err
	}
	before, err := w.audit.read()
	if err != nil {
		return err
	}
	from, _, err := p.progress(ctx)
	if err != nil {
		return err
	}
	cpu, err := measure.CPUMilliseconds(p.pid())
	if err != nil {
		return err
	}
	f := &phase{}
	started := time.Now()
	for f.Reconciles < 2*float64(w.created.Load())/steadyResyncs {
		if time.Since(started) > 10*period {
			return fmt.Errorf("rest: %.0f reconciles in %s", f.Reconciles, time.Since(started))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(period / 2): // to ask for the metrics costs as much as some passes
		}
		now, _, err := p.progress(ctx)
		if err != nil {
			return err
		}
		f.Reconciles = now - from
	}
	f.Seconds = time.Since(started).Seconds()
	after, err := w.audit.read()
	if err != nil {
		return err
	}
	now, err := measure.CPUMilliseconds(p.pid())
	if err != nil {
		return err
	}
	f.CPUSeconds, f.Requests, f.ResidentMiB = (now-cpu)/1000, after.minus(before), measure.ResidentMiB(p.pid())
	r.Phases["rest"] = f
	return nil
}
