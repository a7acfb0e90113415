package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// placeOfTable is the line of README.md in place of which comes the table of the values.
var placeOfTable = regexp.MustCompile("<!-- hack/chart .*\n")

// static adds the files of the chart that are not made of kustomizations. values.schema.json is the source of
// values.yaml and of the table of README.md.
func static(folder, image, version string, files map[string]string) error {
	for _, name := range []string{"values.schema.json", "README.md", "templates/NOTES.txt", "templates/refuse.yaml"} {
		text, err := os.ReadFile(filepath.Join(folder, name)) //nolint:gosec // of the repository
		if err != nil {
			return err
		}
		files[name] = strings.Replace(string(text), `"default": "capi-proxy-patcher"`, fmt.Sprintf(`"default": %q`, image), 1)
	}
	schema, err := yaml.Parse(files["values.schema.json"])
	if err != nil {
		return fmt.Errorf("decoding values.schema.json: %w", err)
	}
	table := &strings.Builder{}
	table.WriteString("| value | default | meaning |\n|---|---|---|\n")
	values := &strings.Builder{}
	if err := write(schema, "", values, table); err != nil {
		return fmt.Errorf("values.schema.json: %w", err)
	}
	files["values.yaml"] = strings.TrimPrefix(values.String(), "\n")
	files["README.md"] = placeOfTable.ReplaceAllLiteralString(files["README.md"], table.String())
	files["Chart.yaml"] = fmt.Sprintf(`apiVersion: v2
name: capi-proxy-patcher
description: Puts HTTP proxy settings on the nodes that Cluster API creates with kubeadm
type: application
version: %s
appVersion: %s
# ValidatingAdmissionPolicy of admissionregistration.k8s.io/v1
kubeVersion: ">= 1.30.0-0"
home: https://github.com/capi-proxy-patcher/capi-proxy-patcher
sources:
- https://github.com/capi-proxy-patcher/capi-proxy-patcher
`, strings.TrimPrefix(version, "v"), version)
	return nil
}

// write writes the values of an object of the schema as YAML and as rows of a table. path ends with a dot.
func write(schema *yaml.RNode, path string, values, table *strings.Builder) error {
	indent := strings.Repeat("  ", strings.Count(path, "."))
	return schema.Field("properties").Value.VisitFields(func(node *yaml.MapNode) error {
		name, property := yaml.GetValue(node.Key), node.Value
		if property.Field("properties") != nil {
			values.WriteString("\n" + indent + name + ":\n")
			return write(property, path+name+".", values, table)
		}
		initial := property.Field("default")
		if initial == nil {
			return nil
		}
		description := yaml.GetValue(property.Field("description").Value)
		var decoded any
		if err := initial.Value.YNode().Decode(&decoded); err != nil {
			return err
		}
		text, err := json.Marshal(decoded)
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "| `%s%s` | `%s` | %s |\n", path, name, text, description)
		if path == "" {
			values.WriteString("\n")
		}
		for _, line := range wrapped(description, 118-len(indent)) {
			values.WriteString(indent + "# " + line + "\n")
		}
		fmt.Fprintf(values, "%s%s: %s\n", indent, name, text)
		return nil
	})
}

// wrapped returns text in lines of at most so many characters.
func wrapped(text string, width int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		if last := len(lines) - 1; lines[last] == "" {
			lines[last] = word
		} else if len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}
