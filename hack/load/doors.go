package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ports"
)

const controlPlanePath = "/mutate-controlplane-cluster-x-k8s-io-v1beta2-kubeadmcontrolplane"

// calls is how often a webhook is called, and a hook for one pool in a round.
const calls = 200

// call is what one call of a webhook costs.
type call struct{ cpuMilliseconds, allocations float64 }

// admit measures the webhook for KubeadmControlPlanes of the running manager.
func (w *world) admit(ctx context.Context, floor idle) error {
	scaled, created, err := w.reviews(ctx)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name   string
		review []byte
		floor  call
	}{{"webhook, control plane scaled", scaled, floor.scale}, {"webhook, control plane created", created, floor.create}} {
		before, err := w.audit.read()
		if err != nil {
			return err
		}
		cost, err := w.callWebhook(ctx, w.manager, c.review)
		if err != nil {
			return err
		}
		after, err := w.audit.read()
		if err != nil {
			return err
		}
		w.figures.addWithFloor(c.name+": CPU, ms", cost.cpuMilliseconds, c.floor.cpuMilliseconds)
		w.figures.addWithFloor(c.name+": allocations", cost.allocations, c.floor.allocations)
		w.figures.addWithFloor(c.name+": reads", after.minus(before).reads()/(calls+1), 0)
	}
	return nil
}

// reviews returns the reviews of an update that scales a KubeadmControlPlane, and of the create of one, as the API
// server sends them.
func (w *world) reviews(ctx context.Context) (scaled, created []byte, err error) {
	stored := &controlplanev1.KubeadmControlPlane{}
	if err := w.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterName(0)}, stored); err != nil {
		return nil, nil, err
	}
	asked := stored.DeepCopy()
	asked.Spec.Replicas = new(int32(5))
	objects, err := classic(0)
	if err != nil {
		return nil, nil, err
	}
	if created, err = w.review(admissionv1.Create, objects[2], nil); err != nil {
		return nil, nil, err
	}
	scaled, err = w.review(admissionv1.Update, asked, stored)
	return scaled, created, err
}

func (w *world) review(operation admissionv1.Operation, object, old client.Object) ([]byte, error) {
	request := &admissionv1.AdmissionRequest{
		UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Operation: operation, Namespace: namespace, Name: object.GetName(),
		Kind:     metav1.GroupVersionKind(controlplanev1.GroupVersion.WithKind("KubeadmControlPlane")),
		Resource: metav1.GroupVersionResource(controlplanev1.GroupVersion.WithResource("kubeadmcontrolplanes")),
	}
	var err error
	if request.Object.Raw, err = w.encode(object); err == nil && old != nil {
		request.OldObject.Raw, err = w.encode(old)
	}
	if err != nil {
		return nil, err
	}
	request.Options = runtime.RawExtension{Raw: []byte(`{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1"}`)}
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request:  request,
	})
}

// encode returns the JSON of an object with its kind.
func (w *world) encode(object client.Object) ([]byte, error) {
	kind, err := apiutil.GVKForObject(object, w.client.Scheme())
	if err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	return json.Marshal(object)
}

// callWebhook measures calls of the webhook for KubeadmControlPlanes, one after the other.
func (w *world) callWebhook(ctx context.Context, p *process, body []byte) (c call, err error) {
	url := "https://" + net.JoinHostPort(w.webhooks.Host, strconv.Itoa(w.webhooks.Port)) + controlPlanePath
	post := func() error {
		text, err := p.call(ctx, url, body)
		if err != nil {
			return err
		}
		var answer admissionv1.AdmissionReview
		if err := json.Unmarshal(text, &answer); err != nil || answer.Response == nil || !answer.Response.Allowed {
			return errors.Join(err, fmt.Errorf("calling %s: it did not allow the write: %s", url, text))
		}
		return nil
	}
	if err := post(); err != nil {
		return c, err
	}
	_, before, err := p.heap(ctx)
	if err != nil {
		return c, err
	}
	_, mallocs, err := p.heap(ctx) // the difference is what reading the heap allocates
	if err != nil {
		return c, err
	}
	began, err := p.cpu()
	if err != nil {
		return c, err
	}
	for range calls {
		if err := post(); err != nil {
			return c, err
		}
	}
	ended, err := p.cpu()
	if err != nil {
		return c, err
	}
	_, after, err := p.heap(ctx)
	return call{(ended - began) / calls, (after - mallocs - (mallocs - before)) / calls}, err
}

