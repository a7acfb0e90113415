package envtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// webhookLabel on a namespace says which webhooks the API server calls for it. Without it there are none, as in an
// installation whose webhooks are switched off.
const webhookLabel = "webhooks"

const (
	// webhooksLive are those of the manager under test.
	webhooksLive = "live"
	// webhooksTwo are those of the manager, and after them one that appends secondFile.
	webhooksTwo = "two"
)

const secondFile = "/etc/second-webhook"

// installWebhooks waits until the manager serves its webhooks and makes the API server call them.
func installWebhooks(ctx context.Context, cluster *mgmt.Cluster) error {
	live := shared.webhooks.Configurations[0]
	address := net.JoinHostPort(shared.webhooks.Host, strconv.Itoa(shared.webhooks.Port))
	if err := dial(ctx, address); err != nil {
		return err
	}
	second, err := serveSecond(ctx, *live)
	if err != nil {
		return err
	}
	for configuration, values := range map[*admissionregistrationv1.MutatingWebhookConfiguration][]string{
		live: {webhooksLive, webhooksTwo}, second: {webhooksTwo},
	} {
		for i := range configuration.Webhooks {
			configuration.Webhooks[i].NamespaceSelector = &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{
					Key: webhookLabel, Operator: metav1.LabelSelectorOpIn,
					Values: values,
				}},
			}
		}
	}
	return cluster.Install(ctx, live, second)
}

func dial(ctx context.Context, address string) error {
	var (
		dialer net.Dialer
		err    error
	)
	for range 100 {
		var connection net.Conn
		if connection, err = dialer.DialContext(ctx, "tcp", address); err == nil {
			return connection.Close()
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("the manager does not serve its webhooks: %w", err)
}

// serveSecond serves a webhook that appends a file to every control plane that lacks it, and returns its configuration,
// which comes after that of the manager by name.
func serveSecond(ctx context.Context,
	like admissionregistrationv1.MutatingWebhookConfiguration) (
	*admissionregistrationv1.MutatingWebhookConfiguration, error,
) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: http.HandlerFunc(appendFile), ReadHeaderTimeout: time.Second}
	certificate, key := filepath.Join(shared.webhooks.CertDir, "tls.crt"),
		filepath.Join(shared.webhooks.CertDir, "tls.key")
	go func() {
		if err := server.ServeTLS(listener, certificate, key); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	url := "https://" + listener.Addr().String() + "/"
	second := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "zz-second"}}
	for _, webhook := range like.Webhooks {
		if webhook.Rules[0].Resources[0] == "kubeadmcontrolplanes" {
			webhook.Name = "second.example.com"
			webhook.ReinvocationPolicy = nil
			webhook.ClientConfig.URL = &url
			second.Webhooks = append(second.Webhooks, webhook)
		}
	}
	return second, nil
}

func appendFile(w http.ResponseWriter, r *http.Request) {
	var (
		review admissionv1.AdmissionReview
		object controlplanev1.KubeadmControlPlane
	)
	err := json.NewDecoder(r.Body).Decode(&review)
	if err == nil {
		err = json.Unmarshal(review.Request.Object.Raw, &object)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	for _, f := range object.Spec.KubeadmConfigSpec.Files {
		if f.Path == secondFile {
			review.Request, object.Spec.KubeadmConfigSpec.Files = nil, nil
			break
		}
	}
	if review.Request != nil {
		review.Response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		review.Response.Patch = []byte(`[{"op":"add","path":"/spec/kubeadmConfigSpec/files/-","value":{"path":"` +
			secondFile + `","content":"x"}}]`)
		review.Request = nil
	}
	_ = json.NewEncoder(w).Encode(review)
}
