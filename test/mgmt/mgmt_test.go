package mgmt

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestCluster starts one cluster for all that needs one, because the start is most of the time.
func TestCluster(t *testing.T) {
	var steps []string
	cluster, err := Start(t.Context(), Options{Progress: func(step string) { steps = append(steps, step) }})
	if errors.Is(err, ErrNoAssets) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	if diff := cmp.Diff([]string{"starting etcd and kube-apiserver", "installing 22 CRDs"}, steps); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
	admin := newClient(t, cluster.Config())

	t.Run("the kinds of a classic Cluster can be created and read", func(t *testing.T) {
		testKinds(t, admin)
	})
	t.Run("a value that the schema of Cluster API forbids is refused", func(t *testing.T) {
		kcp := kubeadmControlPlane("refused")
		kcp.Spec.KubeadmConfigSpec.Files = []bootstrapv1.File{{Path: strings.Repeat("x", 513), Content: "x"}}
		if err := admin.Create(t.Context(), kcp); !apierrors.IsInvalid(err) {
			t.Errorf("got %v, want an Invalid error", err)
		}
	})
	t.Run("config/default applies, twice, and the manager may do what its role says and no more", func(t *testing.T) {
		testDefault(t, cluster, admin)
	})
	t.Run("config/samples applies", func(t *testing.T) {
		if err := cluster.ApplyKustomize(t.Context(), "../../config/samples"); err != nil {
			t.Fatal(err)
		}
		got := &clusterv1.Cluster{}
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "sample"}, got); err != nil {
			t.Fatal(err)
		}
		if got.Labels["capi-proxy-patcher.io/enabled"] != "true" {
			t.Errorf("labels %v lack the one that the sample is about", got.Labels)
		}
	})
	t.Run("a kubeconfig file opens the cluster to a client that knows nothing else", func(t *testing.T) {
		testKubeconfig(t, cluster)
	})
	t.Run("a ServiceAccount that does not exist gets no token", func(t *testing.T) {
		_, err := ServiceAccountConfig(t.Context(), cluster.Config(), "default", "nobody")
		if !apierrors.IsNotFound(err) ||
			!strings.HasPrefix(err.Error(), "requesting a token for ServiceAccount default/nobody: ") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a folder without a kustomization is an error that names it", func(t *testing.T) {
		if err := cluster.ApplyKustomize(t.Context(), "testdata"); err == nil ||
			!strings.HasPrefix(err.Error(), "building testdata: ") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("an object that the API server does not know is an error that names it", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "kustomization.yaml"), "resources: [unknown.yaml]\n")
		write(t, filepath.Join(dir, "unknown.yaml"),
			"apiVersion: example.com/v1\nkind: Unknown\nmetadata: {name: x, namespace: default}\n")
		if err := cluster.ApplyKustomize(t.Context(), dir); err == nil ||
			!strings.HasPrefix(err.Error(), "installing "+dir+": applying Unknown default/x: ") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the caller's copy of the configuration is the caller's", func(t *testing.T) {
		cluster.Config().Host = "elsewhere"
		if cluster.Config().Host == "elsewhere" {
			t.Error("a change of the returned configuration reached the cluster's own")
		}
	})
}

// testKinds creates one object of each kind that the tests of this repository are about.
func testKinds(t *testing.T, admin client.Client) {
	t.Helper()
	template := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: meta("workers")}
	template.Spec.Template.Spec.PreKubeadmCommands = []string{"true"}
	infrastructure := &unstructured.Unstructured{}
	infrastructure.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
	infrastructure.SetKind("DemoCluster")
	infrastructure.SetNamespace("default")
	infrastructure.SetName("classic")
	objects := []client.Object{
		&clusterv1.Cluster{ObjectMeta: meta("classic"), Spec: clusterv1.ClusterSpec{
			ControlPlaneRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: controlplanev1.GroupVersion.Group,
				Kind:     "KubeadmControlPlane", Name: "classic",
			},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: "infrastructure.cluster.x-k8s.io",
				Kind:     "DemoCluster", Name: "classic",
			},
		}},
		kubeadmControlPlane("classic"),
		template,
		infrastructure,
	}
	for _, object := range objects {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"true"}, template.Spec.Template.Spec.PreKubeadmCommands); diff != "" {
		t.Errorf("preKubeadmCommands (-want +got):\n%s", diff)
	}
	// spec and status of the stand-in provider keep what they are given.
	for _, field := range []string{"spec", "status"} {
		if err := unstructured.SetNestedField(infrastructure.Object, true, field, "anything"); err != nil {
			t.Fatal(err)
		}
	}
	if err := admin.Status().Update(t.Context(), infrastructure); err != nil {
		t.Fatal(err)
	}
	if kept, _, _ := unstructured.NestedBool(infrastructure.Object, "status", "anything"); !kept {
		t.Errorf("the status was not kept: %v", infrastructure.Object)
	}
}

