package controller

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/backoff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// proxySecrets are proxy Secrets without credentials, by name. Reading one whose name is "unread" fails.
type proxySecrets []string

func (s proxySecrets) ReadSecret(_ context.Context, name types.NamespacedName) (*settings.Secret, error) {
	if name.Name == "unread" {
		return nil, errRefused
	}
	if !slices.Contains(s, name.Name) {
		return nil, nil //nolint:nilnil // there is none
	}
	return &settings.Secret{Name: name, Watched: true, Data: map[string][]byte{contract.KeyHTTPProxy: []byte("http://p.example.com:1")}}, nil
}

// settingsPass is a pass over a Cluster with proxy Secrets. counted are the outcomes of lookups.
func settingsPass(counted *[]string) (*Controller, *Pass) {
	c := &Controller{reporter: &Reporter{}}
	c.Now = noon
	c.Memory = &world.Memory{Secrets: proxySecrets{"http-proxy", "pool"}}
	c.Resolved = func(outcome string) { *counted = append(*counted, outcome) }
	c.writer = &Writer{Client: backoff.New(apiServer{}, nil, c.Now)}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "one"}}
	return c, c.newPass(cluster, settings.Cluster{Namespace: "team", Name: "one", Enabled: true, EndpointHost: "cp.example.com"})
}

// TestValues_OfAPoolAreThoseOfItsSecret has pools that name a proxy Secret.
func TestValues_OfAPoolAreThoseOfItsSecret(t *testing.T) {
	t.Parallel()
	main := &settings.Resolution{}
	for name, test := range map[string]struct {
		override string
		secret   string // of the resolution
		reason   string // of the only finding, and of the lookup
		err      error
	}{
		"none named":              {"", "", "", nil},
		"another":                 {"pool", "team/pool", contract.ReasonConfigured, nil},
		"one that is missing":     {"missing", "", contract.ReasonSettingsNotFound, nil},
		"one that cannot be read": {"unread", "", contract.ReasonInternalError, errRefused},
	} {
		var counted []string
		var out Outcome
		c, p := settingsPass(&counted)
		p.main = main
		f := facts{controller: c, pass: p, ctx: t.Context(), out: &out}
		values, err := f.Values(plan.Object{Pools: []plan.Pool{{Pool: settings.Pool{Override: test.override}}}})
		if !errors.Is(err, test.err) {
			t.Errorf("%s: error %v", name, err)
		}
		switch {
		case test.override == "":
			if values.Resolution != main || len(counted) > 0 {
				t.Errorf("%s: %+v, lookups %v", name, values, counted)
			}
			continue
		case len(counted) != 1 || counted[0] != test.reason:
			t.Errorf("%s: lookups %v", name, counted)
		}
		if found := test.reason == contract.ReasonSettingsNotFound; len(out.Findings) > 1 || (len(out.Findings) == 1) != found ||
			found && (out.Findings[0].Reason != test.reason || out.RequeueAfter != 10*time.Second) {
			t.Errorf("%s: findings %+v, again after %s", name, out.Findings, out.RequeueAfter)
		}
		if (values.Resolution != nil) != (test.secret != "") || test.secret != "" && values.Resolution.Secret.Name.String() != test.secret {
			t.Errorf("%s: %+v", name, values.Resolution)
		}
	}
}

// TestMissingDelay_GrowsWithTheClustersWithoutASecret keeps them from taking the requests of others.
func TestMissingDelay_GrowsWithTheClustersWithoutASecret(t *testing.T) {
	t.Parallel()
	for missing, want := range map[int]time.Duration{
		0: 10 * time.Second, 100: 10 * time.Second, 101: 10100 * time.Millisecond, 1000: 100 * time.Second,
	} {
		m := memory{states: map[types.UID]clusterState{"configured": {reason: contract.ReasonConfigured}}}
		for i := range missing {
			m.states[types.UID(strconv.Itoa(i))] = clusterState{reason: contract.ReasonSettingsNotFound}
		}
		if got := m.missingDelay(); got != want {
			t.Errorf("%d Clusters without a Secret look again after %s, want %s", missing, got, want)
		}
	}
}

// resolved is a pass that has resolved the settings of its Cluster.
func resolved(t *testing.T) (*Controller, *Pass) {
	t.Helper()
	var counted []string
	c, p := settingsPass(&counted)
	var err error
	if p.main, _, err = c.resolve(t.Context(), p, "", ""); err != nil {
		t.Fatal(err)
	}
	return c, p
}

// machineList has one Machine of a control plane.
type machineList struct{ client.Reader }

func (machineList) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if machines, is := list.(*clusterv1.MachineList); is {
		machines.Items = []clusterv1.Machine{{
			ObjectMeta: metav1.ObjectMeta{Name: "cp-0"},
			Status:     clusterv1.MachineStatus{Addresses: clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: "10.77.0.61"}}},
		}}
	}
	return nil
}

