package faults

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// guard returns the guard of config/default, for the namespace of f. Kustomize gives it a namespace, which it cannot have.
func (f *fleet) guard() (objects []*unstructured.Unstructured) {
	f.t.Helper()
	for _, object := range vocabulary.Kustomize(f.t, "../../config/default") {
		if !strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") {
			continue
		}
		object.SetName(f.ns)
		if object.GetKind() == "ValidatingAdmissionPolicyBinding" {
			object.Object["spec"].(map[string]any)["policyName"] = f.ns
			object.Object["spec"].(map[string]any)["matchResources"] = map[string]any{
				"namespaceSelector": map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: f.ns}},
			}
		}
		if object.GetLabels()[clusterv1.ProviderNameLabel] == "" {
			f.t.Errorf("clusterctl does not delete %s with the product", object.GetKind())
		}
		objects = append(objects, object)
	}
	return objects
}

// installGuard installs the guard.
func (f *fleet) installGuard() {
	f.t.Helper()
	if err := mgmt.Apply(f.t.Context(), shared.Client, f.guard()); err != nil {
		f.t.Fatal(err)
	}
}

// removeGuard deletes the guard, as uninstalling the product does.
func (f *fleet) removeGuard() {
	f.t.Helper()
	for _, object := range f.guard() {
		if err := shared.Client.Delete(f.t.Context(), object); err != nil {
			f.t.Fatal(err)
		}
	}
}

// noFiles takes the files out of a control plane.
const noFiles = `{"spec":{"kubeadmConfigSpec":{"files":null}}}`

// tries patches the control plane of the first Cluster in a dry run, and reports whether the guard refuses it.
func (f *fleet) tries(patch string) (refused bool) {
	f.t.Helper()
	err := shared.Client.Patch(f.t.Context(), &controlplanev1.KubeadmControlPlane{ObjectMeta: f.meta(f.names[0])},
		client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll, client.FieldOwner("gitops"))
	refused = err != nil && strings.Contains(err.Error(), "webhook is not responding")
	if err != nil && (!refused || !strings.Contains(err.Error(), "remove annotation "+contract.AnnotationOutputVersion)) {
		f.t.Errorf("%s: %v", patch, err)
	}
	return refused
}

// TestGuard_RefusesWritesThatTakeTheProxyOut writes while no webhook answers.
func TestGuard_RefusesWritesThatTakeTheProxyOut(t *testing.T) {
	f := newFleet(t, 1)
	t.Parallel()
	webhooks, flags := f.serveWebhooks("../../config/default")
	p := manager(t, f.ns, append(flags, noResync)...)
	f.create(enabled)
	f.eventuallyHasProxy()
	p.stop()
	f.uninstall(webhooks)
	refuses := func(what string, want bool) {
		t.Helper()
		eventually(t, what, func() string {
			if refused := f.tries(noFiles); refused != want {
				return fmt.Sprintf("refused %t, want %t", refused, want)
			}
			return ""
		})
	}
	refuses("a write without the guard", false)
	f.installGuard()
	refuses("a write with the guard", true)
	f.checkWrites()
	f.removeGuard()
	refuses("a write after the product is uninstalled", false)
	f.installGuard()
	refuses("a write with the guard again", true)

	for _, configuration := range webhooks.Configurations {
		configuration.ResourceVersion = ""
	}
	if err := shared.Cluster.Install(t.Context(), webhooks.Configurations...); err != nil {
		t.Fatal(err)
	}
	manager(t, f.ns, append(flags, noResync)...)
	refuses("a write that the webhook mends", false)
	f.label("null")
	f.eventuallyAsBefore()
}

// checkWrites writes in ways that take the proxy out, and in ways that do not.
func (f *fleet) checkWrites() {
	f.t.Helper()
	const annotation = `"metadata":{"annotations":{"` + contract.AnnotationOutputVersion + `":null}}`
	object := &controlplanev1.KubeadmControlPlane{}
	if err := shared.Client.Get(f.t.Context(), client.ObjectKey{Namespace: f.ns, Name: f.names[0]}, object); err != nil {
		f.t.Fatal(err)
	}
	ours := func(field string, list any) string {
		text, err := json.Marshal(list)
		if err != nil {
			f.t.Fatal(err)
		}
		return fmt.Sprintf(`{"spec":{"kubeadmConfigSpec":{%q:%s}}}`, field, text)
	}
	spec := object.Spec.KubeadmConfigSpec
	for name, test := range map[string]struct {
		patch   string
		refused bool
	}{
		"no files":                   {noFiles, true},
		"files of the user":          {`{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/etc/motd","content":"# Managed by me"}]}}}`, true},
		"no commands":                {`{"spec":{"kubeadmConfigSpec":{"preKubeadmCommands":null}}}`, true},
		"commands of the user":       {`{"spec":{"kubeadmConfigSpec":{"preKubeadmCommands":["true # of capi-proxy-patcher?"]}}}`, true},
		"no configuration":           {`{"spec":{"kubeadmConfigSpec":null}}`, true},
		"by another version":         {`{"spec":{"version":"v1.36.9","kubeadmConfigSpec":{"files":null}}}`, true},
		"ours alone":                 {ours("files", spec.Files[len(spec.Files)-2:]), false},
		"one command more":           {ours("preKubeadmCommands", append(spec.PreKubeadmCommands, "true")), false},
		"a command after kubeadm":    {`{"spec":{"kubeadmConfigSpec":{"postKubeadmCommands":["true"]}}}`, true},
		"none after kubeadm":         {`{"spec":{"kubeadmConfigSpec":{"postKubeadmCommands":null}}}`, false},
		"another version":            {`{"spec":{"version":"v1.36.9"}}`, false},
		"replicas":                   {`{"spec":{"replicas":3}}`, false},
		"a label":                    {`{"metadata":{"labels":{"a":"b"}}}`, false},
		"the record":                 {`{` + annotation + `}`, false},
		"the record and the entries": {`{` + annotation + `,"spec":{"kubeadmConfigSpec":{"files":null,"preKubeadmCommands":null}}}`, false},
	} {
		if refused := f.tries(test.patch); refused != test.refused {
			f.t.Errorf("%s: refused %t, want %t", name, refused, test.refused)
		}
	}
}
