//go:build kyverno

// Package kyverno runs the policy of output pods=kyverno in the engine of Kyverno, with the Pods of which package pods
// creates the same on a kube-apiserver.
package kyverno

import (
	"encoding/json"
	"strings"
	"testing"

	policiesv1 "github.com/kyverno/api/api/policies.kyverno.io/v1"
	policiesv1beta1 "github.com/kyverno/api/api/policies.kyverno.io/v1beta1"
	celengine "github.com/kyverno/kyverno/pkg/cel/engine"
	"github.com/kyverno/kyverno/pkg/cel/libs"
	"github.com/kyverno/kyverno/pkg/cel/matching"
	"github.com/kyverno/kyverno/pkg/cel/policies/mpol/compiler"
	"github.com/kyverno/kyverno/pkg/cel/policies/mpol/engine"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/podcases"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// documents returns the ConfigMap and the policy, as they are delivered.
func documents(t *testing.T) (corev1.ConfigMap, policiesv1.MutatingPolicy) {
	t.Helper()
	text, err := podcases.Manifest("pods=kyverno", podcases.Variables())
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(string(text), "---\n")
	var config corev1.ConfigMap
	var policy policiesv1.MutatingPolicy
	if err := yaml.UnmarshalStrict([]byte(first), &config); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(second), &policy); err != nil {
		t.Fatal(err)
	}
	return config, policy
}

// newEngine compiles the policy. It knows the schema of Pods from an API server, as Kyverno does.
func newEngine(t *testing.T, config *rest.Config, values *corev1.ConfigMap, policy policiesv1.MutatingPolicy) engine.Engine {
	t.Helper()
	clients, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	world := libs.NewFakeContextProvider()
	if values != nil {
		if err := world.AddResource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, values); err != nil {
			t.Fatal(err)
		}
	}
	libs.LibraryContext = world
	like := &policiesv1beta1.MutatingPolicy{ObjectMeta: policy.ObjectMeta, Spec: policy.Spec}
	provider, err := engine.NewProvider(compiler.NewCompiler(), []policiesv1beta1.MutatingPolicyLike{like}, nil, world)
	if err != nil {
		t.Fatal(err)
	}
	namespaces := func(name string) *corev1.Namespace {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if label := podcases.Namespaces()[name]; label != "" {
			ns.Labels = map[string]string{"capi-proxy-patcher.io/pods": label}
		}
		return ns
	}
	return engine.NewEngine(provider, namespaces, matching.NewMatcher(),
		compiler.NewStaticTypeConverterManager(clients.OpenAPIV3()), world)
}

// admit returns the Pod as the engine leaves it.
func admit(t *testing.T, e engine.Engine, operation admissionv1.Operation, subresource string, old, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	raw := func(pod *corev1.Pod) runtime.RawExtension {
		if pod == nil {
			return runtime.RawExtension{}
		}
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: text}
	}
	response, err := e.Handle(t.Context(), celengine.EngineRequest{Request: admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Operation: operation, SubResource: subresource,
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Namespace: pod.Namespace, Object: raw(pod), OldObject: raw(old),
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, made := range response.Policies {
		for _, rule := range made.Rules {
			t.Logf("%s: %s", rule.Status(), rule.Message())
		}
	}
	if response.PatchedResource == nil {
		return pod
	}
	out := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(response.PatchedResource.Object, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPolicy_InKyverno(t *testing.T) {
	config := vocabulary.StartCluster(t, mgmt.Options{}).Config()
	values, policy := documents(t)
	e := newEngine(t, config, &values, policy)
	for _, tc := range podcases.All() {
		t.Run(tc.Name, func(t *testing.T) {
			pod := admit(t, e, admissionv1.Create, "", nil, tc.Pod())
			if problem := podcases.Different(pod.Spec.Containers[0].Env, tc.Want); problem != "" {
				t.Error(problem)
			}
		})
	}
	t.Run("every kind of container", func(t *testing.T) {
		pod := podcases.New("plain", corev1.PodSpec{
			InitContainers: []corev1.Container{podcases.Container("init"), podcases.Container("sidecar", podcases.Variable("HTTP_PROXY", ""))},
			Containers:     []corev1.Container{podcases.Container("one"), podcases.Container("two", podcases.Variable("no_proxy", "x"))},
		})
		pod = admit(t, e, admissionv1.Create, "", nil, pod)
		for i, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			want := [][]corev1.EnvVar{
				podcases.Own(), podcases.Own(podcases.Variable("HTTP_PROXY", "")), podcases.Own(), podcases.Own(podcases.Variable("no_proxy", "x")),
			}[i]
			if problem := podcases.Different(c.Env, want); problem != "" {
				t.Errorf("container %s %s", c.Name, problem)
			}
		}
	})
	t.Run("ephemeral containers", func(t *testing.T) { ephemeral(t, e) })
	t.Run("without the ConfigMap", func(t *testing.T) {
		without := newEngine(t, config, nil, policy)
		pod := admit(t, without, admissionv1.Create, "", nil, podcases.All()[0].Pod())
		if problem := podcases.Different(pod.Spec.Containers[0].Env, nil); problem != "" {
			t.Error(problem)
		}
	})
	t.Run("withdrawn", func(t *testing.T) {
		empty := values
		empty.Data = nil
		pod := admit(t, newEngine(t, config, &empty, policy), admissionv1.Create, "", nil, podcases.All()[0].Pod())
		if problem := podcases.Different(pod.Spec.Containers[0].Env, nil); problem != "" {
			t.Error(problem)
		}
	})
}

// ephemeral adds one ephemeral container beside one that exists.
func ephemeral(t *testing.T, e engine.Engine) {
	t.Helper()
	container := func(name string) corev1.EphemeralContainer {
		return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "tools"}}
	}
	old := podcases.All()[0].Pod()
	old.Spec.EphemeralContainers = []corev1.EphemeralContainer{container("first")}
	pod := old.DeepCopy()
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, container("second"))
	pod = admit(t, e, admissionv1.Update, "ephemeralcontainers", old, pod)
	for i, want := range [][]corev1.EnvVar{nil, podcases.Own()} {
		if problem := podcases.Different(pod.Spec.EphemeralContainers[i].Env, want); problem != "" {
			t.Errorf("ephemeral container %d %s", i, problem)
		}
	}
	if len(pod.Spec.Containers[0].Env) > 0 {
		t.Errorf("the running container has got %v", pod.Spec.Containers[0].Env)
	}
}
