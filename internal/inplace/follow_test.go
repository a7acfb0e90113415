package workload

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/backoff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// management is a management cluster with one Machine, whose node is node-a.
type management struct {
	client.Client

	listed int
	writes []string
	// annotations are those of the KubeadmConfig.
	annotations map[string]string
}

func (m *management) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *bootstrapv1.KubeadmConfigList:
		config := bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{
			Name: "a-config", Annotations: m.annotations, OwnerReferences: []metav1.OwnerReference{{Kind: "Machine", Name: "a", UID: "1", Controller: new(true)}},
		}}
		config.Status.DataSecretName = "a"
		config.Spec.Files = managedFile(main)
		list.Items = append(list.Items, config)
	case *clusterv1.MachineList:
		m.listed++
		machine := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}}
		machine.Status.NodeRef.Name = "node-a"
		list.Items = append(list.Items, machine)
	}
	return nil
}

func (m *management) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if secret, ok := object.(*corev1.Secret); ok {
		secret.Labels = map[string]string{contract.LabelGenerated: "prod", contract.LabelProxySecret: ""}
	}
	return nil
}

// workloads is a workload cluster that answers no request.
type workloads struct {
	clustercache.ClusterCache

	api unanswered

	connected error
	state     clustercache.HealthCheckingState
}

// unanswered is an API server that answers no request.
type unanswered struct {
	client.Client

	asked int
}

func (w *workloads) GetClient(context.Context, client.ObjectKey) (client.Client, error) {
	return &w.api, w.connected
}

func (w *workloads) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return w.state
}

func (w *workloads) Watch(context.Context, client.ObjectKey, clustercache.Watcher) error { return nil }

func (w *unanswered) List(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	if w.asked++; ctx.Done() == nil {
		return errors.New("asked without an end")
	}
	return errors.New("\x1b[2Jevil\n" + "the server says so")
}

// TestFollow_LeavesAClusterAloneThatDoesNotAnswer asks it once in half a minute, whatever events come.
func TestFollow_LeavesAClusterAloneThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	clock, remote, api := noon, &workloads{}, &management{}
	f := (&Follower{
		Clusters: remote, Live: api, Now: func() time.Time { return clock },
	}).Init()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "prod", UID: "9"}}
	view := settings.Cluster{Namespace: "team", Name: "prod"}
	follow := func() (again time.Duration, holds bool) {
		t.Helper()
		reader := controller.Reader{Client: api}
		out, err := f.follow(t.Context(), &controller.Pass{
			Cluster: cluster, View: settings.Cluster{Enabled: true}, Configs: reader.Configs(view),
			Secrets: controller.NewSecrets(nil, reader, nil, cluster, view, reader.Configs(view)),
			Writer:  &controller.Writer{Client: backoff.New(api, api, nil)},
		})
		const want = "cannot tell which nodes have the current files: the workload cluster does not answer with the kubeconfig " +
			"of Secret team/prod-kubeconfig; the log of the manager has the details"
		if got := finding.ConditionOf(out.Findings, ""); err != nil || got != (finding.Condition{
			Status: "Unknown", Reason: contract.ReasonInPlaceUnknown, Message: want,
		}) {
			t.Fatalf("got %+v, error %v", got, err)
		}
		return out.RequeueAfter, out.Keep
	}
	remote.connected = clustercache.ErrClusterNotConnected
	if _, holds := follow(); !holds {
		t.Error("a condition is changed before the first connection is tried")
	}
	remote.state.LastProbeTime = noon
	if _, holds := follow(); holds || remote.api.asked > 0 {
		t.Errorf("a condition is kept though there is no connection; %d requests", remote.api.asked)
	}
	remote.connected = nil
	for _, step := range []struct {
		after, again time.Duration
		asked        int
	}{{0, awayTime, 1}, {29 * time.Second, time.Second, 1}, {awayTime, awayTime, 2}} {
		clock = noon.Add(step.after)
		if again, _ := follow(); remote.api.asked != step.asked || again != step.again {
			t.Errorf("after %s: %d requests, again after %s", step.after, remote.api.asked, again)
		}
	}
	if api.listed != 1 {
		t.Errorf("%d lists of Machines", api.listed)
	}
}

