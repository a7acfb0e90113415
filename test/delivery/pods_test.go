package delivery

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/podcases"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/wait"
)

// applyPolicy applies what output pods has for variables. edit changes its text.
func applyPolicy(t *testing.T, vars []systemd.Var, edit func(text string) string) {
	t.Helper()
	text, err := podcases.Manifest("pods", vars)
	if err != nil {
		t.Fatal(err)
	}
	if err := mgmt.Apply(t.Context(), shared.Client, vocabulary.Decode(t, edit(string(text)))); err != nil {
		t.Fatal(err)
	}
}

// injects applies the policy of variables and waits until Pods get them.
func injects(t *testing.T, vars []systemd.Var) {
	t.Helper()
	applyPolicy(t, vars, strings.Clone)
	untilInjected(t, podcases.Added(vars))
}

// untilInjected waits until a new Pod has these variables: the API server's caches take some time.
func untilInjected(t *testing.T, want []corev1.EnvVar) {
	t.Helper()
	wait.Rule{Still: 2 * time.Minute, Poll: 250 * time.Millisecond}.Until(t, "a new Pod", func() string {
		pod := podcases.New("plain", corev1.PodSpec{Containers: []corev1.Container{podcases.Container("c")}})
		if err := shared.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
			return err.Error()
		}
		return podcases.Different(pod.Spec.Containers[0].Env, want)
	})
}

func createPod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	vocabulary.Create(t, shared.Client, pod)
	t.Cleanup(func() {
		// The context of the test is done.
		err := shared.Client.Delete(context.WithoutCancel(t.Context()), pod, client.GracePeriodSeconds(0))
		if client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

func checkVariables(t *testing.T, what string, got []corev1.EnvVar, want []corev1.EnvVar) {
	t.Helper()
	if problem := podcases.Different(got, want); problem != "" {
		t.Errorf("%s %s", what, problem)
	}
}

// TestPods_GetTheVariablesOfThePolicy creates Pods where the policy of output pods is: what their containers have in their
// environment. No other test of this API server creates Pods.
func TestPods_GetTheVariablesOfThePolicy(t *testing.T) {
	if shared == nil {
		t.Skip(mgmt.ErrNoAssets)
	}
	t.Parallel()
	for name, label := range podcases.Namespaces() {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if label != "" {
			ns.Labels = map[string]string{contract.Domain + "/pods": label}
		}
		vocabulary.Create(t, shared.Client, ns)
	}
	injects(t, podcases.Variables())
	for _, tc := range podcases.All() {
		t.Run(tc.Name, func(t *testing.T) {
			pod := tc.Pod()
			createPod(t, pod)
			checkVariables(t, "the container", pod.Spec.Containers[0].Env, tc.Want)
		})
	}
	t.Run("every kind of container", injectsIntoEveryKindOfContainer)
	t.Run("ephemeral containers", injectsIntoNewEphemeralContainersOnly)
	t.Run("the longest NO_PROXY", fitsIntoALargePod)
	t.Run("another ConfigMap", followsTheConfigMap)
	t.Run("a broken expression", injectsNothingWithABrokenExpression)
}

func injectsIntoEveryKindOfContainer(t *testing.T) {
	sidecar := podcases.Container("sidecar", podcases.Variable("HTTP_PROXY", "http://own:1"))
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	pod := podcases.New("plain", corev1.PodSpec{
		InitContainers: []corev1.Container{podcases.Container("init"), sidecar},
		Containers:     []corev1.Container{podcases.Container("one"), podcases.Container("two", podcases.Variable("NO_PROXY", "own")), podcases.Container("three")},
	})
	createPod(t, pod)
	wants := [][]corev1.EnvVar{
		podcases.Own(), podcases.Own(podcases.Variable("HTTP_PROXY", "http://own:1")),
		podcases.Own(), podcases.Own(podcases.Variable("NO_PROXY", "own")), podcases.Own(),
	}
	for i, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		checkVariables(t, container.Name, container.Env, wants[i])
	}
}

// injectsIntoNewEphemeralContainersOnly adds one that the policy leaves out, and two more. A policy that touched what exists
// would have the API server refuse the debugging of Pods.
func injectsIntoNewEphemeralContainersOnly(t *testing.T) {
	pods, err := kubernetes.NewForConfig(shared.Cluster.Config()) // for the subresource
	if err != nil {
		t.Fatal(err)
	}
	pod := podcases.New("plain", corev1.PodSpec{Containers: []corev1.Container{podcases.Container("c")}})
	pod.Annotations = map[string]string{contract.Domain + "/pods": "none"}
	createPod(t, pod)
	// As kubectl debug does.
	debug := func(name string, env ...corev1.EnvVar) {
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: name, Image: "registry.example.com/tools", Env: env,
				ImagePullPolicy: corev1.PullAlways, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			},
		})
		if pod, err = pods.CoreV1().Pods(pod.Namespace).
			UpdateEphemeralContainers(t.Context(), pod.Name, pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	debug("first")
	pod.Annotations = nil
	if err := shared.Client.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	debug("second", podcases.Variable("no_proxy", ""))
	debug("third")
	for i, want := range [][]corev1.EnvVar{
		nil, podcases.Own(podcases.Variable("no_proxy", "")), podcases.Own(),
	} {
		checkVariables(t, pod.Spec.EphemeralContainers[i].Name, pod.Spec.EphemeralContainers[i].Env, want)
	}
	checkVariables(t, "the running container", pod.Spec.Containers[0].Env, nil)
}

// fitsIntoALargePod has the sizes at which Pods did not fit into etcd any more in its back: a Pod with 30 containers and a
// NO_PROXY of 100 KiB.
func fitsIntoALargePod(t *testing.T) {
	long := strings.Repeat("a.example.com,", 8<<10/14+1)[:8<<10]
	vars := podcases.Variables()
	vars[4].Value, vars[5].Value = long, long
	injects(t, vars)
	var all []corev1.Container
	for i := range 30 {
		all = append(all, podcases.Container(fmt.Sprintf("c%d", i)))
	}
	pod := podcases.New("plain", corev1.PodSpec{Containers: all})
	createPod(t, pod)
	if len(pod.Spec.Containers) != 30 {
		t.Fatalf("%d containers", len(pod.Spec.Containers))
	}
	for _, c := range pod.Spec.Containers {
		checkVariables(t, c.Name, c.Env, podcases.Added(vars))
	}
}

func followsTheConfigMap(t *testing.T) {
	const other = "http://other.example.com:1"
	injects(t, []systemd.Var{{Name: "HTTPS_PROXY", Value: other}, {Name: "https_proxy", Value: other}}) // and no other
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "http-proxy-env"}}
	if err := shared.Client.Delete(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	untilInjected(t, nil)
}

// injectsNothingWithABrokenExpression breaks an expression on purpose, in the way that is easily done: the field is absent on
// CREATE. The Pod is created all the same, and nothing but a test like those above tells.
func injectsNothingWithABrokenExpression(t *testing.T) {
	injects(t, podcases.Variables())
	applyPolicy(t, podcases.Variables(), func(text string) string {
		broken := strings.Replace(text, "request.?subResource.orValue('')", "request.subResource", 1)
		if broken == text {
			t.Fatal("nothing is broken")
		}
		return broken
	})
	untilInjected(t, nil)
	pod := podcases.All()[0].Pod()
	createPod(t, pod)
	if podcases.Different(pod.Spec.Containers[0].Env, podcases.All()[0].Want) == "" {
		t.Error("the case of a plain Pod does not tell that nothing was injected")
	}
}