func testDefault(t *testing.T, cluster *Cluster, admin client.Client) {
	t.Helper()
	for range 2 {
		if err := cluster.ApplyKustomize(t.Context(), "../../config/default"); err != nil {
			t.Fatal(err)
		}
	}
	deployment := &appsv1.Deployment{}
	if err := admin.Get(t.Context(),
		client.ObjectKey{Namespace: SystemNamespace, Name: "capi-proxy-patcher-controller-manager"}, deployment); err != nil {
		t.Fatal(err)
	}
	if got := deployment.Spec.Template.Spec.ServiceAccountName; got != ManagerAccount {
		t.Errorf("the manager runs as ServiceAccount %q, want %q", got, ManagerAccount)
	}
	config, err := ServiceAccountConfig(t.Context(), cluster.Config(), SystemNamespace, ManagerAccount)
	if err != nil {
		t.Fatal(err)
	}
	manager := newClient(t, config)
	for _, list := range []client.ObjectList{
		&clusterv1.ClusterList{}, &clusterv1.MachineDeploymentList{}, &clusterv1.MachinePoolList{},
		&controlplanev1.KubeadmControlPlaneList{}, &bootstrapv1.KubeadmConfigTemplateList{}, &bootstrapv1.KubeadmConfigList{},
	} {
		if err := manager.List(t.Context(), list); err != nil {
			t.Errorf("listing %T: %v", list, err)
		}
	}
	forbidden := map[string]func(context.Context) error{
		"creating a Cluster": func(ctx context.Context) error {
			return manager.Create(ctx, &clusterv1.Cluster{ObjectMeta: meta("forbidden")})
		},
		"deleting a KubeadmControlPlane": func(ctx context.Context) error { return manager.Delete(ctx, kubeadmControlPlane("classic")) },
		"listing ConfigMaps":             func(ctx context.Context) error { return manager.List(ctx, &corev1.ConfigMapList{}) },
		"listing nodes":                  func(ctx context.Context) error { return manager.List(ctx, &corev1.NodeList{}) },
		"deleting a Namespace": func(ctx context.Context) error {
			return manager.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: SystemNamespace}})
		},
	}
	for what, attempt := range forbidden {
		if err := attempt(t.Context()); !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want Forbidden", what, err)
		}
	}
	config.BearerToken += "x"
	if err := newClient(t, config).List(t.Context(), &clusterv1.ClusterList{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a forged token: got %v, want Unauthorized", err)
	}
}

func testKubeconfig(t *testing.T, cluster *Cluster) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := WriteKubeconfig(path, cluster.Config()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("mode %o, want 600", got)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := newClient(t, config).List(t.Context(), &corev1.NamespaceList{}); err != nil {
		t.Error(err)
	}
	if err := WriteKubeconfig(filepath.Join(path, "below-a-file"), cluster.Config()); err == nil ||
		!strings.HasPrefix(err.Error(), "writing kubeconfig: ") {
		t.Errorf("got %v", err)
	}
}

func TestStart_FailsWithoutPrograms(t *testing.T) {
	for name, dir := range map[string]string{"unset": "", "an empty folder": t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(AssetsVariable, dir)
			if _, err := Start(t.Context(), Options{}); !errors.Is(err, ErrNoAssets) {
				t.Errorf("got %v, want ErrNoAssets", err)
			}
		})
	}
}

