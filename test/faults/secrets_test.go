package faults

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// TestSecrets_WithoutTheLabelAreNoticedAtAResync has a Cluster wait for a Secret that only its name gives away.
func TestSecrets_WithoutTheLabelAreNoticedAtAResync(t *testing.T) {
	f := newFleet(t, 1)
	t.Parallel()
	f.create(enabled)
	manager(t, f.ns, shortResync)
	f.eventuallyHasProxy()
	remove := func() {
		t.Helper()
		if err := shared.client.Delete(t.Context(), &corev1.Secret{ObjectMeta: f.meta(contract.DefaultSecretName)}); err != nil {
			t.Fatal(err)
		}
		f.eventuallyReports(contract.ReasonSettingsNotFound)
	}
	remove()
	secret := f.proxySecret(proxyURL)
	secret.Labels = nil
	create(t, secret)
	f.eventuallyReports(contract.ReasonConfigured)
	remove()
}
