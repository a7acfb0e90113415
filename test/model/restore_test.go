package model_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/sequence"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// pods are those that bring files to nodes.
var pods = inplace.NodePods{Image: "registry.example.com/image:v1", PullPolicy: "Always"}

// nodes are the workload cluster of prod: its API server, with the metadata of objects, and its nodes.
type nodes struct {
	objects map[key]*metav1.PartialObjectMetadata
	// runs is the version whose Pod runs on a node, and files the one whose files are there.
	runs, files map[string]string
	// sets are the versions of DaemonSets, and versions all that there were.
	sets     map[string]string
	versions map[string]bool
}

func (n *nodes) clone() *nodes {
	if n == nil {
		return nil
	}
	return &nodes{maps.Clone(n.objects), maps.Clone(n.runs), maps.Clone(n.files), maps.Clone(n.sets), maps.Clone(n.versions)}
}

// differ returns how other nodes differ, or "".
func (n *nodes) differ(other *nodes) string {
	if n == nil {
		return ""
	}
	state := func(n *nodes) string {
		var text strings.Builder
		for _, k := range slices.SortedFunc(maps.Keys(n.objects), key.compare) {
			fmt.Fprintln(&text, k, n.objects[k].Labels, byApply(n.objects[k]))
		}
		return fmt.Sprint(text.String(), n.runs, n.files, n.sets, n.versions)
	}
	if want, got := state(n), state(other); want != got {
		return fmt.Sprintf("the workload cluster is\n%s\nand undisturbed\n%s", got, want)
	}
	return ""
}

// byApply reports whether the fields of an object belong to an apply.
func byApply(object *metav1.PartialObjectMetadata) bool {
	return len(object.ManagedFields) > 0 && object.ManagedFields[0].Operation == metav1.ManagedFieldsOperationApply
}

// kubelets have each node run the Pod of the DaemonSet that its label selects. What a Pod has written stays when it ends.
func (w *model) kubelets() {
	if w.nodes == nil {
		return
	}
	for _, k := range slices.SortedFunc(maps.Keys(w.nodes.objects), key.compare) {
		version := w.nodes.sets[contract.Name+"-"+w.nodes.objects[k].Labels[inplace.LabelNodeFiles]]
		if k.kind != "Node" || w.nodes.runs[k.name] == version {
			continue
		}
		if w.version++; version != "" {
			w.nodes.files[k.name] = version
		}
		if w.nodes.runs[k.name] = version; version == restoring() {
			w.nodes.files[k.name] = ""
		}
	}
}

// nodesAPI is the client of the workload cluster, which counts its writes as those of the product.
type nodesAPI struct {
	client.Client

	w *model
}

func (r nodesAPI) GroupVersionKindFor(object runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(object, clientgoscheme.Scheme)
}

func (r nodesAPI) keyOf(object client.Object) key {
	kind, err := r.GroupVersionKindFor(object)
	must(err)
	return key{kind.Kind, object.GetName()}
}

func (r nodesAPI) Get(_ context.Context, name client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	k := key{into.GetObjectKind().GroupVersionKind().Kind, name.Name}
	object := r.w.nodes.objects[k]
	if object == nil {
		return notFound(k)
	}
	*into.(*metav1.PartialObjectMetadata) = *object.DeepCopy() //nolint:forcetypeassert // nothing else is read
	return nil
}

func (r nodesAPI) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	kind := strings.TrimSuffix(into.GetObjectKind().GroupVersionKind().Kind, "List")
	for _, k := range slices.SortedFunc(maps.Keys(r.w.nodes.objects), key.compare) {
		object := r.w.nodes.objects[k]
		if _, isPods := into.(*corev1.PodList); !isPods && o.LabelSelector != nil &&
			!o.LabelSelector.Matches(labels.Set(object.Labels)) {
			continue
		}
		switch into := into.(type) {
		case *metav1.PartialObjectMetadataList:
			if k.kind == kind {
				into.Items = append(into.Items, *object.DeepCopy())
			}
		case *coordinationv1.LeaseList:
			if k.kind == "Lease" {
				into.Items = append(into.Items, coordinationv1.Lease{ObjectMeta: *object.ObjectMeta.DeepCopy()})
			}
		case *corev1.PodList:
			if version := r.w.nodes.runs[k.name]; k.kind == "Node" && version != "" {
				pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
					Name: "on-" + k.name, Labels: map[string]string{inplace.LabelFilesVersion: version},
				}}
				pod.Spec.NodeName = k.name
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
					State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
				}}
				into.Items = append(into.Items, pod)
			}
		}
	}
	return nil
}