// TestStart_LeavesNothingRunning lets the API server fail, for which etcd has to be running, and looks for processes of
// etcd.
func TestStart_LeavesNothingRunning(t *testing.T) {
	if !hasAssets() {
		t.Skip(ErrNoAssets)
	}
	dir, etcd := t.TempDir(), filepath.Join(os.Getenv(AssetsVariable), "etcd")
	script(t, filepath.Join(dir, "etcd"), `echo $$ >>'`+dir+`/pids'; exec '`+etcd+`' "$@"`)
	script(t, filepath.Join(dir, "kube-apiserver"), "exit 1")
	t.Setenv(AssetsVariable, dir)
	if _, err := Start(t.Context(), Options{}); err == nil ||
		!strings.HasPrefix(err.Error(), "starting the management cluster: ") {
		t.Errorf("got %v", err)
	}
	text, err := fs.ReadFile(os.DirFS(dir), "pids")
	if err != nil {
		t.Fatal(err)
	}
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d of etcd: got %v, want that it is gone", pid, err)
		}
	}
}

func TestStart_FailsOutsideOfTheModule(t *testing.T) {
	dir := t.TempDir()
	for _, program := range []string{"etcd", "kube-apiserver"} {
		if err := os.Symlink("/bin/sh", filepath.Join(dir, program)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(AssetsVariable, dir)
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil ||
		!strings.HasPrefix(err.Error(), "finding module sigs.k8s.io/cluster-api: ") {
		t.Errorf("got %v", err)
	}
}

func TestReadCRDs_RefusesAnEmptyFolder(t *testing.T) {
	t.Parallel()
	if _, err := readCRDs(t.TempDir()); err == nil ||
		!strings.HasPrefix(err.Error(), "reading CRDs of Cluster API: no YAML files in ") {
		t.Errorf("got %v", err)
	}
}

// TestCustomResourceDefinitions proves that all CRDs of v1.14.2 are found and usable without a webhook.
func TestCustomResourceDefinitions(t *testing.T) {
	t.Parallel()
	crds, err := customResourceDefinitions(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, crd := range crds {
		kinds = append(kinds, crd.Spec.Names.Kind)
		if len(crd.Spec.Versions) != 1 || crd.Spec.Versions[0].Name != "v1beta2" || !crd.Spec.Versions[0].Served ||
			!crd.Spec.Versions[0].Storage {
			t.Errorf("%s: versions are not exactly v1beta2, served and stored", crd.Name)
		}
		if crd.Spec.Conversion != nil {
			t.Errorf("%s: needs a conversion webhook", crd.Name)
		}
		if crd.Labels["cluster.x-k8s.io/v1beta2"] != "v1beta2" {
			t.Errorf("%s: lacks the label of its contract", crd.Name)
		}
	}
	slices.Sort(kinds)
	want := []string{
		"AWSCluster", "Cluster", "ClusterClass", "ClusterResourceSet", "ClusterResourceSetBinding", "DemoCluster", "DemoClusterTemplate", "DemoMachine",
		"DemoMachineTemplate", "ExtensionConfig", "IPAddress", "IPAddressClaim", "KubeadmConfig", "KubeadmConfigTemplate", "KubeadmControlPlane",
		"KubeadmControlPlaneTemplate", "Machine", "MachineDeployment", "MachineDrainRule", "MachineHealthCheck", "MachinePool", "MachineSet",
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}

func TestDecodeCRDs_RefusesOtherKinds(t *testing.T) {
	t.Parallel()
	_, err := decodeCRDs([]byte("apiVersion: v1\nkind: ConfigMap\n"))
	if err == nil || err.Error() != `document 1 has kind "ConfigMap" instead of CustomResourceDefinition` {
		t.Errorf("got %v", err)
	}
}

func kubeadmControlPlane(name string) *controlplanev1.KubeadmControlPlane {
	kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: meta(name)}
	kcp.Spec.Version = "v1.36.3"
	kcp.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "DemoMachineTemplate", Name: name,
	}
	return kcp
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name}
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme,
		bootstrapv1.AddToScheme, controlplanev1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// script writes an executable shell script.
func script(t *testing.T, path, body string) {
	t.Helper()
	write(t, path, "#!/bin/sh\n"+body+"\n")
	if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // it is there to be executed
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