// Patch records writes.
func (m *management) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(o)
	m.writes = append(m.writes, o.GetName()+" "+string(data))
	return err
}

// GroupVersionKindFor is for what counts writes.
func (m *management) GroupVersionKindFor(runtime.Object) (schema.GroupVersionKind, error) {
	return schema.GroupVersionKind{}, nil
}

// answering is a workload cluster whose node-a has a version.
type answering struct {
	client.Client

	version string
	ready   bool
}

func (a answering) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	labels := map[string]string{contract.LabelNodeFiles: a.version}
	status := corev1.ConditionFalse
	if a.ready {
		status = corev1.ConditionTrue
	}
	switch list := list.(type) {
	case *corev1.NodeList:
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: labels}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		list.Items = append(list.Items, node)
	case *corev1.PodList:
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: labels}, Spec: corev1.PodSpec{NodeName: "node-a"}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.ContainersReady, Status: status}}
		list.Items = append(list.Items, pod)
	}
	return nil
}

type answeringClusters struct {
	workloads

	api answering
}

func (a *answeringClusters) GetClient(context.Context, client.ObjectKey) (client.Client, error) {
	return a.api, nil
}

// TestFollow_RecordsWhatIsRestored has a node that is restored, or not yet, after the label was removed.
func TestFollow_RecordsWhatIsRestored(t *testing.T) {
	t.Parallel()
	in, err := NodePods{Image: "i"}.Restore("prod")
	if err != nil {
		t.Fatal(err)
	}
	const (
		version = `[{"op":"replace","path":"/metadata/resourceVersion","value":`
		machine = "a-config " + version + `""},{"op":"add","path":"/metadata/annotations","value":{"capi-proxy-patcher.io/updated-files":"removed"}}]`
		cluster = "prod " + version + `"7"},{"op":"add","path":"/metadata/annotations/capi-proxy-patcher.io~1applied","value":"restored"}]`
	)
	for ready, test := range map[bool]struct {
		message string
		writes  []string
	}{
		false: {"0 of 1 nodes are restored; waiting for node node-a", nil},
		true: {
			"all nodes are restored; condition capi-proxy-patcher.io/ProxyPublished says what is left in the workload cluster",
			[]string{machine, cluster},
		},
	} {
		api := &management{}
		f := (&Follower{
			Clusters: &answeringClusters{api: answering{version: in.Version(), ready: ready}}, Live: api, Pods: NodePods{Image: "i"},
			Now: func() time.Time { return noon },
		}).Init()
		reader, view := controller.Reader{Client: api}, settings.Cluster{Namespace: "team", Name: "prod"}
		out, err := f.follow(t.Context(), &controller.Pass{
			Cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: "prod", ResourceVersion: "7",
				Annotations: map[string]string{contract.AnnotationApplied: contract.AppliedValue},
			}},
			Configs: reader.Configs(view),
			Writer:  &controller.Writer{Client: backoff.New(api, api, func() time.Time { return noon })},
		})
		if got := finding.ConditionOf(out.Findings, ""); err != nil || got.Message != test.message || !slices.Equal(api.writes, test.writes) {
			t.Errorf("got %+v, error %v, writes\n%s", got, err, strings.Join(api.writes, "\n"))
		}
	}
}

// TestFollow_RecordsFilesThatAreBack has a Machine whose node had lost the files of its entries.
func TestFollow_RecordsFilesThatAreBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lag   outdated.Lag
		files string // now
		want  string
	}{
		"the files of its entries": {outdated.OldContent, contract.FilesRemovedValue, "remove"},
		"other files":              {outdated.OldEntries, contract.FilesRemovedValue, "0123"},
		"changed values":           {outdated.OldContent, "4567", ""},
	} {
		api := &management{annotations: map[string]string{contract.AnnotationUpdatedFiles: test.files}}
		reader, view := controller.Reader{Client: api}, settings.Cluster{Namespace: "team", Name: "prod"}
		err := record(t.Context(), &controller.Pass{
			Writer:  &controller.Writer{Client: backoff.New(api, api, func() time.Time { return noon })},
			Configs: reader.Configs(view),
			Behind:  []outdated.Group{{Machines: []outdated.Machine{{Name: "a", Lag: test.lag}}}},
		}, []Member{{Machine: "a", Config: "a-config", Secret: main}}, map[string]plan.Update{main: {Files: "0123"}})
		if got := strings.Join(api.writes, "\n"); err != nil || !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: error %v, writes %s", name, err, got)
		}
	}
}

