package check_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/check"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/reported"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// world is a management cluster of the tests. A test breaks one thing of it.
type world struct {
	objects map[string]client.Object
	// missing are kinds that the API server does not serve, forbidden kinds that the user may not read, denied rights that
	// reviews deny.
	missing, forbidden, denied string
	// away makes every request fail; unpatched has no webhook answer.
	away, unpatched bool
	rows            []reported.Row
	noProxy         string
}

const labels = "labels: {cluster.x-k8s.io/provider: runtime-extension-capi-proxy-patcher, control-plane: controller-manager}"

const objects = `
core: {apiVersion: apps/v1, kind: Deployment, metadata: {name: capi-controller-manager, namespace: capi-system, labels: {cluster.x-k8s.io/provider: cluster-api}},
  spec: {template: {spec: {containers: [{name: manager, image: "registry.k8s.io/capi:v1.14.2@sha256:aa", args: ["--feature-gates=ClusterTopology=true,RuntimeSDK=true"]}]}}}}
manager: {apiVersion: apps/v1, kind: Deployment, metadata: {name: manager, namespace: sys, LABELS}, status: {availableReplicas: 2, updatedReplicas: 2},
  spec: {replicas: 2, template: {spec: {serviceAccountName: m, containers: [{name: manager, image: "r/p:v0.1.0", args: [manager, --webhook-cert-dir=/x]}]}}}}
a: {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: sys, LABELS}, spec: {nodeName: n1}, status: {conditions: [{type: Ready, status: "True"}], containerStatuses: [{name: manager, imageID: "r/p@sha256:11"}]}}
b: {apiVersion: v1, kind: Pod, metadata: {name: b, namespace: sys, LABELS}, spec: {nodeName: n2}, status: {conditions: [{type: Ready, status: "True"}], containerStatuses: [{name: manager, imageID: "r/p@sha256:11"}]}}
lease: {apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: capi-proxy-patcher.io, namespace: sys}, spec: {holderIdentity: a, leaseDurationSeconds: 15, renewTime: "2026-01-01T11:59:55.000000Z"}}
policy: {apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: guard, LABELS}}
binding: {apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: guard, LABELS}, spec: {policyName: guard, validationActions: [Deny]}}
webhooks: {apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: w, LABELS}}
cluster: {apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: prod, namespace: team-a, labels: {capi-proxy-patcher.io/enabled: "true"}},
  spec: {controlPlaneRef: {kind: KubeadmControlPlane, name: prod}}, status: {conditions: [{type: capi-proxy-patcher.io/ProxyConfigured, status: "True"}]}}
machine: {apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {name: prod-0, namespace: team-a, labels: {cluster.x-k8s.io/cluster-name: prod}},
  status: {addresses: [{type: InternalIP, address: 10.1.2.3}, {type: ExternalIP, address: 203.0.113.1}]}}
`

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{objects: map[string]client.Object{}, noProxy: "10.0.0.0/8"}
	row := reported.RowOf(&clusterv1.Cluster{}, nil)
	row.Namespace, row.Name, row.Secret, row.Status, row.Reason = "team-a", "prod", "team-a/http-proxy", "True", "Configured"
	row.ControlPlane.State, row.Pools.State = reported.UpToDate, reported.UpToDate
	w.rows = []reported.Row{row}
	var all map[string]map[string]any
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(objects, "LABELS", labels)), &all); err != nil {
		t.Fatal(err)
	}
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	for name, fields := range all {
		object := &unstructured.Unstructured{Object: fields}
		w.objects[name] = object
		if typed, err := scheme.New(object.GroupVersionKind()); err == nil {
			text, _ := json.Marshal(fields)
			if err := json.Unmarshal(text, typed); err != nil {
				t.Fatal(name, err)
			}
			w.objects[name], _ = typed.(client.Object)
		}
	}
	return w
}

