package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
)

// done records the writes and events of a Reporter about a Cluster, one line each. refuses is the answer to every write.
type done struct {
	client.Client

	cluster *clusterv1.Cluster
	lines   []string
	refuses error
}

func (d *done) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(object)
	d.lines = append(d.lines, "patch "+string(data))
	var written struct {
		Metadata struct{ Annotations map[string]*string }
	}
	if err = errors.Join(err, json.Unmarshal(data, &written), d.refuses); err != nil {
		return err
	}
	for key, value := range written.Metadata.Annotations {
		delete(d.cluster.Annotations, key)
		if value != nil {
			d.cluster.Annotations[key] = *value
		}
	}
	return nil
}

func (d *done) Status() client.SubResourceWriter { return statusOf{done: d} }

type statusOf struct {
	client.SubResourceWriter

	done *done
}

func (s statusOf) Apply(_ context.Context, applied runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	data, err := json.Marshal(applied)
	var object clusterv1.Cluster
	err = errors.Join(err, json.Unmarshal(data, &object), s.done.refuses)
	line := "apply"
	if object.ResourceVersion != s.done.cluster.ResourceVersion || object.UID != s.done.cluster.UID {
		line = "apply to any version of any Cluster of the name"
	}
	for _, condition := range object.Status.Conditions {
		line += " " + condition.Reason
	}
	s.done.lines = append(s.done.lines, line)
	if err == nil {
		s.done.cluster.Status.Conditions = object.Status.Conditions
	}
	return err
}

func (d *done) Eventf(_, _ runtime.Object, _, reason, action, note string, args ...any) {
	d.lines = append(d.lines, "event "+action+" "+reason+": "+fmt.Sprintf(note, args...))
}

// changed is object A b/c with a change.
func changed(change Change) []Reconciled {
	object := &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "c"}}
	return []Reconciled{{Object: Object{BootstrapObject: object, Kind: "A"}, Change: change}}
}

// TestReporter_WritesWhatDiffers has passes over one Cluster, one after the other.
func TestReporter_WritesWhatDiffers(t *testing.T) {
	t.Parallel()
	d := &done{cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: "5", Annotations: map[string]string{}}}}
	r := &Reporter{Client: d, Recorder: d, Now: func() time.Time { return time.Unix(1, 0) }}
	refused := errors.New("refused")
	group := []outdated.Group{{Kind: "MachineDeployment", Name: "md", Machines: []outdated.Machine{{Name: "m"}}}}
	behind := outdated.Text(group)
	invalid := []finding.Finding{{Reason: contract.ReasonInvalidSettings, Message: "bad"}}
	quote := func(text string) string { data, _ := json.Marshal(text); return string(data) }
	for _, step := range []struct {
		name    string
		out     Result
		remove  bool
		refuses error
		want    string
		known   int
	}{
		{
			"the first",
			Result{Reconciled: changed(Added), Behind: &group},
			false, nil,
			"apply Configured\npatch " + `{"metadata":{"annotations":{"` + contract.AnnotationMachinesBehind + `":` + quote(behind) + `},"uid":"1"}}` +
				"\nevent Report ProxyConfigured: Added the proxy to A b/c. all", 1,
		},
		{"the same", Result{Behind: &group}, false, nil, "", 1},
		{"nobody knows who is behind", Result{Reconciled: changed(Removed)}, false, nil, "event Remove ProxySettingsRemoved: Removed the proxy from A b/c", 1},
		{
			"a refused write",
			Result{Outcome: Outcome{Findings: invalid}, Reconciled: changed(Added)},
			false, refused,
			"apply InvalidSettings\nevent Inject ProxySettingsInjected: Added the proxy to A b/c", 1,
		},
		{"other settings", Result{Outcome: Outcome{Findings: invalid}}, false, nil, "apply InvalidSettings\nevent Validate InvalidProxySettings: bad", 1},
		{
			"nobody is behind",
			Result{Outcome: Outcome{Findings: invalid}, Behind: &[]outdated.Group{}},
			false, nil,
			`patch {"metadata":{"annotations":{"` + contract.AnnotationMachinesBehind + `":null},"uid":"1"}}`, 1,
		},
		{
			"somebody is behind again",
			Result{Outcome: Outcome{Findings: invalid}, Behind: &group},
			false, nil,
			`patch {"metadata":{"annotations":{"` + contract.AnnotationMachinesBehind + `":` + quote(behind) + `},"uid":"1"}}`, 1,
		},
		{
			"the end, refused",
			Result{},
			true, refused,
			`patch {"metadata":{"annotations":{"` + contract.AnnotationMachinesBehind + `":null},"uid":"1"}}`, 0,
		},
		{
			"the end",
			Result{},
			true, nil,
			`patch {"metadata":{"annotations":{"` + contract.AnnotationMachinesBehind + `":null},"uid":"1"}}` +
				"\napply\nevent Report ProxyNotConfigured: Removed everything that this product added", 0,
		},
		{"after the end", Result{Reconciled: changed(Removed)}, true, nil, "event Remove ProxySettingsRemoved: Removed the proxy from A b/c", 0},
	} {
		d.lines, d.refuses = nil, step.refuses
		cluster := d.cluster.DeepCopy() // as the cache shows it
		step.out.summary = "all"
		do := func() error { return r.Report(t.Context(), cluster, step.out) }
		if step.remove {
			do = func() error { return r.Remove(t.Context(), cluster, step.out) }
		}
		if err := do(); !errors.Is(err, step.refuses) {
			t.Errorf("%s: %v, want %v", step.name, err, step.refuses)
		}
		if got := strings.Join(d.lines, "\n"); got != step.want {
			t.Errorf("%s: got\n%s\nwant\n%s", step.name, got, step.want)
		}
		if len(r.memory.states) != step.known {
			t.Errorf("%s: the metrics know %d Clusters", step.name, len(r.memory.states))
		}
	}
}
