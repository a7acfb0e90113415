package install

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const (
	releaseVersion = "v0.1.0"
	components     = "runtime-extension-components.yaml"
)

// makeRelease runs make release and returns the folder and its files. It builds for this machine only, which is quick.
func makeRelease(t *testing.T, environment ...string) (folder string, files map[string][]byte) {
	t.Helper()
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "make", "-C", root, "release", "VERSION="+releaseVersion, "RELEASE_OUT="+out,
		"PLATFORMS=linux/"+runtime.GOARCH, "PROGRAMS=linux/"+runtime.GOARCH)
	cmd.Env = append(os.Environ(), environment...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make release: %v\n%s", err, text)
	}
	folder = filepath.Join(out, "runtime-extension-capi-proxy-patcher", releaseVersion)
	files = map[string][]byte{}
	err := filepath.WalkDir(out, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		files[name], err = os.ReadFile(path) //nolint:gosec // a folder of the test
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return folder, files
}

func TestRelease(t *testing.T) {
	t.Parallel()
	folder, files := makeRelease(t)
	t.Run("is the same twice", func(t *testing.T) {
		t.Parallel()
		isTheSameTwice(t, files)
	})
	t.Run("is installed as the pages say", func(t *testing.T) {
		t.Parallel()
		isInstalledAsThePagesSay(t, folder)
	})
}

func isTheSameTwice(t *testing.T, first map[string][]byte) {
	t.Helper()
	_, second := makeRelease(t, "TZ=Pacific/Apia", "GOFLAGS=-tags=other", "LC_ALL=C", "HOME="+os.Getenv("HOME"))
	for name, text := range first {
		if !bytes.Equal(second[name], text) {
			t.Errorf("%s differs", name)
		}
	}
	if len(first) != len(second) {
		t.Errorf("%d files, and then %d", len(first), len(second))
	}
	checkChecksums(t, first)
	checkComponents(t, first)
	checkInPlace(t, first)
	checkAdded(t, first)
	checkPrograms(t, first)
	checkMetadata(t, first["metadata.yaml"])
	checkMaterials(t, first["capi-proxy-patcher-linux-"+runtime.GOARCH+".spdx.json"])
	checkOperator(t, first)
	for _, pattern := range []string{
		"cluster-template*.yaml", "clusterclass-*.yaml", "extensionconfig.yaml", "guard.yaml",
		"proxy-secret.yaml", "image/oci-layout", "dashboard.json", "kube-state-metrics.yaml", "capi-operator-in-place.yaml",
		"README.txt", "LICENSE",
	} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(first)),
			func(name string) bool { found, _ := filepath.Match(pattern, name); return found }) {
			t.Errorf("there is no %s", pattern)
		}
	}
}

// checkChecksums checks that checksums.txt has all other files.
func checkChecksums(t *testing.T, files map[string][]byte) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(string(files["checksums.txt"]), "\n"), "\n")
	for _, line := range lines {
		sum, name, _ := strings.Cut(line, "  ")
		if text, there := files[name]; !there || fmt.Sprintf("%x", sha256.Sum256(text)) != sum {
			t.Errorf("checksums.txt says %q", line)
		}
	}
	if len(lines) != len(files)-1 {
		t.Errorf("checksums.txt has %d of %d files", len(lines), len(files)-1)
	}
}

