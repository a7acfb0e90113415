package request

import (
	"bytes"
	"fmt"
	"path"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/jsonread"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// maxValues is how many JSON values a decoded template may have. Each may take some hundred bytes. The API server
// accepts 200 files and 2,000 commands in a bootstrap spec.
const maxValues = 50_000

// checkSize returns an error for a template with more values.
func checkSize(text []byte) error {
	if jsonread.Count(text) > maxValues {
		return fmt.Errorf("it has more than %d values", maxValues)
	}
	return nil
}

// Template is a bootstrap template of a request.
type Template struct {
	// Supported reports whether the template is of a kind that can be patched.
	Supported bool
	// At is where the bootstrap spec is. A hook leaves no spec empty, so Alone stays 0.
	At patch.Location
	// Spec is the part of the bootstrap spec that decisions read.
	Spec patch.Spec
	// Metadata is that of the objects that are created from the template, in JSON; nil if there is none.
	Metadata []byte
}

// Template reads the template of the control plane or of a pool. It decodes only what decisions read.
func (i *Item) Template() (Template, error) {
	kind, group := plan.KindTemplate, bootstrapv1.GroupVersion.Group
	parents := []string{"/spec", "/spec/template", "/spec/template/spec"} // where the bootstrap spec is
	if i.IsControlPlane() {
		kind, group = "KubeadmControlPlaneTemplate", controlplanev1.GroupVersion.Group
		parents = append(parents, "/spec/template/spec/kubeadmConfigSpec")
	}
	t := Template{At: patch.Location{Parents: parents, Missing: len(parents)}}
	if err := checkSize(i.Object); err != nil {
		return t, i.failed(err)
	}
	var gotKind, gotVersion []byte
	r := jsonread.New(i.Object)
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
	t.Supported = string(gotKind) == kind && string(gotGroup) == group
	if err := r.End(); err != nil {
		return t, i.failed(err)
	}
	return t, nil
}

// descend reads the value of a parent. level counts the parents before it.
func (t *Template) descend(r *jsonread.Reader, level int) {
	parents := t.At.Parents
	// Of a duplicate name the last one counts.
	t.Spec, t.At.Missing = patch.Spec{}, len(parents)-level
	if r.Kind() != '{' {
		r.Skip()
		return
	}
	if t.At.Missing--; t.At.Missing == 0 {
		t.Spec = decodeSpec(r)
		return
	}
	next := path.Base(parents[level+1])
	for name := range r.Members {
		switch {
		case string(name) == next:
			t.descend(r, level+1)
		case level == 1 && string(name) == "metadata":
			if t.Metadata = nil; r.Kind() == '{' {
				t.Metadata = r.Raw()
			}
		}
	}
}

// decodeSpec reads the bootstrap spec, as patch.SpecOfMap does.
func decodeSpec(r *jsonread.Reader) patch.Spec {
	var spec patch.Spec
	registrations := map[string]any{}
	for name := range r.Members {
		switch string(name) {
		case string(patch.ListFiles):
			spec.Files = decodeFiles(r)
		case string(patch.ListPre):
			spec.PreKubeadmCommands = decodeTexts(r)
		case string(patch.ListPost):
			spec.PostKubeadmCommands = decodeTexts(r)
		case "format":
			spec.Format, _ = r.Text()
		case "initConfiguration", "joinConfiguration":
			key := string(name)
			delete(registrations, key)
			if raw := r.Raw(); maybeWindows(raw) {
				registrations[key] = jsonread.New(raw).Value()
			}
		}
	}
	if len(registrations) > 0 {
		view := patch.SpecOfMap(registrations)
		spec.CRISockets, spec.KubeletArgs = view.CRISockets, view.KubeletArgs
	}
	return spec
}

// maybeWindows reports whether a configuration may identify Windows nodes, which is its only use. Lower-case letters
// may be written as escape sequences from \u0061 to \u007a.
func maybeWindows(raw []byte) bool {
	return bytes.Contains(raw, []byte("npipe")) || bytes.Contains(raw, []byte("windows")) ||
		bytes.Contains(raw, []byte(`\u006`)) || bytes.Contains(raw, []byte(`\u007`))
}

func decodeTexts(r *jsonread.Reader) []string {
	var texts []string
	for range r.Elements {
		text, _ := r.Text()
		texts = append(texts, text)
	}
	return texts
}

func decodeFiles(r *jsonread.Reader) []patch.File {
	var files []patch.File
	for range r.Elements {
		files = append(files, decodeFile(r))
	}
	return files
}

// decodeFile reads an entry of files. Content that no decision reads is omitted.
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
