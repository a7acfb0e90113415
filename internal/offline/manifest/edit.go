package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Op is the kind of an Edit.
type Op int

// The operations on lists take an index, those on mappings a key, the last element of the path.
const (
	// Insert puts Value into the list at Path, before the item at Index or, if Index is the length, at the end. A list
	// that is absent or null, and absent mappings on the path, are created.
	Insert Op = iota + 1
	// Remove removes the item at Index from the list at Path. A list that becomes empty is removed, see Edit.Keep.
	Remove
	// Replace replaces the item at Index of the list at Path by Value.
	Replace
	// SetScalar sets the key at Path to Value, a scalar. The key and absent mappings on the path are created.
	SetScalar
	// RemoveKey removes the key at Path, see Edit.Keep. It changes nothing if there is no such key.
	RemoveKey
)

// Field is one key of a Map with its value.
type Field struct {
	Name  string
	Value any
}

// Map is a mapping whose keys are written in the order given.
type Map []Field

// Edit is one change of an object.
type Edit struct {
	Op Op
	// Path holds the keys from the root of the object to a list (Insert, Remove, Replace) or to a key (SetScalar,
	// RemoveKey). It passes only through mappings.
	Path []string
	// Index is the position in the list, counted from 0. SetScalar and RemoveKey do not use it.
	Index int
	// Value is a string, bool, int or int64, a Map, or a []any of these. A string of several lines is written as a
	// literal block scalar where that is safe; strings are quoted only where they would not be read as the same string
	// otherwise.
	Value any
	// Keep is the number of leading elements of Path that stay if Remove or RemoveKey empties them; mappings below are
	// removed. It is less than the length of Path.
	Keep int
}

// field returns the path for messages, in the notation of the Kubernetes API.
func (e Edit) field() string {
	path := strings.Join(e.Path, ".")
	if e.Op == SetScalar || e.Op == RemoveKey {
		return path
	}
	return path + "[" + strconv.Itoa(e.Index) + "]"
}

// check returns the value of the edit with the types that decoding it would give, and an error if no object could take
// the edit.
func (e Edit) check() (value any, err error) {
	if len(e.Path) == 0 {
		return nil, errors.New("the path is empty")
	}
	if !utf8.ValidString(strings.Join(e.Path, "")) {
		return nil, errors.New("a key is invalid UTF-8")
	}
	if e.Keep < 0 || e.Keep >= len(e.Path) {
		return nil, fmt.Errorf("%d elements to keep in a path of %d", e.Keep, len(e.Path))
	}
	switch e.Op {
	case Remove, RemoveKey:
		return value, nil
	case Insert, Replace, SetScalar:
	default:
		return nil, fmt.Errorf("unknown operation %d", e.Op)
	}
	value, err = plain(e.Value)
	switch e.Value.(type) {
	case Map, []any:
		if e.Op == SetScalar {
			return nil, fmt.Errorf("%T is not a scalar", e.Value)
		}
	}
	return value, err
}

// plain returns a value with the types that decoding it would give. It is an error if a manifest cannot hold the value.
func plain(value any) (any, error) {
	switch v := value.(type) {
	case string:
		if !utf8.ValidString(v) {
			return nil, errors.New("a new value is invalid UTF-8")
		}
	case bool, int64:
	case int:
		return int64(v), nil
	case []any:
		items := make([]any, len(v))
		for i := range v {
			var err error
			if items[i], err = plain(v[i]); err != nil {
				return nil, err
			}
		}
		return items, nil
	case Map:
		fields := make(map[string]any, len(v))
		for _, f := range v {
			if _, twice := fields[f.Name]; twice {
				return nil, fmt.Errorf("key %q occurs twice in a new value", f.Name)
			}
			value, err := plain(f.Value)
			if _, nameErr := plain(f.Name); err != nil || nameErr != nil {
				return nil, errors.Join(err, nameErr)
			}
			fields[f.Name] = value
		}
		return fields, nil
	default:
		return nil, fmt.Errorf("values of type %T are not supported", value)
	}
	return value, nil
}

// applyTo makes the edit in a decoded object, with which every edited text is compared.
func (e Edit) applyTo(object map[string]any) error {
	value, err := e.check()
	if err != nil {
		return err
	}
	last := len(e.Path) - 1
	parents := []map[string]any{object}
	for i, key := range e.Path[:last] {
		parent := parents[i]
		child, ok := parent[key].(map[string]any)
		if !ok && parent[key] != nil {
			return fmt.Errorf("%s is %s, not a mapping", strings.Join(e.Path[:i+1], "."), kindOf(parent[key]))
		}
		if !ok {
			switch e.Op {
			case RemoveKey:
				return nil
			case Remove, Replace:
				return e.outOfRange(0)
			case Insert, SetScalar:
				child = map[string]any{}
				parent[key] = child
			}
		}
		parents = append(parents, child)
	}
	parent, key := parents[last], e.Path[last]
	switch e.Op {
	case SetScalar:
		switch parent[key].(type) {
		case map[string]any, []any:
			return fmt.Errorf("the value is %s, not a scalar", kindOf(parent[key]))
		}
		parent[key] = value
		return nil
	case RemoveKey:
		if _, ok := parent[key]; !ok {
			return nil
		}
	case Insert, Remove, Replace:
		list, err := e.applyToList(parent[key], value)
		if err != nil {
			return err
		}
		if len(list) > 0 {
			parent[key] = list
			return nil
		}
	}
	delete(parent, key)
	for i := last; i > e.Keep && len(parents[i]) == 0; i-- {
		delete(parents[i-1], e.Path[i-1])
	}
	return nil
}

// applyToList returns a copy of the list with the edit made.
func (e Edit) applyToList(old, value any) ([]any, error) {
	list, ok := old.([]any)
	if !ok && old != nil {
		return nil, fmt.Errorf("the value is %s, not a list", kindOf(old))
	}
	limit := len(list)
	if e.Op == Insert {
		limit++
	}
	if e.Index < 0 || e.Index >= limit {
		return nil, e.outOfRange(len(list))
	}
	list = slices.Clone(list)
	switch e.Op {
	case Insert:
		list = slices.Insert(list, e.Index, value)
	case Remove:
		list = slices.Delete(list, e.Index, e.Index+1)
	default:
		list[e.Index] = value
	}
	return list, nil
}

// outOfRange is the error for an index that the list does not have.
func (e Edit) outOfRange(length int) error {
	return fmt.Errorf("the index is out of range, the list has %d items", length)
}

// kindOf names the kind of a decoded value without quoting it.
func kindOf(value any) string {
	switch value.(type) {
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case nil:
		return "null"
	default:
		return "a number"
	}
}
