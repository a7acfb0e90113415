package settings

import (
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// PatchField is one of the lines by which a ClusterClass declares the product's patch.
type PatchField struct {
	// Name is the field of spec.patches[].external.
	Name string
	// Extension is its value, HANDLER.EXTENSIONCONFIG.
	Extension string
}

// PatchFields returns the lines for a version of the ClusterClass, v1beta1 or v1beta2: their names differ.
func PatchFields(version string) []PatchField {
	names := [...]string{"generatePatchesExtension", "validateTopologyExtension", "discoverVariablesExtension"}
	if version == "v1beta1" {
		names = [...]string{"generateExtension", "validateExtension", "discoverVariablesExtension"}
	}
	handlers := [...]string{
		contract.HandlerGeneratePatches, contract.HandlerValidateTopology,
		contract.HandlerDiscoverVariables,
	}
	fields := make([]PatchField, len(names))
	for i, name := range names {
		fields[i] = PatchField{Name: name, Extension: handlers[i] + "." + contract.Name}
	}
	return fields
}

// PatchLines returns the lines of v1beta2, for messages.
func PatchLines() string {
	fields := PatchFields("v1beta2")
	lines := make([]string, len(fields))
	for i, field := range fields {
		lines[i] = field.Name + ": " + field.Extension
	}
	return strings.Join(lines, ", ")
}
