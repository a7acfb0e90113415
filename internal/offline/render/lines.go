package render

import (
	"errors"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
)

// lines are texts for people in the order in which they were added. One that is true for many objects is one line.
type lines struct {
	all   []*line
	known map[string]*line // by the kind of the object and the text
}

// line is a text about objects of one kind, or about none.
type line struct {
	text    string
	objects []*manifest.Object
}

// add adds a text about an object, or about none if that is nil. It reports whether it was not there.
func (l *lines) add(o *manifest.Object, text string) bool {
	key := text
	if o != nil {
		key = o.Kind() + "\n" + text
	}
	known := l.known[key]
	switch {
	case known == nil:
		if l.known == nil {
			l.known = map[string]*line{}
		}
		known = &line{text: text}
		l.known[key], l.all = known, append(l.all, known)
	case o == nil || slices.Contains(known.objects, o):
		return false
	}
	if o != nil {
		known.objects = append(known.objects, o)
	}
	return true
}

// texts returns each text once, after the place of its first object and before the names of the others.
func (l *lines) texts() []string {
	all := make([]string, 0, len(l.all))
	for _, known := range l.all {
		text := known.text
		if len(known.objects) > 0 {
			text = clusters.Place(known.objects[0]) + ": " + text + clusters.Also(known.objects[1:])
		}
		all = append(all, text)
	}
	return all
}

// err returns the texts as an error, nil if there are none.
func (l *lines) err() error {
	if len(l.all) == 0 {
		return nil
	}
	return errors.New(strings.Join(l.texts(), "\n"))
}
