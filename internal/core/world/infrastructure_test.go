package world_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// templates is an API server with machine templates, by name: the value of osType, or "forbidden".
type templates struct {
	client.Reader
	os    map[string]string
	asked int
}

func (r *templates) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	r.asked++
	os, exists := r.os[key.Name]
	resource := schema.GroupResource{Group: "infrastructure.cluster.x-k8s.io", Resource: "demomachinetemplates"}
	switch {
	case !exists:
		return apierrors.NewNotFound(resource, key.Name)
	case os == "forbidden":
		return apierrors.NewForbidden(resource, key.Name, nil)
	}
	object.(*unstructured.Unstructured).Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"osDisk": map[string]any{"osType": os}}}} //nolint:forcetypeassert // nothing else is read
	return nil
}

// demo returns a Memory that knows the kind DemoMachineTemplate.
func demo(live client.Reader, now func() time.Time) *world.Memory {
	kind := schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1", Kind: "DemoMachineTemplate"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kind.GroupVersion()})
	mapper.Add(kind, meta.RESTScopeNamespace)
	return &world.Memory{Live: live, Mapper: mapper, Now: now, Known: cache.NewExpiring()}
}

func TestInfrastructure_BacksOffForAnAbsentTemplate(t *testing.T) {
	t.Parallel()
	live := &templates{os: map[string]string{}}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	infrastructure := demo(live, func() time.Time { return now })
	reference := clusterv1.ContractVersionedObjectReference{
		APIGroup: "infrastructure.cluster.x-k8s.io",
		Kind:     "DemoMachineTemplate", Name: "later",
	}
	ask := func(fresh bool) world.Template {
		t.Helper()
		got, err := infrastructure.Template(t.Context(), "team", reference, fresh)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for i, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		for range 100 { // passes of the Cluster in between
			if got := ask(false); got.Exists || got.Again != time.Duration(seconds)*time.Second {
				t.Fatalf("exists %v, to be asked again after %v, want %d s", got.Exists, got.Again, seconds)
			}
		}
		if live.asked != i+1 {
			t.Fatalf("%d requests, want %d", live.asked, i+1)
		}
		now = now.Add(time.Duration(seconds)*time.Second - 1)
		if got := ask(false); got.Again != 1 || live.asked != i+1 {
			t.Fatalf("to be asked again after %v, after %d requests", got.Again, live.asked)
		}
		now = now.Add(1)
	}
	ask(false)
	live.os["later"] = "Windows"
	if got := ask(true); got.Windows == "" || !got.Exists {
		t.Errorf("a Machine that has been made of it: %+v", got)
	}
	if got := ask(false); got.Windows == "" || !got.Exists {
		t.Errorf("what is known by now: %+v", got)
	}
}

func TestInfrastructure_FindsWindowsInTheMachineTemplate(t *testing.T) {
	t.Parallel()
	live := &templates{os: map[string]string{"linux": "Linux", "windows": "Windows", "secret": "forbidden"}}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	infrastructure := demo(live, func() time.Time { return now })
	read := func(kind, name, evidence string, exists bool, asked int) {
		t.Helper()
		before := live.asked
		reference := clusterv1.ContractVersionedObjectReference{
			APIGroup: "infrastructure.cluster.x-k8s.io",
			Kind:     kind, Name: name,
		}
		got, err := infrastructure.Template(t.Context(), "team", reference, false)
		if err != nil || got.Windows != evidence || got.Exists != exists || live.asked-before != asked {
			t.Errorf("%s: %+v, after %d requests (%v); want %q, %v, %d", name, got, live.asked-before, err,
				evidence, exists, asked)
		}
	}
	const windows = "spec.template.spec.osDisk.osType of DemoMachineTemplate team/windows"
	read("DemoMachineTemplate", "linux", "", true, 1)
	read("DemoMachineTemplate", "linux", "", true, 0)
	read("DemoMachineTemplate", "windows", windows, true, 1)
	read("DemoMachineTemplate", "windows", windows, true, 0)
	read("DemoMachineTemplate", "later", "", false, 1)
	live.os["later"] = "Linux"
	read("DemoMachineTemplate", "later", "", false, 0)
	now = now.Add(time.Second)
	read("DemoMachineTemplate", "later", "", true, 1)
	read("DemoMachineTemplate", "secret", "", true, 1)
	read("NotInstalled", "linux", "", true, 0)
	live.os["linux"] = "Windows" // deleted, and created again
	now = now.Add(time.Hour)
	read("DemoMachineTemplate", "linux", "spec.template.spec.osDisk.osType of DemoMachineTemplate team/linux", true, 1)
	infrastructure.Known = nil
	read("DemoMachineTemplate", "windows", windows, true, 1)
	read("DemoMachineTemplate", "windows", windows, true, 1)
}
