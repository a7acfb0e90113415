//go:build linux

package hostile

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// built returns the objects of a kind in manifests.
func built[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) []T {
	t.Helper()
	var found []T
	for _, object := range objects {
		if object.GetKind() != kind {
			continue
		}
		var typed T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed); err != nil {
			t.Fatal(err)
		}
		found = append(found, typed)
	}
	return found
}

// everything builds config/default with components.
func everything(t *testing.T, components ...string) []*unstructured.Unstructured {
	t.Helper()
	folder := t.TempDir()
	config, err := filepath.Abs("../../config")
	if err != nil {
		t.Fatal(err)
	}
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		t.Fatal(err)
	}
	if config, err = filepath.Rel(folder, config); err != nil {
		t.Fatal(err)
	}
	text := "resources: [" + config + "/default]\ncomponents:\n"
	for _, component := range components {
		text += "- " + config + "/" + component + "\n"
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	objects, err := mgmt.Kustomize(folder)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestManifests_LimitTheMemoryOfEveryContainer(t *testing.T) {
	t.Parallel()
	for _, components := range [][]string{{"extension"}, {"extension", "components/manager-hooks"}} {
		for _, deployment := range built[appsv1.Deployment](t, everything(t, components...), "Deployment") {
			for _, container := range deployment.Spec.Template.Spec.Containers {
				limit := container.Resources.Limits.Memory()
				soft := resource.Quantity{}
				for _, variable := range container.Env {
					if variable.Name == "GOMEMLIMIT" {
						soft = resource.MustParse(strings.TrimSuffix(variable.Value, "B"))
					}
				}
				if soft.IsZero() || soft.Cmp(*limit) >= 0 {
					t.Errorf("%v, %s: limit %s, GOMEMLIMIT %s", components, deployment.Name, limit, &soft)
				}
			}
		}
	}
}

func TestNetworkPolicies_CoverEveryPort(t *testing.T) {
	t.Parallel()
	objects := everything(t, "extension", "components/manager-hooks", "components/network-policies")
	policies := built[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy")
	for _, deployment := range built[appsv1.Deployment](t, objects, "Deployment") {
		var allowed []string
		for _, policy := range policies {
			selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
			if err != nil {
				t.Fatal(err)
			}
			if !selector.Matches(labels.Set(deployment.Spec.Template.Labels)) ||
				!slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
				continue
			}
			for _, rule := range policy.Spec.Ingress {
				from := "anybody"
				for _, peer := range rule.From {
					from = peer.NamespaceSelector.MatchLabels[corev1.LabelMetadataName]
				}
				for _, port := range rule.Ports {
					allowed = append(allowed, fmt.Sprintf("%s from %s", port.Port, from))
				}
			}
		}
		want := []string{"hooks from capi-system"}
		for _, port := range deployment.Spec.Template.Spec.Containers[0].Ports {
			if port.Name == "webhook-server" {
				want = append(want, "metrics from monitoring", "webhook-server from anybody")
			}
		}
		if slices.Sort(allowed); !slices.Equal(allowed, want) {
			t.Errorf("%s: %v, want %v", deployment.Name, allowed, want)
		}
	}
}

func TestHooksOfTheManager_RequireTheCertificateOfClusterAPI(t *testing.T) {
	t.Parallel()
	objects := everything(t, "components/manager-hooks")
	pod := built[appsv1.Deployment](t, objects, "Deployment")[0].Spec.Template.Spec
	if !slices.Contains(pod.Containers[0].Args, "--hook-client-ca-name=client-ca.crt") {
		t.Errorf("arguments %v", pod.Containers[0].Args)
	}
	issued := map[string]bool{}
	for _, object := range objects {
		if object.GetKind() == "Certificate" {
			name, _, _ := unstructured.NestedString(object.Object, "spec", "secretName")
			issued[name] = true
		}
	}
	var files []string
	for _, volume := range pod.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if !issued[source.Secret.Name] {
				t.Errorf("nobody issues Secret %s", source.Secret.Name)
			}
			for _, item := range source.Secret.Items {
				files = append(files, source.Secret.Name+"/"+item.Key+" as "+item.Path)
			}
		}
	}
	// The key of the authority is not among them.
	want := []string{
		"capi-proxy-patcher-manager-hooks-cert/tls.crt as tls.crt", "capi-proxy-patcher-manager-hooks-cert/tls.key as tls.key",
		"capi-proxy-patcher-hooks-client-ca/tls.crt as client-ca.crt",
	}
	if !slices.Equal(files, want) {
		t.Errorf("files %v, want %v", files, want)
	}
}

func TestClientCertificate_IsForTheDeploymentOfClusterAPI(t *testing.T) {
	t.Parallel()
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}",
		"sigs.k8s.io/cluster-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := mgmt.Kustomize(filepath.Join(strings.TrimSpace(string(module)), "core", "config", "default"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../config/samples/cluster-api-client-certificate.yaml")
	if err != nil {
		t.Fatal(err)
	}
	operations, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		t.Fatal(err)
	}
	before := built[appsv1.Deployment](t, objects, "Deployment")[0]
	encoded, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	if encoded, err = patch.Apply(encoded); err != nil {
		t.Fatal(err)
	}
	var after appsv1.Deployment
	if err := json.Unmarshal(encoded, &after); err != nil {
		t.Fatal(err)
	}
	old, container := before.Spec.Template.Spec.Containers[0], after.Spec.Template.Spec.Containers[0]
	mount := container.VolumeMounts[len(container.VolumeMounts)-1]
	if before.Name != "capi-controller-manager" || before.Namespace != "capi-system" ||
		len(container.VolumeMounts) != len(old.VolumeMounts)+1 ||
		!slices.Equal(container.Args[len(old.Args):], []string{
			"--runtime-extension-client-cert-file=" + mount.MountPath + "/tls.crt", "--runtime-extension-client-key-file=" + mount.MountPath + "/tls.key",
		}) {
		t.Errorf("%s/%s: %+v", before.Namespace, before.Name, container)
	}
	volume := after.Spec.Template.Spec.Volumes[len(before.Spec.Template.Spec.Volumes)]
	if volume.Name != mount.Name || volume.Secret.SecretName != "capi-proxy-patcher-hooks-client" {
		t.Errorf("%+v", volume)
	}
}
