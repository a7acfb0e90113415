package extension

import (
	"bytes"
	"maps"
	"path"
	"slices"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/jsonread"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// template is a bootstrap template of a request, as far as its lists are concerned.
type template struct {
	// supported reports whether the template is of a kind that can be patched.
	supported bool
	// at says where the bootstrap spec is. A hook leaves none empty, so Alone stays 0.
	at patch.Location
	// files, pre and post are the lists in JSON, nil where there is none.
	files, pre, post []byte
	// annotations of the objects that are made from the template, in JSON, and how much of the way to them is there.
	annotations []byte
	metadata    bool
	// sockets and kubeletArgs are what of the node registrations may tell Windows nodes.
	sockets, kubeletArgs []string
	// format is the format of the bootstrap data.
	format string
	// lists are the lists decoded, once generator.view has done so.
	lists patch.Spec
}

// Where bootstrap specs are.
func controlPlaneParents() []string {
	return []string{"/spec", "/spec/template", "/spec/template/spec", "/spec/template/spec/kubeadmConfigSpec"}
}

func poolParents() []string { return []string{"/spec", "/spec/template", "/spec/template/spec"} }

// decodeTemplate reads an object of the kind that parents belong to.
func decodeTemplate(object []byte, kind, group string, parents []string) (template, error) {
	t := template{at: patch.Location{Parents: parents, Missing: len(parents)}}
	var gotKind, gotVersion []byte
	r := jsonread.New(object)
	for name := range r.Members {
		switch string(name) {
		case "kind":
			gotKind, _ = r.Bytes()
		case "apiVersion":
			gotVersion, _ = r.Bytes()
		case "spec":
			t.descend(r, 0)
		}
	}
	gotGroup, _, _ := bytes.Cut(gotVersion, []byte("/"))
	t.supported = string(gotKind) == kind && string(gotGroup) == group
	return t, r.End()
}

// descend reads the value of a parent. level counts the parents before it.
func (t *template) descend(r *jsonread.Reader, level int) {
	parents := t.at.Parents
	// A name that comes twice counts as it stands last.
	*t = template{at: patch.Location{Parents: parents, Missing: len(parents) - level}, metadata: t.metadata, annotations: t.annotations}
	if r.Kind() != '{' {
		r.Skip()
		return
	}
	t.at.Missing--
	if t.at.Missing == 0 {
		t.spec(r)
		return
	}
	next := path.Base(parents[level+1])
	for name := range r.Members {
		switch {
		case string(name) == next:
			t.descend(r, level+1)
		case level == 1 && string(name) == "metadata":
			t.templateMetadata(r)
		}
	}
}

// templateMetadata reads spec.template.metadata.
func (t *template) templateMetadata(r *jsonread.Reader) {
	t.metadata, t.annotations = r.Kind() == '{', nil
	for name := range r.Members {
		if string(name) == "annotations" {
			if t.annotations = nil; r.Kind() == '{' {
				t.annotations = r.Raw()
			}
		}
	}
}

// spec reads the bootstrap spec.
func (t *template) spec(r *jsonread.Reader) {
	var registrations [2]registration
	for name := range r.Members {
		switch string(name) {
		case string(patch.ListFiles):
			t.files = array(r)
		case string(patch.ListPre):
			t.pre = array(r)
		case string(patch.ListPost):
			t.post = array(r)
		case "format":
			t.format, _ = r.Text()
		case "initConfiguration":
			registrations[0] = decodeConfiguration(r)
		case "joinConfiguration":
			registrations[1] = decodeConfiguration(r)
		}
	}
	for i := range registrations {
		if registrations[i].socket != "" {
			t.sockets = append(t.sockets, registrations[i].socket)
		}
		t.kubeletArgs = append(t.kubeletArgs, registrations[i].args...)
	}
}

// array returns a value in JSON, nil if it is not an array.
func array(r *jsonread.Reader) []byte {
	if r.Kind() != '[' {
		r.Skip()
		return nil
	}
	return r.Raw()
}

// registration is what of a node registration tells Windows nodes.
type registration struct {
	socket string
	args   []string
}

func decodeConfiguration(r *jsonread.Reader) registration {
	var n registration
	for name := range r.Members {
		if string(name) == "nodeRegistration" {
			n = decodeRegistration(r)
		}
	}
	return n
}

func decodeRegistration(r *jsonread.Reader) registration {
	var n registration
	for name := range r.Members {
		switch string(name) {
		case "criSocket":
			if n.socket = ""; r.Kind() == '"' {
				if raw := r.Raw(); suspicious(raw, "npipe") {
					n.socket, _ = jsonread.New(raw).Text()
				}
			}
		case "kubeletExtraArgs":
			n.args = nil
			if raw := r.Raw(); suspicious(raw, "windows") {
				n.args = decodeArgs(jsonread.New(raw))
			}
		}
	}
	return n
}

// suspicious reports whether a text may hold word, which has only lower-case letters. It saves decoding what tells nothing.
// Lower-case letters may be written as escape sequences from \u0061 to \u007a.
func suspicious(raw []byte, word string) bool {
	return bytes.Contains(raw, []byte(word)) || bytes.Contains(raw, []byte(`\u006`)) || bytes.Contains(raw, []byte(`\u007`))
}

// decodeArgs reads arguments as a list of names and values, as v1beta2 has them, or as an object, as v1beta1 has them.
func decodeArgs(r *jsonread.Reader) []string {
	var args []string
	if r.Kind() == '{' {
		values := map[string]string{}
		for name := range r.Members {
			key := string(name)
			values[key], _ = r.Text()
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			args = append(args, name+"="+values[name])
		}
		return args
	}
	for range r.Elements {
		var name, value string
		for member := range r.Members {
			switch string(member) {
			case "name":
				name, _ = r.Text()
			case "value":
				value, _ = r.Text()
			}
		}
		args = append(args, name+"="+value)
	}
	return args
}

// view returns the lists as package patch sees them.
func (t *template) view() patch.Spec {
	return patch.Spec{
		Files: decodeFiles(t.files), PreKubeadmCommands: decodeTexts(t.pre), PostKubeadmCommands: decodeTexts(t.post),
		Format: t.format, CRISockets: t.sockets, KubeletArgs: t.kubeletArgs,
	}
}

func decodeTexts(raw []byte) []string {
	if raw == nil {
		return nil
	}
	var texts []string
	r := jsonread.New(raw)
	for range r.Elements {
		text, _ := r.Text()
		texts = append(texts, text)
	}
	return texts
}

func decodeFiles(raw []byte) []patch.File {
	if raw == nil {
		return nil
	}
	var files []patch.File
	r := jsonread.New(raw)
	for range r.Elements {
		files = append(files, decodeFile(r))
	}
	return files
}

// decodeFile reads an entry of files. A content that no decision looks at is left out.
func decodeFile(r *jsonread.Reader) patch.File {
	var (
		f       patch.File
		content []byte
	)
	for name := range r.Members {
		switch string(name) {
		case "path":
			f.Path, _ = r.Text()
		case "owner":
			f.Owner, _ = r.Text()
		case "permissions":
			f.Permissions, _ = r.Text()
		case "content":
			content = r.Raw()
		case "contentFrom":
			f.ContentFrom = decodeContentFrom(r)
		default:
			f.Other = true
		}
	}
	if content != nil && patch.IsManagedPath(f.Path) {
		f.Content, _ = jsonread.New(content).Text()
	}
	return f
}

func decodeContentFrom(r *jsonread.Reader) patch.SecretKey {
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
