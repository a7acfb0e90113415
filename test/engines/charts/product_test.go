package charts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/cli"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

const (
	image  = "registry.example.com/team/capi-proxy-patcher"
	digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// TestChart is about the Helm chart of the product, as a release has it.
func TestChart(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "chart")
	cmd := exec.CommandContext(t.Context(), "go", "run", "./hack/chart", "-version", "v0.1.0", "-image", image, "-out", out)
	cmd.Dir = "../../.."
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for name, test := range map[string]func(*testing.T, *chart.Chart){
		"is the kustomization": isTheKustomization, "has the values": hasTheValues,
		"accepts documented values":            acceptsDocumentedValues,
		"refuses values that it does not have": refusesOtherValues,
		"refuses values without effect":        refusesValuesWithoutEffect,
		"has a README and NOTES":               hasTexts,
		"is installed, upgraded and removed":   isInstalledUpgradedAndRemoved,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loaded, err := loader.Load(out)
			if err != nil {
				t.Fatal(err)
			}
			test(t, loaded)
		})
	}
}

// values returns values of a chart that are written like those of --set-json.
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	found := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// objectsOf returns the objects of manifests by kind, namespace and name, without Namespaces.
func objectsOf(t *testing.T, manifests ...string) map[string]any {
	t.Helper()
	found := map[string]any{}
	for _, text := range manifests {
		for decoder := k8syaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
			object := &unstructured.Unstructured{}
			if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			if webhooks, there, _ := unstructured.NestedSlice(object.Object, "webhooks"); there { // patches change their order
				slices.SortFunc(webhooks, func(a, b any) int {
					return strings.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
				})
				object.Object["webhooks"] = webhooks
			}
			if len(object.Object) > 0 && object.GetKind() != "Namespace" {
				found[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()] = object.Object
			}
		}
	}
	return found
}

// rendered renders the chart in Helm's engine.
func rendered(t *testing.T, c *chart.Chart, namespace string, given map[string]any) map[string]any {
	t.Helper()
	files, err := files(c, namespace, given, nil)
	if err != nil {
		t.Fatal(err)
	}
	delete(files, c.Name()+notes)
	return objectsOf(t, slices.Collect(maps.Values(files))...)
}

const notes = "/templates/NOTES.txt"

// files renders the files of the chart for a cluster that serves API versions, or for none.
func files(c *chart.Chart, namespace string, given map[string]any, served []string) (map[string]string, error) {
	var capabilities *chartutil.Capabilities
	if served != nil {
		capabilities = chartutil.DefaultCapabilities.Copy()
		capabilities.APIVersions = slices.Concat(capabilities.APIVersions, served)
	}
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: "any", Namespace: namespace}, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// kustomized builds a kustomization beside a copy of config, as kubectl kustomize does.
func kustomized(t *testing.T, config, text string) map[string]any {
	t.Helper()
	folder := filepath.Join(config, "test")
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	objects, err := mgmt.Kustomize(folder)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	var out bytes.Buffer
	for _, object := range objects {
		document, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "---\n%s", document)
	}
	return objectsOf(t, out.String())
}

// arguments has a kustomization end the arguments of a Deployment as the chart does.
func arguments(deployment string, list ...string) string {
	text := "- target: {kind: Deployment, name: capi-proxy-patcher-" + deployment + "}\n  patch: |-\n"
	for _, argument := range list {
		text += "    - {op: add, path: /spec/template/spec/containers/0/args/-, value: \"" + argument + "\"}\n"
	}
	return text
}

