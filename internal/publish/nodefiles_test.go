package publish

import (
	"bytes"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
)

// rude holds what ends a value early in a text that is pasted together.
const rude = "HTTP_PROXY=\"http://u:%40'\\\\\\$`{{x}}: #\n---\n@[2001:db8::1]:3128\"\n"

func key() []byte { return bytes.Repeat([]byte{0x5a}, 32) }

func inputs() map[string]NodeFiles {
	return map[string]NodeFiles{
		"plain": {
			Cluster: "prod", Secret: "prod-proxy-files", Key: key(), Image: "registry.example.com/capi-proxy-patcher:v1",
			PullPolicy: "Always",
			Data: map[string][]byte{
				contract.KeyProxyEnv: []byte(rude), contract.KeySetup: []byte("#!/bin/sh\n"),
				contract.KeyNodeFiles:      []byte(`{"files":[{"path":"/etc/capi-proxy-patcher/proxy.env"}]}`),
				contract.KeyNoProxyOrigins: []byte("for people"), contract.KeyContentHash: []byte("abc"),
			},
		},
		"pool": {
			Cluster: "prod", Secret: "prod." + strings.Repeat("long-", 11) + ".md.proxy-files", Key: key(),
			PullSecret: "pull", Image: "capi-proxy-patcher@sha256:" + strings.Repeat("0", 64), PullPolicy: "IfNotPresent",
			Data: map[string][]byte{
				contract.KeyProxyEnv: {}, contract.KeyTrustedCABundle: []byte("-----BEGIN CERTIFICATE-----\n"),
				contract.KeyNodeFiles: []byte(`{"files":[]}`), contract.KeySetup: []byte("#!/bin/sh\n"), contract.KeyReadiness: []byte("https://a.example.com/%20\n"),
			},
		},
	}
}

// objectsOf decodes the objects strictly.
func objectsOf(t *testing.T, in NodeFiles) (ns corev1.Namespace, secret corev1.Secret, set appsv1.DaemonSet) {
	t.Helper()
	text, err := in.Objects()
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), "\n---\n")
	if len(parts) != 3 {
		t.Fatalf("%d documents", len(parts))
	}
	for i, object := range []any{&ns, &secret, &set} {
		if err := yaml.UnmarshalStrict([]byte(parts[i]), object); err != nil {
			t.Fatalf("document %d: %v", i, err)
		}
	}
	return ns, secret, set
}

func TestObjects_AreTheGoldenFiles(t *testing.T) {
	t.Parallel()
	for name, in := range inputs() {
		got, err := in.Objects()
		if err != nil {
			t.Fatal(err)
		}
		golden.Equal(t, filepath.Join("testdata", "nodes", name+".yaml"), got)
	}
}

func TestObjects_HaveTheFilesInTheSecretThatTheTemplateNames(t *testing.T) {
	t.Parallel()
	for name, in := range inputs() {
		ns, secret, set := objectsOf(t, in)
		version := in.Version()
		if diff := cmp.Diff(ForNodes(in.Data), secret.Data); diff != "" {
			t.Errorf("%s: files (-want +got):\n%s", name, diff)
		}
		if _, given := secret.Data[contract.KeyNoProxyOrigins]; given || secret.Immutable == nil || !*secret.Immutable {
			t.Errorf("%s: Secret %v", name, secret)
		}
		if ns.Labels["pod-security.kubernetes.io/enforce"] != "privileged" || ns.Name != contract.NodesNamespace ||
			secret.Namespace != ns.Name || set.Namespace != ns.Name || set.Name != version {
			t.Errorf("%s: Namespace %v, Secret %s/%s, DaemonSet %s/%s", name, ns.ObjectMeta, secret.Namespace, secret.Name,
				set.Namespace, set.Name)
		}
		spec := set.Spec.Template.Spec
		mounted := ""
		for _, volume := range spec.Volumes {
			if volume.Secret != nil {
				mounted = volume.Secret.SecretName
			}
		}
		if mounted != secret.Name || mounted != version || set.Spec.Template.Labels[contract.LabelNodeFiles] != version ||
			secret.Labels[contract.LabelNodeFiles] != version || set.Labels[contract.LabelNodeFiles] != version {
			t.Errorf("%s: the template has %q and labels %v, and the Secret is %q", name, mounted, set.Spec.Template.Labels,
				secret.Name)
		}
		term := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
		if got := term.MatchExpressions[0]; got.Key != contract.LabelNodeFiles || !cmp.Equal(got.Values, []string{version}) {
			t.Errorf("%s: nodes are selected by %v", name, got)
		}
		if set.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
			t.Errorf("%s: an edit of the template changes nodes: %v", name, set.Spec.UpdateStrategy)
		}
		apply, watch := spec.InitContainers[0], spec.Containers[0]
		if apply.ImagePullPolicy != corev1.PullIfNotPresent || string(watch.ImagePullPolicy) != in.PullPolicy {
			t.Errorf("%s: images are pulled %s and %s", name, apply.ImagePullPolicy, watch.ImagePullPolicy)
		}
		for key, value := range set.Spec.Selector.MatchLabels {
			if set.Spec.Template.Labels[key] != value {
				t.Errorf("%s: the selector has %s=%s, the Pods %v", name, key, value, set.Spec.Template.Labels)
			}
		}
	}
}

func TestVersion_IsAValueAndANameOfItsOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, name := range []string{
		"prod-proxy-files", "prod.workers.md.proxy-files", strings.Repeat("a", 40) + "-proxy-files",
		strings.Repeat("a", 41) + "-proxy-files", strings.Repeat("a", 42) + "-proxy-files",
		strings.Repeat("a", 30) + ".-.proxy-files." + strings.Repeat("b", 100),
		strings.Repeat("a", 40) + "." + strings.Repeat("b", 180) + ".md.proxy-files",
		strings.Repeat("a", 40) + "." + strings.Repeat("b", 181) + ".md.proxy-files",
	} {
		version := NodeFiles{Secret: name}.Version()
		if problems := append(validation.IsValidLabelValue(version), validation.IsDNS1123Subdomain(version)...); len(problems) > 0 {
			t.Errorf("%s: %q: %v", name, version, problems)
		}
		label := NodeLabel(name)
		if label != NodeLabelOf(version) || len(name) <= 52 && label != name {
			t.Errorf("%s is %s, of version %s", name, label, version)
		}
		if other, taken := seen[label]; taken {
			t.Errorf("%s and %s have %s", name, other, label)
		}
		seen[label] = name
	}
	for _, other := range []string{"", "a", "prod-proxy-files", "prod-proxy-files-", "-"} {
		if got := NodeLabelOf(other); got != "" {
			t.Errorf("%q is a version of %s", other, got)
		}
	}
}

func TestVersion_DependsOnTheKeyOnEachFileAndOnThePods(t *testing.T) {
	t.Parallel()
	in := inputs()["pool"]
	seen := map[string]string{in.Version(): "the data"}
	other := func(what string, in NodeFiles) {
		version := in.Version()
		if before, taken := seen[version]; taken {
			t.Errorf("%s has the version of %s", what, before)
		}
		seen[version] = what
	}
	changed := func(edit func(*NodeFiles)) NodeFiles {
		c := in
		c.Data = maps.Clone(in.Data)
		edit(&c)
		return c
	}
	other("another key", changed(func(in *NodeFiles) { in.Key = []byte{1} }))
	other("another image", changed(func(in *NodeFiles) { in.Image += "0" }))
	other("another policy", changed(func(in *NodeFiles) { in.PullPolicy = "Never" }))
	for file := range ForNodes(in.Data) {
		other("another "+file, changed(func(in *NodeFiles) { in.Data[file] = append([]byte("x"), in.Data[file]...) }))
		other("no "+file, changed(func(in *NodeFiles) { delete(in.Data, file) }))
	}
	more := changed(func(in *NodeFiles) { in.Data[contract.KeyNoProxyOrigins] = []byte("x") })
	if more.Version() != in.Version() {
		t.Error("a key that no node reads changes the version")
	}
}
