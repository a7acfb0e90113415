package render_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/lookup"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/lint"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

// objects are manifests.
type objects []unstructured.Unstructured

// each calls change for the objects of a kind.
func (all objects) each(kind string, change func(map[string]any)) {
	for i := range all {
		if all[i].GetKind() == kind {
			change(all[i].Object)
		}
	}
}

// annotate sets an annotation of the objects of a kind.
func annotate(kind, key, value string) func(objects) {
	return func(all objects) {
		for i := range all {
			if all[i].GetKind() == kind {
				annotations := all[i].GetAnnotations()
				if annotations == nil {
					annotations = map[string]string{}
				}
				annotations[key] = value
				all[i].SetAnnotations(annotations)
			}
		}
	}
}

// set sets a field of the objects of a kind.
func set(kind string, value any, path ...string) func(objects) {
	return func(all objects) {
		all.each(kind, func(object map[string]any) {
			if err := unstructured.SetNestedField(object, runtime.DeepCopyJSONValue(value), path...); err != nil {
				panic(err)
			}
		})
	}
}

// proxy replaces what proxy Secrets hold.
func proxy(data map[string]any) func(objects) {
	return func(all objects) {
		all.each("Secret", func(object map[string]any) { delete(object, "data"); object["stringData"] = data })
	}
}

// variants are what users write into manifests. A paused Cluster is not among them: render patches it, the controller
// waits.
func variants() map[string]func(objects) {
	const url = "http://proxy.example.com:3128"
	file := func(path string) []any {
		return []any{map[string]any{"path": path, "permissions": "0600", "content": "a: 'b'\n%n"}}
	}
	return map[string]func(objects){
		"as it is":      func(objects) {},
		"no label":      func(all objects) { all.each("Cluster", unlabel) },
		"unclear label": set("Cluster", "yes", "metadata", "labels", contract.LabelEnabled),
		"false":         set("Cluster", "false", "metadata", "labels", contract.LabelEnabled),
		"immediate":     annotate("Cluster", contract.AnnotationRollout, contract.RolloutImmediate),
		"bad rollout":   annotate("Cluster", contract.AnnotationRollout, "Now"),
		"one target":    annotate("Cluster", contract.AnnotationTargets, "containerd"),
		"all targets":   annotate("Cluster", contract.AnnotationTargets, "containerd,kubelet,commands,trust,static-pods"),
		"trust alone":   annotate("Cluster", contract.AnnotationTargets, "trust"),
		"no networks":   set("Cluster", map[string]any{}, "spec", "clusterNetwork"),
		"bad network": set("Cluster", map[string]any{"pods": map[string]any{"cidrBlocks": []any{"10.0.0.0/33"}}},
			"spec", "clusterNetwork"),
		"bad target":    annotate("Cluster", contract.AnnotationTargets, "kubelets"),
		"groups":        annotate("Cluster", contract.AnnotationNoProxyGroups, "-metadata,-infrastructure"),
		"bad group":     annotate("Cluster", contract.AnnotationNoProxyGroups, "-nothing"),
		"absent Secret": annotate("Cluster", contract.AnnotationSecret, "absent"),
		"pool without":  annotate("MachineDeployment", contract.AnnotationSecret, contract.SecretNone),
		"pool's absent": annotate("MachineDeployment", contract.AnnotationSecret, "absent"),
		"pool's own":    annotate("MachineDeployment", contract.AnnotationSecret, "http-proxy"),
		"IPv6": set("Cluster", map[string]any{
			"pods":     map[string]any{"cidrBlocks": []any{"fd00:10::/56", "10.9.0.0/16"}},
			"services": map[string]any{"cidrBlocks": []any{"fd00:20::/112"}}, "serviceDomain": "k8s.corp",
		}, "spec", "clusterNetwork"),
		"endpoint":        set("Cluster", map[string]any{"host": "192.0.2.7", "port": int64(6443)}, "spec", "controlPlaneEndpoint"),
		"named endpoint":  set("Cluster", map[string]any{"host": "API.Example.com", "port": int64(443)}, "spec", "controlPlaneEndpoint"),
		"user's commands": set("KubeadmControlPlane", []any{"echo \"%n\" $HOME", "b"}, "spec", "kubeadmConfigSpec", "preKubeadmCommands"),
		"user's later commands": set("KubeadmConfigTemplate", []any{"curl https://example.com"},
			"spec", "template", "spec", "postKubeadmCommands"),
		"user's file":            set("KubeadmConfigTemplate", file("/etc/motd"), "spec", "template", "spec", "files"),
		"a file at our path":     set("KubeadmConfigTemplate", file(contract.PathProxyEnv), "spec", "template", "spec", "files"),
		"a file in our way":      set("KubeadmControlPlane", file(contract.PathProxyEnv), "spec", "kubeadmConfigSpec", "files"),
		"no URL":                 proxy(map[string]any{"noProxy": "a"}),
		"empty":                  proxy(map[string]any{}),
		"password":               proxy(map[string]any{"httpProxy": url, "username": "node", "password": "p@%\"$`\\ s"}),
		"user in both":           proxy(map[string]any{"httpProxy": "http://a:b@proxy.example.com:3128", "username": "c"}),
		"unknown key":            proxy(map[string]any{"httpProxy": url, "noproxy": "a"}),
		"bad URL":                proxy(map[string]any{"httpProxy": "proxy.example.com:3128:1"}),
		"bad certificates":       proxy(map[string]any{"httpProxy": url, "trustedCA": "-----BEGIN CERTIFICATE-----\n"}),
		"entries":                proxy(map[string]any{"httpProxy": url, "noProxy": ".corp.example.com, 10.1.0.0/16\n*.x.example, [fd00::1]"}),
		"bad entries":            proxy(map[string]any{"httpProxy": url, "noProxy": "http://a, b/c"}),
		"Secrets of other names": func(all objects) { all.each("Secret", rename) },
	}
}

