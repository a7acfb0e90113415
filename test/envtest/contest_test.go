package envtest

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

func TestContest_NamesTheRivalAndBacksOff(t *testing.T) {
	ns := namespace(t) // without webhooks, which would put entries back in the other's own request
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonConfigured)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			controlPlane := &controlplanev1.KubeadmControlPlane{}
			if err := shared.client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "one"}, controlPlane); err != nil {
				continue
			}
			if patch.IsPatched(api.Spec(&controlPlane.Spec.KubeadmConfigSpec)) {
				strip(controlPlane)
				err := shared.client.Update(ctx, controlPlane, client.FieldOwner("stubborn-operator"))
				if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
					t.Error(err)
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	writes := func() int {
		count := 0
		for _, request := range shared.requests.in(ns) {
			if strings.HasPrefix(request, "PATCH ") && strings.Contains(request, "/kubeadmcontrolplanes/") {
				count++
			}
		}
		return count
	}
	before := writes()
	c.eventuallyReports(contract.ReasonContested, "KubeadmControlPlane "+ns+
		"/one: another manager, stubborn-operator, keeps reverting our changes, which are repeated once a minute; enable the webhooks, or keep it from managing files and commands")
	time.Sleep(3 * time.Second)
	// The first patch of the Cluster was one of three, and writes that came too late were conflicts.
	if got := writes() - before; got > 8 {
		t.Errorf("%d writes against the other manager", got)
	}
	generation := c.controlPlane().Generation
	time.Sleep(2 * time.Second)
	if got := c.controlPlane().Generation; got != generation {
		t.Errorf("the generation goes from %d to %d while both should rest", generation, got)
	}

	// When the other gives up, the next try lasts.
	stop()
	done.Wait()
	within(t, 2*time.Minute, "condition", func() string {
		if got := c.condition(); got.Reason != contract.ReasonConfigured {
			return got.Message
		}
		return ""
	})
	c.wantPatched(t, everyObject...)
}

// TestGeneratedSecret_ThatIsRevertedIsContested counts the writes of the manager, which went on without end.
func TestGeneratedSecret_ThatIsRevertedIsContested(t *testing.T) {
	t.Parallel()
	for name, revert := range map[string]func(context.Context, *corev1.Secret) error{
		"changed": func(ctx context.Context, secret *corev1.Secret) error {
			if string(secret.Data[contract.KeyProxyEnv]) == "HTTP_PROXY=x\n" {
				return nil
			}
			secret.Data[contract.KeyProxyEnv] = []byte("HTTP_PROXY=x\n")
			return shared.client.Update(ctx, secret)
		},
		"deleted": func(ctx context.Context, secret *corev1.Secret) error { return shared.client.Delete(ctx, secret) },
	} {
		t.Run(name, func(t *testing.T) {
			ns := namespace(t)
			proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
			c := newCluster(t, ns, "one")
			c.eventuallyReports(contract.ReasonConfigured)
			before := len(secretWrites(ns))
			stop := revertGenerated(t, c, revert)
			c.eventuallyReports(contract.ReasonContested, "Secret "+ns+
				"/one-proxy-files: another manager keeps reverting our changes, which are repeated once a minute; "+
				"keep it from managing this Secret, which is generated")
			if writes := secretWrites(ns)[before:]; len(writes) > 4 {
				t.Errorf("%d writes until the contest was noticed: %v", len(writes), writes)
			}
			for i := range 20 { // what enqueues the Cluster does not cause a write
				change(t, c.cluster(), func(cluster *clusterv1.Cluster) {
					metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, "example.com/touched", strconv.Itoa(i))
				})
			}
			stop()
			if writes := secretWrites(ns)[before:]; len(writes) > 8 {
				t.Errorf("%d writes against the other manager: %v", len(writes), writes)
			}
			within(t, 2*time.Minute, "condition", func() string {
				if got := c.condition(); got.Reason != contract.ReasonConfigured {
					return got.Message
				}
				return ""
			})
			c.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`)
		})
	}
}

// TestAnnotation_ThatIsRevertedIsContested has another manager remove our record from the Cluster, which wrote it 24 to 50
// times a second.
func TestAnnotation_ThatIsRevertedIsContested(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonConfigured)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			cluster := &clusterv1.Cluster{}
			err := shared.client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "one"}, cluster)
			if _, recorded := cluster.Annotations[contract.AnnotationLastPass]; err != nil || !recorded {
				time.Sleep(20 * time.Millisecond)
				continue
			}
			delete(cluster.Annotations, contract.AnnotationLastPass)
			if err := shared.client.Update(ctx, cluster); err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	c.eventuallyReports(contract.ReasonContested, "Cluster "+ns+"/one: another manager keeps reverting our changes, which are "+
		"repeated once a minute; keep it from changing our labels, annotations and conditions")
	writes := func() int {
		return len(slices.DeleteFunc(shared.requests.in(ns), func(request string) bool {
			return !strings.HasPrefix(request, "PATCH ") || !strings.HasSuffix(strings.Fields(request)[1], "/clusters/one")
		}))
	}
	before := writes()
	time.Sleep(5 * time.Second)
	if got := writes() - before; got > 2 {
		t.Errorf("%d writes against the other manager in five seconds", got)
	}
	stop()
	done.Wait()
	within(t, 2*time.Minute, "condition", func() string {
		if got := c.condition(); got.Reason != contract.ReasonConfigured {
			return got.Message
		}
		return ""
	})
}

// secretWrites returns the requests of the manager that write the Secrets of a namespace.
func secretWrites(ns string) []string {
	return slices.DeleteFunc(shared.requests.in(ns), func(request string) bool {
		return strings.HasPrefix(request, "GET ") || !strings.Contains(request, "/secrets")
	})
}

// revertGenerated reverts each write of the generated Secret of a Cluster until it is stopped.
func revertGenerated(t *testing.T, c classic, revert func(context.Context, *corev1.Secret) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			secret := &corev1.Secret{}
			if err := shared.client.Get(ctx, client.ObjectKey{Namespace: c.ns, Name: c.name + contract.GeneratedSecretSuffix},
				secret); err == nil {
				if err := revert(ctx, secret); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) &&
					ctx.Err() == nil {
					t.Error(err)
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}
