//go:build e2e

package management

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ports"
)

// gateTimeout is how long the API server waits at a gate, the longest that it can, before it lets the creation pass.
const gateTimeout = 30

// Gate is an admission webhook that keeps the creation of objects waiting until it is opened, so that a test can act in
// the middle of what a controller does.
type Gate struct {
	// Arrived is closed when the first creation waits.
	Arrived <-chan struct{}

	// Missed is closed when the API server has stopped waiting and let a creation pass before the gate was opened.
	Missed <-chan struct{}

	asked   <-chan struct{} // closed when the API server has asked for the first time
	open    chan struct{}
	opened  sync.Once
	cluster *Cluster
	config  *admissionregistrationv1.ValidatingWebhookConfiguration
	server  *http.Server
}

// NewGate closes a gate for the creation of objects like example, which is never created, in its namespace, and returns
// when the API server asks it. resource is the name of their kind in URLs.
func (c *Cluster) NewGate(ctx context.Context, resource string, example *unstructured.Unstructured) (*Gate, error) {
	port, err := ports.Free(ctx)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("closing a gate: %w", err)
	}
	asked, arrived, missed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	g := &Gate{Arrived: arrived, Missed: missed, asked: asked, open: make(chan struct{}), cluster: c}
	g.server = &http.Server{
		Handler:           g.handler(once(asked), once(arrived), once(missed)),
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() {
		_ = g.server.ServeTLS(listener, filepath.Join(c.certificates(), "tls.crt"),
			filepath.Join(c.certificates(), "tls.key"))
	}()
	g.config = gateConfig(example.GroupVersionKind().Group, resource, example.GetNamespace(), "https://"+address,
		c.Authority.PEM)
	if err := c.admin.Create(ctx, g.config); err != nil {
		return nil, errors.Join(fmt.Errorf("closing a gate: %w", err), g.Close(ctx))
	}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, readyTimeout, true,
		func(ctx context.Context) (bool, error) {
			if err := c.admin.Create(ctx, example.DeepCopy(), client.DryRunAll); err != nil {
				return false, err
			}
			select {
			case <-g.asked:
				return true, nil
			default:
				return false, nil
			}
		})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for a gate to be closed: %w", err), g.Close(ctx))
	}
	return g, nil
}

func once(c chan<- struct{}) func() { return sync.OnceFunc(func() { close(c) }) }

func gateConfig(group, resource, namespace, url string,
	authority []byte,
) *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "gate-" + namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         "gate.e2e.capi-proxy-patcher.io",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: authority},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{group}, APIVersions: []string{"*"},
					Resources: []string{resource},
				},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			FailurePolicy:           new(admissionregistrationv1.Ignore),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(int32(gateTimeout)),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

// handler answers the API server: a creation when the gate is open, a dry run at once.
func (g *Gate) handler(asked, arrived, missed func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		asked()
		if dryRun := review.Request.DryRun; dryRun == nil || !*dryRun {
			arrived()
			select {
			case <-g.open:
			case <-r.Context().Done():
				missed()
			}
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	})
}

// Open lets creations pass, those that wait too.
func (g *Gate) Open() { g.opened.Do(func() { close(g.open) }) }

// Close opens the gate and removes it.
func (g *Gate) Close(ctx context.Context) error {
	g.Open()
	return errors.Join(client.IgnoreNotFound(g.cluster.admin.Delete(ctx, g.config)), g.server.Shutdown(ctx))
}
