package templates

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/lint"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/wait"
)

// manifests are the manifests of a user, in one namespace.
type manifests []*unstructured.Unstructured

// each calls change for the objects of a kind.
func (all manifests) each(kind string, change func(map[string]any)) {
	for _, o := range all {
		if o.GetKind() == kind {
			change(o.Object)
		}
	}
}

// annotate sets an annotation of the objects of a kind.
func annotate(kind, key, value string) func(manifests) {
	return func(all manifests) {
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
func set(kind string, value any, path ...string) func(manifests) {
	return func(all manifests) {
		all.each(kind, func(object map[string]any) {
			if err := unstructured.SetNestedField(object, runtime.DeepCopyJSONValue(value), path...); err != nil {
				panic(err)
			}
		})
	}
}

// proxy replaces what proxy Secrets hold.
func proxy(data map[string]any) func(manifests) {
	return func(all manifests) {
		all.each("Secret", func(object map[string]any) { delete(object, "data"); object["stringData"] = data })
	}
}

// variants are what users write into manifests. A paused Cluster is not among them: render patches it, the controller
// waits.
func variants(t *testing.T) map[string]func(manifests) {
	t.Helper()
	const url = "http://proxy.example.com:3128"
	file := func(path string) []any {
		return []any{map[string]any{"path": path, "permissions": "0600", "content": "a: 'b'\n%n"}}
	}
	return map[string]func(manifests){
		"as it is":      func(manifests) {},
		"no label":      func(all manifests) { all.each("Cluster", unlabel) },
		"unclear label": set("Cluster", "yes", "metadata", "labels", contract.LabelEnabled),
		"false":         set("Cluster", "false", "metadata", "labels", contract.LabelEnabled),
		"immediate":     annotate("Cluster", contract.AnnotationRollout, contract.RolloutImmediate),
		"bad rollout":   annotate("Cluster", contract.AnnotationRollout, "Now"),
		"one target":    annotate("Cluster", contract.AnnotationTargets, "containerd"),
		"all targets":   annotate("Cluster", contract.AnnotationTargets, "containerd,kubelet,commands,trust,static-pods"),
		"trust alone":   annotate("Cluster", contract.AnnotationTargets, "trust"),
		"no networks":   func(all manifests) { all.each("Cluster", unnetwork) },
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
		"user's file":        set("KubeadmConfigTemplate", file("/etc/motd"), "spec", "template", "spec", "files"),
		"a file at our path": set("KubeadmConfigTemplate", file(contract.PathProxyEnv), "spec", "template", "spec", "files"),
		"a file in our way":  set("KubeadmControlPlane", file(contract.PathProxyEnv), "spec", "kubeadmConfigSpec", "files"),
		"no URL":             proxy(map[string]any{"noProxy": "a"}),
		"empty":              proxy(map[string]any{}),
		"password":           proxy(map[string]any{"httpProxy": url, "username": "node", "password": "p@%\"$`\\ s"}),
		"user in both":       proxy(map[string]any{"httpProxy": "http://a:b@proxy.example.com:3128", "username": "c"}),
		"unknown key":        proxy(map[string]any{"httpProxy": url, "noproxy": "a"}),
		"bad URL":            proxy(map[string]any{"httpProxy": "proxy.example.com:3128:1"}),
		"certificates alone": proxy(map[string]any{"trustedCA": pki.Text(t)}),
		"long certificates":  proxy(map[string]any{"httpProxy": url, "trustedCA": pki.Bundle(t, 300_000)}),
		"bad certificates":   proxy(map[string]any{"httpProxy": url, "trustedCA": "-----BEGIN CERTIFICATE-----\n"}),
		"entries":            proxy(map[string]any{"httpProxy": url, "noProxy": ".corp.example.com, 10.1.0.0/16\n*.x.example, [fd00::1]"}),
		"bad entries":        proxy(map[string]any{"httpProxy": url, "noProxy": "http://a, b/c"}),
		"published": func(all manifests) {
			annotate("Cluster", output.AnnotationPublish,
				"env, values=a.b, values=c, annotations, giantswarm, pods, trust=cert-manager, kapp-controller")(all)
			proxy(map[string]any{"httpProxy": url, "trustedCA": pki.Text(t)})(all)
			set("Cluster", map[string]any{"host": "192.0.2.7", "port": int64(6443)}, "spec", "controlPlaneEndpoint")(all)
		},
		"Secrets of other names": func(all manifests) { all.each("Secret", rename) },
	}
}

func unlabel(cluster map[string]any) { unstructured.RemoveNestedField(cluster, "metadata", "labels") }

func unnetwork(cluster map[string]any) {
	unstructured.RemoveNestedField(cluster, "spec", "clusterNetwork")
}

func rename(secret map[string]any) {
	object := &unstructured.Unstructured{Object: secret}
	object.SetName(object.GetName() + "-2")
}

// bases are manifests with a labelled Cluster and a proxy Secret, by a name.
func bases(t *testing.T) map[string]manifests {
	t.Helper()
	all := map[string]manifests{}
	secret := read(t, secretFile)
	for _, names := range templateSets(t) {
		if len(names) == 1 {
			all[names[0]] = objects(t, slices.Concat(fill(t, read(t, names[0]), usual(nil)), []byte("\n---\n"), secret))
		}
	}
	usual := all["cluster-template.yaml"]
	hosted := slices.DeleteFunc(usual.in("hosted"), func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "KubeadmControlPlane"
	})
	set("Cluster", "KamajiControlPlane", "spec", "controlPlaneRef", "kind")(hosted)
	all["hosted control plane"] = hosted
	all["two pools with one template"] = append(usual.in("shared"), usual.copies("MachineDeployment", "b")...)
	dmz := usual.copies("Secret", "dmz")
	direct := slices.Concat(usual.copies("MachineDeployment", "direct"), usual.copies("KubeadmConfigTemplate", "direct"))
	set("MachineDeployment", "direct", "spec", "template", "spec", "bootstrap", "configRef", "name")(direct)
	annotate("MachineDeployment", contract.AnnotationSecret, contract.SecretNone)(direct)
	pools := usual.in("pools")
	annotate("MachineDeployment", contract.AnnotationSecret, "dmz")(pools)
	all["pools with other proxies"] = slices.Concat(pools, dmz, direct)
	windows := slices.Concat(usual.copies("MachineDeployment", "windows"), usual.copies("KubeadmConfigTemplate", "windows"))
	set("MachineDeployment", "windows", "spec", "template", "spec", "bootstrap", "configRef", "name")(windows)
	set("KubeadmConfigTemplate", []any{map[string]any{"path": "c:/k/azure.json", "content": "{}"}},
		"spec", "template", "spec", "files")(windows)
	all["Windows pool"] = append(usual.in("windows"), windows...)
	return all
}

// copies returns copies of the objects of a kind, with a name.
func (all manifests) copies(kind, name string) (copies manifests) {
	all.each(kind, func(object map[string]any) {
		o := (&unstructured.Unstructured{Object: object}).DeepCopy()
		o.SetName(name)
		copies = append(copies, o)
	})
	return copies
}

// in returns copies of all in a namespace.
func (all manifests) in(namespace string) manifests {
	copies := make(manifests, len(all))
	for i, o := range all {
		copies[i] = o.DeepCopy()
		copies[i].SetNamespace(namespace)
	}
	return copies
}

// copyEndpoint gives a Cluster the endpoint of its infrastructure cluster, as Cluster API does.
func (all manifests) copyEndpoint(t *testing.T) {
	t.Helper()
	all.each("Cluster", func(cluster map[string]any) {
		if host, _, _ := unstructured.NestedString(cluster, "spec", "controlPlaneEndpoint", "host"); host != "" {
			return
		}
		kind, _, _ := unstructured.NestedString(cluster, "spec", "infrastructureRef", "kind")
		all.each(kind, func(object map[string]any) {
			if endpoint, found, _ := unstructured.NestedMap(object, "spec", "controlPlaneEndpoint"); found {
				if err := unstructured.SetNestedMap(cluster, endpoint, "spec", "controlPlaneEndpoint"); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
}

func (all manifests) yaml(t *testing.T) []byte {
	t.Helper()
	var text []byte
	for _, o := range all {
		one, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		text = slices.Concat(text, []byte("---\n"), one)
	}
	return text
}

// configured are the lists of the specs that nodes boot with, the generated Secrets and what is published, by kind and name.
func (all manifests) configured(t *testing.T) map[string]string {
	t.Helper()
	specs := map[string]string{}
	for _, o := range all {
		if o.GetKind() == "Cluster" {
			for _, key := range output.AnnotationKeys() {
				if value, written := o.GetAnnotations()[key]; written {
					specs["annotation "+key] = value
				}
			}
		}
		path := map[string][]string{
			"KubeadmControlPlane": {"spec", "kubeadmConfigSpec"}, "KubeadmConfigTemplate": {"spec", "template", "spec"},
			"KubeadmConfig": {"spec"}, "Secret": {"data"},
		}[o.GetKind()]
		if _, generated := o.GetLabels()[contract.LabelGenerated]; path == nil || path[0] == "data" && !generated {
			continue
		}
		spec, _, _ := unstructured.NestedMap(o.Object, path...)
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
		specs[o.GetKind()+" "+o.GetName()] = string(text)
	}
	return specs
}

// comparison is what render and lint make of manifests, and the namespace in which the manager has them.
type comparison struct {
	client.Client

	name, ns string
	given    manifests
	rendered map[string]string
	// onlySpecs reports that Secrets are not compared, because values are not among the manifests.
	onlySpecs bool
	notes     []string
	refused   error
	linted    lint.Report
}

// testRender renders manifests, and applies the originals to a management cluster with the manager: nodes boot with the
// same specs and Secrets, and what render refuses is in the condition and a rejection of lint.
func testRender(t *testing.T, user client.Client) {
	t.Helper()
	all, changes := bases(t), variants(t)
	if compared := len(all) * len(changes); compared < 200 {
		t.Fatalf("%d manifests are compared, want 200", compared)
	}
	var mu sync.Mutex
	var every []comparison
	t.Run("of", func(t *testing.T) { // returns when all that is below has
		for base, given := range all {
			t.Run(base, func(t *testing.T) {
				t.Parallel()
				for name, change := range changes {
					one := given.in(vocabulary.Namespace(t, user, "render-"))
					change(one)
					c := compare(t, user, name, one)
					mu.Lock()
					every = append(every, c)
					mu.Unlock()
				}
			})
		}
	})
	differing := func(all []comparison) (left []comparison, problems []string) {
		for _, c := range all {
			if problem := c.problem(t); problem != "" {
				left, problems = append(left, c), append(problems, c.name+": "+problem)
			}
		}
		return left, problems
	}
	if !slices.ContainsFunc(every, func(c comparison) bool { return c.rendered["annotation "+output.AnnotationNoProxy] != "" }) {
		t.Error("no manifest publishes anything")
	}
	left := every
	wait.Rule{Still: patience, Poll: time.Second}.Until(t, "all Clusters", func() string {
		var problems []string
		left, problems = differing(left)
		return strings.Join(problems, "\n")
	})
	// Manifests in which nothing changes have agreed from the start; by now the manager has seen them, too.
	if _, problems := differing(every); problems != nil {
		t.Error(strings.Join(problems, "\n"))
	}
}

// compare renders manifests and applies them.
func compare(t *testing.T, user client.Client, name string, given manifests) comparison {
	t.Helper()
	c := comparison{Client: user, name: t.Name() + ", " + name, ns: given[0].GetNamespace(), given: given}
	inputs := []clusters.Input{{Name: "in.yaml", Data: given.yaml(t)}}
	options := render.Options{Inputs: inputs, IncludeSecrets: true, Publish: render.Publish{Publisher: publish.New(), Wanted: name == "published"}}
	result, err := render.Render(t.Context(), options)
	if err != nil { // values that are not known are no reason to refuse specs
		options.IncludeSecrets = false
		if specs, stillRefused := render.Render(t.Context(), options); stillRefused == nil {
			result, err, c.onlySpecs = specs, nil, true
		}
	}
	if c.refused = err; err == nil {
		c.rendered, c.notes = manifests(objects(t, result.Output)).configured(t), result.Notes
	}
	if c.linted, err = lint.Run(t.Context(), lint.Options{Inputs: inputs}); err != nil {
		t.Fatal(err)
	}
	if c.refused != nil {
		for line := range strings.SplitSeq(c.refused.Error(), "\n") {
			if !slices.ContainsFunc(c.linted.Findings, func(f lint.Row) bool {
				return f.Level == lint.Rejection && strings.Contains(line, f.Message)
			}) {
				t.Errorf("%s: refused: %s\nno rejection of lint: %+v", name, line, c.linted.Findings)
			}
		}
	}
	given.copyEndpoint(t)
	for _, o := range given {
		if err := user.Create(t.Context(), o); err != nil {
			t.Errorf("%s: creating %s: %v", name, o.GetKind(), err)
		}
	}
	return c
}

// problem returns in what the management cluster differs from what was rendered, "" if in nothing.
func (c comparison) problem(t *testing.T) string {
	t.Helper()
	var after manifests
	var conditions []string
	for _, o := range c.given {
		now := &unstructured.Unstructured{}
		now.SetGroupVersionKind(o.GroupVersionKind())
		after = append(after, vocabulary.Fetch(t, c, c.ns, o.GetName(), now))
	}
	after.each("Cluster", func(cluster map[string]any) {
		var typed clusterv1.Cluster
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(cluster, &typed); err != nil {
			t.Fatal(err)
		}
		condition := vocabulary.Condition(&typed)
		conditions = append(conditions, condition.Reason+": "+condition.Message)
	})
	if c.refused != nil {
		for line := range strings.SplitSeq(c.refused.Error(), "\n") {
			if !slices.ContainsFunc(conditions, func(condition string) bool { return reports(condition, line) }) {
				return fmt.Sprintf("render refuses: %s\nin no condition: %q", line, conditions)
			}
		}
		return ""
	}
	if c.linted.Summary.Rejections > 0 && slices.ContainsFunc(conditions, func(condition string) bool {
		return strings.HasPrefix(condition, contract.ReasonConfigured+": ")
	}) {
		return fmt.Sprintf("lint rejects what is configured: %+v", c.linted.Findings)
	}
	var secrets unstructured.UnstructuredList
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := c.List(t.Context(), &secrets, client.InNamespace(c.ns), client.HasLabels{contract.LabelGenerated}); err != nil {
		t.Fatal(err)
	}
	for i := range secrets.Items {
		if !c.onlySpecs {
			after = append(after, &secrets.Items[i])
		}
	}
	if diff := cmp.Diff(c.rendered, after.configured(t)); diff != "" {
		return fmt.Sprintf("(-render +manager):\n%s\nconditions %q\nnotes %q", diff, conditions, c.notes)
	}
	return ""
}

// reports reports whether a finding in a condition ends like a line of render, which has its own places and hints.
func reports(condition, line string) bool {
	for text := range strings.SplitSeq(condition, "\n") {
		for text = strings.TrimPrefix(text, "* "); len(text) > 20; {
			if strings.Contains(line, text) {
				return true
			}
			_, text, _ = strings.Cut(text, ": ")
			text = strings.TrimPrefix(text, "* ")
		}
	}
	return false
}
