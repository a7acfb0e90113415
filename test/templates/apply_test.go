package templates

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2/textlogger"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	bootstrapadmission "sigs.k8s.io/cluster-api/bootstrap/kubeadm/webhooks/admission"
	controlplaneadmission "sigs.k8s.io/cluster-api/controlplane/kubeadm/webhooks/admission"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/manager"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/wait"
)

const patience = 30 * time.Second

// backend is what the kinds of the docker provider want to have in their spec. An unknown field is an error of the
// strict client of these tests.
func backend() apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{
		Type: "object", Required: []string{"backend"},
		Properties: map[string]apiextensionsv1.JSONSchemaProps{"backend": {
			Type: "object", Required: []string{"docker"},
			Properties: map[string]apiextensionsv1.JSONSchemaProps{"docker": {Type: "object"}},
		}},
	}
}

// infrastructure returns CRDs with the kinds of a provider: those of the docker provider, or of any other.
func infrastructure(prefix string, spec apiextensionsv1.JSONSchemaProps,
	suffixes ...string,
) []*apiextensionsv1.CustomResourceDefinition {
	const group = "infrastructure.cluster.x-k8s.io"
	object := func(field string, schema apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{
			Type: "object", Required: []string{field},
			Properties: map[string]apiextensionsv1.JSONSchemaProps{field: schema},
		}
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, suffix := range suffixes {
		schema := object("spec", spec)
		if strings.HasSuffix(suffix, "Template") {
			schema = object("spec", object("template", object("spec", spec)))
		}
		singular := strings.ToLower(prefix + suffix)
		crds = append(crds, &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{
				Name:   singular + "s." + group,
				Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"},
			},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: group, Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{
					Kind: prefix + suffix, ListKind: prefix + suffix + "List",
					Singular: singular, Plural: singular + "s",
				},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1beta2", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema},
				}},
			},
		})
	}
	return crds
}

