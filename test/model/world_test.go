package model_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/webhook"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/publisher"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/remote"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/crdschema"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// The Clusters. The name of the second begins with that of the first.
const (
	prod   = "prod"
	prodEU = "prod.eu"
)

// quiet discards logs, and collects garbage less often. Tests run in parallel, and only one may say so.
var quiet = sync.OnceFunc(func() {
	log.SetLogger(logr.Discard())
	debug.SetGCPercent(400) //nolint:mnd // a world is small, and what is thrown away is much
})

// model is an API server, the product, Cluster API, and what users wrote into bootstrap objects.
type model struct {
	*server

	tb         testing.TB
	controller *controller.Controller
	publisher  *publisher.Controller
	// own is the bootstrap spec that a user wrote, in JSON, by the object.
	own map[key]*bootstrapv1.KubeadmConfigSpec
	// read is the control plane as Cluster API has read it to create its first Machine, nil if it has not.
	read *controlplanev1.KubeadmControlPlane
	// due is that the user has the Machines of the control plane replaced.
	due bool
	// valid are objects that the schemas accept.
	valid map[string]bool
	// specs are the specs of stored objects and of users, as far as they were read. Nobody changes one.
	specs map[*bootstrapv1.KubeadmConfigSpec]*readSpec
}

// readSpec is what is read of a spec: its view, the managed entries and the others.
type readSpec struct {
	view      patch.Spec
	managed   string
	unmanaged string
}

// readOf reads a spec that nobody changes.
func (w *model) readOf(spec *bootstrapv1.KubeadmConfigSpec) *readSpec {
	read, known := w.specs[spec]
	if !known {
		read = &readSpec{view: api.Spec(spec)}
		read.managed, read.unmanaged = managedOf(read.view), unmanagedOf(spec, read.view)
		w.specs[spec] = read
	}
	return read
}

type noKinds struct{ meta.RESTMapper }

func (noKinds) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	return nil, &meta.NoKindMatchError{GroupKind: kind}
}

// recorder looks for credentials in events.
type recorder struct{ *server }

func (r recorder) Eventf(_, _ runtime.Object, _, _, _, note string, args ...any) {
	if text := fmt.Sprintf(note, args...); strings.Contains(text, "s3cr3t") {
		r.failure = fmt.Errorf("a credential in event %q", text)
	}
}

type mux struct{ *http.ServeMux }

func (m mux) Register(path string, handler http.Handler) { m.Handle(path, handler) }

// start starts the product, which remembers nothing.
func (w *model) start() {
	now := func() time.Time { return w.now }
	cached, live := w.product(), reader{w.server, false}
	memory := &world.Memory{Cached: cached, Live: live, Mapper: noKinds{}, Now: now}
	config := controller.Config{
		Client: cached, Live: live, Memory: memory, Admission: true,
		Recorder: recorder{w.server},
		Now:      now,
	}
	outputs := publisher.Config{
		Client: cached, Live: live, Memory: memory, Now: now, Concurrency: 1,
	}
	clusters := remote.NewClusters(func(context.Context, client.ObjectKey) (remote.Connection, error) {
		if w.nodes == nil {
			return remote.Connection{}, errors.New("the model has no workload clusters")
		}
		return remote.Connection{Client: nodesAPI{w: w}, Close: func() {}}, nil
	}, now)
	outputs.Applier = remote.NewApplier(clusters)
	if w.nodes != nil {
		config.Steps = []controller.Step{inplace.NewStep(clusters, live, pods, now)}
	}
	var err error
	w.controller, err = controller.New(config)
	must(err)
	w.publisher, err = publisher.New(outputs)
	must(err)
	handlers := mux{http.NewServeMux()}
	must((&webhook.Webhook{
		Cached: cached, Live: live, Memory: memory, Now: now,
	}).Register(handlers))
	w.hooks = handlers
}

// emptyWorld has the two proxy Secrets.
func emptyWorld(tb testing.TB, valid map[string]bool) *model {
	tb.Helper()
	w := &model{
		server: newServer(), tb: tb, own: map[key]*bootstrapv1.KubeadmConfigSpec{}, valid: valid,
		specs: map[*bootstrapv1.KubeadmConfigSpec]*readSpec{},
	}
	w.written = w.checkWrite
	w.start()
	w.change(vocabulary.ProxySecret(namespace, "http-proxy", map[string]string{"httpProxy": "http://proxy:3128"}))
	w.change(vocabulary.ProxySecret(namespace, "other",
		map[string]string{"httpProxy": "http://other:3128", "username": "u", "password": password}))
	return w
}