// own is a management cluster with KubeadmConfigs and Machines, and MachinePool mp with a node.
type own struct {
	client.Client

	configs []bootstrapv1.KubeadmConfig
}

func (o own) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *bootstrapv1.KubeadmConfigList:
		list.Items = o.configs
	case *clusterv1.MachineList:
		for _, config := range o.configs {
			machine := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{UID: config.OwnerReferences[0].UID}}
			if config.Name != "boots" {
				machine.Status.NodeRef.Name = "node-" + config.Name
			}
			list.Items = append(list.Items, machine)
		}
	case *clusterv1.MachinePoolList:
		pool := clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Name: "mp"}}
		pool.Spec.ClusterName, pool.Status.NodeRefs = "prod", []corev1.ObjectReference{{Name: "node-mp"}}
		list.Items = append(list.Items, pool)
	}
	return nil
}

// TestMembers_AreThoseOfTheTargets has Machines that booted with the files of a Secret ("with"), and without.
func TestMembers_AreThoseOfTheTargets(t *testing.T) {
	t.Parallel()
	config := func(name, label, value string, with bool) bootstrapv1.KubeadmConfig {
		c := bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{label: value},
			OwnerReferences: []metav1.OwnerReference{{Kind: "Machine", Name: name, UID: types.UID(name), Controller: new(true)}},
		}}
		c.Status.DataSecretName = name
		if with {
			c.Spec.Files = managedFile("former")
		}
		return c
	}
	recorded := func(c bootstrapv1.KubeadmConfig, files string) bootstrapv1.KubeadmConfig {
		c.Annotations = map[string]string{contract.AnnotationUpdatedFiles: files}
		return c
	}
	const controlPlane, deployment = clusterv1.MachineControlPlaneLabel, clusterv1.MachineDeploymentNameLabel
	rolling := metav1.Condition{Type: clusterv1.RollingOutCondition, Status: metav1.ConditionTrue}
	reconciled := func(o kinds.BootstrapObject, kind, secret string, known bool, pool ...plan.Pool) controller.Reconciled {
		s := controller.Reconciled{Object: controller.NewObject(o, kind, true), Secret: secret}
		if s.Pools = pool; known {
			s.Recipe = &patch.Recipe{}
		}
		return s
	}
	of := func(kind, name string) plan.Pool { return plan.Pool{Pool: settings.Pool{Kind: kind}, Object: name} }
	for name, test := range map[string]struct {
		configs    []bootstrapv1.KubeadmConfig
		conditions []metav1.Condition
		restores   bool
		noPool     bool // MachinePool mp is to have no proxy
		want       []string
		rolls      bool
	}{
		"as the targets ask": {
			configs: []bootstrapv1.KubeadmConfig{
				config("cp", controlPlane, "", false), config("md", deployment, "md", false), config("moved", deployment, "md", true),
				config("none", deployment, "none", true), config("unknown", deployment, "unknown", true),
				config("plain", deployment, "unknown", false), config("alone", "own", "", true),
			},
			want: []string{
				"node-cp prod-proxy-files ", "node-md md-files MachineDeployment md", "node-moved md-files MachineDeployment md",
				"node-unknown former MachineDeployment unknown", "node-alone former Machine", "node-mp mp-files MachinePool mp",
			},
		},
		"whoever has files, when the label is gone": {
			configs: []bootstrapv1.KubeadmConfig{
				config("cp", controlPlane, "", true), config("md", deployment, "md", false),
				recorded(config("updated", deployment, "md", false), "0123"),
				recorded(config("restored", deployment, "md", true), contract.FilesRemovedValue),
				config("none", deployment, "none", true),
			},
			restores: true,
			want: []string{
				"node-cp prod-proxy-files ", "node-md prod-proxy-files MachineDeployment md plain",
				"node-updated prod-proxy-files MachineDeployment md", "node-restored prod-proxy-files MachineDeployment md plain",
				"node-none prod-proxy-files MachineDeployment none", "node-mp prod-proxy-files MachinePool mp",
			},
		},
		"no node of a pool without the proxy, when the label is gone": {restores: true, noPool: true},
		"a control plane that says so": {
			conditions: []metav1.Condition{rolling}, want: []string{"node-mp mp-files MachinePool mp"}, rolls: true,
		},
		"a Machine of it that boots": {
			configs: []bootstrapv1.KubeadmConfig{config("boots", controlPlane, "", false)},
			want:    []string{" prod-proxy-files ", "node-mp mp-files MachinePool mp"}, rolls: true,
		},
		"a Machine of a pool that boots": {
			configs: []bootstrapv1.KubeadmConfig{config("boots", deployment, "md", false)},
			want:    []string{" md-files MachineDeployment md", "node-mp mp-files MachinePool mp"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, ofPool := own{configs: test.configs}, of("MachinePool", "mp")
			if test.noPool {
				ofPool.Override = contract.SecretNone
			}
			kcp := &controlplanev1.KubeadmControlPlane{}
			kcp.Status.Conditions = test.conditions
			members, rolls, err := (&Follower{Live: api}).Init().members(t.Context(), &controller.Pass{
				Cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}},
				View:    settings.Cluster{Enabled: !test.restores}, Configs: controller.Reader{Client: api}.Configs(settings.Cluster{Name: "prod"}),
				Reconciled: []controller.Reconciled{
					reconciled(kcp, plan.KindControlPlane, main, true),
					reconciled(&bootstrapv1.KubeadmConfigTemplate{}, plan.KindTemplate, "md-files", true, of("MachineDeployment", "md")),
					reconciled(&bootstrapv1.KubeadmConfigTemplate{}, plan.KindTemplate, "", true, of("MachineDeployment", "none")),
					reconciled(&bootstrapv1.KubeadmConfigTemplate{}, plan.KindTemplate, "", false, of("MachineDeployment", "unknown")),
					reconciled(&bootstrapv1.KubeadmConfig{}, plan.KindConfig, "mp-files", true, ofPool),
				},
			})
			var got []string
			for _, m := range members {
				text := m.Node + " " + m.Secret + " " + m.Group
				if m.Plain {
					text += " plain"
				}
				got = append(got, text)
			}
			if err != nil || rolls != test.rolls || !slices.Equal(got, test.want) {
				t.Errorf("rolls %v, %q, error %v", rolls, got, err)
			}
		})
	}
}

