package patch

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// List names a list of a bootstrap spec.
type List string

// The lists that edits change.
const (
	ListFiles List = "files"
	ListPre   List = "preKubeadmCommands"
	ListPost  List = "postKubeadmCommands"
)

// Op is the operation of an Edit at its index, with the meaning it has in RFC 6902.
type Op string

// The operations of edits.
const (
	OpAdd     Op = "add"
	OpRemove  Op = "remove"
	OpReplace Op = "replace"
)

// Edit changes one entry of one list. Edits are applied one after the other; an index refers to the list after the
// edits before it.
type Edit struct {
	List  List
	Op    Op
	Index int
	// File is the new entry of ListFiles, Command that of the other lists. Not set for OpRemove.
	File    File
	Command string
}

// Plan is the outcome of Ensure.
type Plan struct {
	// Edits are empty when the spec is as it should be.
	Edits []Edit
	// Warnings are about entries of the user that interfere with the proxy. Their places are in the spec.
	Warnings []finding.Finding
}

// ConflictError reports that the user owns something that the product would have to write. Nothing is changed then.
type ConflictError struct {
	// Conflicts are one or more findings in the order of the spec. Their places are in the spec.
	Conflicts finding.Errors
}

func (e *ConflictError) Error() string { return e.Conflicts.Error() }

// Ensure returns the edits that apply recipe to spec: each managed file once, at its present position or else last;
// managed commands first and last around the user's own. It never changes or moves an entry of the user, and does not
// modify its arguments.
//
// A file of the user at a managed path, in whatever systemd folder, is a *ConflictError.
func Ensure(spec Spec, recipe Recipe) (Plan, error) {
	if conflicts := conflicts(spec, recipe); len(conflicts) > 0 {
		return Plan{}, &ConflictError{Conflicts: conflicts}
	}
	plan := Plan{Warnings: overrides(spec, recipe)}
	post := recipe.Post
	if !slices.ContainsFunc(spec.PostKubeadmCommands, func(c string) bool { return !isManagedCommand(c) }) {
		post = nil
	}
	plan.Edits = ensureFiles(spec.Files, recipe.Files, len(recipe.First)+len(recipe.Last)+len(post))
	plan.Edits = ensureCommands(plan.Edits, ListPre, spec.PreKubeadmCommands, recipe.First, recipe.Last)
	plan.Edits = ensureCommands(plan.Edits, ListPost, spec.PostKubeadmCommands, post, nil)
	return plan, CheckSize(spec, plan.Edits)
}

// Remove returns the edits that remove every managed entry from spec.
func Remove(spec Spec) []Edit {
	edits := removeManaged(nil, ListFiles, spec.Files)
	edits = removeManaged(edits, ListPre, spec.PreKubeadmCommands)
	return removeManaged(edits, ListPost, spec.PostKubeadmCommands)
}

// IsPatched reports whether spec has a managed entry.
func IsPatched(spec Spec) bool {
	return slices.ContainsFunc(spec.Files, IsManagedFile) ||
		slices.ContainsFunc(spec.PreKubeadmCommands, isManagedCommand) ||
		slices.ContainsFunc(spec.PostKubeadmCommands, isManagedCommand)
}

// IsTrustOnly reports whether spec has managed entries, and all of them are for the trust store.
func IsTrustOnly(spec Spec) bool {
	foreign := func(f File) bool {
		return IsManagedFile(f) && !slices.Contains(targetsOf(clean(f.Path)), contract.TargetTrust)
	}
	others := func(c string) bool { return isManagedCommand(c) && c != commandPrepare }
	return IsPatched(spec) && !slices.ContainsFunc(spec.Files, foreign) &&
		!slices.ContainsFunc(slices.Concat(spec.PreKubeadmCommands, spec.PostKubeadmCommands), others)
}

// isDropIn reports whether p is a drop-in of a configured unit with the name that the product uses. systemd merges
// drop-ins by file name over all its folders, so a drop-in of that name in another folder is replaced, not added.
func isDropIn(p string) bool {
	return slices.ContainsFunc(Units(), func(u Unit) bool { return systemd.DropInOf(p, u.Name()) == systemd.DropInName })
}