// start starts an API server with the kinds that the templates need, and the manager. It returns a strict client.
func start(t *testing.T) client.Client {
	t.Helper()
	cluster := vocabulary.StartCluster(t, mgmt.Options{})
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	crds := slices.Concat(
		infrastructure("Dev", backend(), "Cluster", "ClusterTemplate", "MachineTemplate", "MachinePool",
			"MachinePoolTemplate"),
		infrastructure("Demo", anything, "MachinePool", "MachinePoolTemplate"), // mgmt has the others
	)
	if err := mgmt.InstallCRDs(cluster.Config(), crds); err != nil {
		t.Fatal(err)
	}
	user, err := vocabulary.NewClient(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	startManager(t, cluster)
	return client.WithFieldValidation(user, client.FieldValidation(metav1.FieldValidationStrict))
}

func startManager(t *testing.T, cluster *mgmt.Cluster) {
	t.Helper()
	config, err := cluster.InstallProduct(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.Discard)))
	ctrl.SetLogger(log)
	ctx, stop := context.WithCancel(ctrl.LoggerInto(t.Context(), log))
	serving := manager.Serving{
		HealthAddr: "0", ManagerOptions: flags.ManagerOptions{DiagnosticsAddress: "0"}, Log: log,
	}
	mgr, err := manager.New(ctx, config, manager.Options{
		Extensions:  []manager.Extension{publish.New()},
		Concurrency: 10, SyncPeriod: time.Minute, QPS: -1,
		Serving: serving,
	})
	if err != nil {
		stop()
		t.Fatal(err)
	}
	stopped := make(chan error)
	go func() { stopped <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// applied is a template in an API server.
type applied struct {
	client.Client

	t    *testing.T
	ns   string
	name string
}

// TestTemplates_WorkInAManagementCluster applies what a user applies together, and waits for what the manager makes of
// it.
func TestTemplates_WorkInAManagementCluster(t *testing.T) {
	if err := feature.MutableGates.Set(string(feature.KubeadmBootstrapFormatIgnition) + "=true"); err != nil {
		t.Fatal(err)
	}
	user := start(t)
	t.Run("with", func(t *testing.T) { // returns when all that is below has
		for i, names := range templateSets(t) {
			for kind, v := range map[string]values{"usual": usual(nil), "odd": odd()} {
				t.Run(strings.TrimSuffix(names[len(names)-1], ".yaml")+" and "+kind+" values", func(t *testing.T) {
					t.Parallel()
					v["NAMESPACE"] = fmt.Sprintf("%s-%d", kind, i)
					a := applied{Client: user, t: t, ns: v["NAMESPACE"], name: v["CLUSTER_NAME"]}
					a.apply(names, v)
					if len(names) == 2 {
						a.checkClass(v)
						return
					}
					a.checkBefore()
					a.setEndpoint()
					a.checkAfter()
				})
			}
		}
	})
	t.Run("config/samples", func(t *testing.T) {
		a := applied{Client: user, t: t, ns: metav1.NamespaceDefault, name: "sample"}
		samples, err := mgmt.Kustomize("../../config/samples")
		if err != nil {
			t.Fatal(err)
		}
		if err := mgmt.Apply(t.Context(), user, samples); err != nil {
			t.Fatal(err)
		}
		a.eventuallyReports(contract.ReasonWaitingForObjects) // the control plane is not part of it
	})
	t.Run("as render does", func(t *testing.T) { testRender(t, user) }) // a process has one manager
}

// apply creates the namespace, the proxy Secret and all objects of templates.
func (a applied) apply(names []string, v values) {
	a.t.Helper()
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	namespace.SetName(a.ns)
	all := append([]*unstructured.Unstructured{namespace}, objects(a.t, read(a.t, secretFile))...)
	for _, name := range names {
		all = append(all, objects(a.t, fill(a.t, read(a.t, name), v))...)
	}
	for _, object := range all {
		if object.GetKind() == "Secret" {
			object.SetNamespace(a.ns)
		}
		if err := a.Create(a.t.Context(), object); err != nil {
			a.t.Fatalf("creating %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// eventually waits for problem to return "".
func (a applied) eventually(problem func() string) {
	a.t.Helper()
	wait.Rule{Still: patience, Poll: 250 * time.Millisecond}.Until(a.t, "Cluster "+a.name, problem)
}

func (a applied) get(name string, object client.Object) {
	a.t.Helper()
	vocabulary.Fetch(a.t, a, a.ns, name, object)
}

func (a applied) reason() string {
	var cluster clusterv1.Cluster
	a.get(a.name, &cluster)
	condition := vocabulary.Condition(&cluster)
	return condition.Reason + ": " + condition.Message
}

func (a applied) eventuallyReports(reason string) {
	a.t.Helper()
	a.eventually(func() string {
		if got := a.reason(); !strings.HasPrefix(got, reason+": ") {
			return fmt.Sprintf("condition is %s, want %s", got, reason)
		}
		return ""
	})
}

func (a applied) setEndpoint() {
	a.t.Helper()
	var cluster clusterv1.Cluster
	a.get(a.name, &cluster)
	patch := client.MergeFrom(cluster.DeepCopy())
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "endpoint.example.com", Port: 6443}
	if err := a.Patch(a.t.Context(), &cluster, patch); err != nil {
		a.t.Fatal(err)
	}
}

// checkBefore checks what is there before the endpoint is known, as with the docker provider.
func (a applied) checkBefore() {
	a.t.Helper()
	a.eventuallyReports(contract.ReasonWaitingForEndpoint)
	var controlPlane controlplanev1.KubeadmControlPlane
	a.get(a.name+"-control-plane", &controlPlane)
	if !slices.ContainsFunc(controlPlane.Spec.KubeadmConfigSpec.Files,
		func(f bootstrapv1.File) bool { return f.Path == contract.PathProxyEnv }) {
		a.t.Error("the control plane does not carry the proxy")
	}
}

// checkAfter checks what is there when all is known.
func (a applied) checkAfter() {
	a.t.Helper()
	a.eventuallyReports(contract.ReasonConfigured)
	for name, spec := range a.specs() {
		before := spec.PreKubeadmCommands
		if len(before) == 0 || strings.HasSuffix(before[0], `a node"`) || !strings.HasSuffix(before[0], contract.Name) {
			a.t.Errorf("%s does not begin with a command of ours: %q", name, before)
		}
		proxy := ""
		for _, file := range spec.Files {
			if file.Permissions == "" {
				a.t.Errorf("%s: %s has no permissions, which Ignition refuses", name, file.Path)
			}
			if strings.Contains(file.Path, "containerd.service.d") {
				proxy = file.Content
			}
		}
		want := "EnvironmentFile=-" + contract.PathProxyEnv
		if !strings.Contains(proxy, want) {
			a.t.Errorf("%s: the drop-in of containerd lacks %s:\n%s", name, want, proxy)
		}
	}
	a.checkValues(a.generated())
}

func (a applied) checkValues(env string) {
	a.t.Helper()
	for _, part := range []string{"proxy.corp.example:3128", "endpoint.example.com", ".corp.example", "10.20.0.0/16"} {
		if !strings.Contains(env, part) {
			a.t.Errorf("the generated Secret lacks %s:\n%s", part, env)
		}
	}
}

// generated returns proxy.env of the generated Secret, "" if there is none.
func (a applied) generated() string {
	var secret corev1.Secret
	err := a.Get(a.t.Context(), client.ObjectKey{Namespace: a.ns, Name: a.name + contract.GeneratedSecretSuffix}, &secret)
	if err != nil && !apierrors.IsNotFound(err) {
		a.t.Fatal(err)
	}
	return string(secret.Data[contract.KeyProxyEnv])
}

// specs returns the bootstrap specs that are there, after Cluster API's own admission webhooks have taken them.
func (a applied) specs() map[string]bootstrapv1.KubeadmConfigSpec {
	a.t.Helper()
	specs := map[string]bootstrapv1.KubeadmConfigSpec{}
	var (
		controlPlanes controlplanev1.KubeadmControlPlaneList
		templates     bootstrapv1.KubeadmConfigTemplateList
		configs       bootstrapv1.KubeadmConfigList
		problems      []error
	)
	for _, list := range []client.ObjectList{&controlPlanes, &templates, &configs} {
		if err := a.List(a.t.Context(), list, client.InNamespace(a.ns)); err != nil {
			a.t.Fatal(err)
		}
	}
	for _, o := range controlPlanes.Items {
		_, err := (&controlplaneadmission.KubeadmControlPlane{}).ValidateCreate(a.t.Context(), &o)
		problems = append(problems, err)
		specs["KubeadmControlPlane "+o.Name] = o.Spec.KubeadmConfigSpec
	}
	for _, o := range templates.Items {
		_, err := (&bootstrapadmission.KubeadmConfigTemplate{}).ValidateCreate(a.t.Context(), &o)
		problems = append(problems, err)
		specs["KubeadmConfigTemplate "+o.Name] = o.Spec.Template.Spec
	}
	for _, o := range configs.Items {
		_, err := (&bootstrapadmission.KubeadmConfig{}).ValidateCreate(a.t.Context(), &o)
		problems = append(problems, err)
		specs["KubeadmConfig "+o.Name] = o.Spec
	}
	if err := errors.Join(problems...); err != nil {
		a.t.Error(err)
	}
	if len(specs) != 2 {
		a.t.Errorf("%d bootstrap objects, want 2", len(specs))
	}
	return specs
}

// checkClass checks a ClusterClass as the API server has it, and that its Clusters get their Secret.
func (a applied) checkClass(v values) {
	a.t.Helper()
	name := v["CLUSTER_CLASS"]
	var cluster clusterv1.Cluster
	a.get(a.name, &cluster)
	if name == "" {
		name = cluster.Spec.Topology.ClassRef.Name
	}
	var class clusterv1.ClusterClass
	a.get(name, &class)
	want := []clusterv1.ClusterClassPatch{{Name: contract.Name, External: &clusterv1.ExternalPatchDefinition{
		GeneratePatchesExtension:   contract.HandlerGeneratePatches + "." + contract.Name,
		ValidateTopologyExtension:  contract.HandlerValidateTopology + "." + contract.Name,
		DiscoverVariablesExtension: contract.HandlerDiscoverVariables + "." + contract.Name,
	}}}
	if diff := cmp.Diff(want, class.Spec.Patches); diff != "" {
		a.t.Errorf("patches (-want +got):\n%s", diff)
	}
	a.setEndpoint()
	a.eventually(func() string {
		if a.generated() == "" {
			return "there is no generated Secret; condition is " + a.reason()
		}
		return ""
	})
	a.checkValues(a.generated())
}
