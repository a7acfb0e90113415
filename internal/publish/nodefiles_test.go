package publish

import (
	"bytes"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
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

// TestObjects_AreTheGoldenFiles reads them strictly, too.
func TestObjects_AreTheGoldenFiles(t *testing.T) {
	t.Parallel()
	for name, in := range inputs() {
		got, err := in.Objects()
		if err != nil {
			t.Fatal(err)
		}
		golden.Equal(t, filepath.Join("testdata", "nodes", name+".yaml"), got)
		parts := strings.Split(string(got), "\n---\n")
		for i, object := range []any{&corev1.Namespace{}, &corev1.Secret{}, &appsv1.DaemonSet{}} {
			if err := yaml.UnmarshalStrict([]byte(parts[i]), object); err != nil || len(parts) != 3 {
				t.Errorf("%s: document %d of %d: %v", name, i, len(parts), err)
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

// nodesOf are files of a generated Secret, with a bundle of a size.
func nodesOf(secret string, size int) NodeFiles {
	in := inputs()["plain"]
	in.Secret, in.Data[contract.KeyTrustedCABundle] = secret, bytes.Repeat([]byte("a"), size)
	return in
}

func TestOfNodes_NamesItsGeneratedSecretAndIsInNoSecret(t *testing.T) {
	t.Parallel()
	for _, generated := range []string{
		"prod-proxy-files", "prod.a.md.proxy-files", "prod." + strings.Repeat("x", 200) + ".mp.proxy-files",
	} {
		secret, found, err := OfNodes(nodesOf(generated, 10))
		if err != nil || len(found) > 0 || secret.Kept || secret.Delivered == nil || secret.Delivered.Argument != generated {
			t.Fatalf("%s: %v, %v, %v", generated, secret, found, err)
		}
		objects, err := secret.Objects()
		if err != nil || len(objects) != 3 {
			t.Errorf("%s: %d objects, %v", generated, len(objects), err)
		}
	}
	if kept := KeptNodes(); !kept.Kept || kept.Delivered == nil || kept.Data != nil {
		t.Errorf("kept is %v", kept)
	}
}

func TestOfNodes_KeepsWhatItCannotMake(t *testing.T) {
	t.Parallel()
	fits, found, err := OfNodes(nodesOf("prod-proxy-files", 700_000))
	if err != nil || len(found) > 0 || fits.Kept || len(fits.Data["nodes.yaml"]) > corev1.MaxSecretSize {
		t.Errorf("%d bytes, %v, %v", len(fits.Data["nodes.yaml"]), found, err)
	}
	large, found, err := OfNodes(nodesOf("prod-proxy-files", 900_000))
	if err != nil || len(found) != 1 || found[0].Reason != contract.ReasonTooLarge || !large.Kept || large.Data != nil ||
		!strings.Contains(found[0].Message, "output nodes=prod-proxy-files: its objects would have 12") {
		t.Errorf("%v, %v, %v", large, found, err)
	}
	in := nodesOf("prod-proxy-files", 10)
	delete(in.Data, contract.KeySetup)
	if secret, found, err := OfNodes(in); err != nil || len(found) > 0 || !secret.Kept {
		t.Errorf("without files: %v, %v, %v", secret, found, err)
	}
}
