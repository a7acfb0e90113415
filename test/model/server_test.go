package model_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	diff "github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/webhook"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

const namespace = "team"

// key names an object.
type key struct{ kind, name string }

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.kind, other.kind), cmp.Compare(k.name, other.name))
}

// server is an API server with one namespace, and a cache of it that can be behind.
type server struct {
	scheme  *runtime.Scheme // with the program's kinds
	own     *runtime.Scheme // with Cluster API's own types
	stored  []schema.GroupVersionKind
	live    map[key]client.Object
	cached  map[key]client.Object
	behind  map[string]bool // kinds that the cache does not follow
	passes  int             // of the controller while it does not
	steps   *int            // passes of all controllers and others, in all copies of the world
	indexes map[string]map[string]client.IndexerFunc
	trim    map[string]toolscache.TransformFunc
	version int
	now     time.Time
	hooks   http.Handler // nil while the webhooks are away
	// written is called for every write of the product and every answer of a webhook.
	written func(before, after client.Object) error
	writes  []string // of the controllers
	failure error    // of written
	// disturb, if not nil, is called around each write of the controllers. An error before a write refuses it.
	disturb func(done bool) error
	// rollouts counts how often rollout.after was set.
	rollouts int
	// texts are stored objects in JSON, and forms as types of the program. Nobody changes a stored object.
	texts map[client.Object][]byte
	forms map[client.Object]client.Object
	// nodes are the workload cluster, nil if it cannot be reached.
	nodes *nodes
}

var newOwnScheme = sync.OnceValues(api.NewScheme)

func newServer() *server {
	scheme, err := world.Scheme()
	must(err)
	own, err := newOwnScheme()
	must(err)
	s := &server{
		scheme: scheme, own: own, live: map[key]client.Object{}, cached: map[key]client.Object{}, behind: map[string]bool{},
		indexes: map[string]map[string]client.IndexerFunc{}, trim: map[string]toolscache.TransformFunc{},
		now: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC), steps: new(int), texts: map[client.Object][]byte{}, forms: map[client.Object]client.Object{},
	}
	for gvk := range own.AllKnownTypes() {
		if gvk.Version == clusterv1.GroupVersion.Version || gvk.Group == "" {
			s.stored = append(s.stored, gvk)
		}
	}
	options, err := world.CacheOptions("", "", time.Hour)
	must(err)
	for object, by := range options.ByObject {
		s.trim[s.kindOf(object)] = by.Transform
	}
	must(world.SetupIndexes(context.Background(), s)) //nolint:forbidigo // a world outlives no test and has none
	return s
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// IndexField implements client.FieldIndexer.
func (s *server) IndexField(_ context.Context, object client.Object, field string, values client.IndexerFunc) error {
	kind := s.kindOf(object)
	if s.indexes[kind] == nil {
		s.indexes[kind] = map[string]client.IndexerFunc{}
	}
	s.indexes[kind][field] = values
	return nil
}

func (s *server) kindOf(object runtime.Object) string {
	gvk, err := apiutil.GVKForObject(object, s.scheme)
	if err != nil {
		gvk, err = apiutil.GVKForObject(object, s.own)
	}
	must(err)
	return strings.TrimSuffix(gvk.Kind, "List")
}

func (s *server) keyOf(object client.Object) key { return key{s.kindOf(object), object.GetName()} }

func copyOf[T client.Object](object T) T { return object.DeepCopyObject().(T) } //nolint:forcetypeassert // it is

