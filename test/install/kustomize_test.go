package install

import (
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

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// root is the folder of the repository.
const root = "../.."

// Names that a user chooses.
const (
	otherNamespace = "proxy-of-ours"
	otherImage     = "registry.example.com:5000/team/capi-proxy-patcher"
	otherTag       = "v1.2.3-rc.1"
)

// installs are kustomizations as users write them, in a folder beside the folder config.
var installs = map[string]string{
	"default":         "resources: [../config/default]",
	"clusterclass":    "resources: [../config/clusterclass]",
	"extension":       "resources: [../config/default]\ncomponents: [../config/extension]",
	"extension alone": "resources: [../config/extension/resources]",
	"everything":      "resources: [../config/clusterclass]\ncomponents: [../config/components/network-policies]",
	"in place":        "resources: [../config/default]\ncomponents: [../config/components/in-place]",
	"ExtensionConfig": "resources: [../config/extensionconfig]",
	"no webhooks":     "resources: [../config/without-webhooks]",
}

// images returns the images of all containers, and those that they are to use on nodes, with the names of their Deployments.
func images(t *testing.T, objects []*unstructured.Unstructured) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, deployment := range vocabulary.OfKind[appsv1.Deployment](t, objects, "Deployment") {
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
		config := vocabulary.CopyConfig(t)
		place.edit(t, config)
		for name, text := range installs {
			// What does not come with config/default has an image of its own.
			if name == "ExtensionConfig" || (name == "extension alone" || name == "no webhooks") && place.add == "" {
				continue
			}
			found := images(t, vocabulary.Overlay(t, config, text+"\n"+place.add))
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
	config := vocabulary.CopyConfig(t)
	for name, text := range installs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkNames(t, vocabulary.Overlay(t, config, text), mgmt.SystemNamespace)
			others := vocabulary.Overlay(t, config, text+"\nnamespace: "+otherNamespace+"\n")
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
	objects := vocabulary.Overlay(t, vocabulary.CopyConfig(t), text)
	checkNames(t, objects, otherNamespace)
	manager := vocabulary.OfKind[appsv1.Deployment](t, objects, "Deployment")[0]
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
			service := vocabulary.OfKind[corev1.Service](t, []*unstructured.Unstructured{other}, "Service")[0]
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
