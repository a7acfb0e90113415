package faults

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// namespaced builds config/default in a namespace of its own with the component that lets it serve one namespace.
func namespaced(t *testing.T, system, watched string) []*unstructured.Unstructured {
	t.Helper()
	config := vocabulary.CopyConfig(t)
	for folder, text := range map[string]string{
		// What kustomize edit set namespace writes.
		"components/namespaced/role/watched": "namespace: " + watched + "\nresources: [role.yaml]\n",
		"system":                             "namespace: " + system + "\nresources: [../default]\n",
	} {
		folder = filepath.Join(config, folder)
		if err := errors.Join(os.MkdirAll(folder, 0o700),
			os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return vocabulary.Overlay(t, config, "resources: [../config/system]\ncomponents: [../config/components/namespaced]\n")
}

// TestManager_WorksWithTheRoleOfOneNamespace runs the manager with the rights of config/components/namespaced and no
// others.
func TestManager_WorksWithTheRoleOfOneNamespace(t *testing.T) {
	f := newFleet(t, 2)
	t.Parallel()
	const system = "namespaced-system"
	var access []*unstructured.Unstructured
	var args []string
	restricted := 0 // webhooks
	for _, object := range namespaced(t, system, f.ns) {
		switch object.GetKind() {
		case "Namespace", "ServiceAccount", "Role", "RoleBinding":
			access = append(access, object)
		case "ClusterRole", "ClusterRoleBinding":
			// To ask who reads diagnostics is the only right that is not one in a namespace.
			if !strings.HasPrefix(object.GetName(), "capi-proxy-patcher-diagnostics-role") {
				t.Errorf("%s %s is there", object.GetKind(), object.GetName())
			}
		case "Deployment":
			deployment := vocabulary.OfKind[appsv1.Deployment](t, []*unstructured.Unstructured{object}, "Deployment")[0]
			args = deployment.Spec.Template.Spec.Containers[0].Args
		case "MutatingWebhookConfiguration":
			webhooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
			for _, webhook := range webhooks {
				restricted++
				labels, _, _ := unstructured.NestedStringMap(webhook.(map[string]any), "namespaceSelector", "matchLabels")
				if labels["kubernetes.io/metadata.name"] != f.ns {
					t.Errorf("%v asks for namespaces with %v", webhook.(map[string]any)["name"], labels)
				}
			}
		}
	}
	if !slices.Contains(args, "--namespace="+f.ns) || restricted == 0 {
		t.Fatalf("arguments %v, %d webhooks", args, restricted)
	}
	if err := mgmt.Apply(t.Context(), shared.Client, access); err != nil {
		t.Fatal(err)
	}
	kubeconfig := kubeconfigOf(t, system, mgmt.ManagerAccount)
	p := manager(t, f.ns, "--kubeconfig", kubeconfig, "--leader-elect", "--leader-elect-namespace", system, noResync)
	f.create(enabled)
	f.eventuallyHasProxy()
	f.useProxy(otherProxyURL)
	f.eventuallyHasProxy()
	p.stop()
	if log := p.log.String(); strings.Contains(log, "forbidden") {
		t.Errorf("something is forbidden:\n%s", log)
	}
}
