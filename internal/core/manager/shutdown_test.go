package manager

import (
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// leaseTime is how long giving up the lease may take: controller-runtime's default deadline for renewing it.
const leaseTime = 10 * time.Second

func TestGracePeriod_IsLongerThanTheShutdown(t *testing.T) {
	t.Parallel()
	for file, shutdown := range map[string]time.Duration{
		"../../../config/manager/manager.yaml":           shutdownTime + leaseTime,
		"../../../config/extension/resources/hooks.yaml": shutdownTime,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var deployment appsv1.Deployment
		if err := yaml.Unmarshal(text, &deployment); err != nil {
			t.Fatal(err)
		}
		grace := time.Duration(*deployment.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
		if grace < shutdown+5*time.Second {
			t.Errorf("%s: a Pod has %s for its end, which may take %s", file, grace, shutdown)
		}
	}
}