func newWorld(tb testing.TB, valid map[string]bool) *model {
	tb.Helper()
	w := emptyWorld(tb, valid)
	for _, name := range []string{prod, prodEU} {
		c := vocabulary.NewClassic(namespace, name, "linux")
		for _, object := range []client.Object{c.Cluster, c.ControlPlane, c.Deployment, c.Template, c.Pool, c.Config} {
			if spec := specOf(object); spec != nil {
				w.own[w.keyOf(object)] = spec.DeepCopy()
			}
			w.change(object)
		}
	}
	return w
}

func specOf(object client.Object) *bootstrapv1.KubeadmConfigSpec {
	switch o := object.(type) {
	case *controlplanev1.KubeadmControlPlane:
		return &o.Spec.KubeadmConfigSpec
	case *bootstrapv1.KubeadmConfigTemplate:
		return &o.Spec.Template.Spec
	case *bootstrapv1.KubeadmConfig:
		return &o.Spec
	}
	return nil
}

func viewOf(object client.Object) patch.Spec { return api.Spec(specOf(object)) }

// managedOf are the managed entries of a spec.
func managedOf(spec patch.Spec) string {
	var entries []string
	for _, f := range spec.Files {
		if patch.IsManagedFile(f) {
			entries = append(entries, fmt.Sprintf("%+v", f))
		}
	}
	for _, command := range slices.Concat(spec.PreKubeadmCommands, spec.PostKubeadmCommands) {
		if patch.IsPatched(patch.Spec{PreKubeadmCommands: []string{command}}) {
			entries = append(entries, command)
		}
	}
	slices.Sort(entries)
	return strings.Join(entries, "\n")
}

// unmanaged are the other ones, and what the spec has beside lists.
func unmanaged(spec *bootstrapv1.KubeadmConfigSpec) string { return unmanagedOf(spec, api.Spec(spec)) }

func unmanagedOf(spec *bootstrapv1.KubeadmConfigSpec, view patch.Spec) string {
	spec = spec.DeepCopy()
	files := spec.Files
	spec.Files = nil
	for i, f := range files {
		if !patch.IsManagedFile(view.Files[i]) {
			spec.Files = append(spec.Files, f)
		}
	}
	left := patch.Apply(view, patch.Remove(view))
	spec.PreKubeadmCommands, spec.PostKubeadmCommands = append([]string{}, left.PreKubeadmCommands...),
		append([]string{}, left.PostKubeadmCommands...)
	text, err := json.Marshal(spec)
	must(err)
	return string(text)
}

// checkWrite holds a write of the product, or an answer of a webhook, to what is promised. before is what was asked
// for, or what was stored.
func (w *model) checkWrite(before, after client.Object) error {
	if after == nil {
		if secret, is := before.(*corev1.Secret); !is || secret.Labels[contract.LabelGenerated] == "" {
			return fmt.Errorf("the product deletes %s %s", w.kindOf(before), before.GetName())
		}
		return nil
	}
	if _, isSecret := after.(*corev1.Secret); isSecret {
		if old, existed := before.(*corev1.Secret); existed && old != nil && old.Labels[contract.LabelGenerated] == "" {
			return errors.New("a Secret of somebody else is overwritten")
		}
		return nil
	}
	text := w.text(after)
	if bytes.Contains(text, []byte("s3cr3t")) { // as password begins
		return fmt.Errorf("a credential in %s", text)
	}
	if specOf(after) == nil {
		return nil
	}
	is := w.readOf(specOf(after))
	var was *readSpec
	if before != nil {
		was = w.readOf(specOf(before))
	}
	if was != nil && was.unmanaged != is.unmanaged {
		return fmt.Errorf("entries of the user have changed in %s %s from\n%s\nto\n%s", w.kindOf(after), after.GetName(),
			was.unmanaged, is.unmanaged)
	}
	stored := w.live[w.keyOf(after)] // after itself, if the controller has written it
	for _, name := range patch.References(is.view) {
		secret := w.live[key{"Secret", name}]
		if was != nil && !slices.Contains(patch.References(was.view), name) && secret != nil &&
			!w.behind["Secret"] &&
			secret.GetLabels()[contract.LabelGenerated] == "" && stored != nil &&
			(stored == after || !slices.Contains(patch.References(w.readOf(specOf(stored)).view), name)) {
			return fmt.Errorf("a reference to Secret %s, which is somebody else's", name)
		}
	}
	if _, ofControlPlane := after.GetLabels()[clusterv1.MachineControlPlaneLabel]; ofControlPlane && was != nil &&
		was.managed != is.managed {
		return errors.New("the KubeadmConfig of a control-plane Machine has changed")
	}
	return w.schemas(after, string(text))
}