// checkComponents fills in the variables of the components as clusterctl does, with defaults and with values.
func checkComponents(t *testing.T, files map[string][]byte) {
	t.Helper()
	// clusterctl generate provider --describe and --raw decode the Deployments without the values of variables.
	for _, deployment := range vocabulary.OfKind[appsv1.Deployment](t, vocabulary.Decode(t, string(files[components])), "Deployment") {
		if *deployment.Spec.Replicas != 2 {
			t.Errorf("%s has %d replicas", deployment.Name, *deployment.Spec.Replicas)
		}
	}
	for _, test := range []struct {
		variables map[string]string
		policy    string
		args      []string
	}{
		{nil, "Ignore", []string{"--diagnostics-address=:8443", "--feature-gates=", "--default-proxy-secret=", "--watch-filter=", "--namespace="}},
		{
			map[string]string{
				"CAPI_PROXY_PATCHER_FAILURE_POLICY":      "Fail",
				"CAPI_PROXY_PATCHER_DIAGNOSTICS_ADDRESS": "127.0.0.1:8444", "CAPI_PROXY_PATCHER_FEATURE_GATES": "PriorityQueue=false", "CAPI_PROXY_PATCHER_DEFAULT_PROXY_SECRET": "corp/http-proxy",
				"CAPI_PROXY_PATCHER_WATCH_FILTER": "team-a", "CAPI_PROXY_PATCHER_WATCH_NAMESPACE": "team-b",
			},
			"Fail",
			[]string{"--diagnostics-address=127.0.0.1:8444", "--feature-gates=PriorityQueue=false", "--default-proxy-secret=corp/http-proxy", "--watch-filter=team-a", "--namespace=team-b"},
		},
	} {
		objects := processed(t, files[components], test.variables)
		checkNames(t, objects, mgmt.SystemNamespace)
		namespaces := 0
		for _, object := range objects {
			switch object.GetKind() {
			case "Namespace":
				namespaces++
			case "MutatingWebhookConfiguration":
				checkPolicies(t, object, test.policy)
			}
		}
		if namespaces != 1 {
			t.Errorf("%d Namespaces", namespaces)
		}
		if got := guards(objects); len(got["capi-proxy-patcher-guard"]) != 1 || len(got) != 1 {
			t.Errorf("policies and their bindings are %v", got)
		}
		found := vocabulary.OfKind[appsv1.Deployment](t, objects, "Deployment")
		i := slices.IndexFunc(found,
			func(d appsv1.Deployment) bool { return d.Name == "capi-proxy-patcher-controller-manager" })
		args := found[i].Spec.Template.Spec.Containers[0].Args
		if !slices.Equal(args[len(args)-5:], test.args) {
			t.Errorf("the manager runs with %v, want %v", args, test.args)
		}
		// Every container runs the program, and clusterctl finds it by its name.
		for container, image := range images(t, objects) {
			if !strings.HasSuffix(container, "/manager") ||
				image != "registry.example.com/capi-proxy-patcher/capi-proxy-patcher:"+releaseVersion {
				t.Errorf("container %s has image %s", container, image)
			}
		}
		if len(found) != 2 {
			t.Errorf("%d Deployments", len(found))
		}
	}
	configs := processed(t, files["extensionconfig.yaml"],
		map[string]string{"CAPI_PROXY_PATCHER_NAMESPACE": otherNamespace})
	checkNames(t, configs, otherNamespace)
	if configs[0].GetNamespace() != "" {
		t.Error("the ExtensionConfig, which has no namespace, is in one")
	}
	checkNames(t, processed(t, files["extensionconfig.yaml"], nil), mgmt.SystemNamespace)
}

// checkInPlace checks that the other components are the same, with what rollout InPlace needs.
func checkInPlace(t *testing.T, files map[string][]byte) {
	t.Helper()
	const node = "mirror.example.com/proxy:v9"
	objects := processed(t, files["runtime-extension-components-in-place.yaml"], map[string]string{"CAPI_PROXY_PATCHER_NODE_IMAGE": node})
	checkNames(t, objects, mgmt.SystemNamespace)
	const manager = "capi-proxy-patcher-controller-manager/manager"
	if found := images(t, objects); found[manager+" --node-image"] != node || found[manager] == node {
		t.Errorf("images %v", found)
	}
	found := images(t, processed(t, files["runtime-extension-components-in-place.yaml"], nil))
	if found[manager+" --node-image"] != found[manager] || found[manager] == "" {
		t.Errorf("images %v", found)
	}
	if plain := processed(t, files[components], nil); len(objects) != len(plain) {
		t.Errorf("%d objects, and %d without InPlace", len(objects), len(plain))
	}
}

// checkAdded checks what is applied beside the components. clusterctl does not know of it.
func checkAdded(t *testing.T, files map[string][]byte) {
	t.Helper()
	there := map[string]bool{}
	for _, object := range processed(t, files[components], nil) {
		there[object.GetKind()+" "+object.GetName()] = true
	}
	for file, want := range map[string][]string{
		"monitoring.yaml": {
			"ClusterRole capi-proxy-patcher-metrics-reader", "ClusterRoleBinding capi-proxy-patcher-metrics-reader",
			"ConfigMap capi-proxy-patcher-dashboard", "PrometheusRule capi-proxy-patcher",
			"Service capi-proxy-patcher-metrics", "ServiceMonitor capi-proxy-patcher",
		},
		"network-policies.yaml": {"NetworkPolicy capi-proxy-patcher-hooks", "NetworkPolicy capi-proxy-patcher-manager"},
	} {
		var found []string
		for _, object := range vocabulary.Decode(t, string(files[file])) {
			name := object.GetKind() + " " + object.GetName()
			found = append(found, name)
			if _, labelled := object.GetLabels()["cluster.x-k8s.io/provider"]; labelled != there[name] {
				t.Errorf("%s: %s has labels %v", file, name, object.GetLabels())
			}
		}
		slices.Sort(found)
		if !slices.Equal(found, want) {
			t.Errorf("%s has %q", file, found)
		}
	}
}

