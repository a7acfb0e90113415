package source

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/noproxy"
)

// Options are the choices that annotations of a Cluster make and, if it has a ClusterClass, its variable.
type Options struct {
	Delivery string
	Rollout  string
	Targets  []contract.Target
	// TargetsIn is where Targets are set if not in the annotation, see patch.Options.
	TargetsIn  string
	OmitGroups []noproxy.Group
	// NoProxy is the list in the variable, one entry per line. Empty for a Cluster without one.
	NoProxy string
	// Adopt reports whether files of the user at managed paths are taken over.
	Adopt bool
}

// ParseOptions reads the annotations of a Cluster. Its error joins an *InvalidError for each unusable annotation.
func ParseOptions(annotations map[string]string) (Options, error) {
	var findings []error
	choose := func(annotation string, values ...string) string {
		value, found := annotations[annotation]
		if !found {
			return values[0]
		}
		if !slices.Contains(values, value) {
			findings = append(findings, badAnnotation(annotation, fmt.Sprintf("unknown value %q", value), "use "+strings.Join(values, " or ")))
		}
		return value
	}
	options := Options{
		Delivery: choose(contract.AnnotationDelivery, contract.DeliveryReference, contract.DeliveryInline),
		Rollout:  choose(contract.AnnotationRollout, contract.RolloutOnNextRollout, contract.RolloutImmediate),
		Targets:  contract.Targets(),
		Adopt:    choose(contract.AnnotationAdopt, "false", contract.AdoptValue) == contract.AdoptValue,
	}
	if value, found := annotations[contract.AnnotationTargets]; found {
		targets, err := parseTargets(value)
		if err != nil {
			findings = append(findings, err)
		}
		options.Targets = targets
	}
	if value, found := annotations[contract.AnnotationNoProxyGroups]; found {
		groups, err := noproxy.ParseOmittedGroups(value)
		if err != nil {
			findings = append(findings, badAnnotation(contract.AnnotationNoProxyGroups, err.Error(), ""))
		}
		options.OmitGroups = groups
	}
	return options, errors.Join(findings...)
}

// parseTargets reads a comma-separated subset of contract.Targets and returns it in their order.
func parseTargets(value string) ([]contract.Target, error) {
	known := contract.Targets()
	chosen := map[contract.Target]bool{}
	for position, item := range strings.Split(value, ",") {
		target := contract.Target(strings.TrimSpace(item))
		if !slices.Contains(known, target) {
			return nil, badAnnotation(contract.AnnotationTargets, fmt.Sprintf("entry %d, %q, is not a target", position+1, target),
				"use a list of containerd, kubelet, kubeadm, trust")
		}
		chosen[target] = true
	}
	return slices.DeleteFunc(known, func(t contract.Target) bool { return !chosen[t] }), nil
}

// badAnnotation says why an annotation is unusable and, unless fix is empty, what to write instead.
func badAnnotation(annotation, why, fix string) *InvalidError {
	e := &InvalidError{
		Message:  "annotation " + annotation + ": " + why,
		Findings: []*noproxy.Error{{Code: CodeBadAnnotation, Where: "annotation " + annotation, Why: why, Fix: fix}},
	}
	if fix != "" {
		e.Message += "; " + fix
	}
	return e
}
