package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/node"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// units compares the variables of a version with those that systemd gives to the services with a drop-in of the
// product, and returns these services. The error names, for each variable that is another, the file that wins; it holds
// no value.
//
// Where systemd answers, what it has loaded counts, else what is in the unit files.
func units(ctx context.Context, root string, on Files, v node.Version) (checked []string, err error) {
	running := New(ctx, root, on, func(string) {})
	defer running.Close()
	var problems []string
	for _, u := range patch.Units() {
		name := u.Name()
		ours, err := on.Read(u.DropIn())
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
		for _, other := range others(on.ReadThroughLinks, e, v) {
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
	if err != nil {
		return environmentOf(unitFiles(on, node.Version{}, name), on.ReadThroughLinks), false
	}
	return environmentOf(unit.UnitFiles, on.ReadThroughLinks).Loaded(unit.EnvironmentFiles, unit.Unset), unit.IsOutdated
}

// reader reads a file of a node.
type reader func(name string) (node.File, error)

// after reads files as they are with a version: contract.PathNodeEnv will be made from it.
func after(on Files, want node.Version) reader {
	return func(name string) (node.File, error) {
		if name == contract.PathNodeEnv {
			return node.File{}, fs.ErrNotExist
		}
		if content, found := want.Content(name); found {
			return node.File{Content: content}, nil
		}
		return on.ReadThroughLinks(name)
	}
}

// unitFiles lists the unit files of a service as they are with a version.
func unitFiles(on Files, want node.Version, name string) []string {
	ours := systemd.DropInPath(name)
	return systemd.FindUnitFiles(name, func(folder string) []string {
		names, _ := on.List(folder) // a folder that cannot be read has no unit files, for systemd as well
		if _, found := want.Content(ours); found && folder == path.Dir(ours) {
			names = append(names, path.Base(ours))
		}
		return names
	})
}

// environmentOf reads the environment of a service from its unit files.
func environmentOf(paths []string, read reader) systemd.Environment {
	var files []systemd.UnitFile
	for _, name := range paths {
		if f, err := read(name); err == nil {
			files = append(files, systemd.UnitFile{Path: name, Content: string(f.Content)})
		}
	}
	return systemd.ReadEnvironment(files)
}

// others says which variables of a version a service has from elsewhere, or not at all, each file or reason once.
func others(read reader, e systemd.Environment, v node.Version) []string {
	var reasons []string
	names := map[string][]string{}
	for _, name := range v.Names() {
		reason := other(read, e, v, name)
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
func other(read reader, e systemd.Environment, v node.Version, name string) string {
	type found struct{ value, file, from string }
	var last, own *found
	isRead := false
	for _, s := range e.Files {
		isRead = isRead || s.Value == contract.PathProxyEnv
		f, err := read(s.Value)
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
	case own == nil && !isRead:
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
