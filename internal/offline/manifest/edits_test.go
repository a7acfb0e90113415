package manifest

import (
	"bytes"
	"slices"
	"testing"
)

// specPath returns the path of the kubeadm bootstrap spec in an object, nil if it has none.
func specPath(o *Object) []string {
	switch o.Kind() {
	case "KubeadmControlPlane":
		return []string{"spec", "kubeadmConfigSpec"}
	case "KubeadmControlPlaneTemplate":
		return []string{"spec", "template", "spec", "kubeadmConfigSpec"}
	case "KubeadmConfigTemplate":
		return []string{"spec", "template", "spec"}
	case "KubeadmConfig":
		return []string{"spec"}
	}
	return nil
}

// proxyEdits are the edits that patching a bootstrap spec comes down to: two files and three commands in front, one
// command at the end and an annotation.
func proxyEdits(o *Object) []Edit {
	spec := specPath(o)
	files := append(slices.Clone(spec), "files")
	commands := append(slices.Clone(spec), "preKubeadmCommands")
	count := len(at(o.Value(), commands))
	keep := len(spec)
	return []Edit{
		{Op: Insert, Path: files, Keep: keep, Index: 0, Value: Map{
			{"path", "/etc/capi-proxy-patcher/proxy.env"},
			{"owner", "root:root"},
			{"permissions", "0600"},
			{"contentFrom", Map{{"secret", Map{{"name", "c1-proxy-files"}, {"key", "proxy.env"}}}}},
		}},
		{Op: Insert, Path: files, Keep: keep, Index: 1, Value: Map{
			{"path", "/etc/systemd/system/containerd.service.d/http-proxy.conf"},
			{"owner", "root:root"},
			{"permissions", "0644"},
			{"content", "[Service]\nEnvironmentFile=/etc/capi-proxy-patcher/proxy.env\n"},
		}},
		{Op: Insert, Path: commands, Keep: keep, Index: 0, Value: "set -a; . /etc/capi-proxy-patcher/proxy.env; set +a # capi-proxy-patcher"},
		{Op: Insert, Path: commands, Keep: keep, Index: 1, Value: "systemctl daemon-reload"},
		{Op: Insert, Path: commands, Keep: keep, Index: 2, Value: "if systemctl is-active --quiet containerd; then\n  systemctl restart containerd\nfi\n"},
		{Op: Insert, Path: commands, Keep: keep, Index: count + 3, Value: "unset HTTP_PROXY http_proxy"},
		{Op: SetScalar, Path: []string{"metadata", "annotations", "capi-proxy-patcher.io/output-version"}, Keep: 1, Value: "1"},
	}
}

// inverse returns the edits that undo insertions and new keys.
func inverse(edits []Edit) []Edit {
	undo := slices.Clone(edits)
	slices.Reverse(undo)
	for i := range undo {
		if undo[i].Op == SetScalar {
			undo[i].Op = RemoveKey
		} else {
			undo[i].Op = Remove
		}
	}
	return undo
}

// at returns the list at a path of a decoded object.
func at(value any, path []string) []any {
	for _, key := range path {
		fields, _ := value.(map[string]any)
		value = fields[key]
	}
	list, _ := value.([]any)
	return list
}

// roundTrip applies proxyEdits to every bootstrap spec of a stream and takes them back, and returns the patched stream.
// Only lists that are written as [] or null may be missing afterwards.
func roundTrip(t *testing.T, name string, data []byte) []byte {
	t.Helper()
	s, err := Parse(name, data)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(s.Bytes(), data) {
		t.Fatalf("an unedited stream changes:\n%s", changes(string(data), s))
	}
	var undo [][]Edit
	var objects []*Object
	for _, o := range s.Objects() {
		if specPath(o) == nil {
			continue
		}
		edits := proxyEdits(o)
		if err := o.Apply(edits); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
		undo = append(undo, inverse(edits))
	}
	patched := s.Bytes()
	for i, o := range objects {
		if err := o.Apply(undo[i]); err != nil {
			t.Fatal(err)
		}
	}
	got := withoutEmpty(s.Bytes())
	if !endsLine(string(data)) { // it may have got a line break at its end
		got = bytes.TrimRight(got, "\r\n")
	}
	if !bytes.Equal(got, withoutEmpty(data)) {
		t.Errorf("inserting and removing is not the identity:\n%s",
			UnifiedDiff("in", "out", DiffPart{Old: string(withoutEmpty(data)), New: string(got)}))
	}
	return patched
}

// withoutEmpty drops the lines of empty lists of commands and files.
func withoutEmpty(data []byte) []byte {
	var kept []byte
	for line := range bytes.Lines(data) {
		trimmed := string(bytes.TrimSpace(line))
		if trimmed != "preKubeadmCommands: []" && trimmed != "files: []" {
			kept = append(kept, line...)
		}
	}
	return kept
}

// changes returns the difference of a text and a stream.
func changes(data string, s *Stream) []byte {
	return UnifiedDiff("in", "out", DiffPart{Old: data, New: string(s.Bytes())})
}
