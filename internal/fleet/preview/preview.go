// Package preview runs one pass of the controller over a Cluster of a management cluster without writing: every write
// is a dry run. The controller itself decides.
package preview

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/reported"
)

// Options select the Clusters of a preview.
type Options struct {
	// Config is the management cluster.
	Config *rest.Config
	// Namespace and Cluster name the Cluster.
	Namespace, Cluster string
	// DefaultSecret is the installation-wide proxy Secret, as given to the manager, or the zero value. It serves every
	// namespace.
	DefaultSecret types.NamespacedName
	// Changes are objects to apply in a dry run: the Cluster, proxy Secrets, pools.
	Changes []unstructured.Unstructured
	// Now is the clock.
	Now func() time.Time
}

// Write is a write that the controller would send.
type Write struct {
	// Verb is create, update, patch or delete.
	Verb string `json:"verb"`
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Spec reports whether it changes the spec.
	Spec bool `json:"spec"`
}

// Roll are Machines that would be replaced at once.
type Roll struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Machines are the Machines that exist, by name.
	Machines []string `json:"machines"`
	Why      string   `json:"why"`
}

// Result is the result of one dry-run reconcile.
type Result struct {
	controller.Preview

	// Hint says why the controller configures no proxy for the Cluster, "" if it does.
	Hint string
	// Before is the status of the Cluster before the change.
	Before reported.Row
	// Writes are in their order, without writes that only report.
	Writes []Write
	Rolls  []Roll
	// InPlace are by control plane and pool.
	InPlace []InPlace
	// Unknown are Machines that cannot be compared: they have no KubeadmConfig that names their bootstrap data.
	Unknown []string
}

// Run runs a pass, again if an object has changed since it was read.
func Run(ctx context.Context, o Options) (Result, error) {
	api, err := newAPI(o.Config)
	if err != nil {
		return Result{}, err
	}
	return (&runner{Options: o, api: api}).run(ctx)
}

// namespacesAtOnce is how many namespaces are read at the same time.
const namespacesAtOnce = 10

// RunEach runs a pass over each of some Clusters, and calls done with the result of each, one at a time. It reads each
// namespace once, and again if an object has changed since.
func RunEach(ctx context.Context, o Options, clusters []client.ObjectKey,
	done func(client.ObjectKey, Result, error),
) error {
	api, err := newAPI(o.Config)
	if err == nil {
		runEach(ctx, api, o, clusters, done)
	}
	return err
}

