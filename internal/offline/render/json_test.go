package render_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
)

// TestRender_AnswersJSONWithJSON renders two Clusters as JSON Lines, as one JSON list, and as two files, each with the
// generated Secrets, and again what came out.
func TestRender_AnswersJSONWithJSON(t *testing.T) {
	t.Parallel()
	var lines, list []byte
	for i, document := range strings.Split(string(fleet(2)), "\n---\n") {
		data, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		lines = append(append(lines, data...), '\n')
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, data...)
	}
	list = append(append([]byte(`{"apiVersion":"v1","kind":"List","items":[`), list...), "]}\n"...)
	half := bytes.IndexByte(lines[len(lines)/2:], '\n') + len(lines)/2 + 1
	for name, inputs := range map[string][]clusters.Input{
		"lines": {{Name: "a.json", Data: lines}},
		"list":  {{Name: "a.json", Data: list}},
		"files": {{Name: "a.json", Data: lines[:half]}, {Name: "b.json", Data: lines[half:]}},
	} {
		options := render.Options{Inputs: inputs, IncludeSecrets: true}
		result, err := render.Render(t.Context(), options)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var text strings.Builder
		secrets := 0
		for decoder := json.NewDecoder(bytes.NewReader(result.Output)); decoder.More(); {
			var object map[string]any
			if err := decoder.Decode(&object); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, result.Output)
			}
			if object["kind"] == "Secret" && object["type"] == "Opaque" {
				secrets++
			}
			text.WriteString(object["kind"].(string) + " ")
		}
		if secrets != 2 || bytes.Count(result.Output, []byte("/etc/capi-proxy-patcher/proxy.env")) < 6 {
			t.Errorf("%s: %d generated Secrets in %s", name, secrets, text.String())
		}
		options.Inputs = []clusters.Input{{Name: "a.json", Data: result.Output}}
		again, err := render.Render(t.Context(), options)
		if err != nil || !bytes.Equal(again.Output, result.Output) {
			t.Errorf("%s: a second run changes: %v\n%s", name, err, again.Diff())
		}
	}
}