// webhook adds a webhook that calls a Service.
func (w *world) webhook(namespace, service string, bundle []byte) {
	webhooks, _ := w.objects["webhooks"].(*admissionregistrationv1.MutatingWebhookConfiguration)
	webhooks.Webhooks = append(webhooks.Webhooks, admissionregistrationv1.MutatingWebhook{
		Name: "one", ClientConfig: admissionregistrationv1.WebhookClientConfig{
			CABundle: bundle, Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: service},
		},
	})
}

func (w *world) deployment(name string) *appsv1.Deployment {
	d, _ := w.objects[name].(*appsv1.Deployment)
	return d
}

func (w *world) options(t *testing.T) check.Options {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2"}})
	for kind := range scheme.AllKnownTypes() {
		if kind.Kind != w.missing {
			mapper.Add(kind, meta.RESTScopeNamespace)
		}
	}
	for _, kind := range []schema.GroupVersionKind{
		{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"},
		{Group: "runtime.cluster.x-k8s.io", Version: "v1beta2", Kind: "ExtensionConfig"},
		{Group: "clusterctl.cluster.x-k8s.io", Version: "v1alpha3", Kind: "Provider"},
		{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: "DevCluster"},
	} {
		if kind.Kind != w.missing {
			mapper.Add(kind, meta.RESTScopeNamespace)
		}
	}
	all := make([]client.Object, 0, len(w.objects))
	for _, object := range w.objects {
		all = append(all, object)
	}
	refuse := func(object any) error {
		_, name, _ := strings.Cut(strings.TrimSuffix(fmt.Sprintf("%T", object), "List"), ".")
		if untyped, ok := object.(*unstructured.Unstructured); ok {
			name = untyped.GetKind()
		}
		if metadata, ok := object.(*metav1.PartialObjectMetadataList); ok {
			name = strings.TrimSuffix(metadata.Kind, "List")
		}
		switch {
		case w.away:
			return context.DeadlineExceeded
		case name == w.forbidden, w.forbidden == "*", w.forbidden == "*Cluster" && name != "Cluster":
			return apierrors.NewForbidden(schema.GroupResource{Resource: name}, "", nil)
		}
		return nil
	}
	stored := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(all...).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if err := refuse(o); err != nil {
					return err
				}
				return c.Get(ctx, key, o, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if err := refuse(list); err != nil {
					return err
				}
				if metadata, ok := list.(*metav1.PartialObjectMetadataList); ok && metadata.Kind == "SecretList" {
					given := client.ListOptions{}
					given.ApplyOptions(opts)
					if given.FieldSelector == nil || given.FieldSelector.String() != "type=Opaque" {
						t.Errorf("lists Secrets with %v", given.FieldSelector)
					}
					given.FieldSelector = nil // for which the client has no index
					opts = []client.ListOption{&given}
				}
				return c.List(ctx, list, opts...)
			},
			Create: func(_ context.Context, _ client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				given := client.CreateOptions{}
				given.ApplyOptions(opts)
				if len(given.DryRun) != 1 {
					t.Errorf("%T is written", o)
				}
				switch o := o.(type) {
				case *authorizationv1.SelfSubjectAccessReview:
					o.Status.Allowed = o.Spec.ResourceAttributes.Resource != w.denied
				case *authorizationv1.SubjectAccessReview:
					o.Status.Allowed = o.Spec.ResourceAttributes.Resource != w.denied
				case *unstructured.Unstructured:
					if !w.unpatched {
						o.Object["spec"] = map[string]any{"preKubeadmCommands": []any{"x # capi-proxy-patcher", "true"}}
					}
				}
				return refuse(o)
			},
		}).Build()
	shown := api.NewClient(stored)
	return check.Options{
		Client: shown, Namespace: "sys", Version: "v0.1.0", Now: func() time.Time { return noon },
		Cluster: types.NamespacedName{Namespace: "team-a", Name: "prod"},
		Rows: func(context.Context, types.NamespacedName) (reported.Result, error) {
			return reported.Result{Rows: w.rows, NoSecrets: w.forbidden == "Secret"}, refuse(&clusterv1.ClusterList{})
		},
		NoProxy: func(context.Context) (string, error) { return w.noProxy, nil },
		Clients: []check.NoProxyClient{{Name: "kubelet", Proxied: func(noProxy, url string) bool {
			return noProxy == "" && url == "https://10.1.2.3:443"
		}}},
	}
}

