package manifest

import (
	"reflect"
	"slices"
)

// leaf is the result of a sequence of edits at one path.
type leaf struct {
	path  []string
	list  bool   // edited as a list
	items []slot // of a list
	value any    // of a scalar
}

// slot is an item of an edited list.
type slot struct {
	at    int // index in the old list, -1 for an item that is inserted
	fresh bool
	value any // if fresh: of an inserted item, or of the one that replaces the old one
}

// values returns the values of fresh slots.
func values(items []slot) []any {
	result := make([]any, len(items))
	for i, item := range items {
		result[i] = item.value
	}
	return result
}

// compile returns the result of valid edits of an object, path by path in the order of the first edit of each. It
// reports false if one path leads through another, so that only applying one edit after the other shows the result.
func compile(edits []Edit, object map[string]any) ([]*leaf, bool) {
	var leaves []*leaf
	for _, e := range edits {
		var l *leaf
		for _, other := range leaves {
			shared := min(len(other.path), len(e.Path))
			switch {
			case !slices.Equal(other.path[:shared], e.Path[:shared]):
			case len(other.path) == len(e.Path):
				l = other
			default:
				return nil, false
			}
		}
		isList := e.Op == Insert || e.Op == Remove || e.Op == Replace
		if l == nil {
			l = &leaf{path: e.Path, list: isList}
			value, _ := lookupValue(object, e.Path)
			old, _ := value.([]any)
			for i := range old {
				l.items = append(l.items, slot{at: i})
			}
			leaves = append(leaves, l)
		}
		if l.list != isList {
			return nil, false
		}
		switch e.Op {
		case Insert:
			l.items = slices.Insert(l.items, e.Index, slot{at: -1, fresh: true, value: e.Value})
		case Remove:
			l.items = slices.Delete(l.items, e.Index, e.Index+1)
		case Replace:
			l.items[e.Index] = slot{at: l.items[e.Index].at, fresh: true, value: e.Value}
		case SetScalar, RemoveKey:
			l.value = e.Value
		}
	}
	return leaves, true
}

// lookupValue returns the value at a path of a decoded object.
func lookupValue(object map[string]any, path []string) (value any, ok bool) {
	value, ok = object, true
	for _, key := range path {
		fields, _ := value.(map[string]any)
		if value, ok = fields[key]; !ok {
			return nil, false
		}
	}
	return value, ok
}

// unchanged reports whether a path has the same value in both objects, or none.
func unchanged(before, after map[string]any, path []string) bool {
	old, was := lookupValue(before, path)
	value, is := lookupValue(after, path)
	return was == is && reflect.DeepEqual(old, value)
}

// put sets a path of a new value.
func put(m Map, path []string, value any) Map {
	at := slices.IndexFunc(m, func(f Field) bool { return f.Name == path[0] })
	if at < 0 {
		at = len(m)
		m = append(m, Field{Name: path[0]})
	}
	if len(path) == 1 {
		m[at].Value = value
	} else {
		below, _ := m[at].Value.(Map)
		m[at].Value = put(below, path[1:], value)
	}
	return m
}