func (w *model) schemas(object client.Object, text string) error {
	k := w.keyOf(object)
	spec, err := json.Marshal(specOf(object))
	must(err)
	if id := k.kind + string(spec); !w.valid[id] {
		m := asMap(object)
		for _, version := range []map[string]any{m, crdschema.AsV1Beta1(w.tb, m)} {
			if problems := crdschema.Problems(w.tb, version); len(problems) > 0 {
				return fmt.Errorf("%v in %s", problems, text)
			}
		}
		w.valid[id] = true
	}
	return nil
}

// reconcile is a pass of the controller over a Cluster.
func (w *model) reconcile(name string) error {
	w.now = w.now.Add(11 * time.Minute) // longer than what is remembered of contested writes and of absent Secrets
	*w.steps++
	if w.passes++; w.passes == 4 { // shorter than a cache may be behind
		w.catchUpAll()
	}
	cached := w.cached[key{"Cluster", name}]
	if cached == nil {
		return nil
	}
	before := len(w.writes)
	_, err := w.controller.Reconcile(context.Background(), clusterOf(cached)) //nolint:forbidigo // as above
	if w.failure != nil {
		return w.failure
	}
	if settings.StateOf(cached.GetLabels()) == settings.Unclear {
		for _, write := range w.writes[before:] {
			if !strings.HasSuffix(write, " Cluster "+name) {
				return fmt.Errorf("%s, though the label of %s means nothing", write, name)
			}
		}
	}
	if err != nil && len(w.behind) == 0 {
		return fmt.Errorf("reconciling %s: %w", name, err)
	}
	return nil
}

// clusterOf is a copy of a cached Cluster.
func clusterOf(cached client.Object) *clusterv1.Cluster {
	cluster, _ := cached.(*clusterv1.Cluster)
	return cluster.DeepCopy()
}

// looks is a pass of Cluster API over the control plane of prod that only writes condition Paused.
func (w *model) looks() {
	*w.steps++
	controlPlane := w.controlPlane()
	_, paused := controlPlane.Annotations[clusterv1.PausedAnnotation]
	cluster, _ := w.live[key{"Cluster", prod}].(*clusterv1.Cluster)
	status := metav1.ConditionFalse
	if paused || cluster.Spec.Paused != nil && *cluster.Spec.Paused {
		status = metav1.ConditionTrue
	}
	w.read = nil
	if meta.SetStatusCondition(&controlPlane.Status.Conditions,
		metav1.Condition{
			Type: clusterv1.PausedCondition, Status: status, Reason: "x",
			LastTransitionTime: metav1.NewTime(w.now),
		}) {
		w.put(w.keyOf(controlPlane), controlPlane)
	}
}

// controlPlane is a copy of the control plane of prod.
func (w *model) controlPlane() *controlplanev1.KubeadmControlPlane {
	controlPlane, _ := copyOf(w.live[key{"KubeadmControlPlane", prod}]).(*controlplanev1.KubeadmControlPlane)
	return controlPlane
}

// firstMachine is the KubeadmConfig of the only Machine of the control plane, nil if there is none.
func (w *model) firstMachine() *bootstrapv1.KubeadmConfig {
	config, _ := w.live[key{"KubeadmConfig", "machine-0"}].(*bootstrapv1.KubeadmConfig)
	return config
}