func runEach(ctx context.Context, api client.Client, o Options, clusters []client.ObjectKey,
	done func(client.ObjectKey, Result, error),
) {
	namespaces := map[string][]client.ObjectKey{}
	for _, key := range clusters {
		namespaces[key.Namespace] = append(namespaces[key.Namespace], key)
	}
	var mutex sync.Mutex
	var group errgroup.Group
	group.SetLimit(namespacesAtOnce)
	for namespace, keys := range namespaces {
		group.Go(func() error {
			r := &runner{Options: o, api: api}
			for _, key := range keys {
				r.Namespace, r.Cluster = namespace, key.Name
				result, err := r.run(ctx)
				mutex.Lock()
				done(key, result, err)
				mutex.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait() // done has the errors
}

func newAPI(config *rest.Config) (client.Client, error) {
	scheme, err := world.Scheme()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("setting up client: %w", err)
	}
	return api, nil
}

// runner runs passes over Clusters of one namespace, one after the other.
type runner struct {
	Options

	api client.Client
	// world is the namespace as it was read for the last pass, or nil.
	world *snapshot
}

// run runs a pass, again if an object has changed since it was read.
func (r *runner) run(ctx context.Context) (result Result, err error) {
	err = retry.RetryOnConflict(wait.Backoff{Steps: 6, Duration: 100 * time.Millisecond, Factor: 2}, func() error {
		if result, err = r.try(ctx); err != nil {
			r.world = nil
		}
		return err
	})
	return result, err
}

func (r *runner) try(ctx context.Context) (Result, error) {
	api, o := r.api, r.Options
	cluster, key := &clusterv1.Cluster{}, client.ObjectKey{Namespace: o.Namespace, Name: o.Cluster}
	if err := api.Get(ctx, key, cluster); err != nil {
		err = fmt.Errorf("reading Cluster %s: %w", key, err)
		if apierrors.IsNotFound(err) {
			err = cmp.Or(kit.NotFound(ctx, api, key.Namespace, key.Name), err)
		}
		return Result{}, err
	}
	result, were := Result{Before: reported.RowOf(cluster, nil)}, inPlaceTargets(cluster)
	if r.world == nil {
		changed, err := tryOut(ctx, api, o.Namespace, o.Changes)
		if err != nil {
			return Result{}, err
		}
		if r.world, err = newSnapshot(ctx, api, o.Namespace, changed...); err != nil {
			return Result{}, err
		}
	}
	w := r.world
	if err := w.Get(ctx, key, cluster); err != nil {
		return Result{}, err
	}
	writer := &dryRun{Client: client.NewDryRunClient(api), reader: w}
	c, err := newController(o, api, writer, w)
	if err != nil {
		return Result{}, err
	}
	ctx = ctrl.LoggerInto(ctx, logr.Discard())
	if result.Preview, err = c.Preview(ctx, cluster); err != nil {
		return Result{}, err
	}
	result.Writes, result.Hint = writer.writes, hintOf(cluster)
	targets := inPlaceTargets(cluster)
	ofCapability := contract.ReasonOf(result.Before.Reason).After != ""
	if ofCapability && targets != nil && result.Condition.Reason == contract.ReasonConfigured {
		// What the nodes have, and whether the manager can change them, is known to the controller alone.
		row := result.Before
		result.Condition = finding.Condition{Status: row.Status, Reason: row.Reason, Message: row.Message}
	}
	machines, err := machinesOf(ctx, w, cluster)
	if err != nil {
		return result, err
	}
	result.Rolls = rolls(machines, result)
	if result.Unknown, err = unknown(ctx, w, cluster, machines, result); err != nil || targets == nil {
		return result, err
	}
	result.InPlace, err = inPlace(ctx, api, cluster, result, !slices.Equal(were, targets))
	return result, err
}

// hintOf says why the controller configures no proxy for a Cluster, or returns "".
func hintOf(cluster *clusterv1.Cluster) string {
	switch view := settings.ClusterOf(cluster); {
	case view.Paused:
		return "it is paused, so the controller changes nothing"
	case view.Unclear != nil:
		return finding.OneLine(view.Unclear.Error())
	case !view.Enabled:
		return fmt.Sprintf("it has no label %s=%s, so the controller configures no proxy for it, and removes what it has "+
			"written before", contract.LabelEnabled, contract.LabelEnabledValue)
	}
	return ""
}

// inPlaceTargets returns the targets of a Cluster that asks for updates in place, and nil for another.
func inPlaceTargets(cluster *clusterv1.Cluster) (targets []contract.Target) {
	desired, err := settings.Of(cluster)
	if err == nil && contract.ReachesNodes(desired.Options.Rollout) && settings.IsEnabled(cluster.Labels) {
		targets = desired.Options.Targets
	}
	return targets
}

// Unmet returns the reasons why a Cluster fails a demand. behind demands that no Machine is behind, condition that
// ProxyConfigured is True. A write that is still to come fails both, because its outcome is not known.
func (r Result) Unmet(behind, condition bool) (why []string) {
	if len(r.Writes) > 0 {
		writes := make([]string, len(r.Writes))
		for i, w := range r.Writes {
			writes[i] = w.Verb + " " + w.Kind + " " + w.Name
		}
		why = append(why, "still to come: "+strings.Join(writes, ", "))
	}
	known := r.IsKnown()
	switch {
	case behind && !known:
		why = append(why, "which Machines are behind is not known")
	case behind && outdated.Sum(*r.Behind).Machines > 0:
		why = append(why, outdated.Sentence(*r.Behind))
	}
	if behind && len(r.Unknown) > 0 {
		why = append(why, r.Incomparable())
	}
	if behind && !known || condition && r.Condition.Status != string(metav1.ConditionTrue) {
		text := cmp.Or(r.Hint, "it is being deleted")
		if r.Condition.Reason != "" {
			text = "the condition would be " + r.Condition.Status + " " + r.Condition.Reason
		}
		why = append(why, text)
	}
	return why
}

// Incomparable says which Machines cannot be compared, "" if all can.
func (r Result) Incomparable() string {
	if len(r.Unknown) == 0 {
		return ""
	}
	return "whether a Machine is behind is not known while it has no KubeadmConfig with status.dataSecretName: " +
		finding.Few(r.Unknown)
}

// IsKnown reports whether the pass has compared all Machines that are patched.
func (r Result) IsKnown() bool {
	return r.Behind != nil && reported.IsKnown(r.Condition.Status, r.Condition.Reason)
}

// Differs reports whether the controller, without any change to try out, would write other values into a generated
// Secret than it has: it has not had time to, or has been given other flags.
func (r Result) Differs() bool {
	return slices.ContainsFunc(r.Writes, func(w Write) bool { return w.Kind == "Secret" && w.Verb == "update" })
}

func newController(o Options, api, writer client.Client, w *snapshot) (*controller.Controller, error) {
	return controller.New(controller.Config{
		Client: writer, Live: w.changed,
		Memory: &world.Memory{
			Cached: w, Live: w.changed, Mapper: api.RESTMapper(),
			Installation: settings.Installation{Secret: o.DefaultSecret, Namespaces: settings.EveryNamespace{}},
			Now:          o.Now, Known: cache.NewExpiring(),
		},
		Admission: true,
		Recorder:  noEvents{},
		Now:       o.Now,
	})
}

// noEvents discards events.
type noEvents struct{}

// Eventf implements events.EventRecorder.
func (noEvents) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// dryRun reads from the world, and sends writes as dry runs.
type dryRun struct {
	client.Client

	reader client.Reader
	writes []Write
}

// Get implements client.Client.
func (d *dryRun) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return d.reader.Get(ctx, key, into, options...) //nolint:wrapcheck // it is the reader
}

// List implements client.Client.
func (d *dryRun) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return d.reader.List(ctx, list, options...) //nolint:wrapcheck // it is the reader
}

// Create implements client.Client.
func (d *dryRun) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	d.record("create", object, true)
	return d.Client.Create(ctx, object, options...) //nolint:wrapcheck // it is the client
}

