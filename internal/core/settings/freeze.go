package settings

import (
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// Freeze is the value of contract.AnnotationTopologyHold: templates of objects that run Version or an earlier one stay
// with the proxy, or without it, although the label of the Cluster asks for the opposite. It keeps a label change on a
// running Cluster from replacing its Machines. Objects that are not upgraded yet run an earlier version.
type Freeze struct {
	// IsEnabledAt reports whether the templates stay with the proxy.
	Enabled bool
	// Version is the Kubernetes version, as spec.topology.version has it.
	Version string
}

// String returns the value of the annotation.
func (f Freeze) String() string {
	if f.Enabled {
		return contract.HoldEnabled + "@" + f.Version
	}
	return contract.HoldDisabled + "@" + f.Version
}

// FreezeOf returns the freeze in the annotations of a Cluster. An invalid value counts as none: the label decides then.
func FreezeOf(annotations map[string]string) (Freeze, bool) {
	state, version, found := strings.Cut(annotations[contract.AnnotationTopologyHold], "@")
	if !found || version == "" || state != contract.HoldEnabled && state != contract.HoldDisabled {
		return Freeze{}, false
	}
	return Freeze{Enabled: state == contract.HoldEnabled, Version: version}, true
}

// Covers reports whether the freeze applies to a Kubernetes version. A value that is not a version is never earlier.
func (f Freeze) Covers(version string) bool {
	if version == f.Version {
		return true
	}
	v, err := utilversion.ParseSemantic(version)
	if err != nil {
		return false
	}
	held, err := utilversion.ParseSemantic(f.Version)
	return err == nil && v.LessThan(held)
}

// WantsProxy reports whether a Cluster asks for the proxy: by its label or, while that has an unknown value, by its
// former value.
func WantsProxy(labels, annotations map[string]string) bool {
	if StateOf(labels) == Unclear {
		return annotations[contract.AnnotationEnabledBefore] == contract.LabelEnabledValue
	}
	return IsEnabled(labels)
}

// CheckTopologyLabel returns finding.Errors about a label with an unknown value if its former value is not known
// either, else nil. In that case no answer of a hook would leave everything unchanged.
func CheckTopologyLabel(labels, annotations map[string]string) error {
	switch annotations[contract.AnnotationEnabledBefore] {
	case contract.LabelEnabledValue, contract.LabelDisabledValue:
		return nil
	}
	return CheckLabel(labels)
}

// IsEnabledAt reports whether the template of an object that runs a Kubernetes version carries the proxy: by the freeze
// if it applies to that version, else by what the Cluster asks for.
func IsEnabledAt(labels, annotations map[string]string, version string) bool {
	if freeze, frozen := FreezeOf(annotations); frozen && freeze.Covers(version) {
		return freeze.Enabled
	}
	return WantsProxy(labels, annotations)
}
