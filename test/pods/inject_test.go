package pods

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/podcases"
)

func TestPolicy_InjectsWhatAContainerLacks(t *testing.T) {
	install(t, podcases.Variables())
	for _, tc := range podcases.All() {
		t.Run(tc.Name, func(t *testing.T) {
			if problem := problem(t, tc); problem != "" {
				t.Error(problem)
			}
		})
	}
}

// problem creates the Pod of a case and returns how its environment differs, "" if it does not.
func problem(t *testing.T, tc podcases.Case) string {
	t.Helper()
	pod := tc.Pod()
	create(t, pod)
	return podcases.Different(pod.Spec.Containers[0].Env, tc.Want)
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
	install(t, podcases.Variables())
	sidecar := podcases.Container("sidecar", podcases.Variable("HTTP_PROXY", "http://own:1"))
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	pod := podcases.New("plain", corev1.PodSpec{
		InitContainers: []corev1.Container{podcases.Container("init"), sidecar},
		Containers:     []corev1.Container{podcases.Container("one"), podcases.Container("two", podcases.Variable("NO_PROXY", "own")), podcases.Container("three")},
	})
	create(t, pod)
	for i, want := range [][]corev1.EnvVar{
		podcases.Own(), podcases.Own(podcases.Variable("HTTP_PROXY", "http://own:1")),
	} {
		if problem := podcases.Different(pod.Spec.InitContainers[i].Env, want); problem != "" {
			t.Errorf("init container %d %s", i, problem)
		}
	}
	for i, want := range [][]corev1.EnvVar{
		podcases.Own(), podcases.Own(podcases.Variable("NO_PROXY", "own")), podcases.Own(),
	} {
		if problem := podcases.Different(pod.Spec.Containers[i].Env, want); problem != "" {
			t.Errorf("container %d %s", i, problem)
		}
	}
}

// TestPolicy_InjectsIntoNewEphemeralContainersOnly adds one that the policy leaves out, and two more. A policy that
// touched what exists would have the API server refuse the debugging of Pods.
func TestPolicy_InjectsIntoNewEphemeralContainersOnly(t *testing.T) {
	install(t, podcases.Variables())
	pod := podcases.New("plain", corev1.PodSpec{Containers: []corev1.Container{podcases.Container("c")}})
	pod.Annotations = map[string]string{"capi-proxy-patcher.io/pods": "none"}
	create(t, pod)
	debug(t, pod, "first")
	pod.Annotations = nil
	if err := shared.client.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	debug(t, pod, "second", podcases.Variable("no_proxy", ""))
	debug(t, pod, "third")
	for i, want := range [][]corev1.EnvVar{
		nil, podcases.Own(podcases.Variable("no_proxy", "")), podcases.Own(),
	} {
		if problem := podcases.Different(pod.Spec.EphemeralContainers[i].Env, want); problem != "" {
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
	install(t, podcases.Variables())
	const other = "http://other.example.com:1"
	one := []systemd.Var{{Name: "HTTPS_PROXY", Value: other}, {Name: "https_proxy", Value: other}}
	install(t, one) // waits for exactly these
	install(t, podcases.Variables())
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
	vars := podcases.Variables()
	vars[4].Value, vars[5].Value = long, long
	install(t, vars)
	var all []corev1.Container
	for i := range 30 {
		all = append(all, podcases.Container(fmt.Sprintf("c%d", i)))
	}
	pod := podcases.New("plain", corev1.PodSpec{Containers: all})
	create(t, pod)
	if len(pod.Spec.Containers) != 30 {
		t.Fatalf("%d containers", len(pod.Spec.Containers))
	}
	for _, c := range pod.Spec.Containers {
		if problem := podcases.Different(c.Env, podcases.Added(vars)); problem != "" {
			t.Errorf("container %s %s", c.Name, problem)
		}
	}
}

// TestPolicy_WithABrokenExpressionInjectsNothing breaks an expression on purpose, in the way that is easily done: the
// field is absent on CREATE. The Pod is created all the same, and nothing but a test like those above tells.
func TestPolicy_WithABrokenExpressionInjectsNothing(t *testing.T) {
	install(t, podcases.Variables())
	text := manifest(t, podcases.Variables())
	broken := strings.Replace(text, "request.?subResource.orValue('')", "request.subResource", 1)
	if broken == text {
		t.Fatal("nothing is broken")
	}
	apply(t, broken)
	untilAdded(t, nil)
	if problem := problem(t, podcases.All()[0]); problem == "" {
		t.Error("the case of a plain Pod does not tell that nothing was injected")
	}
	install(t, podcases.Variables()) // and mended
}
