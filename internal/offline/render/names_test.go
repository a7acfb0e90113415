package render_test

import (
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/lint"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
)

func TestRenderAndLint_RefuseLabelsThatAreNotStrings(t *testing.T) {
	t.Parallel()
	const good = `labels: {capi-proxy-patcher.io/enabled: "true"}`
	secret := "{name: http-proxy}"
	for name, test := range map[string]struct {
		old, replacement string
		want             string // a part of the error, "" if there is none
	}{
		"strings":                          {"", "", ""},
		"a boolean without quotes":         {good, "labels: {capi-proxy-patcher.io/enabled: true}", "Cluster c: label capi-proxy-patcher.io/enabled: the value is not a string (bad-metadata); put it in quotes"},
		"a word that old YAML takes so":    {good, "labels: {capi-proxy-patcher.io/enabled: yes}", "label capi-proxy-patcher.io/enabled: the value is not a string"},
		"a number":                         {good, `labels: {capi-proxy-patcher.io/enabled: "true", cost: 7}`, "Cluster c: label cost: the value is not a string"},
		"a list":                           {good, `labels: {capi-proxy-patcher.io/enabled: ["true"]}`, "label capi-proxy-patcher.io/enabled: the value is not a string"},
		"nothing":                          {good, `labels: {capi-proxy-patcher.io/enabled: "true", empty: }`, ""},
		"a variable":                       {good, `labels: {capi-proxy-patcher.io/enabled: "true", cni: "${CNI}"}`, ""},
		"an annotation":                    {good, good + ", annotations: {capi-proxy-patcher.io/publish-credentials: true}", "Cluster c: annotation capi-proxy-patcher.io/publish-credentials: the value is not a string"},
		"an annotation of a pool":          {"{name: md}", "{name: md, annotations: {capi-proxy-patcher.io/secret: 1}}", "MachineDeployment md: annotation capi-proxy-patcher.io/secret: the value is not a string"},
		"a label of a proxy Secret":        {secret, "{name: http-proxy, labels: {capi-proxy-patcher.io/proxy: true}}", "Secret http-proxy: label capi-proxy-patcher.io/proxy: the value is not a string"},
		"a label of others on a Secret":    {secret, "{name: http-proxy, labels: {other: 1}}", ""},
		"the label in an object of others": {"---\n", "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, labels: {capi-proxy-patcher.io/enabled: true}}\n---\n", "ConfigMap x: label"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := scene("c", "KubeadmControlPlane cp", "MachineDeployment md", "KubeadmConfigTemplate md")
			if !strings.Contains(text, test.old) {
				t.Fatalf("nothing to replace in\n%s", text)
			}
			inputs := []clusters.Input{{Name: "in.yaml", Data: []byte(strings.Replace(text, test.old, test.replacement, 1))}}
			_, err := render.Render(t.Context(), render.Options{Inputs: inputs})
			switch {
			case test.want == "" && err != nil:
				t.Errorf("render: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("render: %v, want %q in it", err, test.want)
			}
			report, err := lint.Run(t.Context(), lint.Options{Inputs: inputs})
			if err != nil {
				t.Fatal(err)
			}
			if found := strings.Contains(report.Text(), "rejection: ") &&
				strings.Contains(report.Text(), "(bad-metadata)"); found != (test.want != "") {
				t.Errorf("lint: rejected %t, want %t:\n%s", found, !found, report.Text())
			}
		})
	}
}