// put stores an object unchanged; nil removes it.
func (s *server) put(k key, object client.Object) {
	if object == nil {
		delete(s.live, k)
	} else {
		gvk, err := apiutil.GVKForObject(object, s.own)
		must(err)
		object.GetObjectKind().SetGroupVersionKind(gvk)
		s.version++
		object.SetResourceVersion(strconv.Itoa(s.version))
		if object.GetUID() == "" {
			object.SetUID(types.UID(fmt.Sprintf("uid-%d", s.version)))
			object.SetCreationTimestamp(metav1.NewTime(s.now))
		}
		object.SetNamespace(namespace)
		if secret, isSecret := object.(*corev1.Secret); isSecret && len(secret.StringData) > 0 {
			secret.Data = map[string][]byte{}
			for name, value := range secret.StringData {
				secret.Data[name] = []byte(value)
			}
			secret.StringData = nil
		}
		if len(object.GetAnnotations()) == 0 {
			object.SetAnnotations(nil) // after encoding and decoding
		}
		delete(s.texts, object)
		s.live[k] = object
	}
	if !s.behind[k.kind] {
		s.show(k)
	}
}

// show has the cache follow for one object.
func (s *server) show(k key) {
	object := s.live[k]
	if object == nil {
		delete(s.cached, k)
		return
	}
	_, labelled := object.GetLabels()[contract.LabelProxySecret] // only these are in the cache
	if transform := s.trim[k.kind]; labelled && transform != nil && k.kind == "Secret" {
		object = copyOf(object)
		_, err := transform(object)
		must(err)
	}
	s.cached[k] = s.shown(object)
}

// text returns an object in JSON.
func (s *server) text(object client.Object) []byte {
	text, known := s.texts[object]
	if !known {
		var err error
		text, err = json.Marshal(object)
		must(err)
		s.texts[object] = text
	}
	return text
}

// form returns a stored object as the type of the program.
func (s *server) form(object client.Object) client.Object {
	form, known := s.forms[object]
	if !known {
		into, err := s.scheme.New(object.GetObjectKind().GroupVersionKind())
		must(err)
		form, _ = into.(client.Object)
		must(json.Unmarshal(s.text(object), form))
		s.forms[object] = form
	}
	return form
}

// catchUpAll has the cache follow all kinds again.
func (s *server) catchUpAll() {
	for kind := range s.behind {
		s.catchUp(kind)
	}
	s.passes = 0
}

// catchUp has the cache follow for all objects of a kind.
func (s *server) catchUp(kind string) {
	delete(s.behind, kind)
	for _, objects := range []map[key]client.Object{s.live, s.cached} {
		for k := range objects {
			if k.kind == kind {
				s.show(k)
			}
		}
	}
}

func notFound(k key) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: k.kind}, k.name)
}

func conflict(k key) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: k.kind}, k.name, fmt.Errorf("changed"))
}

// reader reads the live objects or the cache.
type reader struct {
	*server

	cache bool
}

func (r reader) objects() map[key]client.Object {
	if r.cache {
		return r.cached
	}
	return r.live
}

// Get implements client.Reader.
func (r reader) Get(_ context.Context, name client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	k := key{r.kindOf(into), name.Name}
	object := r.objects()[k]
	if object == nil || name.Namespace != namespace {
		return notFound(k)
	}
	switch into := into.(type) {
	case *metav1.PartialObjectMetadata:
		*into = partial(object)
	case *unstructured.Unstructured:
		into.Object = asMap(object)
	default:
		r.give(object, into)
	}
	return nil
}

// give reads an object as a type of the program, or as its own.
func (r reader) give(object client.Object, into any) {
	if reflect.TypeOf(object) == reflect.TypeOf(into) {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object.DeepCopyObject()).Elem())
		return
	}
	if form := r.form(object); reflect.TypeOf(form) == reflect.TypeOf(into) {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(form.DeepCopyObject()).Elem())
	} else {
		reflect.ValueOf(into).Elem().SetZero()
		must(json.Unmarshal(r.text(object), into))
	}
	if r.cache {
		_, err := kinds.Trim(into)
		must(err)
	}
}

func partial(object client.Object) metav1.PartialObjectMetadata {
	var m metav1.PartialObjectMetadata
	field := reflect.ValueOf(copyOf(object)).Elem().FieldByName("ObjectMeta")
	m.ObjectMeta = field.Interface().(metav1.ObjectMeta) //nolint:forcetypeassert // it is
	m.SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	return m
}

func asMap(object any) map[string]any {
	text, err := json.Marshal(object)
	must(err)
	var m map[string]any
	must(json.Unmarshal(text, &m))
	return m
}

