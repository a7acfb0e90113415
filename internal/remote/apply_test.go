package remote

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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/backoff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
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

	// server identifies it.
	server string

	version, requests int
	writes            []string
}

var (
	_    client.Client = (*remote)(nil)
	noon               = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
)

func nameOf(o client.Object) string {
	return strings.TrimSuffix(o.GetObjectKind().GroupVersionKind().Kind+" "+strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"), " ")
}

// put stores an object of a kind, in a Namespace unless name has no slash.
func (r *remote) put(kind, name string, labels map[string]string, change func(*metav1.PartialObjectMetadata)) {
	for _, known := range append(testKinds(), Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace")}) {
		if known.Kind != kind {
			continue
		}
		o := metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(known.GroupVersionKind)
		o.Name = name
		if namespace, rest, found := strings.Cut(name, "/"); found {
			o.Namespace, o.Name = namespace, rest
		}
		r.version++
		o.Labels, o.UID, o.ResourceVersion = labels, "uid", fmt.Sprint(r.version)
		if labels != nil {
			o.ManagedFields = []metav1.ManagedFieldsEntry{{
				Manager: contract.Name, Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1("{}"),
			}}
		}
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

// testKinds are those of a Set, whose objects have names of one letter.
func testKinds() []Kind {
	kind := func(group, kind string) Kind {
		return Kind{
			GroupVersionKind: schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind},
			Named:            func(name string) bool { return len(name) == 1 },
		}
	}
	return []Kind{kind("apps", "DaemonSet"), kind("policies.kyverno.io", "MutatingPolicy"), kind("", "ConfigMap"), kind("", "Secret")}
}

// testSet is a Set of objects in YAML, each with what it belongs to.
func testSet(t *testing.T, objects ...string) Set {
	t.Helper()
	set := Set{
		Kinds: testKinds(), Labels: map[string]string{contract.LabelGenerated: "prod"}, Failed: "DeliveryFailed",
	}
	for _, text := range objects {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
			t.Fatal(err)
		}
		set.Objects = append(set.Objects, Object{object, "output one"})
	}
	return set
}

// ours are the labels of our objects.
func ours(more ...string) map[string]string {
	labels := map[string]string{contract.LabelGenerated: "prod"}
	for pair := range slices.Chunk(more, 2) {
		labels[pair[0]] = pair[1]
	}
	return labels
}

// TestApply_OfASet begins with a workload cluster that has Namespace a, and wants a ConfigMap and a Secret there.
func TestApply_OfASet(t *testing.T) {
	t.Parallel()
	const (
		configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: a}\n"
		secret    = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: a, labels: {own: \"1\"}}\n"
		no        = "output one: the workload cluster "
		taken     = "NameTaken output one: ConfigMap a/c of the workload cluster exists and was not written by capi-proxy-patcher " +
			"for this Cluster; delete or rename it"
		away = "AWAY team/prod-kubeconfig"
	)
	object := func(kind string) schema.GroupResource { return schema.GroupResource{Resource: kind} }
	both := []string{configMap, secret}
	byAnother := func(o *metav1.PartialObjectMetadata) { o.ManagedFields[0].Manager = "kubectl" }
	finalized := func(o *metav1.PartialObjectMetadata) { o.DeletionTimestamp = new(metav1.NewTime(noon)) }
	for name, test := range map[string]struct {
		wanted []string
		keeps  string // an output
		remote func(*remote)
		writes []string
		// message is that of the only finding, with its reason.
		message string
		again   time.Duration
		left    bool
		// repeats reports that the next pass asks the workload cluster again.
		repeats bool
	}{
		"an object of another": {
			wanted: both, remote: func(r *remote) { r.put("ConfigMap", "a/c", nil, nil) }, writes: []string{"create Secret a/s"},
			message: taken, again: retryDelay, left: true, repeats: true,
		},
		"an object of another, to which labels were copied": {
			wanted: both, remote: func(r *remote) { r.put("ConfigMap", "a/c", ours(), byAnother) }, writes: []string{"create Secret a/s"},
			message: taken, again: retryDelay, left: true, repeats: true,
		},
		"an object of another Cluster": {
			wanted: both, remote: func(r *remote) {
				r.put("ConfigMap", "a/c", ours(contract.LabelGenerated, "other"), nil)
				r.put("Secret", "a/l", ours(contract.LabelGenerated, "other"), nil)
			}, writes: []string{"create Secret a/s"},
			message: taken, again: retryDelay, left: true, repeats: true,
		},
		"an object of ours that has lost its labels": {
			wanted: both, remote: func(r *remote) {
				r.put("ConfigMap", "a/c", ours(), func(o *metav1.PartialObjectMetadata) { o.Labels = nil })
			}, writes: []string{"force ConfigMap a/c", "create Secret a/s"}, left: true,
		},
		"nothing is wanted any more": {
			remote: func(r *remote) {
				r.put("Namespace", "n", ours(), nil)
				r.put("DaemonSet", "a/d", ours(), nil)
				r.put("DaemonSet", "a/another-name", ours(), nil)
				r.put("ConfigMap", "a/c", ours(), byAnother)
				r.put("Secret", "a/s", nil, nil)
			},
			writes: []string{"delete DaemonSet a/d"}, again: cleanDelay, left: true, repeats: true,
		},
		"an output without content": {
			keeps: "one", left: true, remote: func(r *remote) { r.put("Secret", "a/s", ours(contract.LabelOutput, "one"), nil) },
		},
		"another output than that": {
			keeps: "two", remote: func(r *remote) { r.put("Secret", "a/s", ours(contract.LabelOutput, "one"), nil) },
			writes: []string{"delete Secret a/s"}, again: cleanDelay, left: true, repeats: true,
		},
		"nothing":     {},
		"two objects": {wanted: both, writes: []string{"create ConfigMap a/c", "create Secret a/s"}, left: true},
		"an object of ours": {
			wanted: both, remote: func(r *remote) { r.put("ConfigMap", "a/c", ours(), nil) },
			writes: []string{"force ConfigMap a/c", "create Secret a/s"}, left: true,
		},
		"one whose creation a process did not survive": {
			wanted: both, remote: func(r *remote) {
				r.put("ConfigMap", "a/c", ours(), func(o *metav1.PartialObjectMetadata) {
					o.ManagedFields = []metav1.ManagedFieldsEntry{updated(contract.Name), updated("kubectl")}
				})
			}, writes: []string{"force ConfigMap a/c", "create Secret a/s"}, again: cleanDelay, left: true, repeats: true,
		},
		"one that is being deleted": {
			wanted: both, remote: func(r *remote) { r.put("ConfigMap", "a/c", ours(), finalized) },
			writes: []string{"create Secret a/s"}, again: retryDelay, left: true, repeats: true,
		},
		"one that is not wanted any more": {
			wanted: both, remote: func(r *remote) { r.put("Secret", "a/l", ours(), nil) },
			writes: []string{"create ConfigMap a/c", "create Secret a/s", "delete Secret a/l"}, again: cleanDelay, left: true, repeats: true,
		},
		"its deletion has begun": {
			remote:  func(r *remote) { r.put("Secret", "a/s", ours(), finalized) },
			message: "", again: cleanDelay, left: true, repeats: true,
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
				r.put("ConfigMap", "a/c", ours(), nil)
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
			message: away,
			again:   retryDelay, left: true, repeats: true,
		},
		"lists without end": {
			remote:  func(r *remote) { r.endless = true },
			message: away,
			again:   retryDelay, left: true, repeats: true,
		},
		"a deletion that is refused": {
			remote: func(r *remote) {
				r.put("Secret", "a/s", ours(), nil)
				r.refusals["delete Secret a/s"] = errors.New("hunter2")
			}, writes: []string{"delete Secret a/s"},
			message: away,
			again:   retryDelay, left: true, repeats: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &remote{objects: map[string]metav1.PartialObjectMetadata{}, refusals: map[string]error{}, unknown: map[string]bool{}}
			if test.remote != nil {
				test.remote(r)
			}
			set := testSet(t, test.wanted...)
			set.Keeps = func(o metav1.Object) bool {
				return test.keeps != "" && o.GetLabels()[contract.LabelOutput] == test.keeps
			}
			apply := applied(t, r)
			out, left := apply(set)
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
			if _, _ = apply(set); (r.requests > before) != test.repeats {
				t.Errorf("the next pass has %d requests", r.requests-before)
			}
		})
	}
}

