package envtest

import (
	"slices"
	"strings"
	"testing"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// withDropIns gives bootstrap objects the drop-ins that people write by hand, one of them in the folder for packages.
func withDropIns(o client.Object) {
	files := []bootstrapv1.File{
		{
			Path: "/etc/systemd/system/containerd.service.d/http-proxy.conf", Owner: "root:root", Append: new(true),
			Content: "[Service]\nEnvironment=\"HTTP_PROXY=http://u:p%25`'$x@old.example.com:3128/\"\n\n",
		},
		{Path: "/etc/issue", Content: "between"},
		{Path: "/usr/lib/systemd/system/kubelet.service.d/http-proxy.conf", Permissions: "0600", Encoding: bootstrapv1.Base64, Content: "W1NlcnZpY2VdCg=="},
	}
	switch object := o.(type) {
	case *controlplanev1.KubeadmControlPlane:
		object.Spec.KubeadmConfigSpec.Files = append(files, object.Spec.KubeadmConfigSpec.Files...)
	case *bootstrapv1.KubeadmConfigTemplate:
		object.Spec.Template.Spec.Files = files
	case *bootstrapv1.KubeadmConfig:
		object.Spec.Files = files
	}
}

// TestMigration_OfAHandWrittenFileIsOneChange does with a running control plane what docs/migration.md says: the label
// first, which is a conflict and changes nothing, then a manifest without the file.
func TestMigration_OfAHandWrittenFileIsOneChange(t *testing.T) {
	ns := admitted(t, namespace(t), webhooksLive)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := classic{t: t, ns: ns, name: "one"}
	c.runControlPlane()
	for _, object := range c.objects() {
		withDropIns(object)
		create(t, object)
	}
	c.eventuallyReports(contract.ReasonConflictingFile)
	if generation := c.controlPlane().Generation; generation != 1 || hasProxy(c.controlPlane()) {
		t.Fatalf("the label has changed the control plane, generation %d", generation)
	}
	change(t, c.controlPlane(), func(o *controlplanev1.KubeadmControlPlane) {
		o.Spec.KubeadmConfigSpec.Files = slices.DeleteFunc(o.Spec.KubeadmConfigSpec.Files,
			func(f bootstrapv1.File) bool { return strings.HasSuffix(f.Path, "/http-proxy.conf") })
	})
	if generation := c.controlPlane().Generation; generation != 2 || !hasProxy(c.controlPlane()) {
		t.Errorf("generation %d, has the proxy: %v; want one change with both", generation, hasProxy(c.controlPlane()))
	}
	change(t, c.template(), func(o *bootstrapv1.KubeadmConfigTemplate) { o.Spec.Template.Spec.Files = nil })
	change(t, c.config(), func(o *bootstrapv1.KubeadmConfig) { o.Spec.Files = nil })
	c.eventuallyReports(contract.ReasonConfigured)
	if generation := c.controlPlane().Generation; generation != 2 {
		t.Errorf("generation %d: the control plane rolls twice", generation)
	}
}

// TestMigration_InOneManifestIsOneChange sets the label and removes the files in one manifest. The webhook sees the
// control plane milliseconds after the label.
func TestMigration_InOneManifestIsOneChange(t *testing.T) {
	ns := admitted(t, namespace(t), webhooksLive)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := classic{t: t, ns: ns, name: "one"}
	c.runControlPlane()
	before := c.objects()
	for _, object := range before {
		withDropIns(object)
		if cluster, ok := object.(*clusterv1.Cluster); ok {
			cluster.Labels = nil
		}
	}
	mustKubectl(t, manifest(t, before...), "apply", "-f", "-")
	generation := c.controlPlane().Generation
	mustKubectl(t, manifest(t, c.objects()...), "apply", "-f", "-")
	if got := c.controlPlane().Generation; got != generation+1 || !hasProxy(c.controlPlane()) {
		t.Errorf("generation %d after %d, has the proxy: %v; want one change with both", got, generation,
			hasProxy(c.controlPlane()))
	}
	c.eventuallyReports(contract.ReasonConfigured)
	c.wantPatched(t, everyObject...)
	if got := c.controlPlane().Generation; got != generation+1 {
		t.Errorf("generation %d after %d: the control plane rolls twice", got, generation)
	}
}
