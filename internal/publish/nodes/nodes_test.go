package nodes_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/nodes"
)

var update = flag.Bool("update", false, "write the golden files")

// rude holds what ends a value early in a text that is pasted together.
const rude = "HTTP_PROXY=\"http://u:%40'\\\\\\$`{{x}}: #\n---\n@[2001:db8::1]:3128\"\n"

func key() []byte { return bytes.Repeat([]byte{0x5a}, 32) }

func inputs() map[string]nodes.Input {
	return map[string]nodes.Input{
		"plain": {
			Cluster: "prod", Secret: "prod-proxy-files", Key: key(), Image: "registry.example.com/capi-proxy-patcher:v1",
			MaxUnavailable: "1",
			Data: map[string][]byte{
				contract.KeyProxyEnv: []byte(rude), contract.KeySetup: []byte("#!/bin/sh\n"),
				contract.KeyNoProxyOrigins: []byte("for people"), contract.KeyContentHash: []byte("abc"),
			},
		},
		"pool": {
			Cluster: "prod", Secret: "prod." + strings.Repeat("long-", 11) + ".md.proxy-files", Key: key(),
			PullSecret: "pull", Image: "capi-proxy-patcher@sha256:" + strings.Repeat("0", 64), MaxUnavailable: "25%",
			Data: map[string][]byte{
				contract.KeyProxyEnv: {}, contract.KeyTrustedCABundle: []byte("-----BEGIN CERTIFICATE-----\n"),
				contract.KeySetup: []byte("#!/bin/sh\n"), contract.KeyReadiness: []byte("https://a.example.com/%20\n"),
			},
		},
	}
}

// parse decodes the objects strictly.
func parse(t *testing.T, in nodes.Input) (ns corev1.Namespace, secret corev1.Secret, set appsv1.DaemonSet) {
	t.Helper()
	text, err := nodes.Objects(in)
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
		got, err := nodes.Objects(in)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name+".yaml")
		if *update {
			if err := os.WriteFile(path, got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestObjects_HaveTheFilesInTheSecretThatTheTemplateNames(t *testing.T) {
	t.Parallel()
	for name, in := range inputs() {
		ns, secret, set := parse(t, in)
		label := nodes.Label(in.Secret)
		if diff := cmp.Diff(nodes.Files(in.Data), secret.Data); diff != "" {
			t.Errorf("%s: files (-want +got):\n%s", name, diff)
		}
		if _, given := secret.Data[contract.KeyNoProxyOrigins]; given || secret.Immutable == nil || !*secret.Immutable {
			t.Errorf("%s: Secret %v", name, secret)
		}
		if ns.Labels["pod-security.kubernetes.io/enforce"] != "privileged" || ns.Name != contract.NodesNamespace ||
			secret.Namespace != ns.Name || set.Namespace != ns.Name || set.Name != label {
			t.Errorf("%s: Namespace %v, Secret %s/%s, DaemonSet %s/%s", name, ns.ObjectMeta, secret.Namespace, secret.Name,
				set.Namespace, set.Name)
		}
		digest := nodes.Digest(in.Key, in.Data)
		spec := set.Spec.Template.Spec
		mounted := ""
		for _, volume := range spec.Volumes {
			if volume.Secret != nil {
				mounted = volume.Secret.SecretName
			}
		}
		if mounted != secret.Name || mounted != nodes.SecretName(label, digest) ||
			set.Spec.Template.Labels[contract.LabelFilesDigest] != digest {
			t.Errorf("%s: the template has %q and labels %v, and the Secret is %q", name, mounted, set.Spec.Template.Labels,
				secret.Name)
		}
		term := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
		if got := term.MatchExpressions[0]; got.Key != contract.LabelNodeFiles || !cmp.Equal(got.Values, []string{label}) {
			t.Errorf("%s: nodes are selected by %v", name, got)
		}
		if got := set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String(); got != in.MaxUnavailable {
			t.Errorf("%s: maxUnavailable is %s", name, got)
		}
		for key, value := range set.Spec.Selector.MatchLabels {
			if set.Spec.Template.Labels[key] != value {
				t.Errorf("%s: the selector has %s=%s, the Pods %v", name, key, value, set.Spec.Template.Labels)
			}
		}
	}
}

func TestLabel_IsAValueAndANameOfItsOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, name := range []string{
		"prod-proxy-files", "prod.workers.md.proxy-files", strings.Repeat("a", 51) + "-proxy-files",
		strings.Repeat("a", 52) + "-proxy-files", strings.Repeat("a", 53) + "-proxy-files",
		strings.Repeat("a", 41) + ".-.proxy-files." + strings.Repeat("b", 100),
		strings.Repeat("a", 40) + "." + strings.Repeat("b", 180) + ".md.proxy-files",
		strings.Repeat("a", 40) + "." + strings.Repeat("b", 181) + ".md.proxy-files",
	} {
		label := nodes.Label(name)
		if problems := append(validation.IsValidLabelValue(label), validation.IsDNS1123Subdomain(label)...); len(problems) > 0 {
			t.Errorf("%s: %q: %v", name, label, problems)
		}
		if problems := validation.IsDNS1123Subdomain(nodes.SecretName(label, "0123456789")); len(problems) > 0 {
			t.Errorf("%s: the Secret: %v", name, problems)
		}
		if len(name) <= 63 && label != name {
			t.Errorf("%s is %s", name, label)
		}
		if other, taken := seen[label]; taken {
			t.Errorf("%s and %s have %s", name, other, label)
		}
		seen[label] = name
	}
}

func TestDigest_DependsOnTheKeyAndOnEachFile(t *testing.T) {
	t.Parallel()
	data := inputs()["pool"].Data
	seen := map[string]string{nodes.Digest(key(), data): "the data"}
	other := func(what string, key []byte, data map[string][]byte) {
		digest := nodes.Digest(key, data)
		if before, taken := seen[digest]; taken {
			t.Errorf("%s has the digest of %s", what, before)
		}
		seen[digest] = what
	}
	other("another key", []byte{1}, data)
	for file := range nodes.Files(data) {
		changed := maps.Clone(data)
		changed[file] = append([]byte("x"), changed[file]...)
		other("another "+file, key(), changed)
		delete(changed, file)
		other("no "+file, key(), changed)
	}
	more := maps.Clone(data)
	more[contract.KeyNoProxyOrigins] = []byte("x")
	if nodes.Digest(key(), more) != nodes.Digest(key(), data) {
		t.Error("a key that no node reads changes the digest")
	}
}

// TestObjects_AreTextWhateverTheDigest has digests that YAML would read as numbers.
func TestObjects_AreTextWhateverTheDigest(t *testing.T) {
	t.Parallel()
	in, numbers := inputs()["plain"], 0
	for i := 0; numbers < 3; i++ {
		in.Data[contract.KeyProxyEnv] = fmt.Appendf(nil, "%d", i)
		digest := nodes.Digest(in.Key, in.Data)
		if _, err := strconv.ParseFloat(digest, 64); err != nil {
			continue
		}
		numbers++
		if _, secret, set := parse(t, in); secret.Labels[contract.LabelFilesDigest] != digest ||
			set.Spec.Template.Labels[contract.LabelFilesDigest] != digest {
			t.Errorf("labels %v and %v, want %s", secret.Labels, set.Spec.Template.Labels, digest)
		}
	}
}
