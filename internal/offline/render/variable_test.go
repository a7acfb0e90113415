package render_test

import (
	"bytes"
	"strings"
	"testing"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
)

// TestRender_MatchesAVariableWithAndWithoutDefault gives names and namespaces in turn with a default, with one in
// quotes and without, and compares what clusterctl makes of the outcome with the outcome for what clusterctl makes of
// it.
func TestRender_MatchesAVariableWithAndWithoutDefault(t *testing.T) {
	t.Parallel()
	data := string(fleet(1)) + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: c0-http-proxy, namespace: fleet}\n" +
		"stringData: {httpProxy: \"http://own.example.com:3128\"}\n"
	forms := []string{"${NAME}", "${NAME:=demo}", "${NAME:-demo}", "${NAME=demo}"}
	spaces := []string{"${NS}", "${NS:=\"default\"}", "${NS:-default}"}
	for i := 0; strings.Contains(data, "c0"); i++ {
		data = strings.Replace(data, "c0", forms[i%len(forms)], 1)
	}
	for i := 0; strings.Contains(data, "namespace: fleet}"); i++ { // not plain in a flow mapping
		data = strings.Replace(data, "namespace: fleet}", "namespace: \"${NS}\"}", 1)
	}
	for i := 0; strings.Contains(data, "namespace: fleet"); i++ {
		data = strings.Replace(data, "namespace: fleet", "namespace: "+spaces[i%len(spaces)], 1)
	}
	run := func(data []byte) []byte {
		result, err := render.Render(t.Context(), render.Options{
			Inputs:         []clusters.Input{{Name: "in.yaml", Data: data}},
			IncludeSecrets: true,
		})
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		return result.Output
	}
	clusterctl := func(data []byte) []byte {
		filled, err := yamlprocessor.NewSimpleProcessor().Process(data, func(name string) (string, error) {
			return map[string]string{"NAME": "prod", "NS": "team"}[name], nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return filled
	}
	first, last := clusterctl(run([]byte(data))), run(clusterctl([]byte(data)))
	if !bytes.Equal(first, last) {
		t.Errorf("rendered and then filled in:\n%s\nfilled in and then rendered:\n%s", first, last)
	}
	if n := bytes.Count(last, []byte("name: prod-proxy-files\n")); n < 7 || bytes.Contains(last, []byte("${")) {
		t.Errorf("%d references to the generated Secret:\n%s", n, last)
	}
}

// TestRender_KeepsQuotesOfADefaultOutOfNames names a Secret after a Cluster whose default is in quotes.
func TestRender_KeepsQuotesOfADefaultOutOfNames(t *testing.T) {
	t.Parallel()
	data := bytes.ReplaceAll(fleet(1), []byte("kind: Cluster\nmetadata:\n  name: c0\n"),
		[]byte("kind: Cluster\nmetadata:\n  name: ${NAME:=\"c0\"}\n"))
	data = bytes.ReplaceAll(data, []byte("clusterName: c0"), []byte("clusterName: ${NAME}"))
	result, err := render.Render(t.Context(), render.Options{Inputs: []clusters.Input{{Name: "in.yaml", Data: data}}})
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(result.Output, []byte("name: ${NAME:=c0}-proxy-files\n")); n < 6 {
		t.Errorf("%d references:\n%s", n, result.Output)
	}
}