// conflicts returns the conflicts of spec with recipe.
func conflicts(spec Spec, recipe Recipe) (found finding.Errors) {
	var needed []contract.Target // for conflicts
	wanted := recipe.Files
	if hasFileAt(recipe.Files, contract.PathProxyEnv) { // from which the node writes a file that no spec has
		wanted = append(slices.Clip(wanted), File{Path: contract.PathNodeEnv})
	}
	for i, f := range spec.Files {
		if IsManagedFile(f) {
			continue
		}
		at := slices.IndexFunc(wanted, func(want File) bool { return standsInTheWay(f, want) })
		if at < 0 {
			continue
		}
		found = append(found, entryFinding(ListFiles, i, "already writes "+f.Path, "remove that file from the spec, "+
			"in the same write that sets label "+contract.LabelEnabled+" or in a later one"))
		needed = append(needed, targetsOf(wanted[at].Path)...)
	}
	inTheWay := func(t contract.Target) bool { return slices.Contains(needed, t) }
	left := make([]string, 0, len(recipe.Targets))
	for _, t := range slices.DeleteFunc(slices.Clone(recipe.Targets), inTheWay) {
		left = append(left, string(t))
	}
	if len(left) > 0 {
		for i := range found {
			found[i].Advice += fmt.Sprintf(", or set %s to %s", recipe.TargetsIn, strings.Join(left, ","))
		}
	}
	for _, list := range []struct {
		name     List
		commands []string
	}{{ListPre, spec.PreKubeadmCommands}, {ListPost, spec.PostKubeadmCommands}} {
		for i, command := range list.commands {
			if strings.HasSuffix(command, mark) && !isManagedCommand(command) {
				found = append(found, entryFinding(list.name, i,
					fmt.Sprintf("ends with the marker %q of managed commands but is not one", strings.TrimSpace(mark)),
					"remove the marker"))
			}
		}
	}
	return found
}

// entryFinding returns a finding about an entry of a list.
func entryFinding(list List, index int, message, advice string) finding.Finding {
	return finding.Finding{Place: finding.Field(string(list)).Index(index), Message: message, Advice: advice}
}

// standsInTheWay reports whether a file of the user conflicts with a managed file.
func standsInTheWay(f, want File) bool {
	at := clean(f.Path)
	shadowed := isDropIn(at) && isDropIn(want.Path) && path.Base(path.Dir(at)) == path.Base(path.Dir(want.Path))
	return at == want.Path || shadowed
}

// targetsOf returns the targets that need a managed file, or the file that the node writes.
func targetsOf(managed string) []contract.Target {
	if managed == contract.PathNodeEnv {
		managed = contract.PathProxyEnv
	}
	for _, f := range managedFiles() {
		if f.path == managed {
			return f.targets
		}
	}
	return nil
}

// entry is an entry of a list: a file or a command.
type entry interface{ File | string }

// isManaged reports whether any version of this product writes such an entry.
func isManaged[T entry](e T) bool {
	switch e := any(e).(type) {
	case File:
		return IsManagedFile(e)
	case string:
		return isManagedCommand(e)
	}
	return false
}

func countManaged[T entry](list []T) int {
	count := 0
	for _, e := range list {
		if isManaged(e) {
			count++
		}
	}
	return count
}

// editOf returns the edit that puts an entry into a list.
func editOf[T entry](list List, op Op, index int, e T) Edit {
	edit := Edit{List: list, Op: op, Index: index}
	switch e := any(e).(type) {
	case File:
		edit.File = e
	case string:
		edit.Command = e
	}
	return edit
}

// removeManaged appends the edits that remove every managed entry from a list.
func removeManaged[T entry](edits []Edit, name List, list []T) []Edit {
	own := 0
	for _, e := range list {
		if isManaged(e) {
			edits = append(edits, Edit{List: name, Op: OpRemove, Index: own})
		} else {
			own++
		}
	}
	return edits
}

