// Package specread reads what decisions need of a bootstrap object in JSON, without decoding the rest of it.
package specread

import (
	"bytes"
	"path"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/jsonread"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Object is a bootstrap object, or a template of one.
type Object struct {
	// At is where the bootstrap spec is. The caller sets its Parents.
	At patch.Location
	// Whole is for objects that are compared: Text is kept, and Spec has the content of all files, not only of those
	// whose path may be managed. The caller sets it.
	Whole bool
	// Spec is the part of the bootstrap spec that decisions read, as patch.SpecOfMap has it. What it says about nodes
	// that run Windows is missing if they do not.
	Spec patch.Spec
	// Text is the bootstrap spec in JSON, nil if there is none or without Whole.
	Text []byte
	// Readable reports whether the bootstrap spec, its parents and its lists have the types of the API, as far as they
	// exist.
	Readable bool
}

// Read reads the next value, which is that of the first parent. With Whole, o shares the Spec of like if that has the
// same bootstrap spec; like may be nil.
func (o *Object) Read(r *jsonread.Reader, like *Object) { o.descend(r, 0, like) }

// descend reads the value of a parent. level counts the parents before it.
func (o *Object) descend(r *jsonread.Reader, level int, like *Object) {
	parents := o.At.Parents
	// Of a duplicate name the last one counts.
	o.Spec, o.Text, o.At.Missing, o.At.Alone = patch.Spec{}, nil, len(parents)-level, 0
	kind := r.Kind()
	if o.Readable = kind == '{' || kind == 'n'; kind != '{' {
		r.Skip()
		return
	}
	if o.At.Missing--; o.At.Missing == 0 {
		o.spec(r, like)
		return
	}
	next, alone := path.Base(parents[level+1]), true
	for name := range r.Members {
		if string(name) == next {
			o.descend(r, level+1, like)
			continue
		}
		alone = false
	}
	if o.At.Missing == 0 && alone && o.At.Alone == len(parents)-1-level {
		o.At.Alone++
	}
}

// spec reads the bootstrap spec.
func (o *Object) spec(r *jsonread.Reader, like *Object) {
	if o.Whole {
		o.Text = r.Raw()
		if like != nil && like.Text != nil && bytes.Equal(o.Text, like.Text) {
			o.Spec, o.Readable, o.At.Alone = like.Spec, like.Readable, min(like.At.Alone, 1)
			return
		}
		r = jsonread.New(o.Text)
	}
	var files, pre, post list
	others := false
	registrations := map[string]any{}
	for name := range r.Members {
		switch string(name) {
		case string(patch.ListFiles):
			files = listOf(r)
			o.Spec.Files = o.files(r)
			continue
		case string(patch.ListPre):
			pre = listOf(r)
			o.Spec.PreKubeadmCommands = texts(r)
			continue
		case string(patch.ListPost):
			post = listOf(r)
			o.Spec.PostKubeadmCommands = texts(r)
			continue
		case "format":
			o.Spec.Format, _ = r.Text()
		case "initConfiguration", "joinConfiguration":
			key := string(name)
			delete(registrations, key)
			if raw := r.Raw(); maybeWindows(raw) {
				registrations[key] = jsonread.New(raw).Value()
			}
		}
		others = true
	}
	if len(registrations) > 0 {
		view := patch.SpecOfMap(registrations)
		o.Spec.CRISockets, o.Spec.KubeletArgs = view.CRISockets, view.KubeletArgs
	}
	o.Readable = files != wrong && pre != wrong && post != wrong
	if !others && files.isAlone(len(o.Spec.Files)) && pre.isAlone(len(o.Spec.PreKubeadmCommands)) &&
		post.isAlone(len(o.Spec.PostKubeadmCommands)) {
		o.At.Alone = 1
	}
}

// list is what a list of a bootstrap spec is.
type list int

const (
	absent list = iota
	null
	array
	wrong
)

func listOf(r *jsonread.Reader) list {
	switch r.Kind() {
	case '[':
		return array
	case 'n':
		return null
	default:
		return wrong
	}
}

// isAlone reports whether a list leaves nothing behind without its entries. An empty list that is not ours stays.
func (l list) isAlone(entries int) bool { return l == absent || l == array && entries > 0 }

// maybeWindows reports whether a configuration may identify Windows nodes, which is its only use. Lower-case letters
// may be written as escape sequences from \u0061 to \u007a.
func maybeWindows(raw []byte) bool {
	return bytes.Contains(raw, []byte("npipe")) || bytes.Contains(raw, []byte("windows")) ||
		bytes.Contains(raw, []byte(`\u006`)) || bytes.Contains(raw, []byte(`\u007`))
}

func texts(r *jsonread.Reader) []string {
	var texts []string
	for range r.Elements {
		text, _ := r.Text()
		texts = append(texts, text)
	}
	return texts
}

func (o *Object) files(r *jsonread.Reader) []patch.File {
	var files []patch.File
	for range r.Elements {
		files = append(files, o.file(r))
	}
	return files
}

// file reads an entry of files.
func (o *Object) file(r *jsonread.Reader) patch.File {
	var (
		f       patch.File
		content []byte
	)
	for name := range r.Members {
		switch string(name) {
		case "path":
			f.Path, _ = r.Text()
		case "owner":
			f.Owner = word(r)
		case "permissions":
			f.Permissions = word(r)
		case "content":
			content = r.Raw()
		case "contentFrom":
			f.ContentFrom = contentFrom(r)
		default:
			f.Other = true
		}
	}
	if content != nil && (o.Whole || patch.ReadsContent(f.Path)) {
		f.Content, _ = jsonread.New(content).Text()
	}
	return f
}

// word reads a string that most files have.
func word(r *jsonread.Reader) string {
	text, _ := r.Bytes()
	switch string(text) {
	case "root:root":
		return "root:root"
	case "0600":
		return "0600"
	case "0640":
		return "0640"
	case "0644":
		return "0644"
	case "0755":
		return "0755"
	}
	return string(text)
}

func contentFrom(r *jsonread.Reader) patch.SecretKey {
	var key patch.SecretKey
	for name := range r.Members {
		if string(name) != "secret" {
			continue
		}
		key = patch.SecretKey{}
		for name := range r.Members {
			switch string(name) {
			case "name":
				key.Name, _ = r.Text()
			case "key":
				key.Key, _ = r.Text()
			}
		}
	}
	return key
}
