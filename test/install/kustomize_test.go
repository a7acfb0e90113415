package install

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// root is the folder of the repository.
const root = "../.."

// Names that a user chooses.
const (
	otherNamespace = "proxy-of-ours"
	otherImage     = "registry.example.com:5000/team/capi-proxy-patcher"
	otherTag       = "v1.2.3-rc.1"
)

// installs are kustomizations as users write them; %s is the folder config.
var installs = map[string]string{
	"default":         "resources: [%[1]s/default]",
	"clusterclass":    "resources: [%[1]s/clusterclass]",
	"extension":       "resources: [%[1]s/default]\ncomponents: [%[1]s/extension]",
	"extension alone": "resources: [%[1]s/extension/resources]",
	"everything":      "resources: [%[1]s/clusterclass]\ncomponents: [%[1]s/components/network-policies]",
	"in place":        "resources: [%[1]s/default]\ncomponents: [%[1]s/components/in-place]",
	"ExtensionConfig": "resources: [%[1]s/extensionconfig]",
	"no webhooks":     "resources: [%[1]s/without-webhooks]",
}

// copyConfig copies the folder config, so that a test may edit it, and returns its path.
func copyConfig(t *testing.T) string {
	t.Helper()
	// Kustomize follows links.
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(folder, "config")
	if err := os.CopyFS(config, os.DirFS(filepath.Join(root, "config"))); err != nil {
		t.Fatal(err)
	}
	return config
}

// overlay builds a kustomization of a user beside a folder config.
func overlay(t *testing.T, config, text string) []*unstructured.Unstructured {
	t.Helper()
	folder, err := os.MkdirTemp(filepath.Dir(config), "overlay-") //nolint:usetesting // beside config
	if err != nil {
		t.Fatal(err)
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

// images returns the images of all containers, and those that they are to use on nodes, with the names of their Deployments.
func images(t *testing.T, objects []*unstructured.Unstructured) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, deployment := range deployments(t, objects) {
		pod := deployment.Spec.Template.Spec
		for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
			found[deployment.Name+"/"+container.Name] = container.Image
			for _, argument := range container.Args {
				if image, names := strings.CutPrefix(argument, "--node-image="); names {
					found[deployment.Name+"/"+container.Name+" --node-image"] = image
				}
			}
		}
	}
	return found
}

func deployments(t *testing.T, objects []*unstructured.Unstructured) []appsv1.Deployment {
	t.Helper()
	var found []appsv1.Deployment
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		var deployment appsv1.Deployment
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &deployment); err != nil {
			t.Fatal(err)
		}
		found = append(found, deployment)
	}
	return found
}

func TestImage_IsSetInOnePlace(t *testing.T) {
	t.Parallel()
	const set = "images:\n- name: capi-proxy-patcher\n  newName: " + otherImage + "\n  newTag: " + otherTag + "\n"
	edit := func(kustomization string) func(*testing.T, string) {
		return func(t *testing.T, config string) {
			t.Helper()
			path := filepath.Join(config, kustomization, "kustomization.yaml")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			// What kustomize edit set image writes.
			text = regexp.MustCompile(`(?ms)^images:\n.*?\n(\z|\n)`).ReplaceAll(text, nil)
			if err := os.WriteFile(path, append(text, set...), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, place := range []struct {
		name string
		edit func(t *testing.T, config string)
		add  string
	}{
		{"config/default", edit("default"), ""},
		{"the overlay", func(*testing.T, string) {}, set},
	} {
		config := copyConfig(t)
		place.edit(t, config)
		for name, text := range installs {
			// What does not come with config/default has an image of its own.
			if name == "ExtensionConfig" || (name == "extension alone" || name == "no webhooks") && place.add == "" {
				continue
			}
			found := images(t, overlay(t, config, fmt.Sprintf(text, "../config")+"\n"+place.add))
			if len(found) == 0 {
				t.Errorf("%s has no container", name)
			}
			for container, image := range found {
				if image != otherImage+":"+otherTag {
					t.Errorf("image set in %s, %s: container %s has %s", place.name, name, container, image)
				}
			}
		}
	}
}

func TestNamespace_OfAnOverlayIsInEveryName(t *testing.T) {
	t.Parallel()
	config := copyConfig(t)
	for name, text := range installs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := fmt.Sprintf(text, "../config") + "\n"
			checkNames(t, overlay(t, config, text), mgmt.SystemNamespace)
			others := overlay(t, config, text+"namespace: "+otherNamespace+"\n")
			checkNames(t, others, otherNamespace)
			for _, object := range others {
				for _, value := range stringsOf(object.Object) {
					if strings.Contains(value, mgmt.SystemNamespace) || strings.Contains(value, "$(") || strings.Contains(value, "SERVICE") {
						t.Errorf("%s %s has %q", object.GetKind(), object.GetName(), value)
					}
				}
			}
		})
	}
}