// List implements client.Reader.
func (r reader) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	kind := r.kindOf(into)
	var keys []key
	for k := range r.objects() {
		if k.kind == kind {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, key.compare)
	items := reflect.ValueOf(into).Elem().FieldByName("Items")
	items.SetZero()
	for _, k := range keys {
		object := r.objects()[k]
		if o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(object.GetLabels())) ||
			!r.matches(o, kind, object) {
			continue
		}
		item := reflect.New(items.Type().Elem()).Elem()
		if _, isPartial := into.(*metav1.PartialObjectMetadataList); isPartial {
			item = reflect.ValueOf(partial(object))
		} else {
			r.give(object, item.Addr().Interface())
		}
		items.Set(reflect.Append(items, item))
	}
	return nil
}

// shown returns an object as a type of the program.
func (s *server) shown(object client.Object) client.Object {
	gvk, err := apiutil.GVKForObject(object, s.own)
	if err != nil {
		return object // it is one
	}
	into, err := s.scheme.New(gvk)
	must(err)
	reader{s, true}.give(object, into)
	return into.(client.Object) //nolint:forcetypeassert // it is
}

func (s *server) matches(o client.ListOptions, kind string, object client.Object) bool {
	if o.FieldSelector == nil {
		return true
	}
	for _, requirement := range o.FieldSelector.Requirements() {
		index := s.indexes[kind][requirement.Field]
		if index == nil {
			panic("no index " + requirement.Field + " of " + kind)
		}
		if !slices.Contains(index(s.shown(object)), requirement.Value) {
			return false
		}
	}
	return true
}

// product is the client of the controller: it reads from the cache.
type product struct {
	client.Client

	reader
}

func (p product) Get(ctx context.Context, name client.ObjectKey, into client.Object,
	options ...client.GetOption,
) error {
	if into.GetObjectKind().GroupVersionKind().Kind != "" || p.kindOf(into) != "Secret" {
		return p.reader.Get(ctx, name, into, options...)
	}
	if err := p.reader.Get(ctx, name, into, options...); err != nil {
		return err
	}
	if _, shown := into.GetLabels()[contract.LabelProxySecret]; !shown {
		reflect.ValueOf(into).Elem().SetZero()
		return notFound(key{"Secret", name.Name})
	}
	return nil
}

func (p product) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	return p.reader.List(ctx, into, options...)
}

func (p product) GroupVersionKindFor(object runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(object, p.scheme)
}

func (p product) wrote(verb string, before, after client.Object) {
	named := cmp.Or(after, before)
	if after == nil {
		named = before
	}
	p.writes = append(p.writes, verb+" "+p.kindOf(named)+" "+named.GetName())
	if err := p.written(before, after); err != nil && p.failure == nil {
		p.failure = err
	}
}

// begin is called before each write.
func (p product) begin() error {
	if p.disturb == nil {
		return nil
	}
	return p.disturb(false)
}

// end is called after each write.
func (p product) end(verb string, before, after client.Object) error {
	p.wrote(verb, before, after)
	if p.disturb == nil {
		return nil
	}
	return p.disturb(true)
}

func (p product) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	if err := p.begin(); err != nil {
		return err
	}
	k := p.keyOf(object)
	if p.live[k] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: k.kind}, k.name)
	}
	p.put(k, copyOf(object))
	reflect.ValueOf(object).Elem().Set(reflect.ValueOf(p.live[k].DeepCopyObject()).Elem())
	return p.end("create", nil, p.live[k])
}

func (p product) Update(_ context.Context, object client.Object, _ ...client.UpdateOption) error {
	if err := p.begin(); err != nil {
		return err
	}
	k := p.keyOf(object)
	before := p.live[k]
	if before == nil {
		return notFound(k)
	}
	if object.GetResourceVersion() != "" && object.GetResourceVersion() != before.GetResourceVersion() {
		return conflict(k)
	}
	after := copyOf(object)
	after.SetUID(before.GetUID())
	after.SetCreationTimestamp(before.GetCreationTimestamp())
	return p.store("update", before, after, object)
}

