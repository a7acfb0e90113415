package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/envfile"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Version is a version of the files of a node.
type Version struct {
	files     map[string]Content // by path
	variables []envfile.Var
	endpoints []string
}

// NewVersion reads the data of a generated Secret. Content without the mark of the product is an error, because the
// next version could not replace it.
func NewVersion(data map[string][]byte) (Version, error) {
	v := Version{files: map[string]Content{}}
	for _, f := range patch.NodeFiles() {
		content, found := data[f.Key]
		if !found {
			continue
		}
		if !patch.HasMark(string(content)) {
			return Version{}, fmt.Errorf("key %s of the mounted Secret has no line \"Managed by %s\"", f.Key, contract.Name)
		}
		v.files[f.Path] = content
	}
	if len(v.files) == 0 {
		return Version{}, errors.New("the mounted Secret has none of the files of a node")
	}
	if content, found := v.files[contract.PathProxyEnv]; found {
		var err error
		if v.variables, err = envfile.Parse(content); err != nil {
			return Version{}, fmt.Errorf("key %s of the mounted Secret: %w", contract.KeyProxyEnv, err)
		}
	}
	v.endpoints = strings.Fields(string(data[contract.KeyReadiness]))
	return v, nil
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
// the end.
func (v Version) Extends(name, value string) bool {
	given := v.Variable(name)
	return strings.EqualFold(name, "NO_PROXY") && (given == "" || value == given || strings.HasPrefix(value, given+","))
}

// isMadeFrom reports whether a file is contract.PathNodeEnv of a node with the version. Which own addresses it has is
// not compared: a node gets and loses some while it runs.
func (f File) isMadeFrom(v Version) bool {
	variables, err := envfile.Parse(f.Content)
	return err == nil && f.isLike(f.Content, modeNodeEnv) && !slices.ContainsFunc(variables, func(own envfile.Var) bool {
		return !v.Extends(own.Name, own.Value)
	})
}

// Certificates returns the bundle of the version.
func (v Version) Certificates() []byte { return v.files[contract.PathTrustedCA] }

// Endpoints returns the URLs that are asked through the proxy.
func (v Version) Endpoints() []string { return v.endpoints }

// Bytes returns a text that is the same for equal versions only. It holds credentials.
func (v Version) Bytes() Content {
	var b bytes.Buffer
	for _, f := range patch.NodeFiles() {
		content, found := v.files[f.Path]
		_, _ = fmt.Fprintf(&b, "%s %t %d\n%s", f.Path, found, len(content), []byte(content))
	}
	return b.Bytes()
}

// state is what a run finds on a node.
type state struct {
	// interrupted reports whether there is a journal.
	interrupted bool
	// current are the files of the product on the node, before those from before the apply that is under way, if one is.
	current map[string]File
	before  map[string]Content
	// uses are the services that read contract.PathProxyEnv, and own is contract.PathNodeEnv, which they read as well.
	uses []string
	own  File
}

// look reads the node and refuses one that is not the product's.
func (h Host) look() (state, error) {
	s := state{current: map[string]File{}, before: map[string]Content{}}
	_, err := h.Files.List(journal)
	if s.interrupted = err == nil; err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	for _, f := range patch.NodeFiles() {
		current, found, err := h.managed(f.Path)
		if err != nil {
			return s, err
		}
		if found {
			s.current[f.Path], s.before[f.Path] = current, current.Content
		}
	}
	if s.interrupted {
		if err := h.kept(s.before); err != nil {
			return s, err
		}
	}
	ours := false // a drop-in
	for _, service := range []string{containerd, kubelet} {
		uses, managed, err := h.usesFile(service)
		if err != nil {
			return s, err
		}
		if uses {
			s.uses = append(s.uses, service)
		}
		ours = ours || managed
	}
	if len(s.uses) > 0 {
		if s.own, _, err = h.managed(contract.PathNodeEnv); err != nil {
			return s, err
		}
	}
	_, environment := s.before[contract.PathProxyEnv]
	_, trust := s.before[contract.PathTrustedCA]
	if !environment && (ours || !trust) {
		return s, fmt.Errorf("there is no %s of %s on this node: its Machine was made without it; "+
			"only a new Machine gets it", contract.PathProxyEnv, contract.Name)
	}
	return s, nil
}

// kept puts the files of the journal into before. A file that is not in the journal was not replaced, or the journal is
// damaged: what the node has is all there is then.
func (h Host) kept(before map[string]Content) error {
	for _, f := range patch.NodeFiles() {
		kept, err := h.Files.Read(path.Join(journal, path.Base(f.Path)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		before[f.Path] = kept.Content
	}
	return nil
}

// Plan is what an apply does.
type Plan struct {
	// Trust reports whether the trust store changes.
	Trust bool
	// Services are restarted, in order.
	Services []string

	environment bool // changes
	interrupted bool // an apply was
	writes      []string
}

// plan compares. After an interruption everything may have to be brought into force again.
func (s state) plan(want Version) Plan {
	p := Plan{interrupted: s.interrupted}
	for _, f := range patch.NodeFiles() {
		content, given := want.files[f.Path]
		before, has := s.before[f.Path]
		if !has || !given {
			continue
		}
		changed := s.interrupted || !bytes.Equal(before, content)
		switch {
		case changed && f.Path == contract.PathProxyEnv:
			p.environment = true
		case changed && f.Path == contract.PathTrustedCA:
			p.Trust = true
		}
		if !s.current[f.Path].isLike(content, f.Mode) {
			p.writes = append(p.writes, f.Path)
		}
	}
	if len(want.variables) > 0 && len(s.uses) > 0 && !p.environment && !s.own.isMadeFrom(want) {
		p.environment, p.writes = true, append(p.writes, contract.PathNodeEnv)
	}
	switch {
	case p.Trust: // both read the trust store when they start
		p.Services = []string{containerd, kubelet}
	case p.environment:
		p.Services = s.uses
	}
	return p
}

// IsEmpty reports whether the node is as it should be.
func (p Plan) IsEmpty() bool { return !p.interrupted && len(p.writes) == 0 }

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
	if p.Trust {
		lines = append(lines, "update the trust store")
	}
	for _, service := range p.Services {
		lines = append(lines, "restart "+service)
	}
	return lines
}

// Present returns the paths of the product's files on the node, and refuses a node that has none.
func (h Host) Present() ([]string, error) {
	unlock, err := h.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	s, err := h.look()
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, f := range patch.NodeFiles() {
		if _, found := s.before[f.Path]; found {
			paths = append(paths, f.Path)
		}
	}
	if len(s.uses) > 0 {
		paths = append(paths, contract.PathNodeEnv)
	}
	return paths, nil
}

// Drift returns the paths, among those given, at which the node has no file, or another one than with the version.
// Files are read and compared one by one.
func (h Host) Drift(want Version, paths []string) ([]string, error) {
	var drifted []string
	compare := func(name string, isGood func(File) bool) error {
		current, err := h.Files.Read(name)
		missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotRegular)
		if err != nil && !missing {
			return err
		}
		if missing || !isGood(current) {
			drifted = append(drifted, name)
		}
		return nil
	}
	for _, f := range patch.NodeFiles() {
		content, given := want.files[f.Path]
		if !given || !slices.Contains(paths, f.Path) {
			continue
		}
		if err := compare(f.Path, func(current File) bool { return current.isLike(content, f.Mode) }); err != nil {
			return nil, err
		}
	}
	if slices.Contains(paths, contract.PathNodeEnv) && len(want.variables) > 0 {
		if err := compare(contract.PathNodeEnv, func(current File) bool { return current.isMadeFrom(want) }); err != nil {
			return nil, err
		}
	}
	return drifted, nil
}
