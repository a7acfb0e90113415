package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/backoff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
)

// remote is a workload cluster. It has the metadata of objects by "kind namespace/name".
type remote struct {
	client.Client

	objects map[string]metav1.PartialObjectMetadata
	// refusals are the errors of writes, by the write.
	refusals map[string]error
	// unknown are kinds that the API server does not know.
	unknown map[string]bool
	// endless reports that every list has another page.
	endless bool

	version, requests int
	writes            []string
}

var _ client.Client = (*remote)(nil)

func nameOf(o client.Object) string {
	return strings.TrimSuffix(o.GetObjectKind().GroupVersionKind().Kind+" "+strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"), " ")
}

// put stores an object of a kind, in a Namespace unless name has no slash.
func (r *remote) put(kind, name string, labels map[string]string, change func(*metav1.PartialObjectMetadata)) {
	for _, known := range append(deletable(), ofCore("Node")) {
		if known.Kind != kind {
			continue
		}
		o := metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(known)
		o.Name = name
		if namespace, rest, found := strings.Cut(name, "/"); found {
			o.Namespace, o.Name = namespace, rest
		}
		r.version++
		o.Labels, o.UID, o.ResourceVersion = labels, "uid", fmt.Sprint(r.version)
		if change != nil {
			change(&o)
		}
		r.objects[nameOf(&o)] = o
	}
}

func (*remote) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return o.GetObjectKind().GroupVersionKind(), nil
}

func (r *remote) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	r.requests++
	into.SetName(key.Name)
	into.SetNamespace(key.Namespace)
	object, found := r.objects[nameOf(into)]
	if !found {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	if metadata, ok := into.(*metav1.PartialObjectMetadata); ok {
		*metadata = object
	}
	return r.refusals["get "+nameOf(into)]
}

func (r *remote) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	r.requests++
	into, _ := list.(*metav1.PartialObjectMetadataList)
	kind := strings.TrimSuffix(list.GetObjectKind().GroupVersionKind().Kind, "List")
	if r.unknown[kind] {
		return apierrors.NewNotFound(schema.GroupResource{}, kind)
	}
	all := client.ListOptions{}
	all.ApplyOptions(options)
	for _, name := range slices.Sorted(maps.Keys(r.objects)) {
		o := r.objects[name]
		if o.Kind == kind && (all.Namespace == "" || all.Namespace == o.Namespace) &&
			(all.LabelSelector == nil || all.LabelSelector.Matches(labelSet(o.Labels))) {
			into.Items = append(into.Items, o)
		}
	}
	if r.endless {
		into.Continue = "more"
	}
	return r.refusals["list "+kind]
}

type labelSet map[string]string

func (s labelSet) Has(label string) bool              { _, has := s[label]; return has }
func (s labelSet) Get(label string) string            { return s[label] }
func (s labelSet) Lookup(label string) (string, bool) { value, has := s[label]; return value, has }

func (r *remote) write(verb string, o client.Object) error {
	r.requests++
	name := verb + " " + nameOf(o)
	r.writes = append(r.writes, name)
	return r.refusals[name]
}

func (r *remote) Create(_ context.Context, o client.Object, options ...client.CreateOption) error {
	with := client.CreateOptions{}
	with.ApplyOptions(options)
	if _, found := r.objects[nameOf(o)]; found {
		return apierrors.NewAlreadyExists(schema.GroupResource{}, o.GetName())
	}
	o.SetManagedFields([]metav1.ManagedFieldsEntry{updated(with.FieldManager)})
	return r.store("create", o)
}

// updated says that a manager has set label own, by something else than an apply.
func updated(manager string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:own":{}}}}`),
	}
}

func (r *remote) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	switch {
	case patch.Type() == types.JSONPatchType: // of managed fields
		var operations []struct{ Value json.RawMessage }
		var fields []metav1.ManagedFieldsEntry
		if err := json.Unmarshal(data, &operations); err != nil {
			return err
		}
		if err := json.Unmarshal(operations[0].Value, &fields); err != nil {
			return err
		}
		o.SetManagedFields(fields)
		stored := r.objects[nameOf(o)]
		stored.ManagedFields = fields
		r.objects[nameOf(o)] = stored
		return nil
	case o.GetObjectKind().GroupVersionKind().Kind == "Node":
		return r.store("patch "+string(data), o)
	default:
		o.SetManagedFields(r.objects[nameOf(o)].ManagedFields)
		return r.store("force", o)
	}
}