// write stores an object, or deletes it if it is nil, between the two halves of a disturbance.
func (r nodesAPI) write(verb string, k key, after *metav1.PartialObjectMetadata) error {
	if r.w.disturb != nil {
		if err := r.w.disturb(false); err != nil {
			return err
		}
	}
	switch before := r.w.nodes.objects[k]; {
	case after == nil:
		r.delete(k)
	case before == nil || !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations),
		byApply(before) != byApply(after):
		r.w.version++
		after.ResourceVersion = strconv.Itoa(r.w.version)
		r.w.nodes.objects[k] = after
	}
	r.w.writes = append(r.w.writes, verb+" remote "+k.kind+" "+k.name)
	if r.w.disturb != nil {
		return r.w.disturb(true)
	}
	return nil
}

// delete deletes an object, and what is in it. What has restored the nodes must not go before all are restored.
func (r nodesAPI) delete(k key) {
	for node, version := range r.w.nodes.files {
		if version != "" && k.kind == "DaemonSet" && r.w.nodes.sets[k.name] == restoring() && r.w.failure == nil {
			r.w.failure = fmt.Errorf("%v is deleted, and node %s has files of %s", k, node, version)
		}
	}
	delete(r.w.nodes.objects, k)
	if k.kind == "DaemonSet" {
		delete(r.w.nodes.sets, k.name)
	}
	r.w.version++
}

// Create makes an object. Its fields do not belong to applies yet.
func (r nodesAPI) Create(ctx context.Context, object client.Object, _ ...client.CreateOption) error {
	k := r.keyOf(object)
	if r.w.nodes.objects[k] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: k.kind}, k.name)
	}
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: contract.Name, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
	}})
	text, err := json.Marshal(object)
	must(err)
	return r.Patch(ctx, object, client.RawPatch(types.ApplyPatchType, text))
}

// Patch applies an object, has its fields belong to applies, or changes the labels of a Node.
func (r nodesAPI) Patch(_ context.Context, object client.Object, change client.Patch, _ ...client.PatchOption) error {
	k := r.keyOf(object)
	before := r.w.nodes.objects[k]
	switch {
	case before == nil && k.kind == "Node":
		return notFound(k)
	case before != nil && object.GetResourceVersion() != "" && object.GetResourceVersion() != before.ResourceVersion:
		return conflict(k)
	}
	text, err := change.Data(object)
	must(err)
	after := &metav1.PartialObjectMetadata{}
	if before != nil {
		after = before.DeepCopy()
	}
	if change.Type() == types.JSONPatchType {
		after.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: contract.Name, Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1("{}"),
		}}
	} else {
		must(json.Unmarshal(text, after)) // a label that is null becomes ""
	}
	maps.DeleteFunc(after.Labels, func(_, value string) bool { return value == "" })
	kind, err := r.GroupVersionKindFor(object)
	must(err)
	after.SetGroupVersionKind(kind)
	after.UID, after.ResourceVersion = "uid-1", ""
	after.Name = k.name
	if k.kind != "Secret" && strings.Contains(string(text), "s3cr3t") && r.w.failure == nil {
		r.w.failure = fmt.Errorf("a credential in %s", text)
	}
	if err := r.write("patch", k, after); err != nil {
		return err
	}
	if k.kind == "DaemonSet" && change.Type() == types.ApplyPatchType {
		var set appsv1.DaemonSet
		must(json.Unmarshal(text, &set))
		version := set.Spec.Template.Labels[inplace.LabelFilesVersion]
		r.w.nodes.sets[k.name], r.w.nodes.versions[version] = version, true
	}
	object.SetResourceVersion(r.w.nodes.objects[k].ResourceVersion)
	object.SetManagedFields(after.ManagedFields)
	return nil
}

func (r nodesAPI) Delete(_ context.Context, object client.Object, _ ...client.DeleteOption) error {
	k := r.keyOf(object)
	if r.w.nodes.objects[k] == nil {
		return notFound(k)
	}
	return r.write("delete", k, nil)
}

