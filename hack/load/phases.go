package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// create creates all Clusters, each with its objects in the order of a manifest.
func (w *world) create(ctx context.Context) error {
	return w.each(func(i int) error {
		objects, err := classic(i)
		for _, object := range objects {
			if err == nil {
				err = w.client.Create(ctx, object)
			}
		}
		return err
	})
}

// configure measures a manager that starts when all Clusters are new, and leaves it running.
func (w *world) configure(ctx context.Context) error {
	if err := w.start(ctx); err != nil {
		return err
	}
	m, err := w.settle(ctx, w.n())
	if err != nil {
		return err
	}
	last := &clusterv1.Cluster{}
	err = w.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterName(w.clusters - 1)}, last)
	if err != nil || !meta.IsStatusConditionTrue(last.Status.Conditions, contract.ConditionProxyConfigured) {
		return errors.Join(err, errors.New("the last Cluster is not configured"))
	}
	requests, err := w.requests()
	if err != nil {
		return err
	}
	w.figures.bounded("new: requests a Cluster", float64(len(requests))/w.n(), 13.5)
	kinds := map[string]float64{}
	for _, r := range requests {
		kinds[strings.TrimSuffix(r.Verb+" "+r.ObjectRef.Resource+"/"+r.ObjectRef.Subresource, "/")]++
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		w.figures.add("new:   "+kind+" a Cluster", kinds[kind]/w.n())
	}
	w.figures.bounded("new: reconciles a Cluster", m.reconciles/w.n(), 2.5)
	w.figures.bounded("new: resident memory, MiB", m.residentMiB, 200)
	return nil
}

// change changes the proxy of all Clusters, measures how long it takes until the last answer to the manager, and ends
// the manager.
func (w *world) change(ctx context.Context) error {
	before, err := w.metrics(ctx)
	if err != nil {
		return err
	}
	secret, stored := proxySecret("proxy-2.example.com"), &corev1.Secret{}
	if err := w.client.Get(ctx, client.ObjectKeyFromObject(secret), stored); err != nil {
		return err
	}
	secret.ResourceVersion = stored.ResourceVersion
	began := time.Now()
	if err := w.client.Update(ctx, secret); err != nil {
		return err
	}
	m, err := w.settle(ctx, before.reconciles+w.n())
	if err != nil {
		return err
	}
	requests, err := w.requests()
	if err != nil || len(requests) < w.clusters {
		return errors.Join(err, fmt.Errorf("%d requests, want one a Cluster at least", len(requests)))
	}
	w.changed = requests[len(requests)-1].Answered.Sub(began)
	w.figures.add("one Secret for all: requests a Cluster", float64(len(requests))/w.n())
	w.figures.bounded("one Secret for all: resident memory, MiB", m.residentMiB, 200)
	w.stop()
	return nil
}

// restart measures a manager that starts when all Clusters are configured, and leaves it running. It reads all Clusters
// again now and then, for the next phase.
func (w *world) restart(ctx context.Context) error {
	if err := w.start(ctx, "--sync-period", w.resync().String()); err != nil {
		return err
	}
	m, err := w.settle(ctx, w.n())
	if err != nil {
		return err
	}
	requests, err := w.requests()
	if err != nil {
		return err
	}
	reads := slices.DeleteFunc(slices.Clone(requests), mgmt.Request.IsWrite)
	w.figures.bounded("restart: writes", float64(len(requests)-len(reads)), 0)
	w.figures.add("restart: reads", float64(len(reads)))
	w.figures.bounded("restart: resident memory, MiB", m.residentMiB, 200)
	return nil
}

// rest measures a manager that keeps reconciling Clusters although nothing changes, and ends it.
func (w *world) rest(ctx context.Context) error {
	before, err := w.metrics(ctx)
	if err != nil {
		return err
	}
	time.Sleep(2 * w.resync())
	after, err := w.metrics(ctx)
	if count := after.reconciles - before.reconciles; err != nil || count < w.n() {
		return errors.Join(err, fmt.Errorf("%.0f reconciles, want one a Cluster at least", count))
	}
	requests, err := w.requests()
	w.figures.bounded("rest: requests", float64(len(requests)), 0)
	w.stop()
	return err
}

// resync is how often Clusters are reconciled at rest: each of them in less than half of the time.
func (w *world) resync() time.Duration {
	return max(10*time.Second, time.Duration(w.clusters)*20*time.Millisecond)
}

// plainWriter compares how long a change of all took with how long a client needs that writes all generated Secrets, as
// the ServiceAccount of the product.
func (w *world) plainWriter(ctx context.Context) error {
	writer, err := vocabulary.NewClient(w.account)
	if err != nil {
		return err
	}
	secrets := &corev1.SecretList{}
	if err := w.client.List(ctx, secrets, client.HasLabels{contract.LabelGenerated}); err != nil {
		return err
	}
	began := time.Now()
	err = w.each(func(i int) error {
		secrets.Items[i].Data["plain"] = []byte("written by a plain client")
		return writer.Update(ctx, &secrets.Items[i])
	})
	plain := time.Since(began)
	w.figures.add("one Secret for all: time, s", w.changed.Seconds())
	const name = "one Secret for all: time, in times of a plain writer"
	if times := w.changed.Seconds() / plain.Seconds(); w.clusters < 1000 {
		w.figures.add(name, times) // the seconds of a few Clusters are those of the machine
	} else {
		w.figures.bounded(name, times, 4)
	}
	return err
}
