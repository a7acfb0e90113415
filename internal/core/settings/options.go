package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// Options are the choices in annotations of a Cluster and, if it has a ClusterClass, in its variable.
type Options struct {
	Rollout string
	Targets []contract.Target
	// TargetsIn is the place where Targets are set if it is not the annotation, see patch.Options.
	TargetsIn  string
	OmitGroups []noproxy.Group
	// NoProxy is the list in the variable, one entry per line. Empty for a Cluster without one.
	NoProxy string
}

// ParseOptions reads the annotations of a Cluster. Its error is finding.Errors, one for each unusable annotation.
func ParseOptions(annotations map[string]string) (Options, error) {
	var found finding.Errors
	options := Options{
		Rollout: contract.RolloutOnNextRollout,
		Targets: contract.Targets(),
	}
	if value, given := annotations[contract.AnnotationRollout]; given {
		known := contract.Rollouts()
		if options.Rollout = value; !slices.Contains(known, value) {
			last := len(known) - 1
			found = append(found, badAnnotation(finding.Annotation(contract.AnnotationRollout),
				fmt.Sprintf("unknown value %q", value), "use "+strings.Join(known[:last], ", ")+" or "+known[last])...)
		}
	}
	if value, given := annotations[contract.AnnotationTargets]; given {
		targets, bad := parseTargets(value)
		found = append(found, bad...)
		options.Targets = targets
	}
	if value, given := annotations[contract.AnnotationNoProxyGroups]; given {
		groups, err := noproxy.ParseOmittedGroups(value)
		if err != nil {
			found = append(found, badAnnotation(finding.Annotation(contract.AnnotationNoProxyGroups), err.Error(), "")...)
		}
		options.OmitGroups = groups
	}
	for _, annotation := range contract.AnnotationsOfCapabilities() {
		if value, given := annotations[annotation.Key]; given && annotation.Check != nil {
			if message, advice := annotation.Check(value); message != "" {
				found = append(found, badAnnotation(finding.Annotation(annotation.Key), message, advice)...)
			}
		}
	}
	return options, found.Err()
}

// parseTargets reads a comma-separated subset of contract.Targets and returns it in their order.
func parseTargets(value string) ([]contract.Target, finding.Errors) {
	known := contract.AllTargets()
	chosen := map[contract.Target]bool{}
	for position, item := range strings.Split(value, ",") {
		target := contract.Target(strings.TrimSpace(item))
		if !slices.Contains(known, target) {
			return nil, badAnnotation(finding.Annotation(contract.AnnotationTargets),
				fmt.Sprintf("entry %d, %q, is not a target", position+1, target),
				"use a list of containerd, kubelet, commands, trust, static-pods")
		}
		chosen[target] = true
	}
	return slices.DeleteFunc(known, func(t contract.Target) bool { return !chosen[t] }), nil
}

// badAnnotation reports why an annotation is unusable and, unless advice is empty, what to write instead.
func badAnnotation(annotation finding.Place, message, advice string) finding.Errors {
	return finding.Errors{finding.Rejection(CodeBadAnnotation, annotation, message, advice)}
}
