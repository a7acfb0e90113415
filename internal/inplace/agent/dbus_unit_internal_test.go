package agent

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUnitOf_ReadsWhatSystemdAnswers has the types of an answer of systemd 252.
func TestUnitOf_ReadsWhatSystemdAnswers(t *testing.T) {
	t.Parallel()
	properties := map[string]any{
		"FragmentPath": "/u/kubelet.service", "DropInPaths": []string{"/u/a.conf", "/u/b.conf"},
		"EnvironmentFiles": [][]any{{"/etc/a.env", true}, {"/etc/b.env", false}},
		"UnsetEnvironment": []string{"X", "Y=z"}, "NeedDaemonReload": true, "Environment": []string{"A=b"},
	}
	got, err := unitOf(properties)
	want := Unit{
		UnitFiles:        []string{"/u/kubelet.service", "/u/a.conf", "/u/b.conf"},
		EnvironmentFiles: []string{"/etc/a.env", "/etc/b.env"}, Unset: []string{"X", "Y=z"}, IsOutdated: true,
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for name := range properties {
		if name == "Environment" {
			continue
		}
		other := maps.Clone(properties)
		other[name] = 7
		if _, err := unitOf(other); err == nil {
			t.Errorf("a number is read as %s", name)
		}
	}
}