func resultsOf(r check.Report) map[string]check.Result {
	results := map[string]check.Result{}
	for _, group := range r.Groups {
		for _, result := range group.Checks {
			results[string(result.Check)] = result
		}
	}
	return results
}

// TestRun_PrintsTheSameAsGolden has one world in which everything is right, and one in which much is wrong.
func TestRun_PrintsTheSameAsGolden(t *testing.T) {
	t.Parallel()
	broken := newWorld(t)
	broken.missing, broken.forbidden, broken.unpatched, broken.noProxy = "Certificate", "Pod", true, ""
	delete(broken.objects, "lease")
	delete(broken.objects, "binding")
	broken.rows[0].Status, broken.rows[0].Reason = "False", "SettingsNotFound"
	broken.rows[0].Message = "* Secret x\n* \x1b[2J" + strings.Repeat("long ", 400)
	for name, w := range map[string]*world{"right": newWorld(t), "broken": broken} {
		report := check.Run(t.Context(), w.options(t))
		var text bytes.Buffer
		if err := report.Text(&text); err != nil {
			t.Fatal(err)
		}
		data, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		for path, got := range map[string]string{"testdata/" + name + ".txt": text.String(), "testdata/" + name + ".json": string(data) + "\n"} {
			golden.Equal(t, path, got)
		}
	}
}