func (r *remote) store(verb string, o client.Object) error {
	if err := r.write(verb, o); err != nil {
		return err
	}
	version := o.GetResourceVersion()
	if stored, found := r.objects[nameOf(o)]; !found || !maps.Equal(stored.Labels, o.GetLabels()) {
		r.version++
		version = fmt.Sprint(r.version)
	}
	o.SetResourceVersion(version)
	stored := metav1.PartialObjectMetadata{}
	stored.SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
	stored.Name, stored.Namespace, stored.Labels = o.GetName(), o.GetNamespace(), o.GetLabels()
	stored.UID, stored.ResourceVersion, stored.ManagedFields = "uid", version, o.GetManagedFields()
	r.objects[nameOf(o)] = stored
	return nil
}

func (r *remote) Delete(_ context.Context, o client.Object, options ...client.DeleteOption) error {
	with := client.DeleteOptions{}
	with.ApplyOptions(options)
	if with.Preconditions == nil || with.Preconditions.UID == nil || *with.Preconditions.UID != r.objects[nameOf(o)].UID {
		return errors.New("a delete of whatever has the name")
	}
	if err := r.write("delete", o); err != nil {
		return err
	}
	delete(r.objects, nameOf(o))
	return nil
}

// ours are the labels of objects of an output.
func ours(output publish.Name, more ...string) map[string]string {
	labels := map[string]string{labelManagedBy: contract.Name, contract.LabelGenerated: "prod", contract.LabelOutput: string(output)}
	for pair := range slices.Chunk(more, 2) {
		labels[pair[0]] = pair[1]
	}
	return labels
}

