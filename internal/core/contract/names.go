package contract

import (
	"slices"
	"strings"
)

// UserLabels returns the labels that users set on a Cluster.
func UserLabels() []string { return []string{LabelEnabled} }

// UserAnnotations returns the annotations that users set on a Cluster, those of capabilities last. They set
// AnnotationSecret on a pool, too.
func UserAnnotations() []string {
	return append([]string{AnnotationSecret, AnnotationRollout, AnnotationTargets, AnnotationNoProxyGroups},
		ofAll(func(c Capability) []string {
			keys := make([]string, len(c.Annotations))
			for i, annotation := range c.Annotations {
				keys[i] = annotation.Key
			}
			return keys
		})...)
}

// ClusterLabels returns the names, without the domain, of the labels that a Cluster may have.
func ClusterLabels() []string { return names(UserLabels()...) }

// ClusterAnnotations returns the names, without the domain, of the annotations that a Cluster may have, those for the
// user first.
func ClusterAnnotations() []string {
	return names(slices.Concat(UserAnnotations(),
		[]string{AnnotationTopologyHold, AnnotationEnabledBefore, AnnotationOutputVersion, AnnotationMachinesBehind},
		ofAll(func(c Capability) []string { return c.Records }), AppliedAnnotations())...)
}

// PoolAnnotations returns the names, without the domain, of the annotations that a MachineDeployment, a MachinePool or
// a pool of a topology may have.
func PoolAnnotations() []string { return names(AnnotationSecret) }

func names(keys ...string) []string {
	for i := range keys {
		keys[i] = strings.TrimPrefix(keys[i], Domain+"/")
	}
	return keys
}