// copied copies the folder config, and has config/components/namespaced watch a namespace.
func copied(t *testing.T, watched string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir()) // kustomize follows links
	if err != nil {
		t.Fatal(err)
	}
	role := filepath.Join(dir, "components/namespaced/role/watched/kustomization.yaml")
	if err := errors.Join(os.CopyFS(dir, os.DirFS("../../../config")),
		os.WriteFile(role, []byte("namespace: "+watched+"\nresources: [role.yaml]\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// isTheKustomization compares what Helm renders with kubectl kustomize, for every combination of components.
func isTheKustomization(t *testing.T, product *chart.Chart) {
	t.Helper()
	config := copied(t, "team-a")
	images := "images: [{name: capi-proxy-patcher, newName: " + image + ", newTag: v0.1.0}]\n"
	defaults := "patches:\n" + arguments("hooks", "--v=2", "--diagnostics-address=:8443") + arguments("controller-manager",
		"--v=2", "--diagnostics-address=:8443", "--feature-gates=", "--default-proxy-secret=", "--watch-filter=")
	for n := range 1 << 6 {
		on := func(bit int) bool { return n&(1<<bit) != 0 }
		for inPlace, component := range []string{"", "in-place"} {
			base := map[bool]string{true: "default", false: "without-webhooks"}[on(0)]
			text := "resources: [../" + base + "]\ncomponents:\n"
			for _, part := range []struct {
				on   bool
				path string
			}{
				{on(1), "extension"},
				{component != "", "components/" + component},
				{on(2), "components/namespaced"},
				{on(3), "components/monitoring"},
				{on(4), "components/network-policies"},
			} {
				if part.on {
					text += "- ../" + part.path + "\n"
				}
			}
			want := kustomized(t, config, text+images+defaults)
			if on(1) && on(5) {
				for name, object := range kustomized(t, config, "resources: [../extensionconfig]\n") {
					of := &unstructured.Unstructured{Object: object.(map[string]any)}
					of.SetNamespace("")
					want[strings.Replace(name, mgmt.SystemNamespace, "", 1)] = of.Object
				}
			}
			got := rendered(t, product, mgmt.SystemNamespace, values(t, fmt.Sprintf(`{webhooks: {enabled: %t},
hooks: {enabled: %t, register: %t}, watchNamespace: "%s", monitoring: {enabled: %t}, networkPolicies: {enabled: %t},
inPlace: {enabled: %t}}`, on(0), on(1), on(1) && on(5), map[bool]string{true: "team-a"}[on(2)], on(3), on(4),
				inPlace == 1)))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s\n(-kustomize +Helm):\n%s", text, diff)
			}
		}
	}
}

// hasTheValues is about values that are no component, in another namespace.
func hasTheValues(t *testing.T, product *chart.Chart) {
	t.Helper()
	want := kustomized(t, copied(t, "team-a"), `namespace: proxy-of-ours
resources: [../clusterclass]
components: [../components/failure-policy-fail, ../components/in-place]
images: [{name: capi-proxy-patcher, newName: mirror.example.com:5000/proxy, newTag: v9, digest: `+digest+`}]
replicas: [{name: capi-proxy-patcher-controller-manager, count: 3}, {name: capi-proxy-patcher-hooks, count: 4}]
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: replace, path: /spec/template/spec/containers/0/resources, value: {limits: {memory: 2Gi}}}
    - {op: add, path: /spec/template/spec/imagePullSecrets, value: [{name: a}, {name: b}]}
    - {op: add, path: /spec/template/spec/nodeSelector, value: {zone: "1"}}
    - {op: add, path: /spec/template/spec/affinity, value: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}}
    - {op: replace, path: /spec/template/spec/tolerations, value: [{operator: Exists}]}
    - {op: remove, path: /spec/template/spec/priorityClassName}
    - {op: add, path: /spec/template/metadata/annotations/example.com~1a, value: "true"}
    - {op: add, path: /spec/template/metadata/labels/team, value: "{{ 007"}
`+arguments("hooks", "--v=5", "--diagnostics-address=0", "--profiling=a: b")+arguments("controller-manager",
		"--v=5", "--diagnostics-address=0", "--feature-gates=PriorityQueue=false", "--default-proxy-secret=corp/http-proxy",
		"--watch-filter=a b: #c", "--sync-period=5m", "--x={{ .y }}"))
	got := rendered(t, product, "proxy-of-ours", values(t, `
image: {repository: "mirror.example.com:5000/proxy", tag: v9, digest: "`+digest+`"}
imagePullSecrets: [{name: a}, {name: b}]
replicas: 3
resources: &resources {requests: null, limits: {memory: 2Gi}}
extraArgs: [--sync-period=5m, "--x={{ .y }}"]
logLevel: 5
nodeSelector: {zone: "1"}
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}
tolerations: [{operator: Exists}]
priorityClassName: ""
podAnnotations: {example.com/a: "true"}
podLabels: {team: "{{ 007"}
hooks: {replicas: 4, resources: *resources, extraArgs: ["--profiling=a: b"]}
defaultProxySecret: corp/http-proxy
watchFilter: "a b: #c"
diagnosticsAddress: 0
featureGates: PriorityQueue=false
failurePolicy: Fail
inPlace: {enabled: true}
`))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-kustomize +Helm):\n%s", diff)
	}
}

