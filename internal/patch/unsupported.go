package patch

import (
	"fmt"
	"strings"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
)

// Unsupported returns why the nodes of spec cannot be configured, worded to follow "is", or "": they are Windows nodes,
// which have no systemd, or their bootstrap data has another format, such as Bottlerocket's, in which files and
// commands have other meanings.
func Unsupported(spec Spec) string {
	if evidence := windowsEvidence(spec); evidence != "" {
		return ForWindows(evidence)
	}
	switch bootstrapv1.Format(spec.Format) {
	case "", bootstrapv1.CloudConfig, bootstrapv1.Ignition:
		return ""
	}
	return fmt.Sprintf("of format %.40q, not %s or %s,", spec.Format, bootstrapv1.CloudConfig, bootstrapv1.Ignition)
}

// ForWindows describes an object for Windows nodes, with the evidence.
func ForWindows(evidence string) string { return "for Windows nodes (" + evidence + ")" }

// windowsEvidence returns the evidence that spec is for Windows nodes, or "".
func windowsEvidence(spec Spec) string {
	for _, f := range spec.Files {
		if len(f.Path) > 2 && isLetter(f.Path[0]) && f.Path[1] == ':' && (f.Path[2] == '/' || f.Path[2] == '\\') {
			return "a file path with a drive letter, " + f.Path
		}
	}
	for _, socket := range spec.CRISockets {
		if strings.HasPrefix(socket, "npipe:") {
			return "criSocket " + socket
		}
	}
	for _, arg := range spec.KubeletArgs {
		name, value, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(name, "windows-") || strings.Contains(value, "os=windows") {
			return "kubelet argument " + name
		}
	}
	return ""
}

// WindowsField finds the field by which the spec of an infrastructure provider's machine template, decoded from JSON,
// asks for Windows: osType or os, at any place in the spec. It returns "" if there is none.
func WindowsField(spec any) string { return windowsField(spec, "spec") }

func windowsField(value any, path string) string {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			if s, ok := v[key].(string); ok && (key == "os" || key == "osType") && strings.EqualFold(s, "windows") {
				return path + "." + key
			}
			if field := windowsField(v[key], path+"."+key); field != "" {
				return field
			}
		}
	case []any:
		for i, item := range v {
			if field := windowsField(item, fmt.Sprintf("%s[%d]", path, i)); field != "" {
				return field
			}
		}
	}
	return ""
}
