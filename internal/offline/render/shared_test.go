package render_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/lint"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
)

// Documents of Clusters that may share a template.
const (
	clusterA = `kind: Cluster
apiVersion: cluster.x-k8s.io/v1beta2
metadata: {name: a, namespace: ns, labels: {capi-proxy-patcher.io/enabled: "true"}}
spec: {controlPlaneEndpoint: {host: a.example.com, port: 6443}}
`
	clusterB = `kind: Cluster
apiVersion: cluster.x-k8s.io/v1beta2
metadata: {name: b, namespace: ns}
spec: {controlPlaneEndpoint: {host: b.example.com, port: 6443}}
`
	poolA = `kind: MachineDeployment
apiVersion: cluster.x-k8s.io/v1beta2
metadata: {name: md-a, namespace: ns}
spec: {clusterName: a, template: {spec: {bootstrap: {configRef: {kind: KubeadmConfigTemplate, name: t}}}}}
`
	poolB = `kind: MachineDeployment
apiVersion: cluster.x-k8s.io/v1beta2
metadata: {name: md-b, namespace: ns}
spec: {clusterName: b, template: {spec: {bootstrap: {configRef: {kind: KubeadmConfigTemplate, name: t}}}}}
`
	sharedTemplate = `kind: KubeadmConfigTemplate
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
metadata: {name: t, namespace: ns}
spec:
  template:
    spec: {files: [{path: /mine, content: x}]}
`
	sharedSecret = `kind: Secret
apiVersion: v1
metadata: {name: http-proxy, namespace: ns}
stringData: {httpProxy: "http://proxy.example.com:3128"}
`
)

// permutations calls f with every order of documents. The last one stays where it is.
func permutations(documents []string, f func([]string)) {
	var permute func(int)
	permute = func(from int) {
		if from == len(documents)-1 {
			f(documents)
		}
		for i := from; i < len(documents)-1; i++ {
			documents[from], documents[i] = documents[i], documents[from]
			permute(from + 1)
			documents[from], documents[i] = documents[i], documents[from]
		}
	}
	permute(0)
}

// position is the part of a line that says where a document is in the input.
var position = regexp.MustCompile(`document \d+: `)

// outcome is everything that Render makes of documents, whatever their order is.
func outcome(t *testing.T, documents []string) string {
	t.Helper()
	input := strings.Join(documents, "---\n")
	result, err := render.Render(t.Context(), of(input))
	parts := strings.Split(string(result.Output), "---\n")
	parts = append(parts, result.Notes...)
	if err != nil {
		parts = append(parts, strings.Split(err.Error(), "\n")...)
	}
	slices.Sort(parts)
	return position.ReplaceAllString(strings.Join(parts, "\n"), "")
}

func TestRender_DecidesTheSameInEveryOrderOfDocuments(t *testing.T) {
	t.Parallel()
	patchedA := string(run(t, of(strings.Join([]string{clusterA, poolA, sharedTemplate, sharedSecret}, "---\n"))).Output)
	patchedTemplate := strings.Split(patchedA, "---\n")[2]
	other := strings.NewReplacer("namespace: ns", "namespace: other").Replace(sharedTemplate)
	const is, of = "KubeadmConfigTemplate ns/t: it is also used by ", "; give each Cluster its own template"
	for name, test := range map[string]struct {
		documents []string
		want      []string
		patched   bool
	}{
		"of a Cluster without the label": {
			documents: []string{clusterA, clusterB, poolA, poolB, sharedTemplate, sharedSecret},
			want:      []string{is + "MachineDeployment md-b of Cluster b" + of},
		},
		"of a Cluster with a label that is not understood": {
			documents: []string{
				clusterA, strings.Replace(clusterB, "namespace: ns", `namespace: ns, labels: {capi-proxy-patcher.io/enabled: "yes"}`, 1),
				poolA, poolB, sharedTemplate, sharedSecret,
			},
			want: []string{is + "MachineDeployment md-b of Cluster b" + of},
		},
		"of another Cluster with the label": {
			documents: []string{clusterA, strings.NewReplacer("name: a", "name: b").Replace(clusterA), poolA, poolB, sharedTemplate, sharedSecret},
			want:      []string{is + "MachineDeployment md-b of Cluster b" + of, is + "MachineDeployment md-a of Cluster a" + of},
		},
		"of a Cluster that is not in the input": {
			documents: []string{clusterA, poolA, poolB, sharedTemplate, sharedSecret},
			want:      []string{is + "MachineDeployment md-b of Cluster b" + of},
		},
		"of a MachineSet and a MachineDeployment of others": {
			documents: []string{
				clusterA, poolA, strings.Replace(poolB, "MachineDeployment", "MachineSet", 1),
				strings.NewReplacer("md-b", "md-c", "clusterName: b", "clusterName: c").Replace(poolB), sharedTemplate, sharedSecret,
			},
			want: []string{is + "MachineDeployment md-c of Cluster c" + of},
		},
		"that carries the proxy": {
			documents: []string{clusterA, clusterB, poolA, poolB, patchedTemplate, sharedSecret},
			want:      []string{is + "MachineDeployment md-b of Cluster b" + of},
		},
		"of two Clusters without the label": {
			documents: []string{
				strings.Replace(clusterA, `"true"`, `"false"`, 1), clusterB, poolA, poolB, patchedTemplate, sharedSecret,
			},
			want: []string{"KubeadmConfigTemplate ns/t: removed the proxy, because Cluster a has no label", "spec: {files: [{path: /mine, content: x}]}"},
		},
		"in another namespace": {
			documents: []string{clusterA, strings.Replace(poolA, ", namespace: ns", "", 1), sharedTemplate, other, sharedSecret},
			patched:   true,
			want:      []string{`spec: {files: [{path: /mine, content: x}, {"path": "/etc/capi-proxy-patcher/proxy.env"`, "name: t, namespace: other}\nspec:\n  template:\n    spec: {files: [{path: /mine, content: x}]}"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := ""
			permutations(test.documents, func(documents []string) {
				got := outcome(t, documents)
				if first == "" {
					first = got
				}
				if got != first {
					t.Fatalf("of\n%s\nit makes\n%s\nand in another order\n%s", strings.Join(documents, "---\n"), got, first)
				}
			})
			for _, want := range test.want {
				if !strings.Contains(first, want) {
					t.Errorf("%q is not in\n%s", want, first)
				}
			}
			if strings.Contains(first, "proxy.env") != test.patched {
				t.Errorf("it makes\n%s", first)
			}
		})
	}
}