// TestApply_OfOutputs begins with a workload cluster that has Namespace a, and wants a ConfigMap and a Secret there.
func TestApply_OfOutputs(t *testing.T) {
	t.Parallel()
	const (
		configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: a}\n"
		secret    = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: a, labels: {own: \"1\"}}\n"
		no        = "output one: the workload cluster "
	)
	object := func(kind string) schema.GroupResource { return schema.GroupResource{Resource: kind} }
	output := func(name publish.Name, objects ...string) publish.Secret {
		return publish.Secret{
			Delivered: &publish.Output{Name: name}, Data: map[string][]byte{"x": []byte(strings.Join(objects, "\n---\n"))},
		}
	}
	both := []publish.Secret{output("one", configMap, secret)}
	kept := func(name publish.Name, argument string) publish.Secret {
		return publish.Secret{Delivered: &publish.Output{Name: name, Argument: argument}, Kept: true}
	}
	files := func(argument string) publish.Secret {
		return publish.Secret{Delivered: &publish.Output{Name: publish.Nodes, Argument: argument}}
	}
	finalized := func(o *metav1.PartialObjectMetadata) { o.DeletionTimestamp = new(metav1.NewTime(noon)) }
	const inNodes = contract.NodesNamespace + "/"
	ofFiles := func(version string) map[string]string { return ours(publish.Nodes, contract.LabelNodeFiles, version) }
	for name, test := range map[string]struct {
		wanted []publish.Secret
		remote func(*remote)
		writes []string
		// message is that of the only finding, with its reason.
		message string
		again   time.Duration
		left    bool
		// repeats reports that the next pass asks the workload cluster again.
		repeats bool
	}{
		"nothing":     {},
		"two objects": {wanted: both, writes: []string{"create ConfigMap a/c", "create Secret a/s"}, left: true},
		"an object that is wanted twice": {
			wanted: []publish.Secret{output("one", configMap), output("two", configMap)},
			writes: []string{"create ConfigMap a/c"}, left: true,
		},
		"an object of another": {
			wanted: both, remote: func(r *remote) { r.put("ConfigMap", "a/c", nil, nil) }, writes: []string{"create Secret a/s"},
			message: "NameTaken output one: ConfigMap a/c of the workload cluster exists and was not written by capi-proxy-patcher for " +
				"this Cluster; delete or rename it", again: retryDelay, left: true, repeats: true,
		},
		"an object of another Cluster": {
			wanted: both, remote: func(r *remote) {
				r.put("ConfigMap", "a/c", ours("one", contract.LabelGenerated, "other"), nil)
				r.put("Secret", "a/left", ours("one", contract.LabelGenerated, "other"), nil)
			}, writes: []string{"create Secret a/s"},
			message: "NameTaken output one: ConfigMap a/c of the workload cluster exists and was not written by capi-proxy-patcher for " +
				"this Cluster; delete or rename it", again: retryDelay, left: true, repeats: true,
		},
		"an object of ours": {
			wanted: both, remote: func(r *remote) { r.put("ConfigMap", "a/c", ours("one"), nil) },
			writes: []string{"force ConfigMap a/c", "create Secret a/s"}, left: true,
		},
		"one whose creation a process did not survive": {
			wanted: both, remote: func(r *remote) {
				r.put("ConfigMap", "a/c", ours("one"), func(o *metav1.PartialObjectMetadata) {
					o.ManagedFields = []metav1.ManagedFieldsEntry{updated(contract.Name), updated("kubectl")}
				})
			}, writes: []string{"force ConfigMap a/c", "create Secret a/s"}, again: cleanDelay, left: true, repeats: true,
		},
		"one that is being deleted": {
			wanted: both, remote: func(r *remote) { r.put("ConfigMap", "a/c", ours("one"), finalized) },
			writes: []string{"create Secret a/s"}, again: retryDelay, left: true, repeats: true,
		},
		"one that is not wanted any more": {
			wanted: both, remote: func(r *remote) { r.put("Secret", "a/left", ours("one"), nil) },
			writes: []string{"create ConfigMap a/c", "create Secret a/s", "delete Secret a/left"}, again: cleanDelay, left: true, repeats: true,
		},
		"nothing is wanted any more": {
			remote: func(r *remote) {
				r.put("Namespace", "n", ours("one"), nil)
				r.put("DaemonSet", "a/d", ours("one"), nil)
				r.put("Secret", "a/s", nil, nil)
			},
			writes:  []string{"delete DaemonSet a/d", "delete Namespace n"},
			message: "Withdrawing what was applied to the workload cluster is being deleted", again: cleanDelay, left: true, repeats: true,
		},
		"its deletion has begun": {
			remote:  func(r *remote) { r.put("Secret", "a/s", ours("one"), finalized) },
			message: "Withdrawing what was applied to the workload cluster is being deleted", again: cleanDelay, left: true, repeats: true,
		},
		"an output without content": {
			wanted: []publish.Secret{kept("one", "")}, left: true, remote: func(r *remote) {
				r.put("Secret", "a/s", ours("one"), nil)
			},
		},
		"another output than that": {
			wanted: []publish.Secret{kept("two", "")}, remote: func(r *remote) { r.put("Secret", "a/s", ours("one"), nil) },
			writes: []string{"delete Secret a/s"}, again: cleanDelay, left: true, repeats: true,
		},
		"an earlier version of files that a Node has": {
			wanted: []publish.Secret{files(main)}, remote: func(r *remote) {
				r.put("Namespace", contract.NodesNamespace, ours(publish.Nodes), nil)
				r.put("DaemonSet", inNodes+stale, ofFiles(stale), nil)
				r.put("Secret", inNodes+stale, ofFiles(stale), nil)
				r.put("Secret", inNodes+"older", ofFiles(main+"-5555555555"), nil)
				r.put("Node", "behind", map[string]string{contract.LabelNodeFiles: stale}, nil)
				r.put("Node", "none", nil, nil)
			}, writes: []string{"delete Secret capi-proxy-patcher-nodes/older"}, again: cleanDelay, left: true, repeats: true,
		},
		"files of a generated Secret that is gone, which a Node has": {
			wanted: []publish.Secret{files(main)}, remote: func(r *remote) {
				r.put("Namespace", contract.NodesNamespace, ours(publish.Nodes), nil)
				r.put("DaemonSet", inNodes+gpu, ofFiles(gpu+"-0123456789"), nil)
				r.put("Node", "moves", map[string]string{contract.LabelNodeFiles: gpu + "-0123456789"}, nil)
			}, again: time.Minute, left: true, repeats: true,
		},
		"files are not wanted any more": {
			remote: func(r *remote) {
				r.put("Namespace", contract.NodesNamespace, ours(publish.Nodes), nil)
				r.put("DaemonSet", inNodes+fresh, ofFiles(fresh), nil)
				r.put("Secret", inNodes+fresh, ofFiles(fresh), nil)
				r.put("Node", "mine", map[string]string{contract.LabelNodeFiles: fresh}, nil)
				r.put("Node", "none", nil, nil)
			},
			writes: []string{
				`patch {"metadata":{"labels":{"capi-proxy-patcher.node-restriction.kubernetes.io/files":null}}} Node mine`,
				"delete DaemonSet " + inNodes + fresh, "delete Secret " + inNodes + fresh, "delete Namespace capi-proxy-patcher-nodes",
			},
			message: "Withdrawing what was applied to the workload cluster is being deleted", again: cleanDelay, left: true, repeats: true,
		},
		"files of all generated Secrets are kept": {
			wanted: []publish.Secret{publish.KeptNodes()}, remote: func(r *remote) {
				r.put("Namespace", contract.NodesNamespace, ours(publish.Nodes), nil)
				r.put("DaemonSet", inNodes+"d", ofFiles(fresh), nil)
				r.put("Node", "mine", map[string]string{contract.LabelNodeFiles: fresh}, nil)
			}, left: true,
		},
		"files of one generated Secret are kept": {
			wanted: []publish.Secret{kept(publish.Nodes, main)}, remote: func(r *remote) {
				r.put("DaemonSet", inNodes+"d", ofFiles(fresh), nil)
				r.put("DaemonSet", inNodes+"other", ofFiles(gpu+"-0123456789"), nil)
			}, writes: []string{"delete DaemonSet capi-proxy-patcher-nodes/other"}, again: cleanDelay, left: true, repeats: true,
		},
		"a kind that is not installed": {wanted: both, remote: func(r *remote) { r.unknown["MutatingPolicy"] = true }, writes: []string{"create ConfigMap a/c", "create Secret a/s"}, left: true},
		"a kind that is wanted and not installed": {
			wanted: both, remote: func(r *remote) {
				r.refusals["create ConfigMap a/c"] = apierrors.NewNotFound(object("configmaps"), "c")
				r.put("Namespace", "a", nil, nil)
			}, writes: []string{"create ConfigMap a/c", "create Secret a/s"},
			message: "DeliveryFailed " + no + "does not know kind ConfigMap of v1; install it", again: retryDelay, left: true, repeats: true,
		},
		"a Namespace that is missing": {
			wanted: both, remote: func(r *remote) { r.refusals["create ConfigMap a/c"] = apierrors.NewNotFound(object("namespaces"), "a") },
			writes:  []string{"create ConfigMap a/c", "create Secret a/s"},
			message: "DeliveryFailed " + no + "has no Namespace a; create it", again: retryDelay, left: true, repeats: true,
		},
		"a refused write": {
			wanted: both, remote: func(r *remote) {
				r.refusals["create ConfigMap a/c"] = apierrors.NewForbidden(object("configmaps"), "c", errors.New("hunter2"))
			},
			writes:  []string{"create ConfigMap a/c", "create Secret a/s"},
			message: "DeliveryFailed " + no + "refuses ConfigMap a/c (status 403)", again: retryDelay, left: true, repeats: true,
		},
		"a write that meets another": {
			wanted: both, remote: func(r *remote) {
				r.refusals["create ConfigMap a/c"] = apierrors.NewConflict(object("configmaps"), "c", errors.New("x"))
			},
			writes: []string{"create ConfigMap a/c", "create Secret a/s"}, again: retryDelay, left: true, repeats: true,
		},
		"an object that was made immutable": {
			wanted: both, remote: func(r *remote) {
				r.put("ConfigMap", "a/c", ours("one"), nil)
				r.refusals["force ConfigMap a/c"] = apierrors.NewInvalid(schema.GroupKind{}, "c", nil)
			}, writes: []string{"force ConfigMap a/c", "delete ConfigMap a/c", "create Secret a/s"}, again: cleanDelay, left: true, repeats: true,
		},
		"a new object that is invalid": {
			wanted: both, remote: func(r *remote) {
				r.refusals["create ConfigMap a/c"] = apierrors.NewInvalid(schema.GroupKind{}, "c", nil)
			},
			writes:  []string{"create ConfigMap a/c", "create Secret a/s"},
			message: "DeliveryFailed " + no + "refuses ConfigMap a/c (status 422)", again: retryDelay, left: true, repeats: true,
		},
		"a connection that is lost at a write": {
			wanted: both, remote: func(r *remote) { r.refusals["create ConfigMap a/c"] = errors.New("hunter2") },
			writes:  []string{"create ConfigMap a/c"},
			message: "Delivering the workload cluster does not answer with the kubeconfig of Secret team/prod-kubeconfig; the log of the manager has the details",
			again:   retryDelay, left: true, repeats: true,
		},
		"lists without end": {
			remote:  func(r *remote) { r.endless = true },
			message: "Withdrawing the workload cluster does not answer with the kubeconfig of Secret team/prod-kubeconfig; the log of the manager has the details",
			again:   retryDelay, left: true, repeats: true,
		},
		"a deletion that is refused": {
			remote: func(r *remote) {
				r.put("Secret", "a/s", ours("one"), nil)
				r.refusals["delete Secret a/s"] = errors.New("hunter2")
			}, writes: []string{"delete Secret a/s"},
			message: "Withdrawing the workload cluster does not answer with the kubeconfig of Secret team/prod-kubeconfig; the log of the manager has the details",
			again:   cleanDelay, left: true, repeats: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &remote{objects: map[string]metav1.PartialObjectMetadata{}, refusals: map[string]error{}, unknown: map[string]bool{}}
			if test.remote != nil {
				test.remote(r)
			}
			apply := applied(t, r)
			out, left := apply(test.wanted)
			message := ""
			for _, f := range out.Findings {
				message += f.Reason + " " + f.Message
			}
			if message != test.message || out.RequeueAfter != test.again || left != test.left || !slices.Equal(r.writes, test.writes) {
				t.Errorf("finding %q, again after %s, left %v, writes %q", message, out.RequeueAfter, left, r.writes)
			}
			for name, object := range r.objects { // else a later apply would not remove a field
				if slices.ContainsFunc(object.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
					return e.Manager == contract.Name && e.Operation == metav1.ManagedFieldsOperationUpdate
				}) {
					t.Errorf("%s belongs to %v", name, object.ManagedFields)
				}
			}
			before := r.requests
			if _, _ = apply(test.wanted); (r.requests > before) != test.repeats {
				t.Errorf("the next pass has %d requests", r.requests-before)
			}
		})
	}
}

