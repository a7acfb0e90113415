package patch_test

import (
	"maps"
	"testing"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/cloudinit"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/ignition"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// What the product adds to the user data of a Machine of docs/nodes.md, in Cluster API's own renderers. Clouds limit the
// whole of it to 16 kB and more: docs/providers.md has the limits and these figures.
func TestUserData_GrowsLittle(t *testing.T) {
	t.Parallel()
	const nodesPage = "localhost,127.0.0.1,192.168.0.0/16,10.128.0.0/12,10.128.0.1,10.128.0.10,kubernetes,kubernetes.default,.svc," +
		".cluster.local,.cluster.local.,api.prod.example.com,169.254.169.254,169.254.0.0/16,.corp.example.com"
	proxy := map[string]string{"httpProxy": "http://proxy.example.com:3128", "username": "node", "password": `s3cr%t@/"`}
	with := func(more map[string]string) settings.Proxy {
		maps.Copy(more, proxy)
		return settingsOf(t, more)
	}
	for name, test := range map[string]struct {
		settings             settings.Proxy
		targets              []contract.Target
		cloudConfig, ignited int // bytes at most
	}{
		"default targets":          {with(map[string]string{}), nil, 5_500, 7_200},
		"one readiness endpoint":   {with(map[string]string{"readinessEndpoints": "https://registry.example.com/v2/"}), nil, 6_400, 8_400},
		"one certificate":          {with(map[string]string{"trustedCA": testCA}), nil, 5_500 + len(testCA)*5/4, 7_200 + len(testCA)*5/4},
		"all targets":              {with(map[string]string{}), contract.AllTargets(), 5_550, 7_250},
		"nothing but certificates": {settingsOf(t, map[string]string{"trustedCA": testCA}), []contract.Target{contract.TargetTrust}, 4_000 + len(testCA)*5/4, 5_200 + len(testCA)*5/4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := settings.Files(test.settings, nodesPage)
			if err != nil {
				t.Fatal(err)
			}
			own := patch.Spec{PreKubeadmCommands: []string{`echo "your own command"`}, PostKubeadmCommands: []string{`echo "yours, after kubeadm"`}}
			r := recipe(t, patch.Options{Targets: test.targets})
			plan, err := patch.Ensure(own, r)
			if err != nil {
				t.Fatal(err)
			}
			before, after := userData(t, own, data), userData(t, patch.Apply(own, plan.Edits), data)
			cloudConfig, ignited := after[0]-before[0], after[1]-before[1]
			t.Logf("%d bytes of cloud-init, %d of Ignition; the script has %d", cloudConfig, ignited, len(data[contract.KeySetup]))
			if cloudConfig > test.cloudConfig || ignited > test.ignited {
				t.Errorf("%d bytes of cloud-init and %d of Ignition; at most %d and %d", cloudConfig, ignited, test.cloudConfig, test.ignited)
			}
		})
	}
}

// userData returns how long the user data of a worker is, as cloud-init and as Ignition.
func userData(t *testing.T, spec patch.Spec, data map[string][]byte) (lengths [2]int) {
	t.Helper()
	input := func() *cloudinit.NodeInput { // renderers change it
		input := &cloudinit.NodeInput{JoinConfiguration: "kind: JoinConfiguration"}
		input.PreKubeadmCommands, input.PostKubeadmCommands = spec.PreKubeadmCommands, spec.PostKubeadmCommands
		for _, f := range spec.Files {
			content := f.Content
			if f.ContentFrom.Key != "" {
				content = string(data[f.ContentFrom.Key])
			}
			input.AdditionalFiles = append(input.AdditionalFiles,
				bootstrapv1.File{Path: f.Path, Owner: f.Owner, Permissions: f.Permissions, Content: content})
		}
		return input
	}
	text, err := cloudinit.NewNode(input())
	if err != nil {
		t.Fatal(err)
	}
	ignited, warnings, err := ignition.NewNode(&ignition.NodeInput{NodeInput: input()})
	if err != nil || warnings != "" {
		t.Fatalf("error %v, warnings %q", err, warnings)
	}
	return [2]int{len(text), len(ignited)}
}
