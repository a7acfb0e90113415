// Package pods runs the policy for Pods on a real API server: what the containers of a Pod have in their environment
// when it is created.
package pods

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/podcases"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/wait"
)

// world is the API server of the tests, which stands for a workload cluster.
type world struct {
	client client.Client
	pods   *kubernetes.Clientset // for the subresource of ephemeral containers
}

var shared *world

func TestMain(m *testing.M) {
	vocabulary.Main(m, "", func(ctx context.Context, cluster *mgmt.Cluster, _ string) (int, error) {
		c, err := vocabulary.NewClient(cluster.Config())
		if err != nil {
			return 1, err
		}
		clients, err := kubernetes.NewForConfig(cluster.Config())
		if err != nil {
			return 1, err
		}
		shared = &world{client: c, pods: clients}
		for name, label := range podcases.Namespaces() {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if label != "" {
				ns.Labels = map[string]string{"capi-proxy-patcher.io/pods": label}
			}
			if err := c.Create(ctx, ns); err != nil {
				return 1, err
			}
		}
		return m.Run(), nil
	})
}

// settled waits for what the API server's caches take some time to see.
var settled = wait.Rule{Still: 2 * time.Minute, Poll: 250 * time.Millisecond}

// install applies the manifest of variables and waits until Pods get them.
func install(t *testing.T, vars []systemd.Var) {
	t.Helper()
	apply(t, manifest(t, vars))
	untilAdded(t, podcases.Added(vars))
}

func manifest(t *testing.T, vars []systemd.Var) string {
	t.Helper()
	text, err := podcases.Manifest("pods", vars)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// apply applies the objects of a YAML stream.
func apply(t *testing.T, text string) {
	t.Helper()
	if shared == nil {
		t.Skip(mgmt.ErrNoAssets)
	}
	if err := mgmt.Apply(t.Context(), shared.client, decode(t, text)); err != nil {
		t.Fatal(err)
	}
}

// untilAdded waits until a new Pod has these variables.
func untilAdded(t *testing.T, want []corev1.EnvVar) {
	t.Helper()
	settled.Until(t, "a new Pod", func() string {
		pod := podcases.New("plain", corev1.PodSpec{Containers: []corev1.Container{podcases.Container("c")}})
		if err := shared.client.Create(t.Context(), pod, client.DryRunAll); err != nil {
			return err.Error()
		}
		return podcases.Different(pod.Spec.Containers[0].Env, want)
	})
}

func decode(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
}
