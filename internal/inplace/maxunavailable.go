package inplace

import (
	"fmt"
	"strconv"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// slotsOf returns how many nodes of a Cluster change at a time, 1 if the annotation is absent or cannot be used.
func slotsOf(cluster *clusterv1.Cluster) int {
	number, _ := parseSlots(cluster.Annotations[AnnotationInPlaceMaxUnavailable])
	return max(1, number)
}

// checkSlots is contract.Annotation.Check for AnnotationInPlaceMaxUnavailable.
func checkSlots(value string) (message, advice string) {
	if _, ok := parseSlots(value); ok {
		return "", ""
	}
	return fmt.Sprintf("%q is not a number from 1 to %d", finding.Cut(value, 253), InPlaceMaxUnavailableLimit),
		"write for example 3"
}

// parseSlots reads a number in the one form that Go writes.
func parseSlots(value string) (number int, ok bool) {
	number, err := strconv.Atoi(value)
	if err != nil || strconv.Itoa(number) != value || number < 1 || number > InPlaceMaxUnavailableLimit {
		return 0, false
	}
	return number, true
}