// applied returns passes over a workload cluster. One that is away has a finding AWAY.
func applied(t *testing.T, r *remote) func(Set) (controller.Outcome, bool) {
	t.Helper()
	return appliedAt(t, func(context.Context, client.ObjectKey) (Connection, error) {
		return Connection{Client: r, Close: func() {}, Server: r.server}, nil
	})
}

func appliedAt(t *testing.T, connect func(context.Context, client.ObjectKey) (Connection, error)) func(Set) (
	controller.Outcome, bool,
) {
	t.Helper()
	applier := NewApplier(NewClusters(connect, func() time.Time { return noon }))
	guarded := backoff.New(nil, nil, func() time.Time { return noon })
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "prod", UID: "one"}}
	return func(set Set) (controller.Outcome, bool) {
		token := ""
		if len(set.Objects) == 0 && set.Keeps != nil && set.Keeps(&metav1.ObjectMeta{Labels: ours(contract.LabelOutput, "one")}) {
			token = "kept"
		}
		out, left, err := applier.Apply(t.Context(), cluster, guarded, set, token)
		if away, ok := errors.AsType[*AwayError](err); ok {
			out.Add("AWAY", "%s", away.Secret)
			out.RequeueIn(away.RequeueAfter)
		} else if err != nil {
			t.Fatal(err)
		}
		return out, left
	}
}