// TestRun_NamesWhatIsBroken breaks one thing of a world in which everything is right.
func TestRun_NamesWhatIsBroken(t *testing.T) {
	t.Parallel()
	type test struct {
		check string
		want  check.Status
		edit  func(w *world)
	}
	reason := func(status, name string) func(*world) {
		return func(w *world) { w.rows[0].Status, w.rows[0].Reason = status, name }
	}
	tests := map[string]test{
		"Cluster API is too new": {"cluster-api-version", check.Failed, func(w *world) {
			w.deployment("core").Spec.Template.Spec.Containers[0].Image = "capi:v1.15.0"
		}},
		"the inventory counts more than the image": {"cluster-api-version", check.Failed, func(w *world) {
			w.objects["provider"] = &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Provider", "type": "CoreProvider", "version": "v1.12.9",
				"metadata": map[string]any{"name": "cluster-api", "namespace": "capi-system"},
			}}
		}},
		"a version that is none": {"cluster-api-version", check.Skipped, func(w *world) { w.deployment("core").Spec.Template.Spec.Containers[0].Image = "capi:main" }},
		"no kubeadm provider":    {"cluster-api-kinds", check.Failed, func(w *world) { w.missing = "KubeadmControlPlane" }},
		"no cert-manager": {"cert-manager", check.Failed, func(w *world) {
			w.missing = "Certificate"
			w.webhook("sys", "w", nil)
		}},
		"no cert-manager, no webhooks": {"cert-manager", check.Skipped, func(w *world) { w.missing = "Certificate" }},
		"feature gates are off":        {"feature-gates", check.Skipped, func(w *world) { w.deployment("core").Spec.Template.Spec.Containers[0].Args = nil }},
		"no replica is available":      {"deployments", check.Failed, func(w *world) { w.deployment("manager").Status.AvailableReplicas = 1 }},
		"no manager":                   {"deployments", check.Failed, func(w *world) { delete(w.objects, "manager") }},
		"one node":                     {"replicas", check.Warning, func(w *world) { delete(w.objects, "b") }},
		"another version":              {"version", check.Failed, func(w *world) { w.deployment("manager").Spec.Template.Spec.Containers[0].Image = "r/p:v0.2.0" }},
		"another digest": {"version", check.Failed, func(w *world) {
			w.deployment("manager").Spec.Template.Spec.Containers[0].Image = "r/p:v0.1.0@sha256:22"
		}},
		"no Lease": {"lease", check.Failed, func(w *world) { delete(w.objects, "lease") }},
		"an old Lease": {"lease", check.Failed, func(w *world) {
			lease, _ := w.objects["lease"].(*coordinationv1.Lease)
			lease.Spec.RenewTime = &metav1.MicroTime{Time: noon.Add(-time.Minute)}
		}},
		"no guard":               {"guard", check.Warning, func(w *world) { delete(w.objects, "policy") }},
		"a guard without effect": {"guard", check.Failed, func(w *world) { delete(w.objects, "binding") }},
		"a right is missing":     {"permissions", check.Failed, func(w *world) { w.denied = "kubeadmconfigs" }},
		"no webhook answers":     {"admission", check.Failed, func(w *world) { w.unpatched = true }},
		"no webhooks":            {"admission", check.Failed, func(w *world) { delete(w.objects, "webhooks") }},
		"no witness that is configured": {"admission", check.Skipped, func(w *world) {
			w.cluster().Status.Conditions[0].Status = metav1.ConditionFalse
		}},
		"a witness without a condition": {"admission", check.Skipped, func(w *world) { w.cluster().Status.Conditions = nil }},
		"a witness that is paused":      {"admission", check.Skipped, func(w *world) { w.cluster().Spec.Paused = new(true) }},
		"another control plane": {"admission", check.Skipped, func(w *world) {
			w.cluster().Spec.ControlPlaneRef.Kind = "RKE2ControlPlane"
		}},
		"a witness that is being deleted": {"admission", check.Skipped, func(w *world) {
			w.cluster().DeletionTimestamp, w.cluster().Finalizers = new(metav1.NewTime(noon)), []string{clusterv1.ClusterFinalizer}
		}},
		"a Secret without label": {"cluster-secret", check.Warning, func(w *world) { w.rows[0].Warning = "unlabelled-secret" }},
		"its Secret without it": {"cluster-secret", check.Warning, func(w *world) {
			w.rows[0].Warning, w.rows[0].Secret = "unlabelled-secret", "team-a/http-proxy"
		}},
		"no label": {"cluster-label", check.Failed, func(w *world) { w.objects["cluster"].SetLabels(nil) }},
		"a bad label": {"cluster-label", check.Failed, func(w *world) {
			w.objects["cluster"].SetLabels(map[string]string{"capi-proxy-patcher.io/enabled": "yes"})
		}},
		"a Cluster that is disabled": {"cluster-condition", check.Skipped, func(w *world) {
			w.rows[0].Reason, w.rows[0].Disabled = "", true
		}},
		"a Cluster that is not labelled": {"cluster-condition", check.Skipped, func(w *world) { w.rows = nil }},
		"no Cluster":                     {"cluster-label", check.Failed, func(w *world) { delete(w.objects, "cluster") }},
		"Machines are behind":            {"cluster-machines", check.Warning, func(w *world) { w.rows[0].Behind = []outdated.Behind{{Machines: 2}} }},
		"NO_PROXY has no nodes":          {"cluster-addresses", check.Warning, func(w *world) { w.noProxy = "" }},
		"forbidden":                      {"replicas", check.Skipped, func(w *world) { w.forbidden = "Pod" }},
	}
	for _, name := range []string{"InvalidSettings", "SettingsNotFound", "NameTaken", "ConflictingFile", "SharedTemplate", "Contested", "TemplateNotSupported", "InternalError"} {
		tests["condition "+name] = test{"cluster-condition", check.Failed, reason("False", name)}
	}
	for _, name := range []string{"Configuring", "WaitingForRollout", "RemovalWaitingForRollout", "WaitingForControlPlaneEndpoint", "WaitingForObjects", "Paused"} {
		tests["condition "+name] = test{"cluster-condition", check.Warning, reason("False", name)}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if before := resultsOf(check.Run(t.Context(), w.options(t)))[test.check]; before.Status != check.OK {
				t.Errorf("before: %+v", before)
			}
			test.edit(w)
			got := resultsOf(check.Run(t.Context(), w.options(t)))[test.check]
			if got.Status != test.want || got.Message == "" {
				t.Errorf("%+v, want %s", got, test.want)
			}
			needs := test.want == check.Failed || test.want == check.Warning
			said := test.want == check.Failed && (test.check == "cluster-condition" || name == "a bad label") // its message is the fix
			if needs && !said != (got.Do != "") || needs != strings.Contains(got.Link, "/docs/troubleshooting.md#") {
				t.Errorf("%+v has no advice, or needs none", got)
			}
			if name == "its Secret without it" &&
				got.Do != "kubectl -n team-a label secret http-proxy capi-proxy-patcher.io/proxy=" {
				t.Errorf("it says do: %s", got.Do)
			}
			if name == "a bad label" && !strings.HasSuffix(got.Link, "#bad-label") {
				t.Errorf("the link is %s", got.Link)
			}
			if code, is := strings.CutPrefix(name, "condition "); is &&
				(!strings.HasSuffix(got.Link, "#"+strings.ToLower(code)) || !strings.HasPrefix(got.Message, code+": ")) {
				t.Errorf("%s, and the link is %s", got.Message, got.Link)
			}
		})
	}
}

