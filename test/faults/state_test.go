package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/status"
)

// objects is what a user sees of a namespace, by kind and name: everything but status and what the API server keeps
// books about.
type objects map[string]map[string]any

func (o objects) add(t *testing.T, object client.Object) {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]any{}
	if err := json.Unmarshal(text, &content); err != nil {
		t.Fatal(err)
	}
	u := unstructured.Unstructured{Object: content}
	delete(content, "status")
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"} {
		unstructured.RemoveNestedField(content, "metadata", field)
	}
	annotations := u.GetAnnotations()
	delete(annotations, contract.AnnotationMachinesBehind) // as old as the Machine
	delete(annotations, contract.AnnotationLastPass)       // versions of Secrets
	u.SetAnnotations(annotations)
	if len(annotations) == 0 {
		unstructured.RemoveNestedField(content, "metadata", "annotations")
	}
	o[u.GetKind()+"/"+u.GetName()] = content
}

// specs are the kinds that hold a bootstrap spec, with the place of it.
func specs() map[string][]string {
	return map[string][]string{
		"KubeadmControlPlane":   {"spec", "kubeadmConfigSpec"},
		"KubeadmConfigTemplate": {"spec", "template", "spec"},
		"KubeadmConfig":         {"spec"},
	}
}

// kinds are those of a fleet.
func kinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		clusterv1.GroupVersion.WithKind("Cluster"), clusterv1.GroupVersion.WithKind("MachineDeployment"),
		clusterv1.GroupVersion.WithKind("MachinePool"),
		controlplanev1.GroupVersion.WithKind("KubeadmControlPlane"),
		bootstrapv1.GroupVersion.WithKind("KubeadmConfigTemplate"), bootstrapv1.GroupVersion.WithKind("KubeadmConfig"),
		corev1.SchemeGroupVersion.WithKind("Secret"),
		{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: "DemoMachineTemplate"},
	}
}

// list returns all objects of the kinds of a fleet in a namespace.
func list(t *testing.T, ns string) []unstructured.Unstructured {
	t.Helper()
	var all []unstructured.Unstructured
	for _, kind := range kinds() {
		found := &unstructured.UnstructuredList{}
		found.SetGroupVersionKind(kind)
		if err := shared.client.List(t.Context(), found, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		all = append(all, found.Items...)
	}
	return all
}

// versions returns the resourceVersion of every object of a namespace.
func versions(t *testing.T, ns string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, object := range list(t, ns) {
		found[object.GetKind()+" "+object.GetName()] = object.GetResourceVersion()
	}
	return found
}

// state returns the objects of the namespace.
func (f *fleet) state() objects {
	f.t.Helper()
	found := objects{}
	for _, object := range list(f.t, f.ns) {
		found.add(f.t, &object)
	}
	return found
}

// damage returns what is wrong with the lists of an object that is to have the proxy: an entry of the user is lost, changed
// or moved, or an added entry is missing or there twice.
func (f *fleet) damage(name string, object map[string]any) string {
	kind, _, _ := strings.Cut(name, "/")
	place, holds := specs()[kind]
	if !holds {
		return ""
	}
	for _, entries := range []string{"files", "preKubeadmCommands", "postKubeadmCommands"} {
		own, _, _ := unstructured.NestedSlice(f.originals[name], append(slices.Clone(place), entries)...)
		all, _, _ := unstructured.NestedSlice(object, append(slices.Clone(place), entries)...)
		var left, added []any
		for _, entry := range all {
			same := func(other any) bool { return reflect.DeepEqual(entry, other) }
			switch {
			case slices.ContainsFunc(own, same):
				left = append(left, entry)
			case slices.ContainsFunc(added, same):
				return fmt.Sprintf("%s has twice in %s: %v", name, entries, entry)
			default:
				added = append(added, entry)
			}
		}
		if !reflect.DeepEqual(own, left) {
			return fmt.Sprintf("%s of %s that the user wrote (-want +got):\n%s", entries, name, cmp.Diff(own, left))
		}
		if len(added) == 0 && entries != "postKubeadmCommands" {
			return name + " does not have the proxy in " + entries
		}
	}
	return ""
}

// eventuallyHasProxy waits until every object has the proxy of the current Secret once, beside all that the user wrote, and
// every Cluster says so. test/templates compares the content with render.
func (f *fleet) eventuallyHasProxy() {
	f.t.Helper()
	eventually(f.t, "objects", func() string {
		now := f.state()
		for _, name := range slices.Sorted(maps.Keys(f.originals)) {
			if _, exists := now[name]; !exists {
				return name + " does not exist"
			}
			if problem := f.damage(name, now[name]); problem != "" {
				return problem
			}
		}
		for _, name := range f.names {
			secret := &corev1.Secret{}
			if err := shared.client.Get(f.t.Context(), f.key(name+contract.GeneratedSecretSuffix), secret); err != nil {
				return err.Error()
			}
			if env := string(secret.Data[contract.KeyProxyEnv]); !strings.Contains(env, f.proxy) {
				return fmt.Sprintf("Secret of Cluster %s does not have %s:\n%s", name, f.proxy, env)
			}
		}
		return ""
	})
	f.eventuallyReports(contract.ReasonConfigured)
	f.eventuallyRecorded()
}

// eventuallyRecorded waits until every labelled Cluster records the current versions of its proxy Secrets: a pass writes
// that after its condition, so that who stops the manager before has the next one write it.
func (f *fleet) eventuallyRecorded() {
	f.t.Helper()
	eventually(f.t, "records", func() string {
		all, now := list(f.t, f.ns), map[string]string{}
		for _, object := range all {
			if object.GetKind() == "Secret" {
				now[object.GetNamespace()+"/"+object.GetName()] = object.GetResourceVersion()
			}
		}
		for _, object := range all {
			if object.GetKind() != "Cluster" || object.GetLabels()[contract.LabelEnabled] == "" {
				continue
			}
			pass, err := status.ParsePass(object.GetAnnotations()[contract.AnnotationLastPass])
			if err != nil {
				return object.GetName() + ": " + err.Error()
			}
			for name, version := range pass.Secrets {
				if now[name] != version {
					return fmt.Sprintf("Cluster %s has used version %q of Secret %s, which is %q", object.GetName(), version, name,
						now[name])
				}
			}
		}
		return ""
	})
}

// eventuallyAsBefore waits until every object is byte for byte what the user wrote, no other is left, and no Cluster has a
// condition.
func (f *fleet) eventuallyAsBefore() {
	f.t.Helper()
	eventually(f.t, "objects", func() string {
		now := f.state()
		want := maps.Clone(now)
		maps.DeleteFunc(want, func(_ string, object map[string]any) bool {
			_, generated := (&unstructured.Unstructured{Object: object}).GetLabels()[contract.LabelGenerated]
			return generated
		})
		for name, object := range f.originals {
			if object["kind"] != "Cluster" {
				want[name] = object
			}
		}
		return cmp.Diff(want, now)
	})
	f.eventuallyReports(noCondition)
}
