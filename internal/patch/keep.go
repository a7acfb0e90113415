package patch

import (
	"slices"
)

// Keep returns the edits that give requested the managed entries of stored, and no others. It is for writes that do not
// contain them, such as a manifest that is applied again, or that must not change them.
//
// If a list has as many entries of the user as before, the managed ones return to their positions, so that a write that
// changes nothing else changes nothing at all. With more or fewer entries the managed ones are put where Ensure puts
// them. A file of the user at the path of a managed one replaces it.
func Keep(stored, requested Spec) []Edit {
	files := slices.DeleteFunc(slices.Clone(stored.Files), func(f File) bool {
		return IsManagedFile(f) && slices.ContainsFunc(requested.Files, func(own File) bool {
			return !IsManagedFile(own) && clean(own.Path) == clean(f.Path)
		})
	})
	edits := keep(ListFiles, files, requested.Files, func() []Edit {
		return ensureFiles(requested.Files, slices.DeleteFunc(files, func(f File) bool { return !isManaged(f) }), 0)
	})
	for _, list := range []struct {
		name              List
		stored, requested []string
	}{
		{ListPre, stored.PreKubeadmCommands, requested.PreKubeadmCommands},
		{ListPost, stored.PostKubeadmCommands, requested.PostKubeadmCommands},
	} {
		edits = append(edits, keep(list.name, list.stored, list.requested, func() []Edit {
			first, last := split(list.stored)
			return ensureCommands(nil, list.name, list.requested, first, last)
		})...)
	}
	return edits
}

// keep puts the managed entries of stored at their positions in requested if that has as many entries of the user; else
// it calls otherwise.
func keep[T entry](name List, stored, requested []T, otherwise func() []Edit) []Edit {
	if len(stored)-countManaged(stored) != len(requested)-countManaged(requested) {
		return otherwise()
	}
	if slices.EqualFunc(stored, requested,
		func(s, a T) bool { return isManaged(s) == isManaged(a) && (!isManaged(s) || s == a) }) {
		return nil
	}
	var edits []Edit
	for i, a := range slices.Backward(requested) {
		if isManaged(a) {
			edits = append(edits, Edit{List: name, Op: OpRemove, Index: i})
		}
	}
	for i, e := range stored {
		if isManaged(e) {
			edits = append(edits, editOf(name, OpAdd, i, e))
		}
	}
	return edits
}

// split separates the managed commands before those of the user from the one after them.
func split(commands []string) (first, last []string) {
	for _, command := range commands {
		switch {
		case !isManagedCommand(command):
		case command == commandUnset, command == commandUnsetCredentials:
			last = append(last, command)
		default:
			first = append(first, command)
		}
	}
	return first, last
}

// Apply returns spec after edits. It does not modify spec, and shares the lists that no edit changes.
func Apply(spec Spec, edits []Edit) Spec {
	spec.Files = applyTo(ListFiles, spec.Files, edits, func(e *Edit) File { return e.File })
	command := func(e *Edit) string { return e.Command }
	spec.PreKubeadmCommands = applyTo(ListPre, spec.PreKubeadmCommands, edits, command)
	spec.PostKubeadmCommands = applyTo(ListPost, spec.PostKubeadmCommands, edits, command)
	return spec
}

// applyTo returns a list after its edits.
func applyTo[T any](name List, list []T, edits []Edit, entry func(*Edit) T) []T {
	copied := false
	for i := range edits {
		edit := &edits[i]
		if edit.List != name {
			continue
		}
		if !copied {
			list, copied = append(make([]T, 0, len(list)+len(edits)), list...), true
		}
		switch edit.Op {
		case OpAdd:
			list = slices.Insert(list, edit.Index, entry(edit))
		case OpRemove:
			list = slices.Delete(list, edit.Index, edit.Index+1)
		case OpReplace:
			list[edit.Index] = entry(edit)
		}
	}
	return slices.Clip(list)
}

// Own returns object, a bootstrap spec that was decoded from JSON, without managed entries, as a copy that shares what
// it does not change. Two writes differ in more than managed entries if their results of Own differ.
func Own(object map[string]any) map[string]any {
	own := make(map[string]any, len(object))
	for key, value := range object {
		switch List(key) {
		case ListFiles:
			value = withoutManaged(listOf(value), func(item any) bool { return IsManagedFile(fileOfMap(mapOf(item))) })
		case ListPre, ListPost:
			value = withoutManaged(listOf(value), func(item any) bool { return isManagedCommand(stringOf(item)) })
		}
		if list, isList := value.([]any); isList && len(list) == 0 {
			continue // an empty list counts as none
		}
		own[key] = value
	}
	return own
}

func withoutManaged(list []any, managed func(any) bool) []any {
	return slices.DeleteFunc(slices.Clone(list), managed)
}