func unlabel(cluster map[string]any) { unstructured.RemoveNestedField(cluster, "metadata", "labels") }

func rename(secret map[string]any) {
	object := &unstructured.Unstructured{Object: secret}
	object.SetName(object.GetName() + "-2")
}

// bases returns manifests with a proxy Secret http-proxy and a labelled Cluster.
func bases(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	secret := read(t, "../../../templates/proxy-secret.yaml")
	for _, name := range []string{"cluster-template", "cluster-template-ignition", "cluster-template-machinepool"} {
		all[name] = slices.Concat(read(t, "../../../templates/"+name+".yaml"), []byte("\n---\n"), secret)
	}
	for _, name := range []string{"classic", "pools", "windows"} {
		text := read(t, filepath.Join("testdata", name, "in.yaml"))
		if own, err := os.ReadFile(filepath.Join("testdata", name, "secret.yaml")); err == nil {
			text = slices.Concat(text, []byte("\n---\n"), own)
		} else if !strings.Contains(string(text), "kind: Secret\n") {
			text = slices.Concat(text, []byte("\n---\n"), secret)
		}
		all[name] = text
	}
	return all
}

// parse fills in a template and returns its objects of the versions that the controller reads, in one namespace.
func parse(t *testing.T, text []byte) objects {
	t.Helper()
	values := sampleValues(t, text)
	text, err := yamlprocessor.NewSimpleProcessor().Process(text, func(name string) (string, error) { return values[name], nil })
	if err != nil {
		t.Fatal(err)
	}
	all := decode(t, text)
	for i := range all {
		all[i].SetNamespace("team")
		if all[i].GetKind() == "Secret" && len(all.of("Secret")) == 1 {
			all[i].SetName(contract.DefaultSecretName)
		}
	}
	return all
}

// decode returns the objects of a stream.
func decode(t *testing.T, text []byte) (all objects) {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var one unstructured.Unstructured
		err := decoder.Decode(&one.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		if len(one.Object) > 0 {
			all = append(all, one)
		}
	}
}

func (all objects) of(kind string) (names []string) {
	all.each(kind, func(o map[string]any) { names = append(names, (&unstructured.Unstructured{Object: o}).GetName()) })
	return names
}

func (all objects) yaml(t *testing.T) []byte {
	t.Helper()
	var text []byte
	for i := range all {
		one, err := yaml.Marshal(all[i].Object)
		if err != nil {
			t.Fatal(err)
		}
		text = slices.Concat(text, []byte("---\n"), one)
	}
	return text
}

