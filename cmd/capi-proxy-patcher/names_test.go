package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// TestMatchConditions_KnowEveryName holds the match conditions, which choose what the webhook sees, to the names that
// it knows.
func TestMatchConditions_KnowEveryName(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../config/webhook/match_conditions_patch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "- name: names.capi-proxy-patcher.io")
	section, _, _ := strings.Cut(after, "\n- name: ")
	list := regexp.MustCompile(`key\.substring\(22\) in \[([^\]]*)\]`).FindStringSubmatch(section)
	if list == nil {
		t.Fatalf("no list of annotations in\n%s", section)
	}
	var known []string
	for _, quoted := range regexp.MustCompile(`'([^']*)'`).FindAllStringSubmatch(list[1], -1) {
		known = append(known, quoted[1])
	}
	capabilities()
	if diff := cmp.Diff(slices.Sorted(slices.Values(contract.ClusterAnnotations())), slices.Sorted(slices.Values(known))); diff != "" {
		t.Errorf("annotations of a Cluster (-contract +match condition):\n%s", diff)
	}
	if len(contract.Domain+"/") != 22 {
		t.Errorf("the domain has %d bytes", len(contract.Domain+"/"))
	}
	if got := contract.PoolAnnotations(); len(got) != 1 ||
		strings.Count(section, "key != '"+contract.Domain+"/"+got[0]+"'") != 3 {
		t.Errorf("annotations of pools are %q, which\n%s\ndoes not say", got, section)
	}
	if got := contract.ClusterLabels(); len(got) != 1 ||
		!strings.Contains(section, "key == '"+contract.Domain+"/"+got[0]+"'") {
		t.Errorf("labels of a Cluster are %q, which\n%s\ndoes not say", got, section)
	}
}