// TestProxiedNodes_AreAWarning reads Machines only for target static-pods: without a reader, a request panics.
func TestProxiedNodes_AreAWarning(t *testing.T) {
	t.Parallel()
	c, p := resolved(t)
	if warnings, err := c.proxiedNodes(t.Context(), p); err != nil || len(warnings) > 0 {
		t.Errorf("without static Pods: %+v, %v", warnings, err)
	}
	c.Live, p.Options.Targets = machineList{}, []contract.Target{contract.TargetStaticPods}
	warnings, err := c.proxiedNodes(t.Context(), p)
	if err != nil || len(warnings) != 1 {
		t.Errorf("%+v, %v", warnings, err)
	}
}

// TestAccept_RecordsTheProxySecret has an object without a change.
func TestAccept_RecordsTheProxySecret(t *testing.T) {
	t.Parallel()
	c, p := resolved(t)
	var one Reconciled
	if c.accept(p, &one, plan.Decision{Resolution: p.main}, &Outcome{}); one.Proxy != "team/http-proxy" {
		t.Errorf("the record has %q", one.Proxy)
	}
}

func TestReadOptions_OfATopologyAreChecked(t *testing.T) {
	t.Parallel()
	for name, annotations := range map[string]map[string]string{
		"an output version": {contract.AnnotationOutputVersion: "none"}, "targets": {contract.AnnotationTargets: "windows"},
	} {
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
		p := (&Controller{writer: &Writer{}}).newPass(cluster, settings.Cluster{Enabled: true, Topology: true})
		if err := p.readOptions(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestInvalid_AsksWithTheOptionsThatCanBeRead has a Cluster without an endpoint, which its NO_PROXY does not need.
func TestInvalid_AsksWithTheOptionsThatCanBeRead(t *testing.T) {
	t.Parallel()
	var counted []string
	c, p := settingsPass(&counted)
	p.View.EndpointHost, p.View.Annotations = "", map[string]string{
		contract.AnnotationRollout: "never", contract.AnnotationNoProxyGroups: "-endpoint",
	}
	done, err := c.reportInvalid(t.Context(), p, p.readOptions())
	if err != nil || len(done.Findings) != 1 || done.Findings[0].Reason != contract.ReasonInvalidSettings {
		t.Errorf("findings %+v, error %v", done.Findings, err)
	}
}

func TestNew_NeedsAllThatItUses(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*Config){
		"Client": func(c *Config) { c.Client = nil }, "Live": func(c *Config) { c.Live = nil }, "Memory": func(c *Config) { c.Memory = nil },
		"Recorder": func(c *Config) { c.Recorder = nil }, "Now": func(c *Config) { c.Now = nil },
	} {
		config := Config{Client: apiServer{}, Live: machineList{}, Memory: &world.Memory{}, Recorder: events.NewFakeRecorder(1), Now: noon}
		leave(&config)
		if _, err := New(config); err == nil {
			t.Errorf("without %s: no error", name)
		}
	}
}

// TestPreview_ReportsWhatTheUserHasToChange has a Controller that can neither read nor write.
func TestPreview_ReportsWhatTheUserHasToChange(t *testing.T) {
	t.Parallel()
	labelled := func() *clusterv1.Cluster {
		return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{contract.LabelEnabled: "yes"},
		}}
	}
	c := &Controller{writer: &Writer{}}
	preview, err := c.Preview(t.Context(), labelled())
	if err != nil || len(preview.Findings) != 1 || preview.Condition.Reason != contract.ReasonInvalidSettings {
		t.Errorf("findings %+v, condition %+v, error %v", preview.Findings, preview.Condition, err)
	}
	deleted := labelled()
	deleted.DeletionTimestamp = new(metav1.Now())
	if preview, err := c.Preview(t.Context(), deleted); err != nil || len(preview.Findings) > 0 {
		t.Errorf("of a Cluster that is being deleted: %+v, %v", preview.Findings, err)
	}
}

// TestNotes_AreOfObjectsThatGetTheProxy has a control plane with commands before there are files.
func TestNotes_AreOfObjectsThatGetTheProxy(t *testing.T) {
	t.Parallel()
	c, p := resolved(t)
	main := p.main
	o := NewObject(&controlplanev1.KubeadmControlPlane{Spec: controlplanev1.KubeadmControlPlaneSpec{
		KubeadmConfigSpec: bootstrapv1.KubeadmConfigSpec{BootCommands: []string{"true"}},
	}}, plan.KindControlPlane, false)
	recipe := &patch.Recipe{Targets: contract.Targets()}
	for name, test := range map[string]struct {
		object   Object
		decision plan.Decision
		want     int
	}{
		"with settings":      {o, plan.Decision{Secret: "s", Recipe: recipe, Resolution: main}, 1},
		"settings not known": {o, plan.Decision{Secret: "s", Recipe: recipe}, 1},
		"certificates alone": {o, plan.Decision{Secret: "s", Recipe: &patch.Recipe{Targets: []contract.Target{contract.TargetTrust}}}, 0},
		"without the proxy":  {o, plan.Decision{Recipe: &patch.Recipe{}}, 0},
		"a conflict":         {o, plan.Decision{Resolution: main}, 0},
		"no spec":            {NewObject(&controlplanev1.KubeadmControlPlane{}, plan.KindControlPlane, false), plan.Decision{Secret: "s", Recipe: recipe}, 0},
	} {
		if got := c.notes(t.Context(), p, test.object, test.decision); len(got) != test.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