// ensureFiles returns the edits for files, with room for more edits after them.
func ensureFiles(files, want []File, more int) []Edit {
	var (
		edits []Edit
		done  = map[string]bool{}
		index int // in the list after the edits so far
	)
	for _, f := range files {
		if !IsManagedFile(f) {
			index++
			continue
		}
		at := clean(f.Path)
		position := slices.IndexFunc(want, func(w File) bool { return w.Path == at })
		switch {
		case position < 0 || done[want[position].Path]:
			edits = append(edits, Edit{List: ListFiles, Op: OpRemove, Index: index})
			continue
		case f != want[position]:
			edits = append(edits, Edit{List: ListFiles, Op: OpReplace, Index: index, File: want[position]})
		}
		done[want[position].Path] = true
		index++
	}
	if left := len(want) - len(done); left > 0 {
		edits = slices.Grow(edits, left+more)
	}
	for _, w := range want {
		if !done[w.Path] {
			edits = append(edits, Edit{List: ListFiles, Op: OpAdd, Index: index, File: w})
			index++
		}
	}
	return edits
}

// ensureCommands puts first before and last after the commands of the user. Managed commands that are in their place
// are replaced there; only if some are out of place, all of them are removed and added again. It appends the edits.
func ensureCommands(edits []Edit, list List, commands, first, last []string) []Edit {
	head, tail := 0, len(commands)
	for head < len(commands) && isManagedCommand(commands[head]) {
		head++
	}
	for tail > head && isManagedCommand(commands[tail-1]) {
		tail--
	}
	if tail == head { // no command of the user: last and first cannot be distinguished
		head = min(head, len(first))
		tail = head
	}
	if countManaged(commands[head:tail]) > 0 {
		return rebuildCommands(edits, list, commands, first, last)
	}
	edits = replaceCommands(edits, list, commands[:head], first, 0)
	return replaceCommands(edits, list, commands[tail:], last, len(first)+tail-head)
}

// replaceCommands replaces the commands have, which begin at index start, by want. It appends the edits.
func replaceCommands(edits []Edit, list List, have, want []string, start int) []Edit {
	for i := range max(len(have), len(want)) {
		switch {
		case i >= len(want):
			edits = append(edits, Edit{List: list, Op: OpRemove, Index: start + len(want)})
		case i >= len(have):
			edits = append(edits, Edit{List: list, Op: OpAdd, Index: start + i, Command: want[i]})
		case have[i] != want[i]:
			edits = append(edits, Edit{List: list, Op: OpReplace, Index: start + i, Command: want[i]})
		}
	}
	return edits
}

// rebuildCommands removes all managed commands and puts first and last around those of the user. It appends the edits.
func rebuildCommands(edits []Edit, list List, commands, first, last []string) []Edit {
	own := len(commands) - countManaged(commands)
	edits = removeManaged(edits, list, commands)
	edits = replaceCommands(edits, list, nil, first, 0)
	return replaceCommands(edits, list, nil, last, len(first)+own)
}

// CheckSize returns a *ConflictError if a list of spec is longer after edits than a KubeadmConfigSpec allows. The API
// server rejects such a write, the user's part of it included.
func CheckSize(spec Spec, edits []Edit) error {
	for _, limit := range []struct {
		list      List
		had, size int
	}{
		{ListFiles, len(spec.Files), maxFiles},
		{ListPre, len(spec.PreKubeadmCommands), maxCommands},
		{ListPost, len(spec.PostKubeadmCommands), maxCommands},
	} {
		if has := sizeAfter(limit.had, limit.list, edits); has > limit.size {
			return &ConflictError{Conflicts: finding.Errors{{
				Place:   finding.Field(string(limit.list)),
				Message: fmt.Sprintf("would have %d entries, but at most %d are allowed", has, limit.size),
				Advice:  "shorten it",
			}}}
		}
	}
	return nil
}

// sizeAfter returns how many entries a list that had some has after edits.
func sizeAfter(had int, list List, edits []Edit) int {
	for i := range edits {
		switch edit := &edits[i]; {
		case edit.List != list:
		case edit.Op == OpAdd:
			had++
		case edit.Op == OpRemove:
			had--
		}
	}
	return had
}

// hasFileAt reports whether a file is at a path.
func hasFileAt(files []File, name string) bool {
	return slices.ContainsFunc(files, func(f File) bool { return clean(f.Path) == name })
}
