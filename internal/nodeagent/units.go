package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/node"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// units compares the variables of a version with those that systemd gives to the services with a drop-in of the
// product, and returns these services. The error names, for each variable that is another, the file that wins; it holds
// no value.
//
// Where systemd answers, what it has loaded counts, else what is in the unit files.
func units(ctx context.Context, root string, on Files, v node.Version) (checked []string, err error) {
	running := New(ctx, root, func(string) {})
	defer running.Close()
	var problems []string
	for _, target := range []contract.Target{contract.TargetContainerd, contract.TargetKubelet} {
		name := string(target)
		ours, err := on.Read(systemd.DropInPath(name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !patch.HasMark(string(ours.Content)) {
			continue
		}
		if err != nil {
			return nil, err
		}
		checked = append(checked, name)
		e, outdated := environment(ctx, running, on, name)
		if outdated {
			problems = append(problems, fmt.Sprintf("the unit files of %s have changed since systemd has read them: run "+
				"systemctl daemon-reload, and restart %[1]s", name))
		}
		for _, other := range others(on, e, v) {
			problems = append(problems, name+" has other values than those of the proxy Secret: "+other)
		}
	}
	if len(problems) > 0 {
		return checked, errors.New(strings.Join(problems, "; "))
	}
	return checked, nil
}

// environment returns the environment of a service, and whether systemd has to read its unit files again.
func environment(ctx context.Context, running *Services, on Files,
	name string,
) (e systemd.Environment, outdated bool) {
	unit, err := running.Unit(ctx, name)
	paths := unit.UnitFiles
	if err != nil {
		paths = systemd.FindUnitFiles(name, func(folder string) []string {
			names, _ := on.List(folder) // a folder that cannot be read has no unit files, for systemd as well
			return names
		})
	}
	var files []systemd.UnitFile
	for _, path := range paths {
		if f, err := on.ReadThroughLinks(path); err == nil {
			files = append(files, systemd.UnitFile{Path: path, Content: string(f.Content)})
		}
	}
	e = systemd.ReadEnvironment(files)
	if err == nil {
		e = e.Loaded(unit.EnvironmentFiles, unit.Unset)
	}
	return e, unit.IsOutdated
}

// others says which variables of a version a service has from elsewhere, or not at all, each file or reason once.
func others(on Files, e systemd.Environment, v node.Version) []string {
	var reasons []string
	names := map[string][]string{}
	for _, name := range v.Names() {
		reason := other(on, e, v, name)
		if reason == "" {
			continue
		}
		if names[reason] == nil {
			reasons = append(reasons, reason)
		}
		names[reason] = append(names[reason], name)
	}
	for i, reason := range reasons {
		reasons[i] = strings.Join(names[reason], ", ") + " " + reason
	}
	return reasons
}

// other says why a service does not have a variable as the files of the product have it, or "".
func other(on Files, e systemd.Environment, v node.Version, name string) string {
	type found struct{ value, file, from string }
	var last, own *found
	read := false
	for _, s := range e.Files {
		read = read || s.Value == contract.PathProxyEnv
		f, err := on.ReadThroughLinks(s.Value)
		if err != nil {
			continue // systemd reads the others
		}
		value, assigned := systemd.LookUp(string(f.Content), name)
		if !assigned {
			continue
		}
		last = &found{value, s.Value, s.From}
		if s.Value == contract.PathProxyEnv || s.Value == contract.PathNodeEnv && v.Extends(name, value) {
			own = last
		}
	}
	switch {
	case own == nil && !read:
		return "not read from " + contract.PathProxyEnv + by(e.Reset, ", because %s resets EnvironmentFile=")
	case own == nil:
		return "not in " + contract.PathProxyEnv
	case last.value != own.value:
		return "from " + finding.Line(last.file, maxReason) + by(last.from, ", which %s reads")
	}
	if s, unset := e.Unsets(name, own.value); unset {
		return "unset" + by(s.From, " by %s")
	}
	return ""
}

// by adds a unit file to a reason, if it is known.
func by(file, format string) string {
	if file == "" {
		return ""
	}
	return fmt.Sprintf(format, finding.Line(file, maxReason))
}
