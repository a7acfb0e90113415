package pods

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/envfile"
)

// rude holds what ends a value early in a text that is pasted together.
const rude = "http://u:%40'\"\\$`{{x}}: #\n---\n@[2001:db8::1]:3128"

func documents(t *testing.T, engine Engine, vars []envfile.Var) []string {
	t.Helper()
	text, err := Manifest(engine, vars)
	if err != nil {
		t.Fatal(err)
	}
	return strings.SplitAfter(string(text), "\n---\n")
}

func TestManifest_HasTheValuesInTheConfigMapOnly(t *testing.T) {
	t.Parallel()
	for _, engine := range []Engine{EngineKubernetes, EngineKyverno} {
		vars := []envfile.Var{{Name: "HTTP_PROXY", Value: rude}, {Name: "http_proxy", Value: rude}}
		all := documents(t, engine, vars)
		var config corev1.ConfigMap
		if err := yaml.UnmarshalStrict([]byte(strings.TrimSuffix(all[0], "---\n")), &config); err != nil {
			t.Fatal(err)
		}
		if config.Kind != "ConfigMap" || config.Namespace != "kube-system" || config.Name != "http-proxy-env" {
			t.Errorf("%q: %s %s/%s", engine, config.Kind, config.Namespace, config.Name)
		}
		want := map[string]string{"HTTP_PROXY": rude, "http_proxy": rude}
		if diff := cmp.Diff(want, config.Data); diff != "" {
			t.Errorf("%q: %s", engine, diff)
		}
		if rest := strings.Join(all[1:], ""); rest != strings.Join(documents(t, engine, nil)[1:], "") {
			t.Errorf("%q: the policy depends on the values", engine)
		}
	}
}

func TestManifest_WithoutVariablesHasNoData(t *testing.T) {
	t.Parallel()
	for _, engine := range []Engine{EngineKubernetes, EngineKyverno} {
		if config := documents(t, engine, nil)[0]; strings.Contains(config, "\ndata:") {
			t.Errorf("%q: %s", engine, config)
		}
	}
}

func TestManifest_RefusesALongNoProxy(t *testing.T) {
	t.Parallel()
	for _, engine := range []Engine{EngineKubernetes, EngineKyverno} {
		for size, refused := range map[int]bool{MaxNoProxy: false, MaxNoProxy + 1: true} {
			_, err := Manifest(engine, []envfile.Var{{Name: "NO_PROXY", Value: strings.Repeat("a", size)}})
			var tooLong *SizeError
			if errors.As(err, &tooLong) != refused {
				t.Errorf("%q: %d bytes: %v", engine, size, err)
			}
		}
	}
	if _, err := Manifest("gatekeeper", nil); err == nil {
		t.Error("an unknown engine is accepted")
	}
}

// TestPolicy_HasOneSetOfExpressions compares the two forms. The native one is proven by test/pods on a kube-apiserver;
// what Kyverno calls otherwise is where the values come from.
func TestPolicy_HasOneSetOfExpressions(t *testing.T) {
	t.Parallel()
	var native admissionregistrationv1.MutatingAdmissionPolicy
	if err := yaml.UnmarshalStrict([]byte(documents(t, EngineKubernetes, nil)[1]), &native); err != nil {
		t.Fatal(err)
	}
	text := documents(t, EngineKyverno, nil)[1]
	var kyverno struct {
		APIVersion string
		Kind       string
		Metadata   struct{ Name string }
		Spec       struct {
			admissionregistrationv1.MutatingAdmissionPolicySpec `json:",inline"`
			Autogen                                             struct {
				PodControllers struct{ Controllers []string }
			}
			Evaluation struct{ Background struct{ Enabled *bool } }
		}
	}
	if err := yaml.UnmarshalStrict([]byte(text), &kyverno); err != nil {
		t.Fatal(err)
	}
	if kyverno.APIVersion != "policies.kyverno.io/v1" || kyverno.Kind != "MutatingPolicy" {
		t.Errorf("%s %s", kyverno.APIVersion, kyverno.Kind)
	}
	if kyverno.Spec.Autogen.PodControllers.Controllers == nil || kyverno.Spec.Evaluation.Background.Enabled == nil {
		t.Error("Kyverno would change the templates of Deployments, or Pods that exist")
	}
	got, want := kyverno.Spec.MutatingAdmissionPolicySpec, native.Spec
	want.ParamKind = nil
	source := got.Variables[0]
	if source.Name != "params" ||
		source.Expression != "resource.Get('v1', 'configmaps', 'kube-system', 'http-proxy-env')" {
		t.Errorf("the values come from %v", source)
	}
	got.Variables = got.Variables[1:]
	for i := range got.Variables {
		got.Variables[i].Expression = strings.ReplaceAll(got.Variables[i].Expression, "variables.params.", "params.")
	}
	for _, m := range got.Mutations {
		m.ApplyConfiguration.Expression = strings.ReplaceAll(m.ApplyConfiguration.Expression, "variables.params.", "params.")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