// hooks compares GeneratePatches with an extension that does nothing. Both get the same requests on one core, in rounds
// that alternate. No two pools or Clusters are alike, and every second pool has a Secret of its own.
func (w *world) hooks(ctx context.Context) error {
	type server struct {
		*process
		url string
	}
	start := func(name, portFlag, certFlag string, command ...string) (server, error) {
		port, err := ports.Free(ctx)
		if err != nil {
			return server{}, err
		}
		root := "https://127.0.0.1:" + strconv.Itoa(port)
		s := server{
			&process{http: w.http},
			root + "/hooks.runtime.cluster.x-k8s.io/v1alpha1/generatepatches/" + contract.HandlerGeneratePatches,
		}
		s.cmd = exec.CommandContext(ctx, command[0], append(command[1:], portFlag, strconv.Itoa(port), certFlag, w.webhooks.CertDir)...) //nolint:gosec // the developer names the program
		if s.cmd.Env, err = environment("config/extension/resources/hooks.yaml"); err != nil {
			return server{}, err
		}
		s.cmd.Env = append(s.cmd.Env, "GOMAXPROCS=1")
		return s, s.launch(ctx, filepath.Join(w.folder, name+".log"), root)
	}
	null, err := start("null-hooks", "-null-port", "-null-cert-dir", "/proc/self/exe", "-null", "hooks")
	if err != nil {
		return err
	}
	defer null.stop()
	product, err := start("hooks", "--port", "--cert-dir", w.program, "hooks", "--bind-address", "127.0.0.1",
		"--health-addr", "0", "--diagnostics-address", "0")
	if err != nil {
		return err
	}
	defer product.stop()
	w.figures.addWithFloor("hooks: start to ready, s", product.ready.Seconds(), null.ready.Seconds())
	resident, _ := product.resident()
	floor, _ := null.resident()
	w.figures.addWithFloor("hooks: resident when idle, MiB", resident, floor)

	// round returns the CPU milliseconds of one request.
	round := func(s server, bodies [][]byte, want, count int) (float64, error) {
		before, err := s.cpu()
		if err != nil {
			return 0, err
		}
		for i := range count {
			text, err := s.call(ctx, s.url, bodies[i%len(bodies)])
			if err != nil {
				return 0, err
			}
			var answer runtimehooksv1.GeneratePatchesResponse
			if err := json.Unmarshal(text, &answer); err != nil || answer.Status != runtimehooksv1.ResponseStatusSuccess ||
				len(answer.Items) != want {
				return 0, errors.Join(err, fmt.Errorf("%d patches, want %d: %s", len(answer.Items), want, answer.Message))
			}
		}
		after, err := s.cpu()
		return (after - before) / float64(count), err
	}
	for _, pools := range []int{1, 10, 100} {
		var bodies [][]byte
		for i := range 16 {
			q, err := hookrequests.Generate(hookrequests.Options{
				Cluster: i, Pools: pools, Distinct: true, EverySecond: `{"secretName":"other"}`,
			})
			if err != nil {
				return err
			}
			text, err := json.Marshal(q)
			if err != nil {
				return err
			}
			bodies = append(bodies, text)
		}
		var ours, floors, ratios []float64
		for n := range 6 {
			floor, err := round(null, bodies, 0, max(calls/pools, 2*len(bodies)))
			if err != nil {
				return err
			}
			cost, err := round(product, bodies, pools+1, max(calls/pools, 2*len(bodies)))
			if err != nil {
				return err
			}
			if n > 0 { // heaps have grown, and what is lazy is done
				ours, floors, ratios = append(ours, cost), append(floors, floor), append(ratios, cost/floor)
			}
		}
		name := fmt.Sprintf("hook, %d pools: CPU, ", pools)
		w.figures.addWithFloor(name+"ms", median(ours), median(floors))
		w.figures.add(name+"in times of an empty handler", median(ratios))
	}
	_, peak := product.resident()
	w.figures.add("hooks: peak of resident, MiB", peak)
	return nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// render measures command render for 1,000 Clusters, and compares it with a quarter of them.
func (w *world) render(ctx context.Context) error {
	const all, part = 1000, 250
	seconds := map[int]float64{}
	for _, count := range []int{part, all} {
		var text bytes.Buffer
		objects := []client.Object{w.secret("proxy-1.example.com")}
		for i := range count {
			of, err := classic(i)
			if err != nil {
				return err
			}
			objects = append(objects, of...)
		}
		for _, object := range objects {
			document, err := w.encode(object)
			if err != nil {
				return err
			}
			if document, err = yaml.JSONToYAML(document); err != nil {
				return err
			}
			text.WriteString("---\n")
			text.Write(document)
		}
		file := filepath.Join(w.folder, "clusters.yaml")
		if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
			return fmt.Errorf("writing manifests: %w", err)
		}
		command := exec.CommandContext(ctx, w.program, "render", "-f", file, "--default-proxy-secret", //nolint:gosec // the program that is measured
			mgmt.SystemNamespace+"/"+proxySecret)
		var problems bytes.Buffer
		command.Stderr = &problems
		output, err := command.Output()
		patched := bytes.Count(output, []byte(contract.AnnotationOutputVersion))
		if err != nil || patched != (1+pools)*count {
			return errors.Join(err, fmt.Errorf("%d patched objects of %d Clusters: %s", patched, count, &problems))
		}
		seconds[count] = (command.ProcessState.UserTime() + command.ProcessState.SystemTime()).Seconds()
	}
	w.figures.add("render, 1,000 Clusters: CPU, s", seconds[all])
	w.figures.add("render, 1,000 Clusters: CPU, in times of four times 250", seconds[all]/(seconds[part]*all/part))
	return nil
}
