//go:build linux

package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

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
	for _, deployment := range built[appsv1.Deployment](t, everything(t, "extension"), "Deployment") {
		for _, container := range deployment.Spec.Template.Spec.Containers {
			limit := container.Resources.Limits.Memory()
			soft := resource.Quantity{}
			for _, variable := range container.Env {
				if variable.Name == "GOMEMLIMIT" {
					soft = resource.MustParse(strings.TrimSuffix(variable.Value, "B"))
				}
			}
			if soft.IsZero() || soft.Cmp(*limit) >= 0 {
				t.Errorf("%s: limit %s, GOMEMLIMIT %s", deployment.Name, limit, &soft)
			}
		}
	}
}

func TestNetworkPolicies_CoverEveryPort(t *testing.T) {
	t.Parallel()
	objects := everything(t, "extension", "components/network-policies")
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
		want := []string{"hooks from capi-system", "metrics from monitoring"}
		for _, port := range deployment.Spec.Template.Spec.Containers[0].Ports {
			if port.Name == "webhook-server" {
				want = []string{"metrics from monitoring", "webhook-server from anybody"}
			}
		}
		if slices.Sort(allowed); !slices.Equal(allowed, want) {
			t.Errorf("%s: %v, want %v", deployment.Name, allowed, want)
		}
	}
}