func (p product) store(verb string, before, after, into client.Object) error {
	k := p.keyOf(before)
	after.SetResourceVersion(before.GetResourceVersion())
	if !reflect.DeepEqual(before, after) {
		p.put(k, after)
		p.countRollouts(before, after)
	}
	reader{p.server, false}.give(p.live[k], into)
	return p.end(verb, before, p.live[k])
}

// countRollouts counts a write that has Cluster API replace the Machines of a MachineDeployment.
func (s *server) countRollouts(before, after client.Object) {
	if old, isDeployment := before.(*clusterv1.MachineDeployment); isDeployment {
		if now, _ := after.(*clusterv1.MachineDeployment); !old.Spec.Rollout.After.Equal(&now.Spec.Rollout.After) {
			s.rollouts++
		}
	}
}

func (s *server) product() product { return product{reader: reader{s, true}} }

func (p product) Delete(_ context.Context, object client.Object, options ...client.DeleteOption) error {
	var o client.DeleteOptions
	o.ApplyOptions(options)
	if err := p.begin(); err != nil {
		return err
	}
	k := p.keyOf(object)
	before := p.live[k]
	if before == nil {
		return notFound(k)
	}
	if pre := o.Preconditions; pre != nil &&
		(pre.UID != nil && *pre.UID != before.GetUID() || pre.ResourceVersion != nil &&
			*pre.ResourceVersion != before.GetResourceVersion()) {
		return conflict(k)
	}
	p.put(k, nil)
	return p.end("delete", before, nil)
}

func (p product) Patch(_ context.Context, object client.Object, change client.Patch, _ ...client.PatchOption) error {
	if err := p.begin(); err != nil {
		return err
	}
	k := p.keyOf(object)
	before := p.live[k]
	if before == nil {
		return notFound(k)
	}
	data, err := change.Data(object)
	must(err)
	text := p.text(before)
	if change.Type() == types.JSONPatchType {
		operations, decodeErr := jsonpatch.DecodePatch(data)
		must(decodeErr)
		text, err = operations.Apply(text)
	} else {
		text, err = jsonpatch.MergePatch(text, data)
	}
	if err != nil {
		return apierrors.NewGenericServerResponse(422, "patch", schema.GroupResource{}, k.name, err.Error(), 0, false)
	}
	after := p.decode(k.kind, text)
	if after.GetResourceVersion() != before.GetResourceVersion() {
		return conflict(k)
	}
	return p.store("patch", before, after, object)
}

func (s *server) decode(kind string, text []byte) client.Object {
	i := slices.IndexFunc(s.stored, func(v schema.GroupVersionKind) bool { return v.Kind == kind })
	gvk := s.stored[i]
	object, err := s.own.New(gvk)
	must(err)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	must(decoder.Decode(object))
	return object.(client.Object) //nolint:forcetypeassert // it is
}

// status writes the conditions of Clusters.
type status struct {
	client.SubResourceWriter

	p product
}

func (p product) Status() client.SubResourceWriter { return status{p: p} }

func (s status) Apply(_ context.Context, applied runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
	var o client.SubResourceApplyOptions
	for _, option := range options {
		option.ApplyToSubResourceApply(&o)
	}
	own := contract.ConditionProxyConfigured // what the field manager has applied before
	if o.FieldManager != contract.Name {
		own = output.ConditionProxyPublished
	}
	var configuration struct {
		Metadata metav1.ObjectMeta
		Status   struct{ Conditions []metav1.Condition }
	}
	if err := s.p.begin(); err != nil {
		return err
	}
	text, err := json.Marshal(applied)
	must(err)
	must(json.Unmarshal(text, &configuration))
	k := key{"Cluster", configuration.Metadata.Name}
	before, _ := s.p.live[k].(*clusterv1.Cluster)
	if before == nil {
		return notFound(k)
	}
	if before.UID != configuration.Metadata.UID {
		return conflict(k)
	}
	after := copyOf(before)
	if len(configuration.Status.Conditions) == 0 {
		meta.RemoveStatusCondition(&after.Status.Conditions, own)
	}
	for _, condition := range configuration.Status.Conditions {
		after.Status.Conditions = slices.DeleteFunc(after.Status.Conditions,
			func(c metav1.Condition) bool { return c.Type == condition.Type })
		after.Status.Conditions = append(after.Status.Conditions, condition)
	}
	if len(after.Status.Conditions) == 0 {
		after.Status.Conditions = nil // after encoding and decoding
	}
	return s.p.store("status", before, after, &clusterv1.Cluster{})
}

