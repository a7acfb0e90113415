package realsystemd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/realsystemd"
)

// Two traps of systemd that the reader must show, or it proves nothing: a specifier that resolves is replaced, one that
// does not drops the variable.
func TestStart_ShowsWhatSystemdDoesToAnUnescapedValue(t *testing.T) {
	got := realsystemd.Start(t, "containerd", map[string][]byte{
		"/etc/systemd/system/containerd.service.d/http-proxy.conf": []byte("[Service]\n" +
			`Environment="LOST=p%40ss"` + "\n" + `Environment="CHANGED=%N"` + "\n" + `Environment="KEPT=p%%40ss"` + "\n"),
	})
	if !got.Started {
		t.Fatalf("the service did not start:\n%s", got.Log)
	}
	if value, found := got.Environ["LOST"]; found {
		t.Errorf("LOST = %q, want it dropped", value)
	}
	if got.Environ["CHANGED"] != "containerd" || got.Environ["KEPT"] != "p%40ss" {
		t.Errorf("CHANGED = %q, KEPT = %q", got.Environ["CHANGED"], got.Environ["KEPT"])
	}
	if !strings.Contains(got.Log, "Failed to resolve specifiers") {
		t.Errorf("no warning about the specifier in the log:\n%s", got.Log)
	}
}

func TestStart_ReportsAServiceThatCannotStart(t *testing.T) {
	got := realsystemd.Start(t, "kubelet", map[string][]byte{
		"/etc/systemd/system/kubelet.service.d/http-proxy.conf": []byte("[Service]\nEnvironmentFile=/etc/missing.env\n"),
	})
	if got.Started {
		t.Errorf("the service started without its environment file: %v", got.Environ)
	}
	if !strings.Contains(got.Log, "Failed to load environment files") {
		t.Errorf("log: %s", got.Log)
	}
}

func TestStart_LeavesNothingBehind(t *testing.T) {
	before := hostState(t)
	realsystemd.Start(t, "containerd",
		map[string][]byte{"/run/from-test": nil, "/usr/lib/systemd/system/from-test.target": nil})
	if after := hostState(t); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// hostState lists what a manager that got out would change: the cgroup of PID
// 1 and of this process, and the mounts and files of the host.
func hostState(t *testing.T) string {
	t.Helper()
	var state strings.Builder
	for _, path := range []string{"/proc/1/cgroup", "/proc/self/cgroup", "/proc/self/mountinfo"} {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		state.Write(content)
	}
	for _, path := range []string{"/run/from-test", "/usr/lib/systemd/system/from-test.target"} {
		if _, err := os.Stat(path); err == nil {
			state.WriteString(path + "\n")
		}
	}
	state.WriteString(strings.Join(abandonedCgroups(t), "\n"))
	return state.String()
}

// abandonedCgroups returns the cgroups whose script has ended. Those of tests
// that run at the same time have not.
func abandonedCgroups(t *testing.T) []string {
	t.Helper()
	var abandoned []string
	for _, pattern := range []string{
		"/sys/fs/cgroup/", "/sys/fs/cgroup/*/", "/sys/fs/cgroup/*/*/",
		"/sys/fs/cgroup/*/*/*/",
	} {
		found, err := filepath.Glob(pattern + "realsystemd.*")
		if err != nil {
			t.Fatal(err)
		}
		for _, cgroup := range found {
			_, scriptErr := os.Stat("/proc/" + strings.TrimPrefix(filepath.Ext(cgroup), "."))
			if _, err := os.Stat(cgroup); err == nil && scriptErr != nil {
				abandoned = append(abandoned, cgroup)
			}
		}
	}
	return abandoned
}