// managedFile is a managed file from a generated Secret.
func managedFile(secret string) []bootstrapv1.File {
	return []bootstrapv1.File{{
		Path: contract.PathProxyEnv, ContentFrom: bootstrapv1.FileSource{Secret: bootstrapv1.SecretFileSource{
			Name: secret, Key: contract.KeyProxyEnv,
		}},
	}}
}

// labelledCluster reads a Cluster that has the label.
type labelledCluster struct{ client.Reader }

func (labelledCluster) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	into.SetLabels(map[string]string{contract.LabelEnabled: contract.LabelEnabledValue})
	into.SetAnnotations(restoring)
	return nil
}

var restoring = map[string]string{
	contract.AnnotationRollout: contract.RolloutInPlace, contract.AnnotationApplied: contract.AppliedValue,
}

// TestRun_WaitsForTheLabelThatTheCacheLacks has a Cluster whose label was removed and set again.
func TestRun_WaitsForTheLabelThatTheCacheLacks(t *testing.T) {
	t.Parallel()
	p := &controller.Pass{
		Cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "one", Annotations: restoring}},
		Writer:  &controller.Writer{Live: labelledCluster{}},
	}
	if _, err := (&Follower{}).Run(t.Context(), p); !apierrors.IsConflict(err) {
		t.Errorf("error %v", err)
	}
}
