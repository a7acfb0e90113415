package outdated_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
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

func TestRecord_ComesBackAsItWas(t *testing.T) {
	t.Parallel()
	groups := []outdated.Group{
		group(plan.KindControlPlane, "cp", noon.Add(time.Hour), noon, noon.Add(2*time.Hour)), group("MachineDeployment", "empty"),
		group("MachinePool", `"rude" %s`+"\n\x1b[2J", noon.In(time.FixedZone("east", 3600)).Add(900*time.Millisecond)),
	}
	text := outdated.Text(groups)
	if text != outdated.Text(groups) {
		t.Error("the same groups make different records")
	}
	got, err := reported.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	want := []outdated.Behind{
		{Kind: plan.KindControlPlane, Name: "cp", Machines: 3, Oldest: noon},
		{Kind: "MachinePool", Name: `"rude" %s` + "\n\x1b[2J", Machines: 1, Oldest: noon},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := outdated.Text(groups[1:2]); text != "" {
		t.Errorf("the record of nothing is %q", text)
	}
}

func TestRecord_IsBounded(t *testing.T) {
	t.Parallel()
	var groups []outdated.Group
	for i := range 5000 {
		groups = append(groups, group("MachineDeployment", fmt.Sprint(strings.Repeat("x", 240), i), noon.Add(-time.Duration(i)*time.Hour)))
	}
	text := outdated.Text(groups)
	got, err := reported.Parse(text)
	if err != nil || len(text) > 64<<10 {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	if last := got[len(got)-1]; len(got) != 101 || last.Machines != 4900 || last.Name != "" ||
		!last.Oldest.Equal(noon.Add(-4999*time.Hour)) {
		t.Errorf("%d groups, the last one %+v", len(got), last)
	}
	for _, bad := range []string{"x", "{}", `[{"machines":0}]`, `[{"machines":-1,"kind":"MachinePool"}]`, `["a"]`} {
		if behind, err := reported.Parse(bad); err == nil {
			t.Errorf("%s is accepted as %+v", bad, behind)
		}
	}
}

func TestSentence_CountsAllMachinesAndNamesTheFirst(t *testing.T) {
	t.Parallel()
	of := func(kind, name string, count int) outdated.Group {
		return group(kind, name, make([]time.Time, count)...)
	}
	var crowd []outdated.Group
	for i := range 12 {
		crowd = append(crowd, of("MachineDeployment", fmt.Sprintf("md%02d", i), 2))
	}
	for want, groups := range map[string][]outdated.Group{
		"": nil,
		"1 Machine of MachineDeployment md has outdated proxy settings: md-0": {of("MachineDeployment", "md", 1), of("MachinePool", "none", 0)},

		"3 Machines of KubeadmControlPlane cp have outdated proxy settings: cp-0, cp-1, cp-2":                 {of(plan.KindControlPlane, "cp", 3)},
		"5 Machines of MachineDeployment md have outdated proxy settings: md-0, md-1, md-2 and 2 more":        {of("MachineDeployment", "md", 5)},
		"1001 Machines of MachineDeployment m have outdated proxy settings: m-0, m-1, m-2 and 998 more":       {of("MachineDeployment", "m", 1001)},
		"2 Machines have outdated proxy settings: 1 of KubeadmControlPlane c (c-0), 1 of MachinePool p (p-0)": {of(plan.KindControlPlane, "c", 1), of("MachinePool", "p", 1)},
		"7 Machines have outdated proxy settings: 3 of KubeadmControlPlane c (c-0, c-1, c-2), 4 of MachineDeployment m (m-0, m-1, m-2 and 1 more)": {
			of(plan.KindControlPlane, "c", 3), of("MachineDeployment", "empty", 0), of("MachineDeployment", "m", 4),
		},
		"24 Machines have outdated proxy settings: 2 of MachineDeployment md00 (md00-0, md00-1), 2 of MachineDeployment md01 " +
			"(md01-0, md01-1), 2 of MachineDeployment md02 (md02-0, md02-1) and 18 more": crowd,
	} {
		if got := outdated.Sentence(groups); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
