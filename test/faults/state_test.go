package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/status"
)

// stormAnnotation is written by those who disturb; it is no part of any state.
const stormAnnotation = "example.com/storm"

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
	delete(annotations, stormAnnotation)
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

// rendered returns what render makes of the current Clusters and proxy Secrets and of everything else as the user wrote
// it.
func (f *fleet) rendered() objects {
	f.t.Helper()
	var input bytes.Buffer
	now := f.state()
	for _, name := range slices.Sorted(maps.Keys(now)) {
		object := unstructured.Unstructured{Object: now[name]}
		if original, known := f.originals[name]; known && object.GetKind() != "Cluster" {
			object.Object = original
		}
		if _, generated := object.GetLabels()[contract.LabelGenerated]; generated {
			continue
		}
		text, err := json.Marshal(object.Object)
		if err != nil {
			f.t.Fatal(err)
		}
		fmt.Fprintf(&input, "---\n%s\n", text)
	}
	render := exec.CommandContext(f.t.Context(), shared.binary, "render", "-f", "-", "--include-secrets")
	render.Stdin = &input
	var notes strings.Builder
	render.Stderr = &notes
	out, err := render.Output()
	if err != nil {
		f.t.Fatalf("rendering: %v: %s", err, notes.String())
	}
	found := objects{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(out), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			f.t.Fatalf("reading what render printed: %v", err)
		}
		if len(object.Object) > 0 {
			found.add(f.t, object)
		}
	}
}

// compare returns how what is differs from what is wanted, or "".
func (f *fleet) compare(want, got objects) string {
	f.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, known := want[name]; !known {
			return name + " exists, but should not"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		is, exists := got[name]
		if !exists {
			return name + " does not exist"
		}
		wanted := want[name]
		if wanted["kind"] == "Secret" {
			wanted, is = nodeFiles(f.t, wanted), nodeFiles(f.t, is)
		}
		if wanted, is = sorted(wanted), sorted(is); !reflect.DeepEqual(wanted, is) {
			return fmt.Sprintf("%s (-want +got):\n%s", name, cmp.Diff(wanted, is))
		}
		if problem := f.damage(name, got[name]); problem != "" {
			return problem
		}
	}
	return ""
}

// sorted returns an object with the files of its bootstrap spec by path. The order of the added files depends on which
// of them existed before, and has no meaning; damage checks the order of the user's own.
func sorted(object map[string]any) map[string]any {
	u := unstructured.Unstructured{Object: object}
	place := append(slices.Clone(specs()[u.GetKind()]), "files")
	files, found, _ := unstructured.NestedSlice(object, place...) // a copy
	if !found {
		return object
	}
	slices.SortFunc(files, func(a, b any) int { return strings.Compare(pathOf(a), pathOf(b)) })
	u = *u.DeepCopy()
	_ = unstructured.SetNestedSlice(u.Object, files, place...) // it was found there
	return u.Object
}

func pathOf(file any) string {
	fields, _ := file.(map[string]any)
	path, _ := fields["path"].(string)
	return path
}

// nodeFiles is the part of a Secret that reaches nodes, and of whom it is.
func nodeFiles(t *testing.T, secret map[string]any) map[string]any {
	t.Helper()
	var typed corev1.Secret
	text, err := json.Marshal(secret)
	if err == nil {
		err = json.Unmarshal(text, &typed)
	}
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]any{"of": typed.Labels[contract.LabelGenerated]}
	for _, key := range []string{contract.KeyProxyEnv, contract.KeyTrustedCABundle, contract.KeySetup} {
		text, exists := typed.StringData[key]
		if data, stored := typed.Data[key]; stored {
			text, exists = string(data), true
		}
		if exists {
			files[key] = text
		}
	}
	return files
}

// damage returns what is wrong with the lists of an object, independent of render: an entry of the user is lost,
// changed or moved, or an added entry is duplicated.
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
	}
	return ""
}

// eventuallyAsRendered waits until every object is what render makes of it, and every Cluster says so: labelled ones
// are Configured, the others have no condition.
func (f *fleet) eventuallyAsRendered() {
	f.t.Helper()
	want := f.rendered()
	eventually(f.t, "objects", func() string { return f.compare(want, f.state()) })
	labelled := map[string]bool{}
	for name, object := range want {
		if kind, cluster, _ := strings.Cut(name, "/"); kind == "Cluster" {
			u := unstructured.Unstructured{Object: object}
			labelled[cluster] = u.GetLabels()[contract.LabelEnabled] != ""
		}
	}
	eventually(f.t, "conditions", func() string {
		for name, condition := range f.conditions() {
			reason := noCondition
			if labelled[name] {
				reason = contract.ReasonConfigured
			}
			if condition.Reason != reason {
				return fmt.Sprintf("Cluster %s has reason %s, want %s; message: %s", name, condition.Reason, reason,
					condition.Message)
			}
		}
		return ""
	})
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

// untouched returns the objects of the namespace as they would be without the product.
func (f *fleet) untouched() objects {
	f.t.Helper()
	want := f.state().withoutGenerated()
	for name, object := range f.originals {
		if object["kind"] != "Cluster" {
			want[name] = object
		}
	}
	return want
}

// withoutGenerated returns the objects that are not generated Secrets.
func (o objects) withoutGenerated() objects {
	left := maps.Clone(o)
	maps.DeleteFunc(left, func(_ string, object map[string]any) bool {
		u := unstructured.Unstructured{Object: object}
		_, generated := u.GetLabels()[contract.LabelGenerated]
		return generated
	})
	return left
}

// eventuallyAsBefore waits until every object is byte for byte what the user wrote, and no Cluster has a condition.
func (f *fleet) eventuallyAsBefore() {
	f.t.Helper()
	eventually(f.t, "objects", func() string { return f.compare(f.untouched(), f.state()) })
	f.eventuallyReports(noCondition)
}
