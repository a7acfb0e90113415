package node

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// Version is a version of the files of a node. Without files the node has none of the product.
type Version struct {
	files     map[string]File // by path
	variables []systemd.Var
	endpoints []string
}

// The modes of files that an apply needs beside those of a version.
const modeBundle, modeSetup fs.FileMode = 0o644, 0o755

// NewVersion reads the data of a mounted Secret, that of patch.NodeData.
func NewVersion(data map[string][]byte) (Version, error) {
	files, err := patch.ReadNodeData(data)
	if err != nil {
		return Version{}, err
	}
	v := Version{files: map[string]File{}}
	for _, f := range files {
		v.files[f.Path] = File{Content: f.Content, Mode: f.Mode, Owned: true}
	}
	if f, found := v.files[contract.PathProxyEnv]; found {
		if v.variables, err = systemd.ParseEnvironmentFile(f.Content); err != nil {
			return Version{}, fmt.Errorf("%s of the mounted Secret: %w", contract.PathProxyEnv, err)
		}
		for _, variable := range v.variables { // services of root read them
			if !patch.IsProxyVariable(variable.Name) {
				return Version{}, fmt.Errorf("%s of the mounted Secret: %.40q is not a variable of %s", contract.PathProxyEnv,
					variable.Name, contract.Name)
			}
		}
	}
	v.endpoints = strings.Fields(string(data[contract.KeyReadiness]))
	return v, nil
}

// Content returns the content of a file of the version.
func (v Version) Content(name string) (Content, bool) {
	f, found := v.files[name]
	return f.Content, found
}

// Variable returns the value of a variable. It may hold a credential.
func (v Version) Variable(name string) string {
	for _, variable := range v.variables {
		if variable.Name == name {
			return variable.Value
		}
	}
	return ""
}

// Names returns the names of the variables.
func (v Version) Names() []string {
	names := make([]string, len(v.variables))
	for i, variable := range v.variables {
		names[i] = variable.Name
	}
	return names
}

// Extends reports whether a value is one that a node gives to a variable of the version: NO_PROXY with more entries at
// the beginning.
func (v Version) Extends(name, value string) bool {
	given := v.Variable(name)
	return strings.EqualFold(name, "NO_PROXY") && (given == "" || value == given || strings.HasSuffix(value, ","+given))
}

// isMadeFrom reports whether a file is contract.PathNodeEnv of a node with the version. Which own addresses it has is
// not compared: a node gets and loses some while it runs.
func (f File) isMadeFrom(v Version) bool {
	variables, err := systemd.ParseEnvironmentFile(f.Content)
	return err == nil && f.isLike(f.Content, modeNodeEnv) && !slices.ContainsFunc(variables, func(own systemd.Var) bool {
		return !v.Extends(own.Name, own.Value)
	})
}

// Certificates returns the bundle of the version.
func (v Version) Certificates() []byte { return v.files[contract.PathTrustedCA].Content }

// Endpoints returns the URLs that are asked through the proxy.
func (v Version) Endpoints() []string { return v.endpoints }

// Bytes returns a text that is the same for equal versions only. It holds credentials.
func (v Version) Bytes() Content {
	var b bytes.Buffer
	for _, name := range patch.ManagedPaths() {
		f, found := v.files[name]
		_, _ = fmt.Fprintf(&b, "%s %t %o %d\n%s", name, found, f.Mode, len(f.Content), []byte(f.Content))
	}
	return b.Bytes()
}

// state is what a run finds on a node.
type state struct {
	// interrupted reports whether there is a journal.
	interrupted bool
	// current are the files of the product on the node, before those from before the apply that is under way, if one is.
	current, before map[string]File
	// others are the services with a file of somebody else at the path of the drop-in that reads contract.PathProxyEnv.
	others []string
	// readBefore are the services that read the previous variables.
	readBefore []string
	// addsOwn reports that there was no contract.PathNodeEnv.
	addsOwn bool
	// trusts reports whether the trust store may have certificates of the product.
	trusts bool
}

