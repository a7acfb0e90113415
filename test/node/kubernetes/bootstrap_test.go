//go:build node

package kubernetes_test

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/cloudinit"
	kubeadmtypes "sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/types"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/types/upstream"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

//go:embed testdata/cluster.yaml
var clusterManifest string

// role is which of the Cluster's machines bootstrap data is for.
type role int

const (
	controlPlane role = iota
	worker
)

// cluster is a Cluster of testdata/cluster.yaml with its proxy Secrets and what Cluster API's controllers would have made.
type cluster struct {
	manifest     string
	secrets      map[string]map[string]string // proxy Secrets, by name
	certificates secret.Certificates
	token        bootstrapv1.BootstrapTokenString
}

// newCluster returns a Cluster with the label. The Cluster's own Secret is named http-proxy, that of its pool
// pool-http-proxy.
func newCluster(t *testing.T, secrets map[string]map[string]string) cluster {
	t.Helper()
	certificates := secret.NewCertificatesForInitialControlPlane(&bootstrapv1.ClusterConfiguration{})
	if err := certificates.Generate(); err != nil {
		t.Fatal(err)
	}
	return cluster{
		manifest: clusterManifest, secrets: secrets, certificates: certificates,
		token: bootstrapv1.BootstrapTokenString{ID: "abcdef", Secret: "0123456789abcdef"},
	}
}

// unlabelled is the same Cluster without the label.
func (c cluster) unlabelled() cluster {
	c.manifest = strings.Replace(c.manifest, "    "+contract.LabelEnabled+": \"true\"\n", "    some: label\n", 1)
	return c
}

// write puts the manifests and the Secrets into files of a folder, as arguments of the command line.
func (c cluster) write(t *testing.T) []string {
	t.Helper()
	folder := t.TempDir()
	manifests, secrets := filepath.Join(folder, "cluster.yaml"), filepath.Join(folder, "secrets.yaml")
	var text bytes.Buffer
	for name, values := range c.secrets {
		object, err := json.Marshal(corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, StringData: values,
		})
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("---\n" + string(object) + "\n")
	}
	for name, content := range map[string][]byte{manifests: []byte(c.manifest), secrets: text.Bytes()} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"-f", manifests, "--secret", secrets}
}

// run runs the program that users run and returns what it prints.
func run(t *testing.T, args ...string) []byte {
	t.Helper()
	var out, problems bytes.Buffer
	if status := cli.Main(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &problems}); status != 0 {
		t.Fatalf("%q: status %d\n%s", args, status, &problems)
	}
	return out.Bytes()
}

// objects are what the product makes of a Cluster's manifests.
type objects struct {
	cluster      clusterv1.Cluster
	controlPlane controlplanev1.KubeadmControlPlane
	template     bootstrapv1.KubeadmConfigTemplate
	secrets      map[string]corev1.Secret
}

// patched is capi-proxy-patcher render of the Cluster's manifests.
func (c cluster) patched(t *testing.T) objects {
	t.Helper()
	text := run(t, append([]string{"render", "--include-secrets"}, c.write(t)...)...)
	o := objects{secrets: map[string]corev1.Secret{}}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		var made corev1.Secret
		into := map[string]any{"Cluster": &o.cluster, "KubeadmControlPlane": &o.controlPlane, "KubeadmConfigTemplate": &o.template, "Secret": &made}
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		if object, found := into[kind.Kind]; found {
			if err := yaml.Unmarshal(document, object); err != nil {
				t.Fatal(err)
			}
		}
		if kind.Kind == "Secret" {
			o.secrets[made.Name] = made
		}
	}
	return o
}

// bootstrapData returns what a machine of the Cluster is handed: what Cluster API's bootstrap provider renders from the
// objects that the product has patched.
func bootstrapData(t *testing.T, c cluster, r role) []byte {
	t.Helper()
	o := c.patched(t)
	version, err := semver.ParseTolerant(o.controlPlane.Spec.Version)
	if err != nil {
		t.Fatal(err)
	}
	if r == worker {
		spec := &o.template.Spec.Template.Spec
		join := spec.JoinConfiguration.DeepCopy()
		hashes, err := c.certificates.GetByPurpose(secret.ClusterCA).Hashes()
		if err != nil {
			t.Fatal(err)
		}
		join.Discovery.BootstrapToken = bootstrapv1.BootstrapTokenDiscovery{
			Token: c.token.ID + "." + c.token.Secret, APIServerEndpoint: o.cluster.Spec.ControlPlaneEndpoint.String(), CACertHashes: hashes,
		}
		join.NodeRegistration.Taints = &[]corev1.Taint{clusterv1.NodeUninitializedTaint}
		configuration, err := kubeadmtypes.MarshalJoinConfigurationForVersion(join, version)
		if err != nil {
			t.Fatal(err)
		}
		data, err := cloudinit.NewNode(&cloudinit.NodeInput{BaseUserData: baseUserData(t, spec, o.secrets), JoinConfiguration: configuration})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	spec := &o.controlPlane.Spec.KubeadmConfigSpec
	spec.InitConfiguration.BootstrapTokens = []bootstrapv1.BootstrapToken{{
		Token: c.token, Usages: []string{"signing", "authentication"}, Groups: []string{"system:bootstrappers:kubeadm:default-node-token"},
	}}
	spec.ClusterConfiguration.ControlPlaneEndpoint = o.cluster.Spec.ControlPlaneEndpoint.String()
	network := o.cluster.Spec.ClusterNetwork
	configuration, err := kubeadmtypes.MarshalClusterConfigurationForVersion(&spec.ClusterConfiguration, version, &upstream.AdditionalData{
		ClusterName: &o.cluster.Name, KubernetesVersion: &o.controlPlane.Spec.Version, DNSDomain: &network.ServiceDomain,
		ServiceSubnet: new(network.Services.String()), PodSubnet: new(network.Pods.String()),
	})
	if err != nil {
		t.Fatal(err)
	}
	initial, err := kubeadmtypes.MarshalInitConfigurationForVersion(&spec.InitConfiguration, version)
	if err != nil {
		t.Fatal(err)
	}
	data, err := cloudinit.NewInitControlPlane(&cloudinit.ControlPlaneInput{
		BaseUserData: baseUserData(t, spec, o.secrets), Certificates: c.certificates,
		ClusterConfiguration: configuration, InitConfiguration: initial,
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// baseUserData has the files of a spec after what they refer to has been read, as the bootstrap provider reads it.
func baseUserData(t *testing.T, spec *bootstrapv1.KubeadmConfigSpec, secrets map[string]corev1.Secret) cloudinit.BaseUserData {
	t.Helper()
	base := cloudinit.BaseUserData{PreKubeadmCommands: spec.PreKubeadmCommands, PostKubeadmCommands: spec.PostKubeadmCommands}
	for _, file := range spec.Files {
		if from := file.ContentFrom.Secret; from.Name != "" {
			content, found := secrets[from.Name].Data[from.Key]
			if !found {
				t.Fatalf("%s refers to key %s of Secret %s, which does not exist", file.Path, from.Key, from.Name)
			}
			file.ContentFrom, file.Content = bootstrapv1.FileSource{}, string(content)
		}
		base.AdditionalFiles = append(base.AdditionalFiles, file)
	}
	return base
}
