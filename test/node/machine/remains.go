//go:build node

package machine

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Remains lists what the machines of this process have left on the host, which
// is nothing unless something is wrong or a machine is running: cgroups,
// processes in them, and mounts.
func Remains() ([]string, error) {
	var remains []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), cgroupPrefix()) {
			remains = append(remains, path)
		}
		return nil // also for a cgroup that has just gone
	})
	if err != nil {
		return nil, err
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return nil, err
	}
	for _, path := range processes {
		cgroups, err := os.ReadFile(path) //nolint:gosec // of the kernel
		if err != nil || !strings.Contains(string(cgroups), "/"+cgroupPrefix()) {
			continue
		}
		// One that is dead and only waits for the host to take note is no more.
		status, err := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if err == nil && !strings.Contains(string(status), "\nState:\tZ") {
			remains = append(remains, filepath.Dir(path))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " /run/root ") || strings.Contains(line, " /run/cgroup.") {
			remains = append(remains, strings.TrimSpace(line))
		}
	}
	return remains, nil
}
