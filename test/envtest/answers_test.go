package envtest

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// withCommandsAfterwards gives the template postKubeadmCommands; the control plane has some.
func withCommandsAfterwards(o client.Object) {
	if template, ok := o.(*bootstrapv1.KubeadmConfigTemplate); ok {
		template.Spec.Template.Spec.PostKubeadmCommands = []string{"echo \"$(date)\" '%s' {{ x }}"}
	}
}

func withoutCommandsAfterwards(o client.Object) {
	switch object := o.(type) {
	case *controlplanev1.KubeadmControlPlane:
		object.Spec.KubeadmConfigSpec.PostKubeadmCommands = nil
	case *bootstrapv1.KubeadmConfigTemplate:
		object.Spec.Template.Spec.PostKubeadmCommands = nil
	}
}

func TestApply_RemovesTheUsersCommandsFromAPatchedObject(t *testing.T) {
	t.Parallel()
	apply := func(flags ...string) func(*testing.T, classic, string) {
		return func(t *testing.T, _ classic, text string) {
			t.Helper()
			mustKubectl(t, text, append([]string{"apply", "-f", "-"}, flags...)...)
		}
	}
	merge := func(t *testing.T, c classic, _ string) {
		t.Helper()
		spec := map[string]any{"postKubeadmCommands": nil}
		for o, fields := range map[client.Object]map[string]any{
			c.controlPlane(): {"kubeadmConfigSpec": spec}, c.template(): {"template": map[string]any{"spec": spec}},
		} {
			text, err := json.Marshal(map[string]any{"spec": fields})
			if err != nil {
				t.Fatal(err)
			}
			if err := shared.client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, text)); err != nil {
				t.Errorf("%T: %v", o, err)
			}
		}
	}
	forced, changed := []string{"--server-side", "--force-conflicts"}, []string{"control plane", "template"}
	for name, test := range map[string]struct {
		webhooks string
		first    []string
		take     func(*testing.T, classic, string)
	}{
		"kubectl apply":     {webhooksLive, nil, apply()},
		"server-side apply": {webhooksLive, forced, apply(forced...)},
		"merge patch":       {webhooksLive, nil, merge},
		"reinvocation":      {webhooksTwo, nil, apply()},
	} {
		t.Run(name, func(t *testing.T) {
			ns := admitted(t, namespace(t), test.webhooks)
			proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
			c := classic{t: t, ns: ns, name: "one"}
			objects := c.objects()
			for _, o := range objects {
				withCommandsAfterwards(o)
			}
			apply(test.first...)(t, c, manifest(t, objects...))
			c.eventuallyReports(contract.ReasonConfigured)
			apply(test.first...)(t, c, manifest(t, objects...)) // takes over lists that the controller has written
			for _, name := range changed {
				if spec := c.spec(name); len(spec.PostKubeadmCommands) != 2 {
					t.Fatalf("%s has postKubeadmCommands %q, want one of ours and one of the user's", name, spec.PostKubeadmCommands)
				}
			}
			for _, o := range objects {
				withoutCommandsAfterwards(o)
			}
			test.take(t, c, manifest(t, objects...))
			for _, name := range changed {
				if spec := c.spec(name); len(spec.PostKubeadmCommands) > 0 || !patch.IsPatched(spec) {
					t.Errorf("%s has postKubeadmCommands %q, patched %v", name, spec.PostKubeadmCommands, patch.IsPatched(spec))
				}
			}
			staysQuiet(t, ns)
		})
	}
}

// TestTemplate_WithoutASpecIsPatchedAndEmptiedAgain is about a spec that the API accepts only if it is absent.
func TestTemplate_WithoutASpecIsPatchedAndEmptiedAgain(t *testing.T) {
	c := oneCluster(t, func(o client.Object) {
		if template, ok := o.(*bootstrapv1.KubeadmConfigTemplate); ok {
			template.Spec = bootstrapv1.KubeadmConfigTemplateSpec{}
		}
	})
	c.eventuallyConfigured()
	c.edit(func(cluster *clusterv1.Cluster) { cluster.Labels = nil })
	c.eventuallyReports(noCondition)
	c.wantPatched(t, noObject...)
}