// checkNames checks that everything is in a namespace, and that what an object names is there.
func checkNames(t *testing.T, objects []*unstructured.Unstructured, namespace string) {
	t.Helper()
	there := map[string]bool{}
	for _, object := range objects {
		if object.GetNamespace() != "" && object.GetNamespace() != namespace {
			t.Errorf("%s %s is in namespace %s", object.GetKind(), object.GetName(), object.GetNamespace())
		}
		there[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()] = true
	}
	services := 0
	for _, object := range objects {
		switch object.GetKind() {
		case "Certificate":
			names, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "dnsNames")
			for _, name := range names {
				parts := strings.Split(name, ".")
				if !there["Service "+parts[1]+"/"+parts[0]] || parts[2] != "svc" {
					t.Errorf("Certificate %s is for %s", object.GetName(), name)
				}
				services++
			}
			issuer, _, _ := unstructured.NestedString(object.Object, "spec", "issuerRef", "name")
			if !there["Issuer "+namespace+"/"+issuer] {
				t.Errorf("Certificate %s: nobody is Issuer %s", object.GetName(), issuer)
			}
		case "MutatingWebhookConfiguration":
			if from := object.GetAnnotations()["cert-manager.io/inject-ca-from"]; !there["Certificate "+from] {
				t.Errorf("%s: the authority is that of %q", object.GetName(), from)
			}
			webhooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
			for _, webhook := range webhooks {
				name, _, _ := unstructured.NestedString(webhook.(map[string]any), "clientConfig", "service", "name")
				of, _, _ := unstructured.NestedString(webhook.(map[string]any), "clientConfig", "service", "namespace")
				if !there["Service "+of+"/"+name] {
					t.Errorf("%s calls Service %s/%s", object.GetName(), of, name)
				}
			}
		case "ExtensionConfig":
			checkExtensionConfig(t, object, namespace)
		}
	}
	if webhooks := slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "MutatingWebhookConfiguration" }); webhooks && services == 0 {
		t.Error("no Certificate names a Service")
	}
}

// checkExtensionConfig checks what belongs to the hooks by themselves.
func checkExtensionConfig(t *testing.T, object *unstructured.Unstructured, namespace string) {
	t.Helper()
	if from := object.GetAnnotations()["runtime.cluster.x-k8s.io/inject-ca-from-secret"]; from != namespace+"/capi-proxy-patcher-hooks-cert" {
		t.Errorf("the authority of the ExtensionConfig is that of %q", from)
	}
	name, _, _ := unstructured.NestedString(object.Object, "spec", "clientConfig", "service", "name")
	of, _, _ := unstructured.NestedString(object.Object, "spec", "clientConfig", "service", "namespace")
	if name != "capi-proxy-patcher-hooks" || of != namespace {
		t.Errorf("the ExtensionConfig calls Service %s/%s", of, name)
	}
	terms, _, _ := unstructured.NestedSlice(object.Object, "spec", "namespaceSelector", "matchExpressions")
	if values := stringsOf(terms); len(terms) != 1 || !slices.Contains(values, namespace) || !slices.Contains(values, corev1.LabelMetadataName) {
		t.Errorf("the ExtensionConfig selects namespaces by %v", values)
	}
}

// stringsOf returns all strings of a value, in any depth.
func stringsOf(value any) []string {
	var found []string
	switch v := value.(type) {
	case string:
		found = append(found, v)
	case []any:
		for _, item := range v {
			found = append(found, stringsOf(item)...)
		}
	case map[string]any:
		for key, item := range v {
			found = append(append(found, key), stringsOf(item)...)
		}
	}
	return found
}

func TestMonitoring_FindsTheMetricsOfTheManager(t *testing.T) {
	t.Parallel()
	text := "resources: [../config/default]\ncomponents: [../config/components/monitoring]\nnamespace: " + otherNamespace + "\n"
	objects := overlay(t, copyConfig(t), text)
	checkNames(t, objects, otherNamespace)
	manager := deployments(t, objects)[0]
	container := manager.Spec.Template.Spec.Containers[0]
	i := slices.IndexFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.Name == "metrics" })
	if i < 0 || container.Ports[i].ContainerPort != 8443 { // the default of --diagnostics-address
		t.Fatalf("ports %v, arguments %v", container.Ports, container.Args)
	}
	var monitored, served int
	for _, object := range objects {
		if object.GetKind() != "ServiceMonitor" {
			continue
		}
		selected, _, _ := unstructured.NestedStringMap(object.Object, "spec", "selector", "matchLabels")
		endpoints, _, _ := unstructured.NestedSlice(object.Object, "spec", "endpoints")
		monitored += len(endpoints)
		endpoint := endpoints[0].(map[string]any)
		if endpoint["scheme"] != "https" || endpoint["bearerTokenFile"] == nil {
			t.Errorf("metrics are asked for without a token: %v", endpoint)
		}
		for _, other := range objects {
			if other.GetKind() != "Service" || !labels.SelectorFromSet(selected).Matches(labels.Set(other.GetLabels())) {
				continue
			}
			var service corev1.Service
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(other.Object, &service); err != nil {
				t.Fatal(err)
			}
			port := service.Spec.Ports[0]
			if port.Name == endpoints[0].(map[string]any)["port"] && port.TargetPort.String() == "metrics" &&
				labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(manager.Spec.Template.Labels)) {
				served++
			}
		}
	}
	if monitored != 1 || served != 1 {
		t.Errorf("%d endpoints, %d Services that serve them", monitored, served)
	}
}
