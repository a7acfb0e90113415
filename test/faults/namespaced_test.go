package faults

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// namespaced builds config/default in a namespace of its own with the component that lets it serve one namespace.
func namespaced(t *testing.T, system, watched string) []*unstructured.Unstructured {
	t.Helper()
	folder, err := filepath.EvalSymlinks(t.TempDir()) // kustomize follows links
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(folder, "config"), os.DirFS("../../config")); err != nil {
		t.Fatal(err)
	}
	// What kustomize edit set namespace writes.
	edited := filepath.Join("config", "components", "namespaced", "role", "watched", "kustomization.yaml")
	text, err := os.ReadFile(filepath.Join("../..", edited))
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		edited:                       strings.Replace(string(text), "namespace: default", "namespace: "+watched, 1),
		"system/kustomization.yaml":  "namespace: " + system + "\nresources: [../config/default]\n",
		"overlay/kustomization.yaml": "resources: [../system]\ncomponents: [../config/components/namespaced]\n",
	} {
		path = filepath.Join(folder, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	objects, err := mgmt.Kustomize(filepath.Join(folder, "overlay"))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// TestManager_WorksWithTheRoleOfOneNamespace runs the manager with the rights of config/components/namespaced and no
// others.
func TestManager_WorksWithTheRoleOfOneNamespace(t *testing.T) {
	f := newFleet(t, 2)
	t.Parallel()
	const system = "namespaced-system"
	var access []*unstructured.Unstructured
	var args []string
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
			var deployment appsv1.Deployment
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &deployment); err != nil {
				t.Fatal(err)
			}
			args = deployment.Spec.Template.Spec.Containers[0].Args
		case "MutatingWebhookConfiguration":
			webhooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
			for _, webhook := range webhooks {
				labels, _, _ := unstructured.NestedStringMap(webhook.(map[string]any), "namespaceSelector", "matchLabels")
				if labels["kubernetes.io/metadata.name"] != f.ns {
					t.Errorf("%v asks for namespaces with %v", webhook.(map[string]any)["name"], labels)
				}
			}
		}
	}
	if !slices.Contains(args, "--namespace="+f.ns) {
		t.Fatalf("arguments %v", args)
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
