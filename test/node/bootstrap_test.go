//go:build node

package node_test

import (
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/cloudinit"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/ignition"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

const (
	clusterConfiguration = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration"
	initConfiguration    = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration"
	auditPolicy          = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"
	ownCommand           = `printf '%s' "the user's \"own\" 100% \$HOME" >/var/lib/node-test/own`
	ownResult            = `the user's "own" 100% $HOME`
)

// userSpec is the spec of the user before the product patches it. more are commands before the command that records the
// environment of the user's commands.
func userSpec(more []string) *bootstrapv1.KubeadmConfigSpec {
	return &bootstrapv1.KubeadmConfigSpec{
		Files: []bootstrapv1.File{{
			Path: "/etc/kubernetes/audit.yaml", Owner: "root:root", Permissions: "0600", Content: auditPolicy,
		}},
		PreKubeadmCommands: append(append([]string{}, more...), ownCommand,
			"(umask 077; env -0 >/var/lib/node-test/pre.env)"),
		PostKubeadmCommands: []string{"(umask 077; env -0 >/var/lib/node-test/post.env)"},
	}
}

// composeNoProxy returns the value for a Cluster that is like many.
func composeNoProxy(t *testing.T, proxy settings.Proxy) string {
	t.Helper()
	result, err := noproxy.Compose(noproxy.Input{
		PodCIDRs: []string{"10.244.0.0/16", "fd00:10:244::/56"}, ServiceCIDRs: []string{"10.96.0.0/12", "fd00:10:96::/112"},
		EndpointHost: "api.test.example.com", User: noproxy.Layer{Text: proxy.NoProxy},
	})
	if err != nil {
		t.Fatal(err)
	}
	return result.Value
}

// patched returns spec with the edits of Ensure and, if removed is set, of a Remove after it, carried out as a JSON
// patch the way the controller does.
func patched(t *testing.T, spec *bootstrapv1.KubeadmConfigSpec, recipe patch.Recipe,
	removed bool,
) *bootstrapv1.KubeadmConfigSpec {
	t.Helper()
	plan, err := patch.Ensure(api.Spec(spec), recipe)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Edits) == 0 || len(plan.Warnings) > 0 {
		t.Fatalf("%d edits, warnings %q", len(plan.Edits), plan.Warnings)
	}
	spec = apply(t, spec, plan.Edits)
	if removed {
		return apply(t, spec, patch.Remove(api.Spec(spec)))
	}
	return spec
}

func apply(t *testing.T, spec *bootstrapv1.KubeadmConfigSpec, edits []patch.Edit) *bootstrapv1.KubeadmConfigSpec {
	t.Helper()
	at := patch.Location{Parents: []string{"/spec"}}
	operations, err := json.Marshal(patch.Operations(at, api.Spec(spec), edits))
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(bootstrapv1.KubeadmConfig{Spec: *spec})
	if err != nil {
		t.Fatal(err)
	}
	after, err := decoded.Apply(before)
	if err != nil {
		t.Fatal(err)
	}
	var config bootstrapv1.KubeadmConfig
	if err := json.Unmarshal(after, &config); err != nil {
		t.Fatal(err)
	}
	return &config.Spec
}

// userData renders spec with the bootstrap provider's own packages, after it has read what the spec refers to, as the
// provider does: secret is the data of the one Secret.
func userData(t *testing.T, spec *bootstrapv1.KubeadmConfigSpec, secret map[string][]byte, asIgnition bool) []byte {
	t.Helper()
	base := cloudinit.BaseUserData{
		PreKubeadmCommands:  spec.PreKubeadmCommands,
		PostKubeadmCommands: spec.PostKubeadmCommands,
	}
	for _, file := range spec.Files {
		if from := file.ContentFrom.Secret; from.Name != "" {
			content, found := secret[from.Key]
			if from.Name != generatedSecret || !found {
				t.Fatalf("%s refers to key %s of Secret %s, which does not exist", file.Path, from.Key, from.Name)
			}
			file.ContentFrom, file.Content = bootstrapv1.FileSource{}, string(content)
		}
		base.AdditionalFiles = append(base.AdditionalFiles, file)
	}
	input := &cloudinit.ControlPlaneInput{
		BaseUserData: base, ClusterConfiguration: clusterConfiguration, InitConfiguration: initConfiguration,
	}
	if !asIgnition {
		data, err := cloudinit.NewInitControlPlane(input)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	data, warnings, err := ignition.NewInitControlPlane(&ignition.ControlPlaneInput{ControlPlaneInput: input})
	if err != nil || warnings != "" {
		t.Fatal(err, warnings)
	}
	return data
}
