package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
)

// maxInput is how many bytes of manifests a command reads in total.
const maxInput = 64 << 20

// endless is an input without an end that counts what is read of it.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	e.read += int64(len(p))
	return len(p), nil
}

// TestInput_IsBounded gives the three commands inputs without an end, alone and behind a file, and files that are too
// large together.
func TestInput_IsBounded(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	half := filepath.Join(folder, "half.yaml")
	for _, name := range []string{half, filepath.Join(folder, "other.yaml")} {
		if err := os.WriteFile(name, bytes.Repeat([]byte("# comment line\n"), maxInput/15/2+10), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{"render", "lint", "explain"} {
		for _, tc := range []struct {
			name string
			args []string
			want string
			most int64 // of standard input, with what a reader may take ahead
		}{
			{"standard input", []string{"-f", "-"}, "standard input", maxInput + 1},
			{"a device", []string{"-f", "/dev/zero"}, "/dev/zero", 0},
			{"a Secret behind a file", []string{"-f", half, "--secret", "-"}, "standard input", maxInput / 2},
			{"a folder", []string{"-f", folder}, filepath.Join(folder, "other.yaml"), 0},
		} {
			in, stderr := &endless{}, &bytes.Buffer{}
			status := cli.Main(t.Context(), append([]string{command}, tc.args...),
				kit.Streams{In: in, Out: io.Discard, Err: stderr}, capabilities()...)
			want := "reading " + tc.want + ": the input is larger than 64 MiB in total; give fewer manifests at a time\n"
			if status != kit.ExitInput || !strings.HasSuffix(stderr.String(), want) || in.read > tc.most {
				t.Errorf("%s, %s: status %d, %d bytes read: %s", command, tc.name, status, in.read, stderr)
			}
		}
	}
}

const inputCluster = "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata:\n  name: prod\n  namespace: team\n" +
	"  labels: {capi-proxy-patcher.io/enabled: \"true\"}\nspec:\n  controlPlaneEndpoint: {host: 10.0.0.1, port: 6443}\n" +
	"---\napiVersion: v1\nkind: Secret\nmetadata: {name: http-proxy}\nstringData: {httpProxy: \"http://proxy.example.com:3128\"}\n"

// TestInput_PassesWhatIsNotRead has documents beside a Cluster that make no object, or no certain one. All three
// commands do their work and report what they leave unchanged.
func TestInput_PassesWhatIsNotRead(t *testing.T) {
	t.Parallel()
	const others = "---\n- a\n- b\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  a: b\n  a: c\n" +
		"---\napiVersion: infrastructure.cluster.x-k8s.io/v1beta1\nkind: DockerCluster\nmetadata: {name: d}\nspec:\n  ${EXTRA}\n  a: b\n" +
		"---\n${MORE}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"
	want := []string{
		"standard input: document 3, line 15: the document is a list, not an object; left as it is\n",
		"standard input: document 4, line 23: key \"a\" occurs twice in one mapping; left as it is\n",
		"standard input: document 5, line 29: a line contains only a template; resolve it first",
		"standard input: document 6, line 32: a line contains only a template; resolve it first",
	}
	for _, command := range []string{"render", "lint", "explain"} {
		status, stdout, stderr := run(t, inputCluster+others, command, "-f", "-")
		for _, line := range want {
			if !strings.Contains(stderr, line) {
				t.Errorf("%s: status %d, no %q in:\n%s", command, status, line, stderr)
			}
		}
		if status != kit.ExitDone || command == "render" && !strings.HasSuffix(stdout, others) {
			t.Errorf("%s: status %d\n%s%s", command, status, stderr, stdout)
		}
	}
}

// TestInput_RefusesWhatIsUncertain has the same in objects that are read, and objects that are there twice.
func TestInput_RefusesWhatIsUncertain(t *testing.T) {
	t.Parallel()
	cluster, _, _ := strings.Cut(inputCluster, "---")
	const template = "---\napiVersion: bootstrap.cluster.x-k8s.io/v1beta2\nkind: KubeadmConfigTemplate\nmetadata: {name: \"%s\"}\n"
	for name, tc := range map[string]struct{ more, want string }{
		"a Cluster twice": {
			"---\n" + cluster,
			"standard input: document 3: Cluster team/prod: line 15: it already occurs in standard input: document 1, line 1; remove one of them\n",
		},
		"in another version": {
			"---\n" + strings.Replace(cluster, "v1beta2", "v1beta1", 1),
			"standard input: document 3: Cluster team/prod: line 15: it already occurs in standard input: document 1, line 1; remove one of them\n",
		},
		"a Secret twice in a list": {
			"---\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n",
			"standard input: document 3: Secret s: line 18: it already occurs in standard input: document 3, line 17; remove one of them\n",
		},
		"an infrastructure object twice": {
			strings.Repeat("---\napiVersion: infrastructure.cluster.x-k8s.io/v1\nkind: D\nmetadata: {name: s}\n", 2),
			"standard input: document 4: D s: line 19: it already occurs in standard input: document 3, line 15; remove one of them\n",
		},
		"a template with a variable twice": {
			strings.Replace(template, "%s", "${A}", 1) + strings.Replace(template, "%s", "${A:=x}", 1),
			"standard input: document 4: KubeadmConfigTemplate ${A:=x}: line 19: it already occurs in standard input: document 3, line 15; remove one of them\n",
		},
		"a key twice": {
			strings.Replace(template, "%s", "a", 1) + "spec: {}\nspec: {}\n",
			"parsing standard input: document 3, line 19: key \"spec\" occurs twice in one mapping\n",
		},
		"a line of a template": {
			strings.Replace(template, "%s", "a", 1) + "spec:\n  {{- if .Values.x }}\n  template: {}\n",
			"parsing standard input: document 3, line 19: a line contains only a template; resolve it first, with clusterctl generate cluster or the template's own tool\n",
		},
	} {
		for _, command := range []string{"render", "lint", "explain"} {
			status, stdout, stderr := run(t, inputCluster+tc.more, command, "-f", "-")
			if status != kit.ExitInput || stdout != "" || !strings.HasSuffix(stderr, tc.want) {
				t.Errorf("%s, %s: status %d, want %s, got\n%s%s", name, command, status, tc.want, stderr, stdout)
			}
		}
	}
}