// look reads the node and refuses one on which a version would replace a file of somebody else. A failure that stays
// the same has the same words.
func (h Host) look(want Version) (state, error) {
	s := state{current: map[string]File{}, before: map[string]File{}}
	_, err := h.Files.List(journal)
	if s.interrupted = err == nil; err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	_, variables := want.files[contract.PathProxyEnv]
	theirs := map[string]File{}
	for _, name := range append(patch.ManagedPaths(), contract.PathNodeEnv) { // the last is made from the others
		f, kind, err := h.at(name)
		_, wanted := want.files[name]
		if name == contract.PathNodeEnv {
			wanted = variables && len(readers(want.files))+len(readers(theirs)) > 0
		}
		switch {
		case errors.Is(err, ErrNotRegular) && wanted:
			return s, fmt.Errorf("%s on this node is not a regular file, or below a symbolic link: it is not %s's and stays "+
				"as it is; remove it, or replace the Machine", name, contract.Name)
		case errors.Is(err, ErrNotRegular):
		case err != nil:
			return s, err
		case kind == foreign && wanted:
			return s, foreignError(name)
		case kind == foreign:
			theirs[name] = f
		case kind == ours:
			s.current[name] = f
		}
	}
	s.others = readers(theirs)
	if err := h.previous(&s); err != nil {
		return s, err
	}
	if _, had := s.before[contract.PathProxyEnv]; had && !variables && len(s.others) > 0 {
		return s, fmt.Errorf("%s on this node has no line \"Managed by %s\" and reads %s, which is to be removed: change "+
			"it first", systemd.DropInPath(s.others[0]), contract.Name, contract.PathProxyEnv)
	}
	s.readBefore = slices.Concat(readers(s.before), s.others)
	_, had := s.before[contract.PathNodeEnv]
	s.addsOwn = !had && len(s.readBefore) == 0
	_, err = h.Files.Read(marker)
	if s.trusts = err == nil; err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	return s, nil
}

// foreignError is why a file of somebody else is not replaced.
func foreignError(name string) error {
	return fmt.Errorf("%s on this node has no line \"Managed by %s\": it is a file of somebody else and stays as it is; "+
		"remove it, or replace the Machine", name, contract.Name)
}

// readers returns the services whose drop-in among files reads contract.PathProxyEnv.
func readers(files map[string]File) (found []string) {
	for _, service := range patch.UnitNames() {
		if reads(files[systemd.DropInPath(service)]) {
			found = append(found, service)
		}
	}
	return found
}

func reads(dropIn File) bool {
	e := systemd.ReadEnvironment([]systemd.UnitFile{{Content: string(dropIn.Content)}})
	return slices.ContainsFunc(e.Files, func(s systemd.Setting) bool { return s.Value == contract.PathProxyEnv })
}

// previous fills before: with what is there, and after an interruption with what the journal has. What is not in a
// journal was not replaced, or the journal is damaged: what the node has is all there is then.
func (h Host) previous(s *state) error {
	modes := map[string]fs.FileMode{
		contract.PathProxyEnv: modeNodeEnv, contract.PathNodeEnv: modeNodeEnv, contract.PathSetup: modeSetup,
	}
	for _, name := range append(patch.ManagedPaths(), contract.PathNodeEnv) {
		if f, found := s.current[name]; found {
			s.before[name] = f
		}
		if s.interrupted {
			kept, err := h.Files.Read(path.Join(journal, inJournal(name)))
			_, gone := h.Files.Read(path.Join(journal, inJournal(name)+absent))
			switch {
			case err == nil:
				s.before[name] = kept
			case !errors.Is(err, fs.ErrNotExist):
				return err
			case gone == nil:
				delete(s.before, name)
			case !errors.Is(gone, fs.ErrNotExist):
				return gone
			}
		}
		if f, had := s.before[name]; had { // as bootstrap writes it
			f.Mode = cmp.Or(modes[name], modeBundle)
			s.before[name] = f
		}
	}
	return nil
}