// restoring is the version without files.
var restoring = sync.OnceValue(func() string {
	data, err := patch.NodeData(nil, patch.Recipe{})
	must(err)
	in := inplace.NodeFiles{
		NodePods: pods, Secret: settings.GeneratedSecretName(prod), Data: data, Key: []byte(inplace.RestoredValue), Slots: 1,
	}
	in.PullPolicy = string(corev1.PullIfNotPresent)
	return in.Version()
})

// joins has the node of a Machine join, of which the workload cluster knows nothing else.
func (w *model) joins(name string) {
	uid := types.UID("machine-" + name)
	config, _ := copyOf(w.live[key{"KubeadmConfig", name}]).(*bootstrapv1.KubeadmConfig)
	config.OwnerReferences[0].UID, config.Status.DataSecretName = uid, name
	w.put(w.keyOf(config), config)
	machine, _ := copyOf(w.live[key{"Machine", name}]).(*clusterv1.Machine)
	machine.UID, machine.Status.NodeRef.Name = uid, name
	w.put(w.keyOf(machine), machine)
	node := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-1", ResourceVersion: "1"}}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	w.nodes.objects[key{"Node", name}] = node
}

// TestModel_OfCrashesWhileNodesAreRestored has nodes that booted with the proxy and one that did not get files in place,
// and takes the label off. It disturbs each write until nothing is left in the workload cluster.
func TestModel_OfCrashesWhileNodesAreRestored(t *testing.T) {
	t.Parallel()
	quiet()
	w := newWorld(t, map[string]bool{})
	w.change(vocabulary.ProxySecret(namespace, "http-proxy",
		map[string]string{"httpProxy": "http://proxy:3128", "username": "u", "password": password}))
	w.nodes = &nodes{map[key]*metav1.PartialObjectMetadata{}, map[string]string{}, map[string]string{}, map[string]string{}, map[string]bool{}}
	operations := slices.Concat(clusterOperations(), crossOperations(), poolOperations(), otherOperations())
	c := (&tally{writes: map[string]int{}}).begin(w)
	c.calm = true
	do := func(what string, operation func(*model) error) {
		t.Helper()
		if err := c.do(operation); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	do("a node boots without the proxy", func(w *model) error { w.worker(); w.joins("worker"); return nil })
	on, off := call{"label of prod", "true"}, call{"label of prod", "false"}
	do(fmt.Sprint(on), on.do(operations))
	do("a node boots with it", func(w *model) error {
		w.machine(*w.controlPlane().Spec.KubeadmConfigSpec.DeepCopy())
		w.joins("machine-0")
		return nil
	})
	inPlace := call{"annotation " + contract.AnnotationRollout, inplace.RolloutInPlace}
	do(fmt.Sprint(inPlace), inPlace.do(operations))
	before := maps.Clone(c.now.nodes.versions)
	for _, name := range []string{"machine-0", "worker"} {
		if version := c.now.nodes.files[name]; version == "" || len(before) != 1 {
			t.Errorf("node %s has files of %q, of versions %v", name, version, before)
		}
	}
	c.calm, c.failed = false, sequence.IsLong() // then each disturbance follows each write
	do(fmt.Sprint(off), off.do(operations))
	after := c.now.nodes
	delete(after.versions, restoring())
	if !maps.Equal(before, after.versions) {
		t.Errorf("there were versions %v, want %v", after.versions, before)
	}
	for k, object := range after.objects {
		if k.kind != "Node" || len(object.Labels) > 0 || after.files[k.name] != "" {
			t.Errorf("%v is left, with labels %v and files of %q", k, object.Labels, after.files[k.name])
		}
	}
	if applied, left := c.now.live[key{"Cluster", prod}].GetAnnotations()[inplace.AnnotationInPlaceApplied]; left {
		t.Errorf("annotation %s is %s", inplace.AnnotationInPlaceApplied, applied)
	}
	for name, want := range map[string]string{"machine-0": contract.FilesRemovedValue, "worker": ""} {
		if got := c.now.live[key{"KubeadmConfig", name}].GetAnnotations()[contract.AnnotationUpdatedFiles]; got != want {
			t.Errorf("annotation %s of KubeadmConfig %s is %q, want %q", contract.AnnotationUpdatedFiles, name, got, want)
		}
	}
	if err := c.now.finish(); err != nil {
		t.Error(err)
	}
	c.log(t)
}