// configured are the specs that nodes boot with and the generated Secrets, by kind and name.
func (all objects) configured(t *testing.T) map[string]string {
	t.Helper()
	specs := map[string]string{}
	for i := range all {
		path := map[string][]string{
			"KubeadmControlPlane": {"spec", "kubeadmConfigSpec"}, "KubeadmConfigTemplate": {"spec", "template", "spec"},
			"KubeadmConfig": {"spec"}, "Secret": {"data"},
		}[all[i].GetKind()]
		if _, generated := all[i].GetLabels()[contract.LabelGenerated]; path == nil || path[0] == "data" && !generated {
			continue
		}
		spec, _, _ := unstructured.NestedMap(all[i].Object, path...)
		files, _ := spec["files"].([]any)
		for i := range files {
			delete(files[i].(map[string]any), "fieldFromTheFuture") //nolint:forcetypeassert // it is; no type has the field
		}
		kept := map[string]any{}
		for key, value := range spec {
			list, isList := value.([]any)
			if path[0] == "data" && key != contract.KeyInfrastructure && key != contract.KeyContentHash ||
				slices.Contains([]string{"files", "preKubeadmCommands", "postKubeadmCommands"}, key) && isList && len(list) > 0 {
				kept[key] = value
			}
		}
		text, err := json.MarshalIndent(kept, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		specs[all[i].GetKind()+" "+all[i].GetName()] = string(text)
	}
	return specs
}

// passed returns the objects of an API server after one pass of the controller over each Cluster, and the conditions.
func passed(t *testing.T, all objects, shapes *api.Client) (objects, []controller.Preview) {
	t.Helper()
	scheme, err := api.NewScheme()
	must(t, err)
	var read []runtime.Object
	var groups []schema.GroupVersion
	for i := range all {
		groups = append(groups, all[i].GroupVersionKind().GroupVersion())
	}
	mapper := meta.NewDefaultRESTMapper(groups)
	for kind := range scheme.AllKnownTypes() {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	var stored []client.Object
	for i := range all {
		object := all[i].DeepCopy()
		all.copyEndpoint(t, object)
		all.addGroups(object.Object)
		object.SetUID(types.UID(object.GetKind() + object.GetName()))
		text, _, _ := unstructured.NestedStringMap(object.Object, "stringData")
		for key, value := range text {
			encoded := base64.StdEncoding.EncodeToString([]byte(value))
			must(t, unstructured.SetNestedField(object.Object, encoded, "data", key))
		}
		if !scheme.Recognizes(object.GroupVersionKind()) {
			mapper.Add(object.GroupVersionKind(), meta.RESTScopeNamespace)
			stored = append(stored, object)
			continue
		}
		typed, err := scheme.New(object.GroupVersionKind())
		must(t, err)
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed))
		read = append(read, typed)
		stored = append(stored, typed.(client.Object)) //nolint:forcetypeassert // they are
	}
	ctx := logr.NewContext(t.Context(), logr.Discard())
	building := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(stored...).
		WithStatusSubresource(&clusterv1.Cluster{})
	must(t, lookup.SetupIndexes(t.Context(), indexer{building, shapes}))
	shown, err := api.NewClient(building.Build())
	must(t, err)
	now := func() time.Time { return time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC) }
	made, err := controller.New(controller.Config{
		Client: shown, Live: shown,
		Memory: &lookup.Memory{
			Cached: shown, Live: present{shown}, ProxySecrets: world.ProxySecrets{Reader: shown}, Mapper: mapper, Now: now,
			Installation: resolve.Installation{Namespaces: resolve.EveryNamespace{}},
		},
		Recorder: events.NewFakeRecorder(1000), Now: now,
	})
	must(t, err)
	var clusters kinds.ClusterList
	must(t, shown.List(t.Context(), &clusters))
	var previews []controller.Preview
	for i := range clusters.Items {
		preview, err := made.Preview(ctx, &clusters.Items[i])
		must(t, err)
		previews = append(previews, preview)
	}
	var secrets corev1.SecretList
	must(t, shown.List(t.Context(), &secrets))
	for i := range secrets.Items {
		secrets.Items[i].SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		read = append(read, &secrets.Items[i])
	}
	var after objects
	for _, typed := range read {
		object := typed.(client.Object) //nolint:forcetypeassert // they are
		kind := object.GetObjectKind().GroupVersionKind()
		must(t, shown.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object))
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		must(t, err)
		converted := unstructured.Unstructured{Object: fields}
		converted.SetGroupVersionKind(kind)
		after = append(after, converted)
	}
	return after, previews
}

// copyEndpoint gives a Cluster the endpoint of its infrastructure cluster, as Cluster API does.
func (all objects) copyEndpoint(t *testing.T, cluster *unstructured.Unstructured) {
	t.Helper()
	kind, _, _ := unstructured.NestedString(cluster.Object, "spec", "infrastructureRef", "kind")
	host, _, _ := unstructured.NestedString(cluster.Object, "spec", "controlPlaneEndpoint", "host")
	if cluster.GetKind() != "Cluster" || host != "" {
		return
	}
	all.each(kind, func(object map[string]any) {
		if endpoint, found, _ := unstructured.NestedMap(object, "spec", "controlPlaneEndpoint"); found {
			must(t, unstructured.SetNestedMap(cluster.Object, endpoint, "spec", "controlPlaneEndpoint"))
		}
	})
}