// Plan is what an apply does.
type Plan struct {
	// Trust reports whether the trust store changes.
	Trust bool
	// Services are restarted, in order.
	Services []string

	environment            bool // changes
	interrupted            bool // an apply was
	reads, writes, removes []string
}

// plan compares. After an interruption everything may have to be brought into force again.
func (s state) plan(want Version) Plan {
	p := Plan{interrupted: s.interrupted}
	p.reads = slices.Concat(readers(want.files), s.others)
	changes := func(name string) bool {
		before, had := s.before[name]
		f, wanted := want.files[name]
		return s.interrupted && (had || wanted) || had != wanted || !bytes.Equal(before.Content, f.Content)
	}
	for _, name := range patch.ManagedPaths() {
		f, wanted := want.files[name]
		current, has := s.current[name]
		switch {
		case wanted && !current.isLike(f.Content, f.Mode):
			p.writes = append(p.writes, name)
		case !wanted && has:
			p.removes = append(p.removes, name)
		}
	}
	p.environment = changes(contract.PathProxyEnv)
	own, hasOwn := s.current[contract.PathNodeEnv]
	_, variables := want.files[contract.PathProxyEnv]
	switch {
	case !variables && hasOwn:
		p.removes = append(p.removes, contract.PathNodeEnv)
	case len(want.variables) > 0 && len(p.reads) > 0 && !own.isMadeFrom(want):
		p.environment, p.writes = true, append(p.writes, contract.PathNodeEnv)
	}
	// What is to be trusted is compared with the files, what is not with the marker: files may be gone without it.
	certificates := hasCertificates(want.files)
	p.Trust = s.trusts && !certificates || changes(contract.PathTrustedCA) && (hasCertificates(s.before) || certificates)
	for _, service := range patch.UnitNames() {
		uses := slices.Contains(p.reads, service) || slices.Contains(s.readBefore, service)
		// Both read the trust store, and nobody knows what they have read of a run that did not end.
		if p.Trust || s.interrupted || uses && p.environment || changes(systemd.DropInPath(service)) {
			p.Services = append(p.Services, service)
		}
	}
	return p
}

// hasCertificates reports whether the bundle among files has more than comments.
func hasCertificates(files map[string]File) bool {
	for line := range strings.Lines(string(files[contract.PathTrustedCA].Content)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return true
		}
	}
	return false
}

// IsEmpty reports whether the node is as it should be.
func (p Plan) IsEmpty() bool { return !p.interrupted && !p.Trust && len(p.writes)+len(p.removes) == 0 }

// Lines describe the plan for people. They hold no value.
func (p Plan) Lines() []string {
	if p.IsEmpty() {
		return []string{"nothing to do"}
	}
	var lines []string
	if p.interrupted {
		lines = append(lines, "finish an apply that was interrupted")
	}
	for _, name := range p.writes {
		lines = append(lines, "write "+name)
	}
	for _, name := range p.removes {
		lines = append(lines, "remove "+name)
	}
	if p.Trust {
		lines = append(lines, "update the trust store")
	}
	for _, service := range p.Services {
		lines = append(lines, "restart "+service)
	}
	return lines
}

// Drift returns the paths at which the node has another file than with the version, one that should not be there, or
// none. Files are read and compared one by one. A file of somebody else where the version has none is no difference.
func (h Host) Drift(want Version) ([]string, error) {
	var drifted []string
	for _, name := range append(patch.ManagedPaths(), contract.PathNodeEnv) {
		current, kind, err := h.at(name)
		if err != nil && !errors.Is(err, ErrNotRegular) {
			return nil, err
		}
		f, wanted := want.files[name]
		good := !wanted && kind != ours || wanted && kind == ours && current.isLike(f.Content, f.Mode)
		if name == contract.PathNodeEnv {
			_, variables := want.files[contract.PathProxyEnv]
			switch {
			case len(readers(want.files)) > 0:
				good = kind == ours && current.isMadeFrom(want)
			case variables:
				good = true // bootstrap made it, and a running service does not read it
			}
		}
		if !good {
			drifted = append(drifted, name)
		}
	}
	return drifted, nil
}