// acceptsDocumentedValues is about values as helm --set reads them.
func acceptsDocumentedValues(t *testing.T, product *chart.Chart) {
	t.Helper()
	for set, argument := range map[string]string{
		"diagnosticsAddress=0": "--diagnostics-address=0", "diagnosticsAddress=:9000": "--diagnostics-address=:9000",
		"logLevel=4": "--v=4", "featureGates=PriorityQueue=false": "--feature-gates=PriorityQueue=false",
		"extraArgs={--sync-period=5m}": "--sync-period=5m", "watchFilter=": "--watch-filter=",
		"priorityClassName=": "", "tolerations=null": "", "image.tag=v1": "", "podLabels.team=a": "",
	} {
		given, err := strvals.Parse(set)
		if err != nil {
			t.Fatal(err)
		}
		manager, _ := rendered(t, product, "any", given)["Deployment any/capi-proxy-patcher-controller-manager"].(map[string]any)
		containers, _, _ := unstructured.NestedSlice(manager, "spec", "template", "spec", "containers")
		if args, _ := containers[0].(map[string]any)["args"].([]any); argument != "" && !slices.Contains(args, any(argument)) {
			t.Errorf("%s: arguments %v", set, args)
		}
	}
}

func refusesOtherValues(t *testing.T, product *chart.Chart) {
	t.Helper()
	for _, text := range []string{
		"{replica: 3}", "{hooks: {enable: true}}", "{failurePolicy: ignore}", "{defaultProxySecret: http-proxy}",
		"{image: {repository: \"a: b\"}}", "{monitoring: true}", "{watchNamespace: \"a, b\"}",
		"{image: {digest: v9}}", "{image: {digest: sha256:12}}", "{imagePullSecrets: [registry]}", "{extraArgs: [v=5]}", "{logLevel: 6}",
		"{diagnosticsAddress: 8443}", "{diagnosticsAddress: \"\"}", "{podLabels: {control-plane: x}}", "{podLabels: {a: true}}",
		"{podAnnotations: {kubectl.kubernetes.io/default-container: x}}", "{nodeSelector: {a: 1}}", "{tolerations: {}}",
	} {
		if err := chartutil.ValidateAgainstSchema(product, values(t, text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

// refusesValuesWithoutEffect is about values that need each other, or a kind that the cluster does not serve.
func refusesValuesWithoutEffect(t *testing.T, product *chart.Chart) {
	t.Helper()
	const kubernetes, clusterAPI, runtime = "apiregistration.k8s.io/v1", "cluster.x-k8s.io/v1beta2", "runtime.cluster.x-k8s.io/v1beta2"
	const certManager, prometheus = "cert-manager.io/v1", "monitoring.coreos.com/v1"
	all := []string{kubernetes, clusterAPI, runtime, certManager, prometheus}
	without := func(one string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == one })
	}
	for _, test := range []struct {
		given  string
		served []string
		want   string
	}{
		{"{hooks: {enabled: false, register: true}}", all, "set hooks.register=false"},
		{"{webhooks: {enabled: false}, failurePolicy: Fail}", all, "set failurePolicy=Ignore"},
		{"{watchNamespace: a, defaultProxySecret: b/c}", all, "leave watchNamespace out"},
		{"{monitoring: {enabled: true}, diagnosticsAddress: 0}", all, "diagnosticsAddress=0: use an address with port 8443"},
		{"{monitoring: {enabled: true}, diagnosticsAddress: \":9000\"}", all, "diagnosticsAddress=:9000: use"},
		{"{monitoring: {enabled: true}, diagnosticsAddress: \"[::]:8443\"}", all, ""},
		{"{}", nil, ""},
		{"{monitoring: {enabled: true}, hooks: {register: true}}", nil, ""},
		{"{monitoring: {enabled: true}, hooks: {register: true}}", all, ""},
		{"{}", []string{kubernetes}, "install Cluster API"},
		{"{}", without(clusterAPI), "install Cluster API"},
		{"{}", without(certManager), "install cert-manager"},
		{"{webhooks: {enabled: false}}", without(certManager), "install cert-manager"},
		{"{webhooks: {enabled: false}, hooks: {enabled: false}}", without(certManager), ""},
		{"{}", without(runtime), ""},
		{"{hooks: {register: true}}", without(runtime), "upgrade Cluster API"},
		{"{}", without(prometheus), ""},
		{"{monitoring: {enabled: true}}", without(prometheus), "Prometheus Operator"},
	} {
		_, err := files(product, "any", values(t, test.given), test.served)
		if got := fmt.Sprint(err); (err != nil) != (test.want != "") || !strings.Contains(got, test.want) {
			t.Errorf("%s on a cluster with %q: got %v, want %q", test.given, test.served, err, test.want)
		}
	}
}

// hasTexts is about what Helm shows: README has a row for each value, and NOTES what to do next.
func hasTexts(t *testing.T, product *chart.Chart) {
	t.Helper()
	i := slices.IndexFunc(product.Files, func(file *chart.File) bool { return file.Name == "README.md" })
	readme := string(product.Files[i].Data)
	for _, row := range []string{
		"| `image.repository` | `\"" + image + "\"` |", "| `hooks.register` | `false` |", "| `tolerations` | `[{",
		"| `networkPolicies.enabled` | `false` |",
	} {
		if !strings.Contains(readme, "\n"+row) {
			t.Errorf("README.md has no row %s", row)
		}
	}
	if product.Metadata.Home == "" || len(product.Metadata.Sources) == 0 || product.Metadata.KubeVersion == "" {
		t.Errorf("Chart.yaml has %+v", product.Metadata)
	}
	const check, register = "check --wait 5m", "--set hooks.register=true"
	for _, test := range []struct {
		namespace, given string
		want, not        []string
	}{
		{mgmt.SystemNamespace, "{}", []string{check, register, "check --pre-delete\n"}, []string{"--manager-namespace"}},
		{"ours", "{hooks: {register: true}}", []string{check + " --manager-namespace ours\n"}, []string{register}},
	} {
		files, err := files(product, test.namespace, values(t, test.given), nil)
		if err != nil {
			t.Fatal(err)
		}
		text := files[product.Name()+notes]
		lacks := func(part string) bool { return !strings.Contains(text, part) }
		if slices.ContainsFunc(test.want, lacks) || slices.IndexFunc(test.not, func(s string) bool { return !lacks(s) }) >= 0 {
			t.Errorf("%s with %s: NOTES are\n%s", test.namespace, test.given, text)
		}
	}
}

// customResources has the API server store kinds that the chart has and the management cluster does not serve.
func customResources() []*apiextensionsv1.CustomResourceDefinition {
	var crds []*apiextensionsv1.CustomResourceDefinition
	for kind, group := range map[string]string{
		"Certificate": "cert-manager.io/v1", "Issuer": "cert-manager.io/v1",
		"ServiceMonitor": "monitoring.coreos.com/v1", "PrometheusRule": "monitoring.coreos.com/v1",
	} {
		group, version, _ := strings.Cut(group, "/")
		name := strings.ToLower(kind)
		crds = append(crds, &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: name + "s." + group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: group, Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: name + "s", Singular: name},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: version, Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: new(true),
					}},
				}},
			},
		})
	}
	return crds
}