// addGroups completes references to objects in the manifests.
func (all objects) addGroups(value any) {
	switch fields := value.(type) {
	case map[string]any:
		kind, _ := fields["kind"].(string)
		all.each(kind, func(object map[string]any) {
			if _, named := fields["name"]; named && fields["apiGroup"] == nil && fields["apiVersion"] == nil {
				fields["apiGroup"] = (&unstructured.Unstructured{Object: object}).GroupVersionKind().Group
			}
		})
		for _, field := range fields {
			all.addGroups(field)
		}
	case []any:
		for _, item := range fields {
			all.addGroups(item)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// present shows machine templates that no manifest has as existing ones without content, as render does.
type present struct{ client.Reader }

func (p present) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	err := p.Reader.Get(ctx, key, into, o...)
	if strings.HasSuffix(into.GetObjectKind().GroupVersionKind().Kind, "Template") {
		return client.IgnoreNotFound(err)
	}
	return err
}

// indexer has the fake client index as a cache does.
type indexer struct {
	*fake.ClientBuilder

	shapes *api.Client
}

func (i indexer) IndexField(_ context.Context, object client.Object, field string, values client.IndexerFunc) error {
	object, values, err := i.shapes.Index(object, values)
	i.WithIndex(object, field, values)
	return err
}

// TestRender_ComesToWhatThePassComesTo renders manifests, and runs the controller's pass over the same objects: nodes
// boot with the same specs and Secrets, and what render refuses is in the condition and a rejection of lint.
func TestRender_ComesToWhatThePassComesTo(t *testing.T) {
	t.Parallel()
	all := bases(t)
	if compared := len(all) * len(variants()); compared < 200 {
		t.Errorf("%d manifests are compared, want 200", compared)
	}
	for base, text := range all {
		t.Run(base, func(t *testing.T) {
			t.Parallel()
			scheme, err := api.NewScheme()
			must(t, err)
			shapes, err := api.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build())
			must(t, err)
			manifests := parse(t, text)
			for name, change := range variants() {
				given := make(objects, len(manifests))
				for i := range manifests {
					manifests[i].DeepCopyInto(&given[i])
				}
				change(given)
				compare(t, name, given, shapes)
			}
		})
	}
}

func compare(t *testing.T, name string, given objects, shapes *api.Client) {
	t.Helper()
	inputs := []clusters.Input{{Name: "in.yaml", Data: given.yaml(t)}}
	result, refused := render.Render(t.Context(), render.Options{Inputs: inputs, IncludeSecrets: true})
	linted, err := lint.Run(t.Context(), lint.Options{Inputs: inputs})
	must(t, err)
	after, previews := passed(t, given, shapes)
	var conditions []string
	for _, preview := range previews {
		conditions = append(conditions, preview.Condition.Reason+": "+preview.Condition.Message)
	}
	if refused != nil {
		for line := range strings.SplitSeq(refused.Error(), "\n") {
			if !slices.ContainsFunc(previews, func(p controller.Preview) bool { return isReported(line, p) }) {
				t.Errorf("%s: refused: %s\nin no condition: %q", name, line, conditions)
			}
			if !slices.ContainsFunc(linted.Findings, func(f lint.Row) bool {
				return f.Level == lint.Rejection && strings.Contains(line, f.Message)
			}) {
				t.Errorf("%s: refused: %s\nno rejection of lint: %+v", name, line, linted.Findings)
			}
		}
		return
	}
	if linted.Summary.Rejections > 0 && !slices.ContainsFunc(conditions, func(c string) bool {
		return !strings.HasPrefix(c, contract.ReasonConfigured+":")
	}) {
		t.Errorf("%s: lint rejects what is configured: %+v", name, linted.Findings)
	}
	rendered := decode(t, result.Output).configured(t)
	if diff := cmp.Diff(rendered, after.configured(t)); diff != "" {
		t.Errorf("%s (-render +pass):\n%s\nconditions %q\nnotes %q", name, diff, conditions, result.Notes)
	}
}

// isReported reports whether a finding of a pass ends like a line of render, which has its own places.
func isReported(line string, preview controller.Preview) bool {
	return slices.ContainsFunc(preview.Findings, func(found finding.Finding) bool {
		for text := found.String(); len(text) > 20; {
			if strings.Contains(line, text) {
				return true
			}
			_, text, _ = strings.Cut(text, ": ")
		}
		return false
	})
}