// applied returns passes over a workload cluster.
func applied(t *testing.T, r *remote) func(wanted []publish.Secret) (controller.Outcome, bool) {
	t.Helper()
	applier := NewApplier(func(context.Context, client.ObjectKey) (client.Client, func(), error) { return r, func() {}, nil })
	guarded := backoff.New(nil, nil, func() time.Time { return noon })
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "prod", UID: "one"}}
	return func(wanted []publish.Secret) (controller.Outcome, bool) {
		out, left, err := applier.Apply(t.Context(), cluster, guarded, wanted)
		if err != nil {
			t.Fatal(err)
		}
		return out, left
	}
}

// TestApply_ComparesAgain changes what is wanted, and an object, between passes.
func TestApply_ComparesAgain(t *testing.T) {
	t.Parallel()
	r := &remote{objects: map[string]metav1.PartialObjectMetadata{}, refusals: map[string]error{}}
	apply := applied(t, r)
	wanted := func(value string) []publish.Secret {
		return []publish.Secret{{Delivered: &publish.Output{Name: "one"}, Data: map[string][]byte{
			"x": []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: a, labels: {value: " + value + "}}\n"),
		}}}
	}
	for i, step := range []struct {
		value   string
		refusal error
		writes  int
		again   time.Duration
	}{
		{value: "a", writes: 1},
		{value: "a"},
		{value: "b", writes: 1, refusal: apierrors.NewConflict(schema.GroupResource{}, "c", nil), again: retryDelay},
		{value: "b", writes: 1, again: time.Minute}, // it is not new, so others may have changed it
		{value: "b", writes: 1},
		{value: "b"},
		{value: "a", writes: 1},
		{value: "a"},
	} {
		r.writes, r.refusals = nil, map[string]error{"force ConfigMap a/c": step.refusal}
		out, left := apply(wanted(step.value))
		if len(r.writes) != step.writes || out.RequeueAfter != step.again || !left || len(out.Findings) > 0 {
			t.Errorf("pass %d: writes %q, %+v, left %v", i+1, r.writes, out, left)
		}
	}
	if out, left := apply(nil); out.RequeueAfter != cleanDelay || !left || len(r.objects) > 0 {
		t.Errorf("nothing wanted: %+v, left %v, %v", out, left, r.objects)
	}
	if out, left := apply(nil); left || len(out.Findings) > 0 {
		t.Errorf("nothing is left: %+v, %v", out, left)
	}
}
