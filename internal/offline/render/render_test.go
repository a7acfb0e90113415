package render_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
)

// input reads in.yaml of a case and, if there is one, its secret.yaml.
func input(t *testing.T, dir string) render.Options {
	t.Helper()
	options := render.Options{Inputs: []clusters.Input{{Name: "in.yaml", Data: read(t, filepath.Join(dir, "in.yaml"))}}}
	if data, err := os.ReadFile(filepath.Join(dir, "secret.yaml")); err == nil {
		options.Secrets = []clusters.Input{{Name: "secret.yaml", Data: data}}
	}
	return options
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// of returns the options to render one text.
func of(text string) render.Options {
	return render.Options{Inputs: []clusters.Input{{Name: "in.yaml", Data: []byte(text)}}}
}

func run(t *testing.T, options render.Options) render.Result {
	t.Helper()
	result, err := render.Render(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// isGolden renders the input of a folder and compares the result with golden files. Its output, rendered again, must be the
// same. It returns that output, and options with it as their input.
func isGolden(t *testing.T, dir string) (options render.Options, output []byte) {
	t.Helper()
	options = input(t, dir)
	result := run(t, options)
	golden.Equal(t, filepath.Join(dir, "want.yaml"), result.Output)
	golden.Equal(t, filepath.Join(dir, "notes.txt"), []byte(strings.Join(append(result.Notes, result.Summary), "\n")+"\n"))
	options.Inputs[0].Data = result.Output
	again := run(t, options)
	if diff := cmp.Diff(string(result.Output), string(again.Output)); diff != "" || len(again.Diff()) > 0 {
		t.Errorf("a second run changes (-first +second):\n%s%s", diff, again.Diff())
	}
	return options, result.Output
}

func TestRender_CasesAreGolden(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"classic", "v1beta1", "windows", "list", "pools"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join("testdata", name)
			options, output := isGolden(t, dir)

			// Without the label everything is as it was. Lists and specs that were there but empty are the exception.
			options.Inputs[0].Data = bytes.ReplaceAll(output, []byte("capi-proxy-patcher.io/enabled:"),
				[]byte("not-enabled:"))
			removed := run(t, options)
			want := bytes.ReplaceAll(input(t, dir).Inputs[0].Data, []byte("capi-proxy-patcher.io/enabled:"),
				[]byte("not-enabled:"))
			want = bytes.ReplaceAll(want, []byte("    preKubeadmCommands: []\n"), nil)
			want = bytes.ReplaceAll(want, []byte("spec:\n  template:\n    spec: {}\n---"), []byte("---"))
			if diff := cmp.Diff(string(want), string(removed.Output)); diff != "" {
				t.Errorf("without the label (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRender_FailsOnAFileOfTheUser(t *testing.T) {
	t.Parallel()
	for range 2 { // the same bytes on every try
		result, err := render.Render(t.Context(), input(t, "testdata/tkg"))
		if err == nil || len(result.Output) > 0 {
			t.Fatalf("rendered %d bytes, error %v; want only an error", len(result.Output), err)
		}
		golden.Equal(t, "testdata/tkg/error.txt", []byte(err.Error()+"\n"))
	}
}

func TestRender_AddsGeneratedSecretsOnceAndUpdatesThem(t *testing.T) {
	t.Parallel()
	options := input(t, "testdata/classic")
	options.IncludeSecrets = true
	result := run(t, options)
	golden.Equal(t, "testdata/classic/want-with-secrets.yaml", result.Output)

	options.Inputs[0].Data = result.Output
	again := run(t, options)
	if diff := cmp.Diff(string(result.Output), string(again.Output)); diff != "" {
		t.Errorf("a second run changes (-first +second):\n%s", diff)
	}

	options.Secrets[0].Data = bytes.ReplaceAll(options.Secrets[0].Data, []byte("username: node"),
		[]byte("username: other"))
	changed := run(t, options)
	if n := bytes.Count(changed.Output, []byte("name: prod-proxy-files\n")); n != bytes.Count(result.Output,
		[]byte("name: prod-proxy-files\n")) {
		t.Errorf("the generated Secret is there %d times", n)
	}
	if bytes.Equal(changed.Output, result.Output) {
		t.Error("another user did not reach the generated Secret")
	}
}

// minimal is a Cluster with a control plane; %s are its annotations and its proxy Secret.
func minimal(secretData, annotations string) render.Options {
	return of(`apiVersion: v1
kind: Secret
metadata: {name: http-proxy}
stringData: {` + secretData + `}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata:
  name: c
  labels: {capi-proxy-patcher.io/enabled: "true"}
  annotations: {` + annotations + `}
spec:
  controlPlaneEndpoint: {host: cp.example.com, port: 6443}
  controlPlaneRef: {kind: KubeadmControlPlane, name: c}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: c}
spec: {version: v1.36.3}
`)
}

func TestRender_ReportsBadInputInOneError(t *testing.T) {
	t.Parallel()
	const good = "httpProxy: 'http://proxy.example.com:3128'"
	variable := func(value string) string { return "{name: capiProxyPatcher, value: " + value + "}" }
	pool := func(value string) string {
		return "{name: md, class: linux, variables: {overrides: [" + variable(value) + "]}}"
	}
	for name, test := range map[string]struct {
		options render.Options
		want    []string
	}{
		"no proxy URL":           {minimal("noProxy: a", ""), []string{"in.yaml: document 2: Cluster c: ", "in.yaml: document 1: Secret http-proxy, keys httpProxy and httpsProxy: no proxy URL"}},
		"a scheme is missing":    {minimal("httpProxy: 's3cr:x@proxy:1'", ""), []string{"Secret http-proxy, key httpProxy: the scheme is missing"}},
		"a raw slash":            {minimal("httpProxy: 'http://u:s3cr/x@proxy:1'", ""), []string{"unescaped /, ? or # in user or password"}},
		"an unknown key":         {minimal(good+", proxyHTTP: s3cr", ""), []string{`key "proxyHTTP": unknown key`}},
		"an entry with a scheme": {minimal(good+", noProxy: 'a.example.com,http://u:s3cr@b.example.com'", ""), []string{"document 1: Secret http-proxy", "entry 2", "url-entry"}},
		"every finding at once": {
			minimal("httpProxy: 'http://u:s3cr/x@proxy:1', httpsProxy: 'proxy:2', colour: s3cr, noProxy: 'a,b/s3cr,b:s3cr'", ""),
			[]string{"key httpProxy", "key httpsProxy", `key "colour"`, "key noProxy entry 2", "key noProxy entry 3"},
		},
		"not base64":            {render.Options{Inputs: []clusters.Input{{Name: "in.yaml", Data: bytes.Replace(minimal("", "").Inputs[0].Data, []byte("stringData: {}"), []byte("data: {httpProxy: '!s3cr'}"), 1)}}}, []string{"in.yaml: document 1: Secret http-proxy, data.httpProxy: the value is not base64"}},
		"a wrong annotation":    {minimal(good, "capi-proxy-patcher.io/rollout: now"), []string{`in.yaml: document 2: Cluster c: annotation capi-proxy-patcher.io/rollout: unknown value "now"; use OnNextRollout or Immediate`}},
		"not YAML":              {of("a: b\n---\na: [s3cr\n"), []string{"parsing in.yaml: document 2, line 3"}},
		"no Secret in the file": {render.Options{Secrets: []clusters.Input{{Name: "s.yaml", Data: []byte("kind: ConfigMap\napiVersion: v1\n")}}}, []string{"s.yaml: it holds no Secret"}},

		// What a topology says.
		"an entry of the variable with a scheme": {topologyInput("", variable("{noProxy: [a.example, 'http://s3cr.example']}"), "", "[]", good), []string{"spec.topology.variables[capiProxyPatcher].noProxy[1]"}},
		"a variable against an annotation":       {topologyInput("capi-proxy-patcher.io/secret: other", variable("{secretName: corp}"), "", "[]", good), []string{"spec.topology.variables[capiProxyPatcher].secretName: differs from metadata.annotations[capi-proxy-patcher.io/secret]"}},
		"every finding of a topology at once":    {topologyInput("", variable("{targets: [crio]}"), pool("{targets: []}"), "[]", good), []string{`"crio" is not a target`, "machineDeployments[md]", "is empty"}},
		"an output version of somebody's own":    {topologyInput("capi-proxy-patcher.io/output-version: new", "", "", "[]", good), []string{"Cluster c: annotation capi-proxy-patcher.io/output-version of the Cluster: not an output version"}},
		"an output version to come":              {topologyInput("capi-proxy-patcher.io/output-version: '99'", "", "", "[]", good), []string{"Cluster c: output version 99 is not known"}},
		"the name is taken":                      {topologyInput("", "", "", "[{name: capi-proxy-patcher, definitions: []}]", good), []string{"in.yaml: document 1: ClusterClass base: spec.patches[0]: its name is capi-proxy-patcher but it is not that product's patch; rename it"}},
		"the name is taken by another hook":      {topologyInput("", "", "", "[{name: a}, {name: capi-proxy-patcher, external: {generatePatchesExtension: x.capi-proxy-patcher}}]", good), []string{"spec.patches[1]: its name is"}},
		"patches are no list":                    {topologyInput("", "", "", "{a: b}", good), []string{"in.yaml", "document 1", "patches"}},
		"patches are a variable":                 {topologyInput("", "", "", "${PATCHES}", good), []string{"in.yaml", "document 1", "patches"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var first string
			for i := range 2 {
				result, err := render.Render(t.Context(), test.options)
				if err == nil || len(result.Output) > 0 {
					t.Fatalf("rendered %q, error %v; want only an error", result.Output, err)
				}
				for _, part := range test.want {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("error %q lacks %q", err, part)
					}
				}
				if strings.Contains(err.Error(), "s3cr") {
					t.Errorf("error %q holds a value of the Secret", err)
				}
				if i == 1 && err.Error() != first {
					t.Errorf("error changed from %q to %q", first, err)
				}
				first = err.Error()
			}
		})
	}
}

func TestRender_KeepsEntriesOfAnotherCluster(t *testing.T) {
	t.Parallel()
	const objects = `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {namespace: ns, name: NAME, labels: {LABEL}}
spec: {clusterNetwork: {}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {namespace: ns, name: eu}
spec: {clusterName: NAME, template: {spec: {clusterName: NAME, bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: eu}}}}}
---
`
	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {namespace: ns, name: http-proxy}\nstringData: {httpProxy: 'http://proxy.example.com:3128'}\n"
	const template = "apiVersion: bootstrap.cluster.x-k8s.io/v1beta2\nkind: KubeadmConfigTemplate\nmetadata: {namespace: ns, name: eu}\nspec: {template: {spec: {}}}\n"
	run := func(cluster, labels, template string) string {
		t.Helper()
		text := strings.NewReplacer("NAME", cluster, "LABEL", labels).Replace(objects) + template
		result := run(t, render.Options{
			Inputs:  []clusters.Input{{Name: "in.yaml", Data: []byte(text)}},
			Secrets: []clusters.Input{{Name: "secret.yaml", Data: []byte(secret)}},
		})
		output := string(result.Output)
		return output[strings.LastIndex(output, "---\n")+4:]
	}
	patched := run("prod-eu", `capi-proxy-patcher.io/enabled: "true"`, template)
	if !strings.Contains(patched, "prod-eu-proxy-files") {
		t.Fatalf("not patched:\n%s", patched)
	}
	if got := run("prod", "", patched); got != patched {
		t.Errorf("a Cluster whose name begins alike took the proxy out:\n%s", got)
	}
	if got := run("prod-eu", "", patched); strings.Contains(got, "proxy") {
		t.Errorf("the Cluster's own entries are left:\n%s", got)
	}
}

// TestRender_NotesWhatNoClusterUses renders what an earlier run has patched, without its Cluster.
func TestRender_NotesWhatNoClusterUses(t *testing.T) {
	t.Parallel()
	const (
		template = "apiVersion: bootstrap.cluster.x-k8s.io/v1beta2\nkind: KubeadmConfigTemplate\nmetadata: {namespace: ns, name: eu%s}\n" +
			"spec: {template: {spec: {files: [{path: /etc/systemd/system/kubelet.service.d/http-proxy.conf, content: \"%s\"}]}}}\n"
		managed  = `# Managed by capi-proxy-patcher\n[Service]\n`
		carries  = "carries the proxy but no Cluster in the input uses it; left unchanged"
		topology = `, labels: {topology.cluster.x-k8s.io/owned: ""}`
	)
	for name, test := range map[string]struct {
		metadata, content string
		want              bool
	}{
		"patched": {"", managed, true}, "of the user": {"", `[Service]\n`, false}, "of a topology": {topology, managed, false},
	} {
		text := fmt.Sprintf(template, test.metadata, test.content)
		result := run(t, of(text))
		if got := strings.Join(result.Notes, "\n"); strings.Contains(got, carries) != test.want || string(result.Output) != text {
			t.Errorf("%s: notes %q, and output\n%s", name, got, result.Output)
		}
	}
}
