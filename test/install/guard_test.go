package install

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// guards returns the policies of objects by name, with the names of the bindings that make them effective.
func guards(objects []*unstructured.Unstructured) map[string][]string {
	found := map[string][]string{}
	for _, object := range objects {
		switch object.GetKind() {
		case "ValidatingAdmissionPolicy":
			found[object.GetName()] = append([]string{}, found[object.GetName()]...)
		case "ValidatingAdmissionPolicyBinding":
			policy, _, _ := unstructured.NestedString(object.Object, "spec", "policyName")
			found[policy] = append(found[policy], object.GetName())
		}
	}
	return found
}

// TestGuard_ComesWithTheWebhooks checks that whatever installs the webhooks installs the guard, and nothing else does:
// without webhooks it would refuse every apply.
func TestGuard_ComesWithTheWebhooks(t *testing.T) {
	t.Parallel()
	config := vocabulary.CopyConfig(t)
	for name, text := range installs {
		for _, suffix := range []string{"", "-team-b"} {
			objects := vocabulary.Overlay(t, config, text+"\nnamespace: "+otherNamespace+"\nnameSuffix: \""+suffix+"\"\n")
			want := map[string][]string{}
			for _, object := range objects {
				if object.GetKind() == "MutatingWebhookConfiguration" {
					want["capi-proxy-patcher-guard"+suffix] = []string{"capi-proxy-patcher-guard" + suffix}
				}
			}
			if got := guards(objects); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s with suffix %q: policies and their bindings are %v, want %v", name, suffix, got, want)
			}
		}
	}
}

// TestGuard_OfAnUpgradeIsAnInstallationOfItsOwn checks that what is installed beside the product has other names and no
// label of the provider, by which clusterctl deletes the product before it installs a new version.
func TestGuard_OfAnUpgradeIsAnInstallationOfItsOwn(t *testing.T) {
	t.Parallel()
	objects := vocabulary.Kustomize(t, root+"/config/guard")
	const name = "capi-proxy-patcher-upgrade-guard"
	if got := guards(objects); len(objects) != 2 || fmt.Sprint(got) != fmt.Sprint(map[string][]string{name: {name}}) {
		t.Errorf("policies and their bindings are %v", got)
	}
	for _, object := range objects {
		if labels := object.GetLabels(); len(labels) > 0 {
			t.Errorf("%s has labels %v", object.GetKind(), labels)
		}
	}
}