// machine has Cluster API create, or replace, the Machine of the control plane with a bootstrap spec.
func (w *model) machine(spec bootstrapv1.KubeadmConfigSpec) {
	labels := map[string]string{clusterv1.ClusterNameLabel: prod, clusterv1.MachineControlPlaneLabel: ""}
	owned := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: name, UID: "x", Controller: new(true)}}
	}
	config := &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "machine-0",
		Labels: labels, OwnerReferences: owned("Machine", "machine-0"),
	}, Spec: spec}
	config.Status.DataSecretName = "machine-0"
	w.put(w.keyOf(config), nil)
	w.change(config)
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "machine-0", Labels: labels,
		OwnerReferences: owned("KubeadmControlPlane", prod),
	}}
	w.change(machine)
	controlPlane := w.controlPlane()
	controlPlane.Status.Replicas = new(int32(1))
	w.put(w.keyOf(controlPlane), controlPlane)
	w.read, w.due = nil, false
}

// immediate reports whether running control planes may change.
func (w *model) immediate() bool {
	return w.live[key{"Cluster", prod}].GetAnnotations()[contract.AnnotationRollout] == contract.RolloutImmediate
}

// check holds all objects to what is promised at any time.
func (w *model) check() error {
	if w.failure != nil {
		return w.failure
	}
	for k, own := range w.own {
		object := w.live[k]
		if object == nil {
			return fmt.Errorf("%v is gone", k)
		}
		if got, want := w.readOf(specOf(object)).unmanaged, w.readOf(own).unmanaged; got != want {
			return fmt.Errorf("%v has entries\n%s\nof the user, who wrote\n%s", k, got, want)
		}
	}
	if machine := w.firstMachine(); machine != nil {
		if w.immediate() {
			w.due = true
		}
		was, is := w.readOf(&machine.Spec).managed, w.readOf(specOf(w.live[key{"KubeadmControlPlane", prod}])).managed
		if !w.due && was != is {
			return fmt.Errorf(
				"Cluster API replaces the Machine of the control plane, and nobody asked for it: it has\n%s\nand the control plane\n%s", was, is)
		}
	}
	return nil
}

// settle has the product and Cluster API work until nobody writes any more, with caches that follow.
func (w *model) settle() error {
	w.catchUpAll()
	return w.rests()
}

// finish takes the label off, and returns an error unless what the user wrote is back.
func (w *model) finish() error {
	if err := w.settle(); err != nil {
		return err
	}
	w.due = true
	for _, name := range []string{prod, prodEU} {
		if w.live[key{"Cluster", name}] == nil {
			continue
		}
		cluster, _ := copyOf(w.live[key{"Cluster", name}]).(*clusterv1.Cluster)
		delete(cluster.Labels, contract.LabelEnabled)
		cluster.Spec.Paused = nil
		// a wrong one delays removal
		cluster.Annotations = map[string]string{contract.AnnotationRollout: contract.RolloutImmediate}
		w.change(cluster)
	}
	for k := range w.own {
		if object := w.live[k]; object != nil && object.GetAnnotations()[clusterv1.PausedAnnotation] == "mine" {
			object = copyOf(object)
			annotations := object.GetAnnotations()
			delete(annotations, clusterv1.PausedAnnotation)
			object.SetAnnotations(annotations)
			w.put(k, object)
		}
	}
	if err := w.settle(); err != nil {
		return err
	}
	var used []string // by a MachinePool whose bootstrap data is made, and made anew from what it refers to
	for k, own := range w.own {
		object := w.live[k]
		if object == nil {
			continue
		}
		if config, isConfig := object.(*bootstrapv1.KubeadmConfig); isConfig && config.Status.DataSecretName != "" {
			used = append(used, patch.References(viewOf(config))...)
			continue
		}
		got, want := asMap(specOf(object)), asMap(own)
		if !reflect.DeepEqual(got, want) || patch.IsPatched(viewOf(object)) {
			return fmt.Errorf("without the label, %v has\n%v\nand the user wrote\n%v", k, got, want)
		}
		for name := range object.GetAnnotations() {
			if strings.HasPrefix(name, contract.Domain) || name == clusterv1.PausedAnnotation {
				return fmt.Errorf("without the label, %v has annotation %s", k, name)
			}
		}
	}
	for k, object := range w.live {
		if k.kind == "Secret" && object.GetLabels()[contract.LabelGenerated] != "" {
			if !slices.Contains(used, k.name) {
				return fmt.Errorf("without the label, %v is still there", k)
			}
		}
	}
	return nil
}
