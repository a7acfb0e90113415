package status_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/fleet/status"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/reported"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func group(kind, name string, created ...time.Time) outdated.Group {
	g := outdated.Group{Kind: kind, Name: name}
	for i, at := range created {
		g.Machines = append(g.Machines, outdated.Machine{Name: fmt.Sprintf("%s-%d", name, i), Created: at, Made: at})
	}
	return g
}

// cluster is a Cluster with a condition and a record.
func cluster(namespace, name, conditionStatus, reason, record string, annotations ...string) clusterv1.Cluster {
	c := clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels: map[string]string{contract.LabelEnabled: "true"}, Annotations: map[string]string{},
	}}
	for pair := range slices.Chunk(annotations, 2) {
		c.Annotations[pair[0]] = pair[1]
	}
	if record != "" {
		c.Annotations[contract.AnnotationMachinesBehind] = record
	}
	if reason != "" {
		c.Status.Conditions = []metav1.Condition{
			{Type: "Available", Status: "True", Reason: "Other"},
			{
				Type: contract.ConditionProxyConfigured, Status: metav1.ConditionStatus(conditionStatus), Reason: reason,
				Message: "* in other words\n* 7 Machines are behind",
			},
		}
	}
	c.Spec.ControlPlaneRef.Kind = plan.KindControlPlane
	return c
}

func clusters() ([]clusterv1.Cluster, []metav1.PartialObjectMetadata) {
	hosted := cluster("b", "hosted", "False", contract.ReasonTemplateNotSupported, "")
	hosted.Spec.ControlPlaneRef.Kind = "KamajiControlPlane"
	old := []outdated.Group{
		group(plan.KindControlPlane, "cp", noon.Add(-90*time.Minute), noon), group("MachineDeployment", "md", noon.Add(-73*time.Hour)),
		group("MachinePool", "mp", noon),
	}
	all := []clusterv1.Cluster{
		hosted,
		cluster("b", "fine", "True", contract.ReasonConfigured, ""),
		cluster("a", "rotated", "True", contract.ReasonConfigured, outdated.Text(old)),
		cluster("a", "waits", "False", contract.ReasonWaitingForRollout, outdated.Text(old[:1])),
		cluster("a", "new", "", "", ""),
		cluster("a", "typo", "False", contract.ReasonInvalidSettings, "", contract.AnnotationRollout, "now",
			contract.AnnotationSecret, "x\x1b[2J\nb   fake"),
		cluster("a", "forged", "True", contract.ReasonConfigured, "[{}]"),
		cluster("b", "inplace", "False", "InPlaceFailed", ""),
		cluster("b", "off", "", "", ""),
	}
	all[len(all)-1].Labels[contract.LabelEnabled] = contract.LabelDisabledValue
	secret := func(namespace, name, source, warnings string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Annotations: map[string]string{contract.AnnotationSource: source, contract.AnnotationWarnings: warnings},
		}}
	}
	return all, []metav1.PartialObjectMetadata{
		secret("a", "rotated-proxy-files", "a/http-proxy", "unused-entry,duplicate"),
		secret("b", "fine-proxy-files", "system/installation", ""), secret("b", "rotated-proxy-files", "b/wrong", ""),
	}
}

