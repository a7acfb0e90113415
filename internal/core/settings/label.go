package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// State is the meaning of contract.LabelEnabled of a Cluster.
type State int

// The states. Where a Cluster has to be chosen among several, the later one counts more.
const (
	// Disabled is a Cluster without the label, or with contract.LabelDisabledValue: managed entries are removed.
	Disabled State = iota
	// Unclear is an unknown value: nothing changes.
	Unclear
	// Enabled is a Cluster with contract.LabelEnabledValue.
	Enabled
)

// StateOf reads the labels of a Cluster.
func StateOf(labels map[string]string) State {
	value, found := labels[contract.LabelEnabled]
	switch {
	case value == contract.LabelEnabledValue:
		return Enabled
	case !found, value == contract.LabelDisabledValue:
		return Disabled
	default:
		return Unclear
	}
}

// IsEnabled reports whether labels enable the product.
func IsEnabled(labels map[string]string) bool { return StateOf(labels) == Enabled }

// CheckLabel returns finding.Errors about contract.LabelEnabled, or nil.
func CheckLabel(labels map[string]string) error {
	if StateOf(labels) != Unclear {
		return nil
	}
	return finding.Errors{finding.Rejection(CodeBadLabel, finding.Label(contract.LabelEnabled),
		fmt.Sprintf("unknown value %q, which changes nothing", labels[contract.LabelEnabled]),
		fmt.Sprintf("use %q or %q", contract.LabelEnabledValue, contract.LabelDisabledValue))}
}

// CheckCluster warns of labels and annotations of a Cluster that carry the domain of the product and that nothing
// reads.
func CheckCluster(labels, annotations map[string]string) []finding.Finding {
	return append(unknown("label", finding.Label, labels, contract.ClusterLabels, "an annotation",
		contract.ClusterAnnotations),
		unknown("annotation", finding.Annotation, annotations, contract.ClusterAnnotations, "a label",
			contract.ClusterLabels)...)
}

// CheckPool warns of annotations of a pool that carry the domain of the product and that nothing reads. Those of a
// Cluster have no effect on a pool.
func CheckPool(annotations map[string]string) []finding.Finding {
	return unknown("annotation", finding.Annotation, annotations, contract.PoolAnnotations,
		"an annotation of the Cluster", contract.ClusterAnnotations)
}

// CheckBootstrap warns of annotations of a bootstrap object or a control plane that have a meaning only on a Cluster.
func CheckBootstrap(annotations map[string]string) (found []finding.Finding) {
	for _, key := range contract.UserAnnotations() {
		if _, set := annotations[key]; set {
			found = append(found, finding.Finding{
				Code: CodeUnknownName, Place: finding.Annotation(key), Message: "unknown annotation, ignored",
				Advice: "set it as an annotation of the Cluster",
			})
		}
	}
	return found
}

// unknown warns of the unknown keys of a kind, in alphabetical order. elsewhere returns the names of another kind.
func unknown(kind string, place func(key string) finding.Place, keys map[string]string, names func() []string,
	otherKind string, elsewhere func() []string,
) []finding.Finding {
	var (
		found []finding.Finding
		ours  []string
	)
	for key := range keys {
		if strings.HasPrefix(key, contract.Domain+"/") {
			ours = append(ours, key)
		}
	}
	if len(ours) == 0 { // almost always
		return nil
	}
	slices.Sort(ours)
	known := names()
	for _, key := range ours {
		name := strings.TrimPrefix(key, contract.Domain+"/")
		if slices.Contains(known, name) {
			continue
		}
		warning := finding.Finding{Code: CodeUnknownName, Place: place(key), Message: "unknown " + kind + ", ignored"}
		nearest := finding.NearestName(name, known)
		switch {
		case slices.Contains(elsewhere(), name):
			warning.Advice = "set it as " + otherKind
		case nearest != "":
			warning.Advice = "did you mean " + contract.Domain + "/" + nearest + "?"
		default:
			warning.Advice = "known names are " + strings.Join(known, ", ")
		}
		found = append(found, warning)
	}
	return found
}
