package install

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

func TestManifests_LimitTheMemoryOfEveryContainer(t *testing.T) {
	t.Parallel()
	for _, deployment := range vocabulary.OfKind[appsv1.Deployment](t, vocabulary.Kustomize(t, root+"/config/clusterclass"), "Deployment") {
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
	objects := vocabulary.Overlay(t, vocabulary.CopyConfig(t), installs["everything"])
	policies := vocabulary.OfKind[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy")
	for _, deployment := range vocabulary.OfKind[appsv1.Deployment](t, objects, "Deployment") {
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
