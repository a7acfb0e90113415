// Package pods runs the policy for Pods on a real API server: what the containers of a Pod have in their environment
// when it is created.
package pods

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/envfile"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/pods"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
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
		for name, label := range map[string]string{"plain": "", "left-out": "none", "other-value": "inject"} {
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
var settled = wait.Rule{Still: 2 * time.Minute, Poll: 50 * time.Millisecond}

// Rude values: a dollar sign begins a reference in the environment of a container.
var variables = []envfile.Var{
	{Name: "HTTP_PROXY", Value: "http://u:p$(HOSTNAME)'%40@proxy.example.com:3128"},
	{Name: "http_proxy", Value: "http://u:p$(HOSTNAME)'%40@proxy.example.com:3128"},
	{Name: "HTTPS_PROXY", Value: "https://proxy.example.com:3129"},
	{Name: "https_proxy", Value: "https://proxy.example.com:3129"},
	{Name: "NO_PROXY", Value: "localhost,.svc,10.0.0.0/8,[::1]"},
	{Name: "no_proxy", Value: "localhost,.svc,10.0.0.0/8,[::1]"},
}

// install applies the manifest of variables and waits until Pods get them, or until they do not if there are none.
func install(t *testing.T, vars []envfile.Var) {
	t.Helper()
	apply(t, manifest(t, vars))
	untilAdded(t, added(vars))
}

func manifest(t *testing.T, vars []envfile.Var) string {
	t.Helper()
	text, err := pods.Manifest(pods.EngineKubernetes, vars)
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
		pod := newPod("plain", corev1.PodSpec{Containers: containers("c")})
		if err := shared.client.Create(t.Context(), pod, client.DryRunAll); err != nil {
			return err.Error()
		}
		return different(pod.Spec.Containers[0].Env, want)
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

// added returns the variables as the policy writes them.
func added(vars []envfile.Var) []corev1.EnvVar {
	var env []corev1.EnvVar
	for _, v := range vars {
		env = append(env, corev1.EnvVar{Name: v.Name, Value: strings.ReplaceAll(v.Value, "$", "$$")})
	}
	return env
}

// without returns what added returns, without some names.
func without(names ...string) []corev1.EnvVar {
	var env []corev1.EnvVar
	for _, v := range added(variables) {
		found := false
		for _, name := range names {
			found = found || strings.EqualFold(name, v.Name)
		}
		if !found {
			env = append(env, v)
		}
	}
	return env
}

// different returns how an environment differs from the wanted one, "" if it does not.
func different(got, want []corev1.EnvVar) string {
	if g, w := fmt.Sprintf("%v", got), fmt.Sprintf("%v", want); g != w {
		return fmt.Sprintf("has\n%s\nwant\n%s", g, w)
	}
	return ""
}

func containers(names ...string) []corev1.Container {
	out := make([]corev1.Container, len(names))
	for i, name := range names {
		out[i] = container(name)
	}
	return out
}

func container(name string, env ...corev1.EnvVar) corev1.Container {
	return corev1.Container{Name: name, Image: "registry.example.com/app", Env: env}
}

func newPod(namespace string, spec corev1.PodSpec) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-"}, Spec: spec}
}

func variable(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }
