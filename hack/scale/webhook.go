package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/hack/measure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ports"
)

const controlPlanePath = "/mutate-controlplane-cluster-x-k8s-io-v1beta2-kubeadmcontrolplane"

// call is what one call of a webhook costs.
type call struct {
	Bytes           int     `json:"bytes"`
	CPUMilliseconds float64 `json:"cpuMilliseconds"`
	Allocations     float64 `json:"allocations"`
}

// certified makes a folder with a certificate, and returns a free port.
func certified(ctx context.Context, folder string) (string, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("making a folder: %w", err)
	}
	if _, err := measure.Certificate(folder); err != nil {
		return "", err
	}
	port, err := ports.Free(ctx)
	return strconv.Itoa(port), err
}

// webhook measures calls for a KubeadmControlPlane that is scaled: the product's webhook, and one that does nothing.
func (w *world) webhook(ctx context.Context, r *results) error {
	w.progress("webhook")
	folder := filepath.Join(w.folder, "webhook")
	port, err := certified(ctx, folder)
	if err != nil {
		return err
	}
	scaled, created, err := w.reviews(ctx)
	if err != nil {
		return err
	}
	p, err := w.manager(ctx, "--webhook-port", port, "--webhook-bind-address", "127.0.0.1", "--webhook-cert-dir", folder)
	if err != nil {
		return err
	}
	defer func() { p.stop() }()
	if _, err := w.watch(ctx, &p, func() error { return nil }, nil); err != nil {
		return err
	}
	before, err := w.audit.read()
	if err != nil {
		return err
	}
	url := "https://127.0.0.1:" + port
	if r.Webhook.Scale, err = w.call(ctx, p, folder, url+controlPlanePath, scaled); err != nil {
		return err
	}
	if err := p.profile(ctx, w.profiles, "allocs", "webhook-scale.allocs.pprof"); err != nil {
		return err
	}
	after, err := w.audit.read()
	if err != nil {
		return err
	}
	if r.Webhook.Create, err = w.call(ctx, p, folder, url+controlPlanePath, created); err != nil {
		return err
	}
	if err := p.profile(ctx, w.profiles, "allocs", "webhook-create.allocs.pprof"); err != nil {
		return err
	}
	last, err := w.audit.read()
	if err != nil {
		return err
	}
	// Every measurement calls once more to open the connection and to fill what is lazy.
	r.Webhook.ScaleRequests, r.Webhook.CreateRequests = after.minus(before), last.minus(after)
	p.stop()
	null, err := w.null(ctx, port, folder)
	if err != nil {
		return err
	}
	defer null.stop()
	if r.Webhook.NullScale, err = w.call(ctx, null, folder, url+nullPath, scaled); err != nil {
		return err
	}
	r.Webhook.NullCreate, err = w.call(ctx, null, folder, url+nullPath, created)
	return err
}

// reviews returns the reviews of an update that scales a KubeadmControlPlane, and of the create of one, as the API
// server sends them.
func (w *world) reviews(ctx context.Context) (scaled, created []byte, err error) {
	stored, err := w.raw(ctx, controlplanev1.GroupVersion.String(), "KubeadmControlPlane", clusterName(0))
	if err != nil {
		return nil, nil, fmt.Errorf("reading a control plane: %w", err)
	}
	asked := stored.DeepCopy()
	if err := setReplicas(asked.Object, 5); err != nil {
		return nil, nil, err
	}
	if scaled, err = review(admissionv1.Update, asked, stored); err != nil {
		return nil, nil, err
	}
	objects, err := classic(clusterName(0), 0)
	if err != nil {
		return nil, nil, err
	}
	fresh := objects[1]
	fresh.GetObjectKind().SetGroupVersionKind(controlplanev1.GroupVersion.WithKind("KubeadmControlPlane"))
	created, err = review(admissionv1.Create, fresh, nil)
	return scaled, created, err
}

func setReplicas(object map[string]any, replicas int64) error {
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return errors.New("a control plane has no spec")
	}
	spec["replicas"] = replicas
	return nil
}

func review(operation admissionv1.Operation, object, old client.Object) ([]byte, error) {
	request := &admissionv1.AdmissionRequest{
		UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Operation: operation, Namespace: object.GetNamespace(),
		Name: object.GetName(),
		Kind: metav1.GroupVersionKind{
			Group:   controlplanev1.GroupVersion.Group,
			Version: controlplanev1.GroupVersion.Version, Kind: "KubeadmControlPlane",
		},
		Resource: metav1.GroupVersionResource{
			Group:   controlplanev1.GroupVersion.Group,
			Version: controlplanev1.GroupVersion.Version, Resource: "kubeadmcontrolplanes",
		},
	}
	var err error
	if request.Object.Raw, err = json.Marshal(object); err == nil && old != nil {
		request.OldObject.Raw, err = json.Marshal(old)
	}
	if err != nil {
		return nil, fmt.Errorf("encoding a control plane: %w", err)
	}
	request.Options = runtime.RawExtension{Raw: []byte(`{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1"}`)}
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request:  request,
	})
}

// call measures calls of a webhook one after the other over one connection.
func (w *world) call(ctx context.Context, p *process, certDir, url string, body []byte) (call, error) {
	c := call{Bytes: len(body)}
	authority, err := os.ReadFile(filepath.Join(certDir, "tls.crt")) //nolint:gosec // a folder of our own
	if err != nil {
		return c, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	caller := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs:    pool,
		MinVersion: tls.VersionTLS12,
	}, ForceAttemptHTTP2: true}}
	defer caller.CloseIdleConnections()
	post := func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := caller.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		var answer admissionv1.AdmissionReview
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			return errors.Join(err, fmt.Errorf("calling %s: %s", url, response.Status))
		}
		if err := json.Unmarshal(text, &answer); err != nil || answer.Response == nil || !answer.Response.Allowed {
			return errors.Join(err, fmt.Errorf("calling %s: it did not allow the write", url))
		}
		return nil
	}
	if err := post(); err != nil {
		return c, err
	}
	_, alone, err := p.heap(ctx) // what asking for it allocates is measured, too
	if err != nil {
		return c, err
	}
	_, mallocs, err := p.heap(ctx)
	if err != nil {
		return c, err
	}
	alone = mallocs - alone
	cpu, err := measure.CPUMilliseconds(p.pid())
	if err != nil {
		return c, err
	}
	for range w.calls {
		if err := post(); err != nil {
			return c, err
		}
	}
	now, err := measure.CPUMilliseconds(p.pid())
	if err != nil {
		return c, err
	}
	_, after, err := p.heap(ctx)
	c.CPUMilliseconds = (now - cpu) / float64(w.calls)
	c.Allocations = (after - mallocs - alone) / float64(w.calls)
	return c, err
}