// checkPrograms unpacks the program and runs it, and compares the manifest of krew and the chart with the files.
func checkPrograms(t *testing.T, files map[string][]byte) {
	t.Helper()
	name := "capi-proxy-patcher-linux-" + runtime.GOARCH + ".tar.gz"
	dir := t.TempDir()
	for archive, file := range map[string]string{name: "capi-proxy-patcher", "capi-proxy-patcher-0.1.0.tgz": "capi-proxy-patcher/Chart.yaml"} {
		unpack := exec.CommandContext(t.Context(), "tar", "-xzf", "-", "-C", dir, file)
		if archive != name {
			unpack.Args = append(unpack.Args, "--transform=s/^/chart-/")
		}
		unpack.Stdin = bytes.NewReader(files[archive])
		if text, err := unpack.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", archive, err, text)
		}
	}
	text, err := exec.CommandContext(t.Context(), filepath.Join(dir, "capi-proxy-patcher"), "version").CombinedOutput()
	if err != nil || !strings.Contains(string(text), releaseVersion) {
		t.Errorf("the program says %v, %s", err, text)
	}
	plugin := vocabulary.Decode(t, string(files["krew.yaml"]))[0]
	platforms, _, _ := unstructured.NestedSlice(plugin.Object, "spec", "platforms")
	if len(platforms) != 1 {
		t.Fatalf("platforms %v", platforms)
	}
	platform := platforms[0].(map[string]any)
	uri, _ := platform["uri"].(string)
	if !strings.HasPrefix(uri, "https://") || !strings.HasSuffix(uri, "/"+releaseVersion+"/"+name) ||
		platform["sha256"] != fmt.Sprintf("%x", sha256.Sum256(files[name])) {
		t.Errorf("platform %v", platform)
	}
}

func checkPolicies(t *testing.T, object *unstructured.Unstructured, policy string) {
	t.Helper()
	webhooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
	for _, webhook := range webhooks {
		webhook := webhook.(map[string]any)
		want := policy
		switch webhook["name"] {
		case "cluster.capi-proxy-patcher.io":
			want = "Fail"
		case "names.capi-proxy-patcher.io":
			want = "Ignore"
		}
		if webhook["failurePolicy"] != want {
			t.Errorf("%s has failurePolicy %s, want %s", webhook["name"], webhook["failurePolicy"], want)
		}
	}
}

// processed fills in variables with clusterctl's own code.
func processed(t *testing.T, text []byte, variables map[string]string) []*unstructured.Unstructured {
	t.Helper()
	text, err := yamlprocessor.NewSimpleProcessor().Process(text, func(name string) (string, error) {
		if value, set := variables[name]; set {
			return value, nil
		}
		return "", fmt.Errorf("variable %s is not set", name)
	})
	if err != nil {
		t.Fatal(err)
	}
	return vocabulary.Decode(t, string(text))
}

func checkMetadata(t *testing.T, text []byte) {
	t.Helper()
	var metadata clusterctlv1.Metadata
	if err := yaml.UnmarshalStrict(text, &metadata); err != nil {
		t.Fatal(err)
	}
	for _, series := range metadata.ReleaseSeries {
		if series.Contract != "v1beta2" {
			t.Errorf("release series %+v", series)
		}
	}
}