// isInstalledUpgradedAndRemoved does it on an API server, with Helm's own code.
func isInstalledUpgradedAndRemoved(t *testing.T, product *chart.Chart) {
	t.Helper()
	cluster, err := mgmt.Start(t.Context(), mgmt.Options{Dir: "../../.."})
	if errors.Is(err, mgmt.ErrNoAssets) {
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
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := mgmt.WriteKubeconfig(kubeconfig, cluster.Config()); err != nil {
		t.Fatal(err)
	}
	const release = "proxy"
	install := func() (*action.Configuration, string, error) {
		settings := cli.New()
		settings.KubeConfig = kubeconfig
		configuration := &action.Configuration{}
		if err := configuration.Init(settings.RESTClientGetter(), mgmt.SystemNamespace, "secret", t.Logf); err != nil {
			t.Fatal(err)
		}
		install := action.NewInstall(configuration)
		install.ReleaseName, install.Namespace, install.CreateNamespace = release, mgmt.SystemNamespace, true
		installed, err := install.RunWithContext(t.Context(), product, map[string]any{})
		if err != nil {
			return configuration, "", err
		}
		return configuration, installed.Manifest, nil
	}
	if _, _, err := install(); err == nil || !strings.Contains(err.Error(), "install cert-manager") {
		t.Errorf("without cert-manager Helm says %v", err)
	}
	if err := mgmt.InstallCRDs(cluster.Config(), customResources()); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cluster.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// check compares what the API server has with the manifest of the release, and with everything that was there.
	seen := map[string]*unstructured.Unstructured{}
	check := func(manifest string) {
		t.Helper()
		objects := objectsOf(t, manifest)
		for name, object := range objects {
			seen[name] = &unstructured.Unstructured{Object: object.(map[string]any)}
		}
		for name, object := range seen {
			stored := &unstructured.Unstructured{}
			stored.SetGroupVersionKind(object.GroupVersionKind())
			err := c.Get(t.Context(), client.ObjectKeyFromObject(object), stored)
			if _, want := objects[name]; want != (err == nil) || client.IgnoreNotFound(err) != nil {
				t.Errorf("%s: the release has it: %t; the API server says %v", name, want, err)
			}
		}
	}

	configuration, manifest, err := install()
	if err != nil {
		t.Fatal(err)
	}
	check(manifest)

	upgrade := func(given string) {
		t.Helper()
		upgrade := action.NewUpgrade(configuration)
		upgrade.Namespace, upgrade.ResetThenReuseValues = mgmt.SystemNamespace, true
		upgraded, err := upgrade.RunWithContext(t.Context(), release, product, values(t, given))
		if err != nil {
			t.Fatal(err)
		}
		check(upgraded.Manifest)
	}
	product.Metadata.Version, product.Metadata.AppVersion = "0.1.1", "v0.1.1"
	upgrade(`{hooks: {register: true}, monitoring: {enabled: true}, networkPolicies: {enabled: true}, inPlace: {enabled: true}}`)
	manager := &unstructured.Unstructured{}
	manager.SetAPIVersion("apps/v1")
	manager.SetKind("Deployment")
	key := client.ObjectKey{Namespace: mgmt.SystemNamespace, Name: "capi-proxy-patcher-controller-manager"}
	if err := c.Get(t.Context(), key, manager); err != nil {
		t.Fatal(err)
	}
	containers, _, _ := unstructured.NestedSlice(manager.Object, "spec", "template", "spec", "containers")
	if got := containers[0].(map[string]any)["image"]; got != image+":v0.1.1" {
		t.Errorf("the manager runs %v", got)
	}
	watched := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "team-a"},
	}}
	if err := c.Create(t.Context(), watched); err != nil {
		t.Fatal(err)
	}
	upgrade(`{hooks: {register: false}, watchNamespace: team-a}`)
	upgrade(`{webhooks: {enabled: false}, hooks: {enabled: false}}`)

	if _, err := action.NewUninstall(configuration).Run(release); err != nil {
		t.Fatal(err)
	}
	check("")
	if len(seen) < 30 {
		t.Errorf("only %d objects were there", len(seen))
	}
}
