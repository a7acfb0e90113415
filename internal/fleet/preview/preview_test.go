package preview

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/reported"
)

func TestPrint_SaysWhatIsReplacedAndWhatStays(t *testing.T) {
	t.Parallel()
	group := func(kind, name string, lag outdated.Lag, machines ...string) outdated.Group {
		g := outdated.Group{Kind: kind, Name: name}
		for _, machine := range machines {
			g.Machines = append(g.Machines, outdated.Machine{Name: machine, Lag: lag, Created: time.Unix(0, 0)})
		}
		return g
	}
	behind := []outdated.Group{
		group(plan.KindControlPlane, "cp", outdated.OldEntries, "cp-a"), group("MachineDeployment", "md", outdated.OldContent, "md-a", "md-b"),
		group("MachineDeployment", "gpu", outdated.OldContent, "gpu-a"),
		group("MachineDeployment", "mixed", outdated.OldContent, "mixed-a", "mixed-b"),
	}
	result := Result{
		Preview: controller.Preview{
			Result:    controller.Result{Behind: &behind},
			Condition: finding.Condition{Status: "True", Reason: "Configured", Message: "fine"},
		},
		Before: reported.Row{Namespace: "team", Name: "prod"},
		Writes: []Write{{"update", "Secret", "prod-proxy-files", true}, {"patch", "KubeadmConfig", "x", false}},
		Rolls:  []Roll{{plan.KindControlPlane, "cp", []string{"cp-a", "cp-b"}, "it changes"}},
		InPlace: []InPlace{
			{"MachineDeployment", "gpu", []string{"gpu-a"}, []string{"node-1"}},
			{"MachineDeployment", "mixed", []string{"mixed-b"}, []string{"node-2"}},
			{"MachinePool", "pool", nil, []string{"node-4", "node-5"}},
		},
	}
	var out bytes.Buffer
	if err := result.Data().Print(&out); err != nil {
		t.Fatal(err)
	}
	const want = `Cluster team/prod

The controller writes:
  update Secret prod-proxy-files
  patch KubeadmConfig x (metadata only)

Machines that are replaced at once:
  2 of KubeadmControlPlane cp, because it changes: cp-a, cp-b

Nodes that are changed in place, unless a file of others is in the way there:
  1 of MachineDeployment gpu: node-1
  1 of MachineDeployment mixed: node-2
  2 of MachinePool pool: node-4, node-5

Machines that stay unchanged until they are replaced:
  2 of MachineDeployment md: md-a (older values), md-b (older values)
  1 of MachineDeployment mixed: mixed-a (older values)

Condition now:   none
Condition after: True Configured: fine
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	result.Hint = "its label says why"
	out.Reset()
	const note = "Cluster team/prod\n\nNote: its label says why.\n\nThe controller writes:\n"
	if err := result.Data().Print(&out); err != nil || !strings.HasPrefix(out.String(), note) {
		t.Errorf("error %v, want at the beginning\n%s\ngot\n%s", err, note, out.String())
	}
	result.Hint = ""
	result.Condition.Message, result.Writes = "* one\n* two", nil
	out.Reset()
	const list = "Condition now:   none\nCondition after: True Configured:\n  * one\n  * two\n"
	if err := result.Data().Print(&out); err != nil || !strings.HasSuffix(out.String(), "\n\n"+list) {
		t.Errorf("error %v, want at the end\n%s\ngot\n%s", err, list, out.String())
	}
	result.Condition = finding.Condition{Status: "False", Reason: "WaitingForRollout", Message: "it waits"}
	out.Reset()
	link := "Condition after: False WaitingForRollout: it waits\n" + kit.Links("WaitingForRollout")
	if err := result.Data().Print(&out); err != nil || !strings.HasSuffix(out.String(), link) {
		t.Errorf("error %v, want at the end\n%s\ngot\n%s", err, link, out.String())
	}
	result.Writes = []Write{{"update", "Secret", "prod-proxy-files", true}, {"patch", "KubeadmConfig", "x", false}}
	if !result.Differs() || (Result{Writes: result.Writes[1:]}).Differs() {
		t.Error("an update of a Secret is a difference, a nudge is none")
	}
}

func TestHintOf_SaysThatAClusterHasNoLabel(t *testing.T) {
	t.Parallel()
	const none = `it has no label capi-proxy-patcher.io/enabled=true, so the controller configures no proxy for it, and removes what it has written before`
	for value, want := range map[string]string{"": none, "false": none, "true": "", "yes please": `"yes please"`} {
		cluster := &clusterv1.Cluster{}
		if value != "" {
			cluster.Labels = map[string]string{contract.LabelEnabled: value}
		}
		if got := hintOf(cluster); got != want && (value != "yes please" || !strings.Contains(got, want)) {
			t.Errorf("%q: it says %q, want %q", value, got, want)
		}
	}
}

func TestReadChanges_ReadsDocuments(t *testing.T) {
	t.Parallel()
	objects, err := ReadChanges(strings.NewReader("# nothing\n---\nkind: Cluster\n---\n---\n{\"kind\": \"Secret\"}\n"))
	if err != nil || len(objects) != 2 || objects[1].GetKind() != "Secret" {
		t.Errorf("%v, %v", objects, err)
	}
	for _, bad := range []string{"a: [", "kind: X\n---\n- a", strings.Repeat("---\nkind: X\n", maxObjects+1)} {
		if objects, err := ReadChanges(strings.NewReader(bad)); err == nil {
			t.Errorf("%.20q is read as %d objects", bad, len(objects))
		}
	}
}

func TestChangeOf_KnowsWhatCanBeTriedOut(t *testing.T) {
	t.Parallel()
	scheme, err := world.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster}": "",
		"{apiVersion: v1, kind: Secret}":                        "",
		"{apiVersion: cluster.x-k8s.io/v1beta1, kind: Cluster}": "use cluster.x-k8s.io/v1beta2",
		"{apiVersion: example.com/v1, kind: Cluster}":           "cannot be tried out",
		"{apiVersion: v1, kind: ConfigMap}":                     "cannot be tried out",
		"{kind: KubeadmControlPlane}":                           "cannot be tried out",
	} {
		objects, err := ReadChanges(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		_, err = changeOf(scheme, &objects[0])
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestChangesSpec_ReadsPatches(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`[{"op":"replace","path":"/metadata/resourceVersion","value":"1"}]`:                                     false,
		`[{"op":"test","path":"/metadata/x"},{"op":"add","path":"/spec/kubeadmConfigSpec/files/0","value":{}}]`: true,
		`{"metadata":{"annotations":{"spec":"x"}}}`:                                                             false,
		`{"metadata":{},"spec":{"rollout":{"after":"2026-01-01T00:00:00Z"}}}`:                                   true,
	} {
		kind := types.MergePatchType
		if json.Unmarshal([]byte(text), &[]any{}) == nil {
			kind = types.JSONPatchType
		}
		if got := changesSpec(kind, []byte(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

func TestInPlaceTargets_AreThoseOfAnnotationsOrOfTheVariable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]contract.Target{
		`{"metadata": {}}`: contract.Targets(),
		`{"metadata": {"annotations": {"capi-proxy-patcher.io/targets": "containerd"}}}`:                           {contract.TargetContainerd},
		`{"spec": {"topology": {"variables": [{"name": "capiProxyPatcher", "value": {"targets": ["kubelet"]}}]}}}`: {contract.TargetKubelet},
	} {
		cluster := &clusterv1.Cluster{}
		if err := json.Unmarshal([]byte(text), cluster); err != nil {
			t.Fatal(err)
		}
		cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
		if got := inPlaceTargets(cluster); got != nil {
			t.Errorf("%s: %v without rollout InPlace", text, got)
		}
		metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, contract.AnnotationRollout, "InPlace")
		if diff := cmp.Diff(want, inPlaceTargets(cluster)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestMain(m *testing.M) {
	contract.Add(contract.Capability{
		Name: "test", Rollouts: []string{"InPlace"}, Conditions: []string{"capi-proxy-patcher.io/ProxyPublished"},
		Reasons: []contract.Reason{
			{Name: "InPlaceFailed", Status: contract.StatusFalse, Task: contract.TaskAct, After: contract.ReasonTemplateNotSupported, Remote: true},
			{Name: "InPlaceNotInstalled", Status: contract.StatusFalse, Task: contract.TaskAct, After: contract.ReasonNameTaken},
			{Name: "InPlaceUnknown", Status: contract.StatusUnknown, Task: contract.TaskWait, After: contract.ReasonWaitingForRollout, Remote: true},
			{Name: "InPlaceProgressing", Status: contract.StatusUnknown, Task: contract.TaskWait, After: "InPlaceUnknown", Remote: true},
		},
	})
	m.Run()
}
