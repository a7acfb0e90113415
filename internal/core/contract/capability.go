package contract

import (
	"slices"
	"sync"
)

// Capability is what an optional part of the program adds to the names that users see. The core knows no other name of
// it.
type Capability struct {
	// Name is the name of its folder.
	Name string
	// Annotations are those that users set on a Cluster.
	Annotations []Annotation
	// Records are annotations and labels that it writes on a Cluster.
	Records []string
	// Applied are annotations that are on a Cluster while its workload cluster may have objects of the capability.
	Applied []string
	// Rollouts are values of AnnotationRollout that it makes possible.
	Rollouts []string
	// Reasons are reasons of conditions, each behind the one that After names in the table of reasons.
	Reasons []Reason
	// Conditions are the types of conditions that it writes on Clusters.
	Conditions []string
}

// Annotation is an annotation that users set on a Cluster.
type Annotation struct {
	Key string
	// Check says why a value cannot be used, and what to write instead; "" if it can. Nil accepts all values.
	Check func(value string) (message, advice string)
}

// capabilities are those of this program. Main adds them before anything else runs.
//
//nolint:gochecknoglobals // names are those of the whole program, as those in a scheme of apimachinery are
var capabilities struct {
	sync.RWMutex

	all []Capability
}

// Add adds a capability. One that was added is replaced, so that a test can add what it needs.
func Add(c Capability) {
	capabilities.Lock()
	defer capabilities.Unlock()
	i := slices.IndexFunc(capabilities.all, func(other Capability) bool { return other.Name == c.Name })
	if i < 0 {
		capabilities.all = append(capabilities.all, c)
		return
	}
	capabilities.all[i] = c
}

// ofAll returns what each capability has.
func ofAll[T any](of func(Capability) []T) (all []T) {
	capabilities.RLock()
	defer capabilities.RUnlock()
	for _, c := range capabilities.all {
		all = append(all, of(c)...)
	}
	return all
}

// AnnotationsOfCapabilities returns the annotations that capabilities add.
func AnnotationsOfCapabilities() []Annotation {
	return ofAll(func(c Capability) []Annotation { return c.Annotations })
}

// AppliedAnnotations returns the annotations that are on a Cluster while its workload cluster may have objects.
func AppliedAnnotations() []string {
	return ofAll(func(c Capability) []string { return c.Applied })
}

// Rollouts returns the values of AnnotationRollout.
func Rollouts() []string {
	return append([]string{RolloutOnNextRollout, RolloutImmediate},
		ofAll(func(c Capability) []string { return c.Rollouts })...)
}

// ReachesNodes reports whether a value of AnnotationRollout brings files to running nodes, whose bootstrap objects wait
// for the next rollout as with RolloutOnNextRollout. Those of capabilities do.
func ReachesNodes(rollout string) bool {
	return slices.Contains(Rollouts()[2:], rollout)
}

// Conditions returns the types of the conditions that the program writes on Clusters.
func Conditions() []string {
	return append([]string{ConditionProxyConfigured}, ofAll(func(c Capability) []string { return c.Conditions })...)
}
