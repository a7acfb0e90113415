package pods

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/envfile"
)

// injection is a Pod and what its first container has in its environment once it is created.
type injection struct {
	name        string
	namespace   string // plain if empty
	annotations map[string]string
	env         []corev1.EnvVar
	want        []corev1.EnvVar
}

func injections() []injection {
	all := added(variables)
	fromPod := corev1.EnvVar{
		Name: "http_proxy",
		ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"},
		},
	}
	with := func(env ...corev1.EnvVar) []corev1.EnvVar { return env }
	note := func(key, value string) map[string]string { return map[string]string{key: value} }
	return []injection{
		{name: "a container without variables", want: all},
		{
			name: "other variables stay in front", env: with(variable("A", "1"), variable("B", "$(A)")),
			want: append(with(variable("A", "1"), variable("B", "$(A)")), all...),
		},
		{
			name: "an own variable in upper case keeps both spellings away", env: with(variable("HTTP_PROXY", "http://own:1")),
			want: append(with(variable("HTTP_PROXY", "http://own:1")), without("HTTP_PROXY")...),
		},
		{
			name: "an own variable in lower case keeps both spellings away", env: with(variable("no_proxy", "own")),
			want: append(with(variable("no_proxy", "own")), without("NO_PROXY")...),
		},
		{
			name: "an own variable in mixed case keeps both spellings away", env: with(variable("Https_Proxy", "http://own:1")),
			want: append(with(variable("Https_Proxy", "http://own:1")), without("HTTPS_PROXY")...),
		},
		{
			name: "an empty value is a value", env: with(variable("HTTPS_PROXY", "")),
			want: append(with(variable("HTTPS_PROXY", "")), without("HTTPS_PROXY")...),
		},
		{name: "a reference is a value", env: with(fromPod), want: append(with(fromPod), without("HTTP_PROXY")...)},
		{
			name: "names that occur twice stay", env: with(variable("A", "1"), variable("A", "2")),
			want: append(with(variable("A", "1"), variable("A", "2")), all...),
		},
		{
			name: "an own variable that occurs twice stays",
			env:  with(variable("NO_PROXY", "1"), variable("NO_PROXY", "2")),
			want: append(with(variable("NO_PROXY", "1"), variable("NO_PROXY", "2")), without("NO_PROXY")...),
		},
		{name: "opted out by our annotation", annotations: note("capi-proxy-patcher.io/pods", "none")},
		{name: "opted out as in Azure Kubernetes Service", annotations: note("kubernetes.azure.com/no-http-proxy-vars", "true")},
		{name: "opted out as at Giant Swarm", annotations: note("policies.kyverno.io/inject-proxy-env", "exclude")},
		{
			name: "other values of the annotations opt out of nothing", want: all,
			annotations: map[string]string{
				"capi-proxy-patcher.io/pods": "", "kubernetes.azure.com/no-http-proxy-vars": "false",
				"policies.kyverno.io/inject-proxy-env": "include",
			},
		},
		{name: "a namespace that is left out", namespace: "left-out"},
		{
			name: "a Pod cannot ask in a namespace that is left out", namespace: "left-out",
			annotations: note("capi-proxy-patcher.io/pods", "inject"),
		},
		{name: "a namespace with another value of the label", namespace: "other-value", want: all},
		{name: "kube-system", namespace: "kube-system"},
		{
			name: "kube-system with another annotation", namespace: "kube-system",
			annotations: note("capi-proxy-patcher.io/pods", "Inject"),
		},
		{
			name: "kube-system for a Pod that asks", namespace: "kube-system", want: all,
			annotations: note("capi-proxy-patcher.io/pods", "inject"),
		},
		{name: "a mirror Pod", annotations: note("kubernetes.io/config.mirror", "0123456789")},
	}
}

func TestPolicy_InjectsWhatAContainerLacks(t *testing.T) {
	install(t, variables)
	for _, tc := range injections() {
		t.Run(tc.name, func(t *testing.T) {
			if problem := tc.problem(t); problem != "" {
				t.Error(problem)
			}
		})
	}
}

// problem creates the Pod and returns how its environment differs, "" if it does not.
func (i injection) problem(t *testing.T) string {
	t.Helper()
	ns := i.namespace
	if ns == "" {
		ns = "plain"
	}
	pod := newPod(ns, corev1.PodSpec{Containers: []corev1.Container{container("c", i.env...)}, NodeName: "node"})
	pod.Annotations = i.annotations
	create(t, pod)
	return different(pod.Spec.Containers[0].Env, i.want)
}