// checkMaterials compares a bill of materials with the modules of the program.
func checkMaterials(t *testing.T, text []byte) {
	t.Helper()
	var document struct {
		SPDXVersion  string
		CreationInfo struct{ Created string }
		Packages     []struct {
			Name, VersionInfo, LicenseConcluded, LicenseDeclared string
			ExternalRefs                                         []struct{ ReferenceLocator string }
		}
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	if document.SPDXVersion != "SPDX-2.3" || document.CreationInfo.Created == "" {
		t.Errorf("%+v", document)
	}
	var found []string
	for _, p := range document.Packages {
		if p.VersionInfo != "" && strings.HasPrefix(p.ExternalRefs[0].ReferenceLocator, "pkg:golang/") {
			found = append(found, p.Name+"@"+p.VersionInfo)
			if p.LicenseConcluded == "NOASSERTION" || p.LicenseConcluded == "" || p.LicenseDeclared != p.LicenseConcluded {
				t.Errorf("%s has licence %q", p.Name, p.LicenseConcluded)
			}
		}
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-C", root, "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{.Path}}@{{.Version}}{{end}}{{end}}", "./cmd/capi-proxy-patcher")
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	slices.Sort(found)
	if want := slices.Compact(modules); !slices.Equal(found, want) {
		t.Errorf("the bill of materials has %v, want %v", found, want)
	}
}

// checkOperator checks what the Cluster API Operator gets: the same files, for the version that the provider asks for.
func checkOperator(t *testing.T, files map[string][]byte) {
	t.Helper()
	objects := map[string]*unstructured.Unstructured{}
	for _, object := range vocabulary.Decode(t, string(files["capi-operator.yaml"])) {
		objects[object.GetKind()] = object
	}
	configMap, provider := objects["ConfigMap"], objects["RuntimeExtensionProvider"]
	if configMap == nil || provider == nil || objects["Namespace"] == nil {
		t.Fatalf("capi-operator.yaml has %v", objects)
	}
	data, _, _ := unstructured.NestedStringMap(configMap.Object, "data")
	if data["components"] != string(files[components]) || data["metadata"] != string(files["metadata.yaml"]) ||
		len(data) != 2 {
		t.Error("the ConfigMap has other files than the release")
	}
	version, _, _ := unstructured.NestedString(provider.Object, "spec", "version")
	selector, _, _ := unstructured.NestedStringMap(provider.Object, "spec", "fetchConfig", "selector", "matchLabels")
	if configMap.GetName() != version || version != releaseVersion ||
		configMap.GetNamespace() != provider.GetNamespace() ||
		len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(labels.Set(configMap.GetLabels())) {
		t.Errorf("provider %v does not find ConfigMap %v", provider.Object, configMap.Object["metadata"])
	}
	checkProvider(t, provider)
}

// checkProvider holds a provider to the schema of the Cluster API Operator.
func checkProvider(t *testing.T, provider *unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile("testdata/runtimeextensionprovider.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var properties spec.Schema
	if err := yaml.Unmarshal(text, &properties); err != nil {
		t.Fatal(err)
	}
	closeSchema(&properties)
	for _, err := range validate.NewSchemaValidator(&properties, nil, "",
		strfmt.Default).Validate(provider.Object).Errors {
		t.Errorf("the provider: %v", err)
	}
	misspelled := provider.DeepCopy()
	_ = unstructured.SetNestedField(misspelled.Object, "x", "spec", "fetchConfig", "selectr")
	if len(validate.NewSchemaValidator(&properties, nil, "", strfmt.Default).Validate(misspelled.Object).Errors) == 0 {
		t.Error("the schema takes anything")
	}
}

// closeSchema has a schema refuse fields that it does not have, in any depth but in metadata.
func closeSchema(schema *spec.Schema) {
	for name, property := range schema.Properties {
		closeSchema(&property)
		schema.Properties[name] = property
	}
	if len(schema.Properties) > 0 {
		schema.AdditionalProperties = &spec.SchemaOrBool{}
	}
}

func TestRelease_RefusesAVersionThatClusterctlDoesNotKnow(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"0.1.0": "use a version like v1.2.3", "v0": "use a version like v1.2.3", "v7.3.0": "has no release series for v7.3.0",
	} {
		cmd := exec.CommandContext(t.Context(), "go", "run", "./hack/release", "-version", version, "-image", "x", "-out", t.TempDir())
		cmd.Dir = root
		if text, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v\n%s", version, err, text)
		}
	}
}

func TestMake_ChecksBeforeItBuilds(t *testing.T) {
	t.Parallel()
	// A build would refuse this platform at once.
	const platforms, building = "PLATFORMS=none", "image: PLATFORMS=none: use"
	for arguments, want := range map[string]string{
		"release VERSION=v7.3.0":               "has no release series for v7.3.0",
		"release VERSION=v1.2.x":               "use one like VERSION=v1.2.3",
		"release VERSION=" + releaseVersion:    building,
		"image PUSH=1":                         "make image: PUSH=1 needs an IMAGE",
		"image PUSH=1 IMAGE=":                  "make image: PUSH=1 needs an IMAGE",
		"image":                                building,
		"image PUSH=1 IMAGE=r.example.com/a:1": building,
	} {
		cmd := exec.CommandContext(t.Context(), "make", append([]string{"-C", root, platforms, "RELEASE_OUT=" + t.TempDir()}, strings.Fields(arguments)...)...)
		cmd.Env = append(os.Environ(), "IMAGE=", "PUSH=")
		text, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(text), want) || want != building && strings.Contains(string(text), building) {
			t.Errorf("make %s: %v, want %q\n%s", arguments, err, want, text)
		}
	}
}