// admit asks the webhook for a kind about a write of somebody else, twice, as an API server may.
func (s *server) admit(before, asked client.Object) client.Object {
	kind := s.kindOf(asked)
	cluster, isCluster := asked.(*clusterv1.Cluster)
	if s.hooks == nil || isCluster && cluster.Spec.Topology.ClassRef.Name == "" || !isCluster &&
		!slices.Contains([]string{"KubeadmControlPlane", "KubeadmConfigTemplate", "KubeadmConfig"}, kind) {
		return asked
	}
	text, err := json.Marshal(asked)
	must(err)
	for again := range 2 {
		answer := s.review(kind, before, asked.GetName(), text)
		if len(answer.Patch) == 0 {
			break
		}
		operations, err := jsonpatch.DecodePatch(answer.Patch)
		must(err)
		first := text
		text, err = operations.Apply(text)
		must(err)
		if again == 1 && s.failure == nil && !reflect.DeepEqual(s.decode(kind, first), s.decode(kind, text)) {
			s.failure = fmt.Errorf("called again on its own answer, the webhook changes %s: %s", answer.Patch,
				diff.Diff(s.decode(kind, first), s.decode(kind, text)))
		}
	}
	admitted := s.decode(kind, text)
	if err := s.written(asked, admitted); err != nil && s.failure == nil {
		s.failure = err
	}
	return admitted
}

func (s *server) review(kind string, before client.Object, name string, asked []byte) *admissionv1.AdmissionResponse {
	request := &admissionv1.AdmissionRequest{UID: "u", Namespace: namespace, Name: name, Operation: admissionv1.Create}
	request.Object.Raw = asked
	if before != nil {
		text, err := json.Marshal(before)
		must(err)
		request.Operation, request.OldObject.Raw = admissionv1.Update, text
	}
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request:  request,
	})
	must(err)
	r := httptest.NewRequest(http.MethodPost, webhook.Path(kind), bytes.NewReader(body)) //nolint:noctx // no goroutine waits
	r.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	s.hooks.ServeHTTP(recorder, r)
	var answer admissionv1.AdmissionReview
	if recorder.Code != http.StatusOK {
		if s.failure == nil {
			s.failure = fmt.Errorf("the webhook answers %d: %s", recorder.Code, recorder.Body)
		}
		return &admissionv1.AdmissionResponse{} // failurePolicy Ignore
	}
	must(json.Unmarshal(recorder.Body.Bytes(), &answer))
	for _, warning := range answer.Response.Warnings {
		if strings.Contains(warning, "s3cr3t") && s.failure == nil {
			s.failure = fmt.Errorf("a credential in warning %q", warning)
		}
	}
	return answer.Response
}

// change is a write of somebody else than the product.
func (s *server) change(object client.Object) {
	k := s.keyOf(object)
	before := s.live[k]
	gvk, err := apiutil.GVKForObject(object, s.own)
	must(err)
	object.GetObjectKind().SetGroupVersionKind(gvk)
	object.SetNamespace(namespace)
	after := s.admit(before, object)
	if before != nil {
		after.SetUID(before.GetUID())
		after.SetCreationTimestamp(before.GetCreationTimestamp())
		after.SetGeneration(before.GetGeneration() + 1)
	}
	s.put(k, after)
}

// password must not be anywhere but in Secrets.
const password = "s3cr3t%$'"