// TestApply_ComparesAgain changes what is wanted, an object, and the server of the kubeconfig between passes.
func TestApply_ComparesAgain(t *testing.T) {
	t.Parallel()
	r := &remote{objects: map[string]metav1.PartialObjectMetadata{}, refusals: map[string]error{}}
	apply := applied(t, r)
	wanted := func(value string) Set {
		return testSet(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: a, labels: {value: "+value+"}}\n")
	}
	for i, step := range []struct {
		value, server string
		refusal       error
		writes        int
		again         time.Duration
	}{
		{value: "a", writes: 1},
		{value: "a"},
		{value: "b", writes: 1, refusal: apierrors.NewConflict(schema.GroupResource{}, "c", nil), again: retryDelay},
		{value: "b", writes: 1, again: time.Minute}, // it is not new, so others may have changed it
		{value: "b", writes: 1},
		{value: "b"},
		{value: "a", writes: 1},
		{value: "a"},
		{value: "a", server: "made again", writes: 1},
		{value: "a", server: "made again"},
	} {
		if r.server != step.server {
			r.server, r.objects = step.server, map[string]metav1.PartialObjectMetadata{}
		}
		r.writes, r.refusals = nil, map[string]error{"force ConfigMap a/c": step.refusal}
		out, left := apply(wanted(step.value))
		if len(r.writes) != step.writes || out.RequeueAfter != step.again || !left || len(out.Findings) > 0 {
			t.Errorf("pass %d: writes %q, %+v, left %v", i+1, r.writes, out, left)
		}
	}
	if out, left := apply(testSet(t)); out.RequeueAfter != cleanDelay || !left || len(r.objects) > 0 {
		t.Errorf("nothing wanted: %+v, left %v, %v", out, left, r.objects)
	}
	if out, left := apply(testSet(t)); left || len(out.Findings) > 0 {
		t.Errorf("nothing is left: %+v, %v", out, left)
	}
}