// TestRenderAndLint_RefuseWhatThePassDoesNotPatch has manifests that each look right alone.
func TestRenderAndLint_RefuseWhatThePassDoesNotPatch(t *testing.T) {
	t.Parallel()
	const (
		taken   = "kind: Secret\napiVersion: v1\nmetadata: {name: a-proxy-files, namespace: ns, labels: {capi-proxy-patcher.io/generated-for: OWNER}}\n"
		machine = "kind: Machine\napiVersion: cluster.x-k8s.io/v1beta2\nmetadata: {name: m-NAME, namespace: ns}\n" +
			"spec: {clusterName: NAME, bootstrap: {configRef: {kind: KubeadmConfig, name: t}}}\n"
		config = "kind: KubeadmConfig\napiVersion: bootstrap.cluster.x-k8s.io/v1beta2\nmetadata: {name: t, namespace: ns}\n"
	)
	other := strings.NewReplacer("name: a", "name: b").Replace(clusterA)
	inTheWay := strings.Replace(sharedTemplate, "/mine", "/etc/capi-proxy-patcher/proxy.env", 1)
	nameless := strings.Replace(clusterA, "name: a, ", "", 1)
	for name, test := range map[string]struct {
		documents []string
		want      []string
	}{
		"a Secret of somebody":           {[]string{clusterA, poolA, sharedTemplate, strings.Replace(taken, ", labels: {capi-proxy-patcher.io/generated-for: OWNER}", "", 1)}, []string{"Secret ns/a-proxy-files exists and was not generated by capi-proxy-patcher; nothing is patched to use it"}},
		"a Secret of another Cluster":    {[]string{clusterA, poolA, sharedTemplate, strings.Replace(taken, "OWNER", "b", 1)}, []string{`Secret ns/a-proxy-files was generated for Cluster "b" and not for a`}},
		"a Secret of the Cluster":        {[]string{clusterA, poolA, sharedTemplate, strings.Replace(taken, "OWNER", "a", 1)}, nil},
		"a KubeadmConfig of two":         {[]string{clusterA, other, strings.ReplaceAll(machine, "NAME", "a"), strings.ReplaceAll(machine, "NAME", "b"), config}, []string{"KubeadmConfig ns/t: it is also used by Cluster ns/a; give each Cluster its own template"}},
		"no Secret, and a file":          {[]string{clusterA, poolA, inTheWay}, []string{"already writes /etc/capi-proxy-patcher/proxy.env"}},
		"two Clusters without any names": {[]string{nameless, nameless, poolA, sharedTemplate}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "no Secret, and a file" {
				test.documents = append(test.documents, sharedSecret)
			}
			inputs := []clusters.Input{{Name: "-", Data: []byte(strings.Join(test.documents, "---\n"))}}
			_, err := render.Render(t.Context(), render.Options{Inputs: inputs})
			report, lintErr := lint.Run(t.Context(), lint.Options{Inputs: inputs})
			if lintErr != nil || (err == nil) != (len(test.want) == 0) {
				t.Fatalf("render: %v, lint: %v", err, lintErr)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("render: %v\nwant %q", err, want)
				}
				if message := strings.TrimPrefix(want, "KubeadmConfig ns/t: "); !strings.Contains(report.Text(), message) {
					t.Errorf("lint: %s\nwant %q", report.Text(), message)
				}
			}
		})
	}
}
