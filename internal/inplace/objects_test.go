package inplace

import (
	"bytes"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/remote"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
)

// rude holds what ends a value early in a text that is pasted together.
const rude = "HTTP_PROXY=\"http://u:%40'\\\\\\$`{{x}}: #\n---\n@[2001:db8::1]:3128\"\n"

func key() []byte { return bytes.Repeat([]byte{0x5a}, 32) }

func inputs() map[string]NodeFiles {
	return map[string]NodeFiles{
		"plain": {
			Secret: "prod-proxy-files", Key: key(), Slots: 1,
			NodePods: NodePods{Image: "registry.example.com/capi-proxy-patcher:v1", PullPolicy: "Always"},
			Data: map[string][]byte{
				contract.KeyProxyEnv: []byte(rude), contract.KeySetup: []byte("#!/bin/sh\n"),
				contract.KeyNodeFiles:      []byte(`{"files":[{"path":"/etc/capi-proxy-patcher/proxy.env"}]}`),
				contract.KeyNoProxyOrigins: []byte("for people"), contract.KeyContentHash: []byte("abc"),
			},
		},
		"pool": {
			Secret: "prod." + strings.Repeat("long-", 11) + ".md.proxy-files", Key: key(), Slots: 3,
			NodePods: NodePods{
				PullSecret: "pull", Image: "capi-proxy-patcher@sha256:" + strings.Repeat("0", 64), PullPolicy: "IfNotPresent",
			},
			Data: map[string][]byte{
				contract.KeyProxyEnv: {}, contract.KeyTrustedCABundle: []byte("-----BEGIN CERTIFICATE-----\n"),
				contract.KeyNodeFiles: []byte(`{"files":[]}`), contract.KeySetup: []byte("#!/bin/sh\n"), contract.KeyReadiness: []byte("https://a.example.com/%20\n"),
			},
		},
	}
}

// TestObjects_AreTheGoldenFiles reads them strictly, too.
func TestObjects_AreTheGoldenFiles(t *testing.T) {
	t.Parallel()
	for name, in := range inputs() {
		var all []string
		set := setOf("prod", in.Slots, []NodeFiles{in}, nil)
		typed := []any{
			&corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.ClusterRole{}, &rbacv1.RoleBinding{}, &rbacv1.ClusterRoleBinding{},
			&corev1.Secret{}, &appsv1.DaemonSet{},
		}
		if len(set.Objects) != len(typed) {
			t.Fatalf("%d objects", len(set.Objects))
		}
		for i, object := range set.Objects {
			text, err := yaml.Marshal(object.Unstructured)
			if err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict(text, typed[i]); err != nil {
				t.Errorf("%s: %s: %v", name, object.GetKind(), err)
			}
			if !slices.ContainsFunc(set.Kinds, func(k remote.Kind) bool {
				return k.GroupVersionKind == object.GroupVersionKind() && k.Namespace == object.GetNamespace() && k.Named(object.GetName())
			}) {
				t.Errorf("%s: %s %s would not be deleted", name, object.GetKind(), object.GetName())
			}
			all = append(all, string(text))
		}
		golden.Equal(t, filepath.Join("testdata", name+".yaml"), []byte(strings.Join(all, "---\n")))
	}
}

func TestSetOf_KeepsWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	set := setOf("prod", 1, nil, map[string]bool{main: true})
	labelled := func(label string) metav1.Object {
		return &metav1.ObjectMeta{Labels: map[string]string{LabelNodeFiles: label}}
	}
	if !set.Keeps(labelled(main)) || set.Keeps(labelled(gpu)) || set.Keeps(&metav1.ObjectMeta{}) || len(set.Objects) != 5 {
		t.Errorf("%d objects are applied", len(set.Objects))
	}
	if set := setOf("prod", 1, nil, nil); len(set.Objects) > 0 {
		t.Errorf("nothing is wanted, and %d objects are", len(set.Objects))
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
		if !strings.HasPrefix(version, label+"-") || len(version)-len(label)-1 != digestLength || len(name) <= 52 && label != name {
			t.Errorf("%s is %s, of version %s", name, label, version)
		}
		if other, taken := seen[label]; taken {
			t.Errorf("%s and %s have %s", name, other, label)
		}
		seen[label] = name
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
	other("another number of slots", changed(func(in *NodeFiles) { in.Slots++ }))
	for _, file := range []string{
		contract.KeyProxyEnv, contract.KeyTrustedCABundle, contract.KeySetup, contract.KeyReadiness, contract.KeyNodeFiles,
	} {
		other("another "+file, changed(func(in *NodeFiles) { in.Data[file] = append([]byte("x"), in.Data[file]...) }))
		other("no "+file, changed(func(in *NodeFiles) { delete(in.Data, file) }))
	}
	more := changed(func(in *NodeFiles) { in.Data[contract.KeyNoProxyOrigins] = []byte("x") })
	if more.Version() != in.Version() {
		t.Error("a key that no node reads changes the version")
	}
}

func TestNodeFiles_FitIntoASecret(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]bool{700_000: false, maxFiles: true} {
		in := inputs()["plain"]
		in.Data[contract.KeyTrustedCABundle] = bytes.Repeat([]byte("a"), size)
		if got := in.isTooLarge(); got != want {
			t.Errorf("%d bytes: %v", size, got)
		}
	}
	in := NodeFiles{Secret: "s"}
	if got := in.tooLarge(); !strings.Contains(got, "Secret s ") || !strings.Contains(got, contract.KeyTrustedCA) {
		t.Errorf("got %s", got)
	}
}
