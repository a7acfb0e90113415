package inplace

import (
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestSlots_AreANumber(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int{
		"1": 1, "100": 100, "": 0, "0": 0, "101": 0, "-1": 0, "+1": 0, "01": 0, "10%": 0, "1.5": 0, "1 2": 0, "1\n": 0, "one": 0,
	} {
		cluster := &clusterv1.Cluster{}
		cluster.Annotations = map[string]string{AnnotationInPlaceMaxUnavailable: value}
		message, advice := checkSlots(value)
		if (message == "") != (want > 0) || (advice == "") != (want > 0) || slotsOf(cluster) != max(want, 1) {
			t.Errorf("%q: %d, %q; %q", value, slotsOf(cluster), message, advice)
		}
	}
	if got := slotsOf(&clusterv1.Cluster{}); got != 1 {
		t.Errorf("without the annotation: %d", got)
	}
}
