package faults

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// storm annotates objects again and again, each by a writer of its own that never waits, until it is over.
type storm struct {
	writes atomic.Int64
	over   func()
}

// annotation is what a writer does to an object, and takes back at the end.
func annotation(value string) client.Patch {
	return client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, stormAnnotation, value))
}

func startStorm(t *testing.T, targets ...client.Object) *storm {
	t.Helper()
	s := &storm{}
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for _, target := range targets {
		wait.Go(func() {
			for ctx.Err() == nil {
				object, ok := target.DeepCopyObject().(client.Object)
				if !ok {
					return
				}
				err := shared.client.Patch(ctx, object, annotation(fmt.Sprintf("%q", fmt.Sprint(s.writes.Load()))))
				switch {
				case err == nil:
					s.writes.Add(1)
				case apierrors.IsNotFound(err):
					time.Sleep(time.Millisecond) // the generated Secret is not there yet, or no more
				case ctx.Err() == nil:
					t.Errorf("annotating %T: %v", object, err)
					return
				}
			}
			object, ok := target.DeepCopyObject().(client.Object)
			if !ok {
				return
			}
			err := shared.client.Patch(context.WithoutCancel(ctx), object, annotation("null"))
			if client.IgnoreNotFound(err) != nil && t.Context().Err() == nil {
				t.Errorf("calming %T: %v", object, err)
			}
		})
	}
	s.over = func() { cancel(); wait.Wait() }
	return s
}

func TestManager_SurvivesOthersThatWriteTheSameObjects(t *testing.T) {
	f := newFleet(t, 2)
	t.Parallel()
	f.create()
	p := manager(t, f.ns, noResync)
	var objects []client.Object
	for _, name := range f.names {
		objects = append(objects,
			&controlplanev1.KubeadmControlPlane{ObjectMeta: f.meta(name)},
			&bootstrapv1.KubeadmConfigTemplate{ObjectMeta: f.meta(name + "-md")},
			&bootstrapv1.KubeadmConfig{ObjectMeta: f.meta(name + "-mp")},
			&corev1.Secret{ObjectMeta: f.meta(name + contract.GeneratedSecretSuffix)},
		)
	}
	targets := func(list string) func() {
		return func() {
			f.each(func(name string) error {
				cluster := &clusterv1.Cluster{ObjectMeta: f.meta(name)}
				return shared.client.Patch(t.Context(), cluster,
					client.RawPatch(types.MergePatchType, []byte(targetsPatch(list))))
			})
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		// specs is how many bootstrap objects change.
		specs int
		end   func()
	}{
		{"Clusters are labelled", func() { f.label(true) }, 6, f.eventuallyAsRendered},
		{"the proxy Secret changes", func() { f.useProxy(otherProxyURL) }, 0, f.eventuallyAsRendered},
		{"targets are left out", targets("containerd"), 6, f.eventuallyAsRendered},
		{"targets are added", targets("containerd,kubelet"), 6, f.eventuallyAsRendered},
		{"labels go", func() { f.label(false) }, 6, f.eventuallyAsBefore},
	} {
		from, begin := setMark(t, f.ns), time.Now() //nolint:forbidigo // a figure for the log
		s := startStorm(t, objects...)
		time.Sleep(200 * time.Millisecond) // let it rise
		step.do()
		step.end()
		s.over()
		took := time.Since(begin)
		writes, done, refused := s.writes.Load(), len(from.since(request.isOfSpec, request.done)),
			len(from.since(request.isWrite, request.refused))
		t.Logf("%s: %d foreign writes, %.0f per second, %d of ours, %d refused, over after %s", step.name, writes,
			float64(writes)/took.Seconds(), done, refused, took.Round(time.Millisecond))
		if done != step.specs {
			t.Errorf("%s: %d writes of %d objects", step.name, done, step.specs)
		}
		// Every conflict is caused by a write of somebody else, which enqueues the Cluster.
		if int64(refused) > writes {
			t.Errorf("%s: %d writes were refused, but others wrote only %d times", step.name, refused, writes)
		}
	}
	p.stop()
	staysQuiet(t, f.ns)
}