// Update implements client.Client.
func (d *dryRun) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	d.record("update", object, true)
	return d.Client.Update(ctx, object, options...) //nolint:wrapcheck // it is the client
}

// Delete implements client.Client.
func (d *dryRun) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	d.record("delete", object, true)
	return d.Client.Delete(ctx, object, options...) //nolint:wrapcheck // it is the client
}

// Patch implements client.Client.
func (d *dryRun) Patch(ctx context.Context, object client.Object, patch client.Patch,
	options ...client.PatchOption,
) error {
	data, err := patch.Data(object)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	if err := d.Client.Patch(ctx, object, patch, options...); err != nil {
		return fmt.Errorf("trying out a patch of %s: %w", object.GetName(), err)
	}
	d.record("patch", object, changesSpec(patch.Type(), data))
	return nil
}

func (d *dryRun) record(verb string, object client.Object, spec bool) {
	kind, _ := d.GroupVersionKindFor(object) // an unknown kind fails in the write itself
	d.writes = append(d.writes, Write{Verb: verb, Kind: kind.Kind, Name: object.GetName(), Spec: spec})
}

// changesSpec reports whether a patch changes the spec of an object.
func changesSpec(kind types.PatchType, data []byte) bool {
	if kind == types.JSONPatchType {
		var operations []struct{ Path string }
		_ = json.Unmarshal(data, &operations)
		return slices.ContainsFunc(operations,
			func(o struct{ Path string }) bool { return strings.HasPrefix(o.Path, "/spec") })
	}
	var object map[string]json.RawMessage
	_ = json.Unmarshal(data, &object)
	return object["spec"] != nil
}

// machinesOf returns a function for the names of the Machines of a control plane or MachineDeployment.
func machinesOf(ctx context.Context, w *snapshot, cluster *clusterv1.Cluster) (
	of func(kind, name string) []string, err error,
) {
	machines := &metav1.PartialObjectMetadataList{}
	machines.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
	if err := w.List(ctx, machines, client.InNamespace(cluster.Namespace),
		client.MatchingFields{world.IndexLabel: cluster.Name}); err != nil {
		return nil, err
	}
	return func(kind, name string) (names []string) {
		for i := range machines.Items {
			machine := &machines.Items[i]
			labels := machine.GetLabels()
			_, controlPlane := labels[clusterv1.MachineControlPlaneLabel]
			if machine.GetDeletionTimestamp().IsZero() &&
				(kind == plan.KindControlPlane && controlPlane ||
					kind == settings.KindMachineDeployment && labels[clusterv1.MachineDeploymentNameLabel] == name) {
				names = append(names, machine.GetName())
			}
		}
		slices.Sort(names)
		return names
	}, nil
}

// unknown returns the Machines that the pass could not compare. It skips them, as a new Machine is one for a moment.
func unknown(ctx context.Context, w *snapshot, cluster *clusterv1.Cluster, machines func(kind, name string) []string,
	result Result,
) (names []string, err error) {
	var configs bootstrapv1.KubeadmConfigList
	if err := w.List(ctx, &configs, client.InNamespace(cluster.Namespace),
		client.MatchingFields{world.IndexLabel: cluster.Name}); err != nil {
		return nil, err
	}
	compared := map[string]bool{}
	for i := range configs.Items {
		if owner := metav1.GetControllerOf(&configs.Items[i]); owner != nil && owner.Kind == "Machine" {
			compared[owner.Name] = configs.Items[i].Status.DataSecretName != ""
		}
	}
	for _, o := range result.Reconciled {
		if o.Recipe == nil { // it gets no proxy, or a finding says more
			continue
		}
		names = append(names, machines(o.Kind, o.GetName())...)
		for _, pool := range o.Pools {
			names = append(names, machines(pool.Kind, pool.Object)...)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return compared[name] }), nil
}

// rolls says which Machines would be replaced.
func rolls(of func(kind, name string) []string, result Result) []Roll {
	var all []Roll
	add := func(kind, name, why string) {
		known := slices.ContainsFunc(all, func(r Roll) bool { return r.Kind == kind && r.Name == name })
		if names := of(kind, name); len(names) > 0 && !known {
			all = append(all, Roll{Kind: kind, Name: name, Machines: names, Why: why})
		}
	}
	for _, write := range result.Writes {
		if write.Kind == plan.KindControlPlane && write.Spec {
			add(write.Kind, write.Name, "its bootstrap configuration changes")
		}
	}
	for _, group := range result.RolledOut {
		add(group.Kind, group.Name,
			"spec.rollout.after is set, because Machines are behind and annotation rollout is Immediate")
	}
	for _, group := range result.Drifting() {
		add(group.Kind, group.Name, "the topology controller gives it another bootstrap configuration")
	}
	return all
}
