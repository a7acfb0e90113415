package patch_test

import (
	"strings"
	"testing"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/cloudinit"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/ignition"
	"sigs.k8s.io/cluster-api/util/secret"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// machine is a Machine whose user data is rendered.
type machine struct {
	controlPlane, ignition bool
	keys                   bootstrapv1.EncryptionAlgorithmType
	certificates           secret.Certificates
	// files and commands are the user's.
	files    []bootstrapv1.File
	commands []string
}

// render returns the user data as Cluster API writes it. join is that of a further Machine of a control plane.
func (m machine) render(t *testing.T, recipe patch.Recipe, data map[string][]byte, join bool) []byte {
	t.Helper()
	base := cloudinit.BaseUserData{AdditionalFiles: m.files}
	for _, f := range recipe.Files {
		content := f.Content
		if content == "" {
			content = string(data[f.ContentFrom.Key])
		}
		base.AdditionalFiles = append(base.AdditionalFiles, bootstrapv1.File{
			Path: f.Path, Owner: f.Owner, Permissions: f.Permissions, Content: content,
		})
	}
	base.PreKubeadmCommands = append(append(append(base.PreKubeadmCommands, recipe.First...), m.commands...), recipe.Last...)
	var (
		text []byte
		err  error
	)
	// The shortest that there is, of a name and an address that are short.
	const configuration = `apiVersion: kubeadm.k8s.io/v1beta4
discovery:
  bootstrapToken:
    apiServerEndpoint: 10.0.0.1:6443
    caCertHashes:
    - sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    token: abcdef.0123456789abcdef
kind: JoinConfiguration
nodeRegistration: {}
`
	node := &cloudinit.NodeInput{BaseUserData: base, JoinConfiguration: configuration}
	first := &cloudinit.ControlPlaneInput{
		BaseUserData: base, Certificates: m.certificates, ClusterConfiguration: configuration, InitConfiguration: configuration,
	}
	next := &cloudinit.ControlPlaneJoinInput{BaseUserData: base, Certificates: m.certificates, JoinConfiguration: configuration}
	switch {
	case m.ignition && !m.controlPlane:
		text, _, err = ignition.NewNode(&ignition.NodeInput{NodeInput: node})
	case m.ignition && join:
		text, _, err = ignition.NewJoinControlPlane(&ignition.ControlPlaneJoinInput{ControlPlaneJoinInput: next})
	case m.ignition:
		text, _, err = ignition.NewInitControlPlane(&ignition.ControlPlaneInput{ControlPlaneInput: first})
	case !m.controlPlane:
		text, err = cloudinit.NewNode(node)
	case join:
		text, err = cloudinit.NewJoinControlPlane(next)
	default:
		text, err = cloudinit.NewInitControlPlane(first)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestUserData_IsALowerBound compares it with what Cluster API's own renderers write.
func TestUserData_IsALowerBound(t *testing.T) {
	t.Parallel()
	const script = "#!/bin/sh\n# Ünïcode, quotes \" ' and $(commands) & more\n\tset -e\nexit 0"
	long := []bootstrapv1.File{
		{Path: "/etc/a", Owner: "root:root", Permissions: "0644", Content: strings.Repeat(script, 100)},
		{Path: "/usr/local/bin/b.sh", Owner: "root", Permissions: "0755", Content: strings.Repeat("x", 5000)},
		{Path: "/c", Permissions: "0600", Content: "\n\n\n"},
		{Path: "/d", Permissions: "0600", Encoding: bootstrapv1.Base64, Content: strings.Repeat("QUJD", 30000)},
	}
	for name, m := range map[string]machine{
		"a worker":                         {},
		"a control plane":                  {controlPlane: true},
		"a control plane, ECDSA":           {controlPlane: true, keys: bootstrapv1.EncryptionAlgorithmECDSAP256},
		"a worker, Ignition":               {ignition: true},
		"a control plane, Ignition":        {ignition: true, controlPlane: true},
		"a control plane, ECDSA, Ignition": {ignition: true, controlPlane: true, keys: bootstrapv1.EncryptionAlgorithmECDSAP256},
		"own entries":                      {files: long, commands: []string{"echo 'a' \"b\"", "", "x && y"}},
		"own entries, Ignition":            {ignition: true, files: long, commands: []string{"echo 'a' \"b\"", "", "x && y"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := settings.Files(settingsOf(t, map[string]string{"httpProxy": "http://u:p%40@proxy.example.com:3128", "trustedCA": testCA}), noProxy)
			if err != nil {
				t.Fatal(err)
			}
			m.certificates = secret.NewCertificatesForInitialControlPlane(&bootstrapv1.ClusterConfiguration{EncryptionAlgorithm: m.keys})
			if err := m.certificates.Generate(); err != nil {
				t.Fatal(err)
			}
			spec := patch.Spec{PreKubeadmCommands: m.commands, ECDSA: m.keys != ""}
			if m.ignition {
				spec.Format = "ignition"
			}
			for _, f := range m.files {
				spec.Files = append(spec.Files, patch.File{
					Path: f.Path, Owner: f.Owner, Permissions: f.Permissions, Content: f.Content, Other: f.Encoding != "",
				})
			}
			r := recipe(t, patch.Options{SecretName: "c-http-proxy"})
			all, ours := patch.UserData(spec, r, data, m.controlPlane)
			none, _ := patch.UserData(spec, patch.Recipe{}, nil, m.controlPlane)
			for _, join := range []bool{false, true} {
				with, without := len(m.render(t, r, data, join)), len(m.render(t, patch.Recipe{}, nil, join))
				if all > with || all < with*85/100 || none > without || none < without*55/100 {
					t.Errorf("%d and %d bytes, estimated %d and %d", with, without, all, none)
				}
				if ours > with-without || ours < (with-without)*93/100 {
					t.Errorf("%d bytes of the product, estimated %d", with-without, ours)
				}
			}
			dropped := spec
			dropped.Files = nil
			for _, f := range spec.Files {
				f.Content = patch.Filler(spec.Format, f)
				dropped.Files = append(dropped.Files, f)
			}
			plan, err := patch.Ensure(dropped, r)
			if err != nil {
				t.Fatal(err)
			}
			if again, _ := patch.UserData(patch.Apply(dropped, plan.Edits), r, data, m.controlPlane); again != all {
				t.Errorf("%d of what a cache has, patched, and not %d", again, all)
			}
		})
	}
}
