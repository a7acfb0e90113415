// Package podcases holds the Pods by which the policy of the published variables is tested, and what they are to have.
// test/delivery runs them against an API server.
package podcases

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	outputs "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// Namespaces returns the namespaces of the cases beside kube-system, with their value of the label that leaves out.
func Namespaces() map[string]string {
	return map[string]string{"plain": "", "left-out": "none", "other-value": "inject"}
}

// Variables returns rude values: a dollar sign begins a reference in the environment of a container.
func Variables() []systemd.Var {
	return []systemd.Var{
		{Name: "HTTP_PROXY", Value: "http://u:p$(HOSTNAME)'%40@proxy.example.com:3128"},
		{Name: "http_proxy", Value: "http://u:p$(HOSTNAME)'%40@proxy.example.com:3128"},
		{Name: "HTTPS_PROXY", Value: "https://proxy.example.com:3129"},
		{Name: "https_proxy", Value: "https://proxy.example.com:3129"},
		{Name: "NO_PROXY", Value: "localhost,.svc,10.0.0.0/8,[::1]"},
		{Name: "no_proxy", Value: "localhost,.svc,10.0.0.0/8,[::1]"},
	}
}

// Manifest returns what an output applies for variables: the ConfigMap and the policy.
func Manifest(output string, vars []systemd.Var) ([]byte, error) {
	asks, err := outputs.ParseList(output)
	if err != nil {
		return nil, err
	}
	data, noProxy := map[string][]byte{}, ""
	for _, v := range vars {
		switch v.Name {
		case "HTTP_PROXY":
			data[contract.KeyHTTPProxy] = []byte(v.Value)
		case "HTTPS_PROXY":
			data[contract.KeyHTTPSProxy] = []byte(v.Value)
		case "NO_PROXY":
			noProxy = v.Value
		}
	}
	proxy, err := settings.ParseSecret(data)
	if err != nil {
		return nil, err
	}
	result, err := outputs.Of(outputs.Request{Outputs: asks.Outputs, Credentials: true}, outputs.Input{
		Cluster: "prod", Settings: proxy, NoProxy: noProxy, HasNodeNetwork: true, Version: "v1.36.0",
	})
	if err != nil || len(result.Findings) > 0 {
		return nil, fmt.Errorf("making output %s: %w, %v", output, err, result.Findings)
	}
	return result.Secrets[0].Data["pods.yaml"], nil
}

// Added returns variables as the policy writes them.
func Added(vars []systemd.Var) []corev1.EnvVar {
	env := make([]corev1.EnvVar, 0, len(vars))
	for _, v := range vars {
		env = append(env, corev1.EnvVar{Name: v.Name, Value: strings.ReplaceAll(v.Value, "$", "$$")})
	}
	return env
}

// Own returns the environment of a container that has some variables of its own and gets the others of Variables.
// Those that it has in either spelling are left alone in both.
func Own(env ...corev1.EnvVar) []corev1.EnvVar {
	out := slices.Clip(env)
	for _, v := range Added(Variables()) {
		found := false
		for _, own := range env {
			found = found || strings.EqualFold(own.Name, v.Name)
		}
		if !found {
			out = append(out, v)
		}
	}
	return out
}

// Different returns how an environment differs from the wanted one, "" if it does not.
func Different(got, want []corev1.EnvVar) string {
	if g, w := fmt.Sprintf("%v", got), fmt.Sprintf("%v", want); g != w {
		return fmt.Sprintf("has\n%s\nwant\n%s", g, w)
	}
	return ""
}

// Container returns a container with an environment.
func Container(name string, env ...corev1.EnvVar) corev1.Container {
	return corev1.Container{Name: name, Image: "registry.example.com/app", Env: env}
}

// Variable returns a variable of a container.
func Variable(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }

// New returns a Pod that no scheduler has to see.
func New(namespace string, spec corev1.PodSpec) *corev1.Pod {
	spec.NodeName = "node"
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-"}, Spec: spec}
}

// Case is a Pod and what its container has in its environment once it is created.
type Case struct {
	Name        string
	Namespace   string
	Annotations map[string]string
	Env, Want   []corev1.EnvVar
}

// Pod returns the Pod of the case.
func (c Case) Pod() *corev1.Pod {
	pod := New(c.Namespace, corev1.PodSpec{Containers: []corev1.Container{Container("c", c.Env...)}})
	pod.Annotations = c.Annotations
	return pod
}

// All returns the cases.
func All() []Case {
	return append(environments(), selections()...)
}

// environments are the cases about what a container has.
func environments() []Case {
	fromPod := corev1.EnvVar{
		Name: "http_proxy",
		ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"},
		},
	}
	cases := []Case{{Name: "a container without variables"}}
	own := func(name string, env ...corev1.EnvVar) { cases = append(cases, Case{Name: name, Env: env}) }
	own("other variables stay in front", Variable("A", "1"), Variable("B", "$(A)"))
	own("an own variable in upper case keeps both spellings away", Variable("HTTP_PROXY", "http://own:1"))
	own("an own variable in lower case keeps both spellings away", Variable("no_proxy", "own"))
	own("an own variable in mixed case keeps both spellings away", Variable("Https_Proxy", "http://own:1"))
	own("an empty value is a value", Variable("HTTPS_PROXY", ""))
	own("a reference is a value", fromPod)
	own("names that occur twice stay", Variable("A", "1"), Variable("A", "2"))
	own("an own variable that occurs twice stays", Variable("NO_PROXY", "1"), Variable("NO_PROXY", "2"))
	for i := range cases {
		cases[i].Namespace, cases[i].Want = "plain", Own(cases[i].Env...)
	}
	return cases
}

// selections are the cases about which Pods get variables at all.
func selections() []Case {
	all := Added(Variables())
	note := func(key, value string) map[string]string { return map[string]string{key: value} }
	const own = "capi-proxy-patcher.io/pods"
	return []Case{
		{Name: "opted out by our annotation", Namespace: "plain", Annotations: note(own, "none")},
		{
			Name: "opted out as in Azure Kubernetes Service", Namespace: "plain",
			Annotations: note("kubernetes.azure.com/no-http-proxy-vars", "true"),
		},
		{
			Name: "opted out as at Giant Swarm", Namespace: "plain",
			Annotations: note("policies.kyverno.io/inject-proxy-env", "exclude"),
		},
		{
			Name: "other values of the annotations opt out of nothing", Namespace: "plain", Want: all,
			Annotations: map[string]string{
				own: "", "kubernetes.azure.com/no-http-proxy-vars": "false", "policies.kyverno.io/inject-proxy-env": "include",
			},
		},
		{Name: "a namespace that is left out", Namespace: "left-out"},
		{
			Name: "a Pod cannot ask in a namespace that is left out", Namespace: "left-out",
			Annotations: note(own, "inject"),
		},
		{Name: "a namespace with another value of the label", Namespace: "other-value", Want: all},
		{Name: "kube-system", Namespace: "kube-system"},
		{Name: "kube-system with another annotation", Namespace: "kube-system", Annotations: note(own, "Inject")},
		{Name: "kube-system for a Pod that asks", Namespace: "kube-system", Annotations: note(own, "inject"), Want: all},
		{Name: "a mirror Pod", Namespace: "plain", Annotations: note("kubernetes.io/config.mirror", "0123456789")},
	}
}
