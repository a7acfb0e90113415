package faults

import (
	"context"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// templateWebhook is the name of the webhook that a probe meets.
const templateWebhook = "kubeadmconfigtemplate." + contract.Domain

// serveWebhooks has the API server call the webhooks of a kustomization for the namespace of f, where nobody answers
// yet. It returns them with the flags of a manager that serves them.
func (f *fleet) serveWebhooks(kustomization string) (*mgmt.Webhooks, []string) {
	f.t.Helper()
	webhooks, err := mgmt.PrepareWebhooks(kustomization)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		f.uninstall(webhooks)
		if err := webhooks.Close(); err != nil {
			f.t.Error(err)
		}
	})
	for _, configuration := range webhooks.Configurations {
		configuration.Name = f.ns + "-" + strconv.Itoa(webhooks.Port)
		for i := range configuration.Webhooks {
			configuration.Webhooks[i].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: f.ns}}
		}
	}
	if err := shared.Cluster.Install(f.t.Context(), webhooks.Configurations...); err != nil {
		f.t.Fatal(err)
	}
	return webhooks, []string{
		"--webhook-bind-address", webhooks.Host, "--webhook-port", strconv.Itoa(webhooks.Port), "--webhook-cert-dir", webhooks.CertDir,
	}
}

// uninstall deletes webhook configurations, if that has not been done.
func (f *fleet) uninstall(webhooks *mgmt.Webhooks) {
	f.t.Helper()
	for _, configuration := range webhooks.Configurations {
		// The test may be over.
		if err := shared.Client.Delete(context.WithoutCancel(f.t.Context()),
			configuration); client.IgnoreNotFound(err) != nil {
			f.t.Error(err)
		}
	}
}

// probe asks for a template without storing it.
func (f *fleet) probe() error {
	template := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: f.meta("probe")}
	template.Spec.Template.Spec.PreKubeadmCommands = []string{"true"}
	return shared.Client.Create(f.t.Context(), template, client.DryRunAll)
}

// createAdmitted creates the Clusters as soon as webhooks of failure policy Fail answer, and fails if a manager writes a
// bootstrap object afterwards.
func (f *fleet) createAdmitted() {
	f.t.Helper()
	eventually(f.t, "admission", func() string {
		if err := f.probe(); err != nil {
			return err.Error()
		}
		return ""
	})
	from := setMark(f.t, f.ns)
	f.create(enabled)
	f.eventuallyHasProxy()
	if writes := from.since(ofSpec); len(writes) > 0 {
		f.t.Errorf("%d objects were admitted without the proxy, the first by %+v", len(writes), writes[0])
	}
}

func TestWebhooks_RefuseWritesWhileDownIfConfigured(t *testing.T) {
	f := newFleet(t, 2)
	t.Parallel()
	_, flags := f.serveWebhooks("testdata/webhooks")
	eventually(t, "refusal", func() string {
		if err := f.probe(); err == nil || !strings.Contains(err.Error(), templateWebhook) {
			return "a KubeadmConfigTemplate could be created"
		}
		return ""
	})
	for _, object := range f.objects(f.names[0], enabled) {
		kind, err := shared.Client.GroupVersionKindFor(object)
		if err != nil {
			t.Fatal(err)
		}
		err = shared.Client.Create(t.Context(), object, client.DryRunAll)
		if !strings.HasPrefix(kind.Kind, "Kubeadm") {
			if err != nil {
				t.Errorf("%s has nothing to do with the webhooks and cannot be created: %v", kind.Kind, err)
			}
			continue
		}
		// Who reads this has to see whose webhook it is, and that nobody answers.
		if !apierrors.IsInternalError(err) {
			t.Fatalf("creating %s: got %v, want a refusal", kind.Kind, err)
		}
		for _, part := range []string{
			`failed calling webhook "` + strings.ToLower(kind.Kind) + "." + contract.Domain + `"`,
			"connection refused",
		} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the refusal of %s lacks %q: %v", kind.Kind, part, err)
			}
		}
	}

	p := manager(t, f.ns, append(flags, noResync)...)
	f.createAdmitted()
	p.stop()
	f.staysQuiet(flags...)
	// Removal works, whichever component is down.
	for _, object := range f.objects(f.names[0]) {
		if err := shared.Client.Delete(t.Context(), object); err != nil {
			t.Errorf("deleting %T while the webhooks are down: %v", object, err)
		}
	}
}

// TestWebhooks_LetWritesThroughWhileDown has the controller configure what config/default has admitted without the proxy.
func TestWebhooks_LetWritesThroughWhileDown(t *testing.T) {
	f := newFleet(t, 2)
	t.Parallel()
	f.serveWebhooks("../../config/default")
	p := manager(t, f.ns, noResync)
	from := setMark(t, f.ns)
	f.create(enabled)
	f.eventuallyHasProxy()
	p.stop()
	if writes := from.since(ofSpec, mgmt.Request.Succeeded); len(writes) != 4 || len(from.since(ofSpec, mgmt.Request.FailedOpen)) != 4 {
		t.Errorf("writes %+v, want 4 without the webhooks", writes)
	}
}
