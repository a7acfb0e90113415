// Command chart writes the Helm chart. It builds the kustomizations of config with every combination of components, and
// puts the lines in which they differ between if and end. So the chart has no second source.
//
//	chart -version v1.2.3 -image registry/name -out out/chart/capi-proxy-patcher
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// component is a part of the installation that a value of the chart turns on.
type component struct{ path, condition string }

// components are in the order in which a kustomization has to name them.
var components = []component{ //nolint:gochecknoglobals // a constant
	{"default", ".Values.webhooks.enabled"},
	{"extension", ".Values.hooks.enabled"},
	{"components/in-place", ".Values.inPlace.enabled"},
	{"components/namespaced", ".Values.watchNamespace"},
	{"components/monitoring", ".Values.monitoring.enabled"},
	{"components/network-policies", ".Values.networkPolicies.enabled"},
}

// separator ends a condition before a line.
const separator = "\x1f"

// image is the one of every Deployment.
const image = "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}" +
	"{{ with .Values.image.digest }}@{{ . }}{{ end }}"

// watched stands for the namespace that is served.
const watched = "watched-namespace"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("chart", flag.ContinueOnError)
	root := flags.String("root", ".", "folder of the repository")
	version := flags.String("version", "", "version, like v1.2.3")
	image := flags.String("image", "", "name of the image without a tag")
	out := flags.String("out", "out/chart/capi-proxy-patcher", "folder of the chart")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *version == "" || *image == "" {
		return errors.New("-version and -image are required")
	}
	files, err := templates(filepath.Join(*root, "config"))
	if err != nil {
		return err
	}
	if err := static(filepath.Join(*root, "config", "chart"), *image, *version, files); err != nil {
		return err
	}
	if err := os.RemoveAll(*out); err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(*out, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), //nolint:gosec // anybody may read it
			os.WriteFile(path, []byte(text), 0o644)); err != nil { //nolint:gosec // anybody may read it
			return err
		}
	}
	return nil
}

// templates returns the files of the chart that are made of the kustomizations in a folder, one for each object.
func templates(config string) (map[string]string, error) {
	dir, err := os.MkdirTemp("", "chart-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)                                //nolint:errcheck // nothing is lost
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // kustomize follows links
		return nil, err
	}
	role := filepath.Join(dir, "components/namespaced/role/watched/kustomization.yaml")
	if err := errors.Join(os.CopyFS(dir, os.DirFS(config)), os.WriteFile(role,
		[]byte("namespace: "+watched+"\nresources: [role.yaml]\n"), 0o600)); err != nil {
		return nil, err
	}
	objects, err := combine(dir, map[string]bool{}, components)
	if err != nil {
		return nil, err
	}
	registration, err := build(dir, "resources: [../extensionconfig]\n")
	if err != nil {
		return nil, err
	}
	for name, text := range registration {
		objects[name] = merge("", text, "(and .Values.hooks.enabled .Values.hooks.register)")
	}
	files := map[string]string{}
	for name, text := range objects {
		files["templates/"+name+".yaml"] = template(text)
	}
	return files, nil
}

// combine returns the objects of an installation for which some components are decided, each as lines with the
// conditions under which they are there.
func combine(dir string, with map[string]bool, rest []component) (map[string]string, error) {
	if len(rest) == 0 {
		return build(dir, kustomization(with))
	}
	c := rest[0]
	decide := func(on bool) (map[string]string, error) {
		decided := maps.Clone(with)
		decided[c.path] = on
		return combine(dir, decided, rest[1:])
	}
	off, err := decide(false)
	if err != nil {
		return off, err
	}
	on, err := decide(true)
	if err != nil {
		return nil, err
	}
	merged := map[string]string{}
	for _, objects := range []map[string]string{off, on} {
		for name := range objects {
			merged[name] = merge(off[name], on[name], c.condition)
		}
	}
	return merged, nil
}

// kustomization returns the one with these components.
func kustomization(with map[string]bool) string {
	base := "without-webhooks"
	if with["default"] {
		base = "default"
	}
	var parts []string
	for _, c := range components {
		if with[c.path] && c.path != "default" {
			parts = append(parts, "../"+c.path)
		}
	}
	return fmt.Sprintf("resources: [../%s]\ncomponents: [%s]\n", base, strings.Join(append(parts, "../chart"), ", "))
}

// build builds a kustomization beside those of dir, and returns its objects by the names of their files. Helm makes the
// Namespace.
func build(dir, kustomization string) (map[string]string, error) {
	folder := filepath.Join(dir, "build")
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "kustomization.yaml"),
		[]byte(kustomization), 0o600)); err != nil {
		return nil, err
	}
	objects, err := mgmt.Kustomize(folder)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, object := range objects {
		if object.GetKind() == "Namespace" {
			continue
		}
		if object.GetKind() == "ExtensionConfig" {
			object.SetNamespace("")
		}
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(object.GetName(), "capi-proxy-patcher-")
		files[strings.ToLower(object.GetKind())+"-"+name] = string(text)
	}
	return files, nil
}

// merge returns the lines of two texts, with a condition before those that are in one of them only.
func merge(off, on, condition string) string {
	var text strings.Builder
	under := func(condition, lines string) {
		for line := range strings.Lines(lines) {
			text.WriteString(condition + separator + line)
		}
	}
	at := 0
	for _, edit := range udiff.Lines(off, on) {
		text.WriteString(off[at:edit.Start])
		under("(not "+condition+")", off[edit.Start:edit.End])
		under(condition, edit.New)
		at = edit.End
	}
	return text.String() + off[at:]
}

// What config/chart has in place of values: for parts of a line, and for a field or item.
var (
	value = regexp.MustCompile(`'?<<(.*?)>>'?`)
	field = regexp.MustCompile(`^( *)(?:- |[^ ]+: )'?<<(with|more) (.*?)>>'?\n$`)
)

// template writes lines with conditions as Helm reads them.
func template(text string) string {
	names := strings.NewReplacer("{{", `{{ "{{" }}`, mgmt.SystemNamespace, "{{ .Release.Namespace }}",
		watched, "{{ .Values.watchNamespace }}",
		"capi-proxy-patcher:dev", image)
	var out strings.Builder
	var open []string
	end := func() {
		if len(open) > 0 {
			out.WriteString("{{- end }}\n")
		}
	}
	for line := range strings.Lines(text) {
		parts := strings.Split(line, separator)
		conditions, line := parts[:len(parts)-1], parts[len(parts)-1]
		if !slices.Equal(conditions, open) {
			end()
			open = conditions
			switch len(open) {
			case 0:
			case 1:
				out.WriteString("{{- if " + open[0] + " }}\n")
			default:
				out.WriteString("{{- if and " + strings.Join(open, " ") + " }}\n")
			}
		}
		out.WriteString(fill(names.Replace(line)))
	}
	end()
	return out.String()
}

// fill puts values into a line.
func fill(line string) string {
	part := field.FindStringSubmatch(line)
	if part == nil {
		return value.ReplaceAllString(line, "{{ $1 }}")
	}
	indent, kind, name := part[1], part[2], part[3]
	key := indent + name[strings.LastIndexByte(name, '.')+1:] + ": "
	fields := len(indent) + len("  ")
	if kind == "more" {
		key, fields = indent, len(indent)
	}
	return fmt.Sprintf("{{- with %s }}\n%s{{- toYaml . | nindent %d }}\n{{- end }}\n", name, key, fields)
}