// TestRun_ReadsAddressesOfTheInfrastructure has an object of the provider, or none, beside a Machine.
func TestRun_ReadsAddressesOfTheInfrastructure(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"dev": "ok: 2 internal addresses", "gone": "ok: 1 internal addresses"} {
		w := newWorld(t)
		w.cluster().Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "DevCluster", Name: name,
		}
		w.objects["infrastructure"] = decoded(t, `{apiVersion: infrastructure.cluster.x-k8s.io/v1beta2, kind: DevCluster, metadata: {name: dev, namespace: team-a},
			spec: {subnet: 172.16.0.0/24, public: 203.0.113.7}}`)
		got := resultsOf(check.Run(t.Context(), w.options(t)))["cluster-addresses"]
		if text := string(got.Status) + ": " + got.Message; !strings.HasPrefix(text, want) {
			t.Errorf("%s: got %q, want %q", name, text, want)
		}
	}
}

// TestBrief_SaysWhetherAManagerRuns has a user with and without the right to look, and an installation elsewhere.
func TestBrief_SaysWhetherAManagerRuns(t *testing.T) {
	t.Parallel()
	const (
		renewed = "A manager renews Lease sys/capi-proxy-patcher.io.\n"
		nobody  = "The table may be old: no manager holds Lease sys/capi-proxy-patcher.io.\n"
		unread  = "The table may be old: cannot read Lease sys/capi-proxy-patcher.io of the manager: "
		broken  = "The installation in namespace sys does not work (lease): run capi-proxy-patcher check --manager-namespace sys\n"
	)
	lease := func(change func(*coordinationv1.LeaseSpec)) func(*world) {
		return func(w *world) {
			lease, _ := w.objects["lease"].(*coordinationv1.Lease)
			change(&lease.Spec)
		}
	}
	for name, test := range map[string]struct {
		namespace string // where nobody may look for it
		change    func(*world)
		want      string
	}{
		"all is right": {"", func(*world) {}, renewed},
		"no Lease":     {"", func(w *world) { delete(w.objects, "lease") }, nobody + broken},
		"a manager that ended": {
			"", lease(func(s *coordinationv1.LeaseSpec) { s.HolderIdentity = nil }), nobody + broken,
		},
		"a manager that stopped": {
			"", lease(func(s *coordinationv1.LeaseSpec) { s.RenewTime = &metav1.MicroTime{Time: noon.Add(-time.Hour)} }),
			"The table may be old: a has not renewed Lease sys/capi-proxy-patcher.io for 60m.\n" + broken,
		},
		"a Lease without a renewal": {
			"", lease(func(s *coordinationv1.LeaseSpec) { s.RenewTime = nil }), nobody + broken,
		},
		"no right to look":       {"sys", func(w *world) { w.forbidden = "Deployment" }, renewed},
		"no right to the Lease":  {"", func(w *world) { w.forbidden = "Lease" }, unread + "missing right"},
		"the API server is away": {"sys", func(w *world) { w.away = true }, unread},
		"no manager": {"sys", func(w *world) {
			delete(w.objects, "lease")
			for name, object := range w.objects {
				if _, deployment := object.(*appsv1.Deployment); deployment {
					delete(w.objects, name)
				}
			}
		}, nobody},
	} {
		w := newWorld(t)
		test.change(w)
		o := w.options(t)
		o.Namespace = test.namespace
		got := check.Brief(t.Context(), o)
		if part := strings.HasPrefix(test.want, unread); !strings.HasPrefix(got, test.want) || !part && got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestPre_NamesTheMissingRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if got := check.Pre(t.Context(), w.options(t)); got.Status != check.OK {
		t.Errorf("%+v", got)
	}
	w.missing = "Certificate"
	if got := resultsOf(check.Pre(t.Context(), w.options(t)))["cert-manager"]; got.Status != check.Failed {
		t.Errorf("%+v", got)
	}
	w.denied = "clusterroles"
	got := resultsOf(check.Pre(t.Context(), w.options(t)))["rights"]
	if got.Status != check.Failed || !strings.Contains(got.Message, "clusterroles") {
		t.Errorf("%+v", got)
	}
}

// TestCertificates_AreVerified has a webhook with a certificate of its own authority.
func TestCertificates_AreVerified(t *testing.T) {
	t.Parallel()
	certificate := func(until time.Time) []byte {
		return pki.Make(t, "w", func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter, c.DNSNames = noon.Add(-time.Hour), until, []string{"w.sys.svc"}
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}).PEM
	}
	good, soon, old := certificate(noon.AddDate(0, 2, 0)), certificate(noon.AddDate(0, 0, 3)), certificate(noon.Add(-time.Minute))
	for name, test := range map[string]struct {
		served, bundle []byte
		service        string
		want           check.Status
		message        string
	}{
		"right":         {good, good, "w", check.OK, "1 callers trust"},
		"another CA":    {good, soon, "w", check.Failed, "does not trust"},
		"another name":  {good, good, "x", check.Failed, "does not trust"},
		"no CA bundle":  {good, nil, "w", check.Failed, "has no CA bundle"},
		"expires soon":  {soon, soon, "w", check.Warning, "expires in 3d"},
		"expired":       {old, old, "w", check.Failed, "expired on 2026-01-01"},
		"not PEM":       {[]byte("x"), good, "w", check.Failed, "has no certificate"},
		"no such thing": {nil, good, "w", check.Failed, "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.webhook("sys", test.service, test.bundle)
			w.webhook("other", "w", soon) // of another installation, as its hooks
			w.add(t, `{apiVersion: runtime.cluster.x-k8s.io/v1beta2, kind: ExtensionConfig, metadata: {name: theirs},
				spec: {clientConfig: {service: {name: capi-proxy-patcher-hooks, namespace: other}}}}`)
			deployment, _ := w.objects["manager"].(*appsv1.Deployment)
			deployment.Spec.Template.Spec.Volumes = []corev1.Volume{{
				Name: "cert", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "cert"}},
			}}
			if test.served != nil {
				w.objects["secret"] = &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: "cert"}, Data: map[string][]byte{corev1.TLSCertKey: test.served},
				}
			}
			got := resultsOf(check.Run(t.Context(), w.options(t)))["certificates"]
			if got.Status != test.want || !strings.Contains(got.Message, test.message) {
				t.Errorf("%+v, want %s, %s", got, test.want, test.message)
			}
		})
	}
}