func create(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := shared.client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The context of the test is done.
		err := shared.client.Delete(context.WithoutCancel(t.Context()), pod, client.GracePeriodSeconds(0))
		if client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

func TestPolicy_InjectsIntoEveryKindOfContainer(t *testing.T) {
	install(t, variables)
	sidecar := container("sidecar", variable("HTTP_PROXY", "http://own:1"))
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	pod := newPod("plain", corev1.PodSpec{
		InitContainers: []corev1.Container{container("init"), sidecar},
		Containers:     []corev1.Container{container("one"), container("two", variable("NO_PROXY", "own")), container("three")},
	})
	create(t, pod)
	for i, want := range [][]corev1.EnvVar{
		added(variables), append([]corev1.EnvVar{variable("HTTP_PROXY", "http://own:1")}, without("HTTP_PROXY")...),
	} {
		if problem := different(pod.Spec.InitContainers[i].Env, want); problem != "" {
			t.Errorf("init container %d %s", i, problem)
		}
	}
	for i, want := range [][]corev1.EnvVar{
		added(variables), append([]corev1.EnvVar{variable("NO_PROXY", "own")}, without("NO_PROXY")...), added(variables),
	} {
		if problem := different(pod.Spec.Containers[i].Env, want); problem != "" {
			t.Errorf("container %d %s", i, problem)
		}
	}
}

// TestPolicy_InjectsIntoNewEphemeralContainersOnly adds one that the policy leaves out, and two more. A policy that
// touched what exists would have the API server refuse the debugging of Pods.
func TestPolicy_InjectsIntoNewEphemeralContainersOnly(t *testing.T) {
	install(t, variables)
	pod := newPod("plain", corev1.PodSpec{Containers: containers("c")})
	pod.Annotations = map[string]string{"capi-proxy-patcher.io/pods": "none"}
	create(t, pod)
	debug(t, pod, "first")
	pod.Annotations = nil
	if err := shared.client.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	debug(t, pod, "second", variable("no_proxy", ""))
	debug(t, pod, "third")
	for i, want := range [][]corev1.EnvVar{
		nil, append([]corev1.EnvVar{variable("no_proxy", "")}, without("NO_PROXY")...), added(variables),
	} {
		if problem := different(pod.Spec.EphemeralContainers[i].Env, want); problem != "" {
			t.Errorf("ephemeral container %d %s", i, problem)
		}
	}
	if len(pod.Spec.Containers[0].Env) > 0 {
		t.Errorf("the running container has got %v", pod.Spec.Containers[0].Env)
	}
}

// debug adds an ephemeral container as kubectl debug does.
func debug(t *testing.T, pod *corev1.Pod, name string, env ...corev1.EnvVar) {
	t.Helper()
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: name, Image: "registry.example.com/tools", Env: env,
			ImagePullPolicy: corev1.PullAlways, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		},
	})
	changed, err := shared.pods.CoreV1().Pods(pod.Namespace).
		UpdateEphemeralContainers(t.Context(), pod.Name, pod, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	*pod = *changed
}

func TestPolicy_FollowsTheConfigMap(t *testing.T) {
	install(t, variables)
	one := []envfile.Var{{Name: "HTTPS_PROXY", Value: "http://other.example.com:1"}}
	install(t, one) // waits for exactly these
	install(t, nil) // withdrawn
	install(t, variables)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "http-proxy-env"}}
	if err := shared.client.Delete(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	untilAdded(t, nil)
}

// TestPolicy_LongestNoProxyFitsIntoALargePod has the sizes at which Pods did not fit into etcd any more in its back: a
// Pod with 30 containers and a NO_PROXY of 100 KiB.
func TestPolicy_LongestNoProxyFitsIntoALargePod(t *testing.T) {
	long := strings.Repeat("a.example.com,", 8<<10/14+1)[:8<<10]
	vars := append(variables[:4:4], envfile.Var{Name: "NO_PROXY", Value: long}, envfile.Var{Name: "no_proxy", Value: long})
	install(t, vars)
	var names []string
	for _, c := range "abcdefghijklmnopqrstuvwxyzABCD" {
		names = append(names, strings.ToLower(string(c))+map[bool]string{true: "-2"}[c < 'a'])
	}
	pod := newPod("plain", corev1.PodSpec{Containers: containers(names...)})
	create(t, pod)
	if len(pod.Spec.Containers) != 30 {
		t.Fatalf("%d containers", len(pod.Spec.Containers))
	}
	for _, c := range pod.Spec.Containers {
		if problem := different(c.Env, added(vars)); problem != "" {
			t.Errorf("container %s %s", c.Name, problem)
		}
	}
}

// TestPolicy_WithABrokenExpressionInjectsNothing breaks an expression on purpose, in the way that is easily done: the
// field is absent on CREATE. The Pod is created all the same, and nothing but a test like those above tells.
func TestPolicy_WithABrokenExpressionInjectsNothing(t *testing.T) {
	install(t, variables)
	text := manifest(t, variables)
	broken := strings.Replace(text, "request.?subResource.orValue('')", "request.subResource", 1)
	if broken == text {
		t.Fatal("nothing is broken")
	}
	apply(t, broken)
	untilAdded(t, nil)
	plain := injections()[0]
	if problem := plain.problem(t); problem == "" {
		t.Error("the case of a plain Pod does not tell that nothing was injected")
	}
	install(t, variables) // and mended
}