func TestTable_HasARowForEachCluster(t *testing.T) {
	t.Parallel()
	rows := reported.Rows(clusters())
	var out bytes.Buffer
	if err := (&status.Table{Namespaces: true}).Write(&out, noon, rows...); err != nil {
		t.Fatal(err)
	}
	const want = `NAMESPACE   NAME      SECRET                READY   CONTROL-PLANE   POOLS        OLDEST   WARNING        PROBLEM
a           forged    -                     True    unknown         unknown      -        -              -
a           new       -                     -       unknown         unknown      -        -              the manager has not reconciled this Cluster yet
a           rotated   a/http-proxy          True    2 behind        2 behind     3d1h     unused-entry   -
a           typo      -                     False   unknown         unknown      -        -              InvalidSettings: in other words; 7 Machines are behind
a           waits     -                     False   2 behind        up to date   90m      -              WaitingForRollout: in other words; 7 Machines are behind
b           fine      system/installation   True    up to date      up to date   -        -              -
b           hosted    -                     False   not patched     unknown      -        -              TemplateNotSupported: in other words; 7 Machines are behind
b           inplace   -                     False   up to date      up to date   -        -              InPlaceFailed: in other words; 7 Machines are behind
b           off       -                     -       -               -            -        -              disabled by its label
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	out.Reset()
	if err := (&status.Table{Wide: true}).Write(&out, noon, rows[2]); err != nil {
		t.Fatal(err)
	}
	const wide = "KubeadmControlPlane cp: 2, MachineDeployment md: 1, MachinePool mp: 1   -         in other words; 7 Machines are behind\n"
	if err := (&status.Table{Wide: true}).Write(&out, noon, rows[4]); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, wide) || !strings.HasSuffix(got, "7 Machines are behind   -\n") {
		t.Errorf("got %q", got)
	}
}

// TestTable_HasTheColumnsThatARowNeeds has a Cluster that is as it should be, and one that is disabled.
func TestTable_HasTheColumnsThatARowNeeds(t *testing.T) {
	t.Parallel()
	rows := reported.Rows(clusters())
	var out bytes.Buffer
	if err := (&status.Table{}).Write(&out, noon, rows[5], rows[8]); err != nil {
		t.Fatal(err)
	}
	const want = `NAME   SECRET                READY   PROBLEM
fine   system/installation   True    -
off    -                     -       disabled by its label
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTable_GoesOnBelowItsHead has a Cluster without anything to say, and later with a value in each column.
func TestTable_GoesOnBelowItsHead(t *testing.T) {
	t.Parallel()
	rows := reported.Rows(clusters())
	first := rows[1]
	first.Name = rows[2].Name
	table := status.Table{All: true}
	var out bytes.Buffer
	for _, row := range []reported.Row{first, rows[2]} {
		if err := table.Write(&out, noon, row); err != nil {
			t.Fatal(err)
		}
	}
	const want = `NAME      SECRET                     READY     CONTROL-PLANE   POOLS         OLDEST   PUBLISHED      WARNING               PROBLEM
rotated   -                          -         unknown         unknown       -        -              -                     the manager has not reconciled this Cluster yet
rotated   a/http-proxy               True      2 behind        2 behind      3d1h     -              unused-entry          -
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRows_SayTheSameInJSON(t *testing.T) {
	t.Parallel()
	rows := reported.Rows(clusters())
	text, err := json.Marshal(rows[4]) //nolint:gosec // a name of a Secret
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"namespace":"a","name":"waits","controlPlane":{"state":"Behind","behind":2},` +
		`"pools":{"state":"UpToDate","behind":0},"behind":[{"kind":"KubeadmControlPlane","name":"cp","machines":2,` +
		`"oldest":"2026-01-01T10:30:00Z"}],"oldest":"2026-01-01T10:30:00Z","status":"False","reason":"WaitingForRollout",` +
		`"message":"* in other words\n* 7 Machines are behind"}`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if rows[4].IsTrue() || !rows[4].IsBehind() || !rows[5].IsTrue() || rows[5].IsBehind() {
		t.Errorf("%+v, %+v", rows[4], rows[5])
	}
}

func TestMachineTable_SaysWhatTheyHave(t *testing.T) {
	t.Parallel()
	groups := []outdated.Group{group(plan.KindControlPlane, "cp", noon), group("MachineDeployment", "md", noon)}
	groups[0].Machines[0].Lag, groups[1].Machines[0].Lag = outdated.OldContent, outdated.OldEntries
	var out bytes.Buffer
	if err := status.MachineTable(&out, groups, noon.Add(5*time.Hour)); err != nil {
		t.Fatal(err)
	}
	const want = `MACHINE   OF                       HAS                       CREATED                AGE
cp-0      KubeadmControlPlane/cp   older values              2026-01-01T12:00:00Z   5h
md-0      MachineDeployment/md     other files or commands   2026-01-01T12:00:00Z   5h
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRowOf_KnowsMachinesDuringAnUpdateInPlace has a count in each state of an update in place: the controller compares
// Machines in every pass, whether the workload cluster answers or not.
func TestRowOf_KnowsMachinesDuringAnUpdateInPlace(t *testing.T) {
	t.Parallel()
	record := outdated.Text([]outdated.Group{group("MachineDeployment", "md", noon)})
	for reason, want := range map[string]reported.State{
		"InPlaceProgressing": reported.UpToDate, "InPlaceFailed": reported.UpToDate,
		"InPlaceUnknown": reported.UpToDate, contract.ReasonInvalidSettings: reported.Unknown,
	} {
		one := cluster("a", "one", "Unknown", reason, record)
		row := reported.RowOf(&one, nil)
		if row.ControlPlane.State != want || row.Pools.State != reported.MachinesBehind {
			t.Errorf("%s: %+v", reason, row)
		}
	}
}

// TestIsCurrent_NeedsAComparison has no record of Machines that are behind, as the settings cannot be used: a typo in the
// new password must not read as "nobody has the old one".
func TestIsCurrent_NeedsAComparison(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]bool{
		contract.ReasonWaitingForRollout: true, contract.ReasonInvalidSettings: false, contract.ReasonSettingsNotFound: false,
		contract.ReasonInternalError: false, contract.ReasonConflictingFile: false,
	} {
		one := cluster("a", "one", "False", reason, "")
		if row := reported.RowOf(&one, nil); row.IsCurrent() != want {
			t.Errorf("%s: %t", reason, row.IsCurrent())
		}
	}
	for reason, want := range map[string]bool{contract.ReasonConfigured: true, contract.ReasonTemplateNotSupported: false} {
		hosted := cluster("a", "hosted", map[bool]string{true: "True", false: "False"}[want], reason, "")
		hosted.Spec.ControlPlaneRef.Kind = "KamajiControlPlane"
		row := reported.RowOf(&hosted, nil)
		if row.IsCurrent() != want || row.ControlPlane.State != reported.NotPatched {
			t.Errorf("a control plane of another kind, %s: %+v", reason, row)
		}
	}
}

func TestTable_ShowsPausedClustersAndWhatIsPublished(t *testing.T) {
	t.Parallel()
	cluster := &clusterv1.Cluster{}
	cluster.Name, cluster.Spec.Paused = "prod", new(true)
	cluster.Status.Conditions = []metav1.Condition{
		{Type: contract.ConditionProxyConfigured, Status: "False", Reason: "InvalidSettings"},
		{Type: "capi-proxy-patcher.io/ProxyPublished", Status: "False", Reason: "NameTaken"},
	}
	var out bytes.Buffer
	if err := (&status.Table{}).Write(&out, noon, reported.RowOf(cluster, nil)); err != nil {
		t.Fatal(err)
	}
	const want = `NAME   SECRET   READY   CONTROL-PLANE   POOLS     PUBLISHED   PROBLEM
prod   -        False   unknown         unknown   NameTaken   paused: unpause the Cluster (spec.paused, annotation cluster.x-k8s.io/paused); InvalidSettings
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMain(m *testing.M) {
	contract.Add(contract.Capability{
		Name: "test", Rollouts: []string{"InPlace"}, Conditions: []string{"capi-proxy-patcher.io/ProxyPublished"},
		Reasons: []contract.Reason{
			{Name: "InPlaceFailed", Status: contract.StatusFalse, Task: contract.TaskAct, After: contract.ReasonTemplateNotSupported, Remote: true},
			{Name: "InPlaceUnknown", Status: contract.StatusUnknown, Task: contract.TaskWait, After: contract.ReasonWaitingForRollout, Remote: true},
			{Name: "InPlaceProgressing", Status: contract.StatusUnknown, Task: contract.TaskWait, After: "InPlaceUnknown", Remote: true},
		},
	})
	m.Run()
}
