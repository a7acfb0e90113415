package output

import (
	"bytes"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"text/template/parse"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// What the header of an output can say.
const (
	argumentNone      = "none"
	argumentNamespace = "namespace"
	argumentPath      = "path"
	argumentChoice    = "choice"

	goesManagement  = "management"
	goesAnnotations = "annotations"
	goesWorkload    = "workload"

	writerController = "controller"
	writerRender     = "render"
)

// header begins the file of an output. Every field must be given but Default and Choices.
type header struct {
	// Name is the name of the output, and of its file without ".yaml".
	Name Name `json:"name"`
	// Argument is what stands after the equals sign: none, the name of a namespace (of the workload cluster), a path in
	// values, which may be repeated, or one of Choices or nothing.
	Argument string   `json:"argument"`
	Default  string   `json:"default,omitempty"`
	Choices  []string `json:"choices,omitempty"`
	// Goes is where the output goes: Secrets in the management cluster, annotations of the Cluster, or objects in the
	// workload cluster.
	Goes string `json:"goes"`
	// Writer is who writes it: the controller and render, or render alone.
	Writer string `json:"writer"`
	// Credentials reports whether the template sees the credentials of the proxy. Without them it sees no URL that has
	// some. Objects for the workload cluster with credentials need AnnotationPublishCredentials.
	Credentials *bool `json:"credentials"`
}

// definition is an output.
type definition struct {
	header

	body *template.Template
	// writes are the ends of the names of its Secrets after the name of the Cluster, or the keys of its annotations.
	writes []string
}

// isDelivered reports whether the controller writes it for the workload cluster.
func (d *definition) isDelivered() bool {
	return d.Goes == goesWorkload && d.Writer == writerController
}

// isBeside reports whether the controller writes it into Secrets beside the Cluster.
func (d *definition) isBeside() bool {
	return d.Goes == goesManagement && d.Writer == writerController
}

//go:embed outputs
var files embed.FS

// catalog returns the outputs in the order of their names.
var catalog = sync.OnceValue(func() []*definition { //nolint:gochecknoglobals // a constant
	all, err := load(files)
	if err != nil {
		panic(err) // no output of this program can be wrong without failing each of its tests
	}
	return all
})

// lookup returns an output, nil if there is none of this name.
func lookup(name Name) *definition {
	if i := slices.IndexFunc(catalog(), func(d *definition) bool { return d.Name == name }); i >= 0 {
		return catalog()[i]
	}
	return nil
}

// written lists the names of Secrets, without that of the Cluster, or the keys of annotations that outputs write.
func written(goes string) (all []string) {
	for _, d := range catalog() {
		if d.Goes == goes {
			all = append(all, d.writes...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// load reads every output. Its error names the file.
func load(files fs.FS) ([]*definition, error) {
	names, err := fs.Glob(files, "outputs/*")
	if err != nil {
		return nil, err
	}
	all := make([]*definition, 0, len(names))
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		d, err := define(strings.TrimSuffix(path.Base(name), ".yaml"), string(text))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *definition) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all, nil
}

// define reads the file of an output.
func define(name, text string) (*definition, error) {
	head, body, found := strings.Cut(text, "\n---\n")
	d := &definition{}
	err := yaml.UnmarshalStrict([]byte(head), &d.header)
	if err == nil && !found {
		err = errors.New("no line ---")
	}
	if err == nil {
		err = d.check(name)
	}
	if err != nil {
		return nil, fmt.Errorf("its header: %w", err)
	}
	if d.body, err = template.New(name).Option("missingkey=error").Funcs(functions()).Parse(body); err != nil {
		return nil, err
	}
	last := []string{"yaml", "lines", ".Note"}
	if d.isDelivered() {
		last = append(last, ".Refuse")
	}
	for _, t := range d.body.Templates() {
		if err := quoted(t.Root, last); err != nil {
			return nil, err
		}
	}
	sample := values{Cluster: "c", Argument: d.Default, withdrawn: true}
	switch {
	case d.Goes == goesAnnotations:
		annotations, err := d.annotations(&sample)
		d.writes = slices.Sorted(maps.Keys(annotations))
		return d, err
	case d.isDelivered():
		d.writes = []string{deliveredEnd(d.Name)}
	case d.isBeside():
		secrets, err := d.secrets(&sample)
		for _, secret := range secrets {
			d.writes = append(d.writes, secret.Output)
		}
		return d, err
	}
	return d, nil
}

// check reports what the header of a file does not say, or says wrongly.
func (h header) check(name string) error {
	one := func(field, value string, allowed ...string) error {
		if !slices.Contains(allowed, value) {
			return fmt.Errorf("%s is %q; write one of %s", field, value, strings.Join(allowed, ", "))
		}
		return nil
	}
	err := errors.Join(
		one("name", string(h.Name), name),
		one("argument", h.Argument, argumentNone, argumentNamespace, argumentPath, argumentChoice),
		one("goes", h.Goes, goesManagement, goesAnnotations, goesWorkload),
		one("writer", h.Writer, writerController, writerRender))
	switch {
	case err != nil:
		return err
	case h.Credentials == nil:
		return errors.New("credentials is missing; write true or false")
	case (h.Argument == argumentNamespace) != (h.Default != "") || (h.Argument == argumentChoice) != (len(h.Choices) > 0):
		return errors.New("a namespace, and nothing else, has a default, and a choice has choices")
	case h.Goes == goesAnnotations && (*h.Credentials || h.Writer != writerController):
		return errors.New("annotations hold no credentials, and the controller writes them")
	case h.Argument == argumentPath && (h.Goes != goesManagement || h.Writer != writerController):
		return errors.New("only Secrets in the management cluster have a path, because it may be repeated")
	}
	return nil
}

// quoted reports an action whose text could change what is around it: the last function of every one is one of those.
func quoted(node parse.Node, last []string) error {
	var lists []*parse.ListNode
	switch n := node.(type) {
	case *parse.ListNode:
		for _, inner := range n.Nodes {
			if err := quoted(inner, last); err != nil {
				return err
			}
		}
	case *parse.IfNode:
		lists = []*parse.ListNode{n.List, n.ElseList}
	case *parse.RangeNode:
		lists = []*parse.ListNode{n.List, n.ElseList}
	case *parse.WithNode:
		lists = []*parse.ListNode{n.List, n.ElseList}
	case *parse.ActionNode:
		function := n.Pipe.Cmds[len(n.Pipe.Cmds)-1].Args[0].String()
		if len(n.Pipe.Decl) == 0 && !slices.Contains(last, function) {
			return fmt.Errorf("%s does not end in one of %s", n, strings.Join(last, ", "))
		}
	}
	for _, list := range lists {
		if list != nil {
			if err := quoted(list, last); err != nil {
				return err
			}
		}
	}
	return nil
}

// functions are those of templates, beside text/template's own.
func functions() template.FuncMap {
	return template.FuncMap{
		// yaml quotes a value for a place in YAML, in one line.
		"yaml": func(value any) (string, error) {
			text, err := marshal(value)
			text = strings.TrimPrefix(text, " ")
			if one, ok := value.(string); ok && strings.Contains(text, "\n") {
				return strconv.QuoteToASCII(one), err
			} else if strings.Contains(text, "\n") {
				return "", fmt.Errorf("a value of type %T needs lines", value)
			}
			return text, err
		},
		// lines quotes a value of any number of lines for the place after the colon of a key in this column.
		"lines": func(column int, value any) (string, error) {
			text, err := marshal(value)
			return strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", column)), err
		},
		// document is a value as a document of YAML, a text.
		"document": func(value any) (string, error) {
			text, err := yaml.Marshal(value)
			return string(text), err
		},
		"base64": func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) },
		// dropIn and envFile are files of systemd that set variables. A drop-in sets at least one.
		"dropIn": func(vars []systemd.Var) (string, error) {
			text, err := systemd.EnvironmentDropIn(vars)
			return string(text), err
		},
		"envFile": func(vars []systemd.Var) (string, error) {
			text, err := systemd.EnvironmentFile(vars)
			return string(text), err
		},
		// mapping has the variables as keys.
		"mapping": func(vars []systemd.Var) map[string]string {
			all := map[string]string{}
			for _, v := range vars {
				all[v.Name] = v.Value
			}
			return all
		},
		"nest": nest,
		// older reports whether a version that is known is earlier than another.
		"older": func(text, least string) bool {
			parsed, err := version.ParseGeneric(text)
			return err == nil && parsed.LessThan(version.MustParseGeneric(least))
		},
	}
}

// marshal returns a value as it stands after the colon of a key without indentation.
func marshal(value any) (string, error) {
	if text, ok := value.(string); ok && !utf8.ValidString(text) {
		return "", errors.New("a value is not valid UTF-8")
	}
	text, err := yaml.Marshal(map[string]any{"v": value})
	if err != nil {
		return "", fmt.Errorf("encoding a value: %w", err)
	}
	return strings.TrimSuffix(strings.TrimPrefix(string(text), "v:"), "\n"), nil
}

// nest returns mappings with the value at each of the paths, which are keys joined by dots.
func nest(paths []string, value any) map[string]any {
	all := map[string]any{}
	for _, path := range paths {
		keys, at := strings.Split(path, "."), all
		for _, key := range keys[:len(keys)-1] {
			inner, found := at[key].(map[string]any)
			if !found {
				inner = map[string]any{}
				at[key] = inner
			}
			at = inner
		}
		at[keys[len(keys)-1]] = value
	}
	return all
}

// text carries out the template.
func (d *definition) text(in *values) ([]byte, error) {
	var b bytes.Buffer
	if err := d.body.Execute(&b, in); err != nil {
		return nil, fmt.Errorf("making output %s: %w", d.Name, err)
	}
	return append(bytes.Trim(b.Bytes(), "\n"), '\n'), nil
}

// documents carries out the template, and returns its documents. Each is decoded strictly into the type.
func documents[T any](d *definition, in *values) (all []T, err error) {
	text, err := d.text(in)
	for document := range strings.SplitSeq("\n"+string(text), "\n---\n") {
		var one T
		if err == nil && strings.TrimSpace(document) != "" {
			err = yaml.UnmarshalStrict([]byte(document+"\n"), &one)
			all = append(all, one)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading output %s: %w", d.Name, err)
	}
	return all, nil
}

// annotations carries out the template of annotations. A value may be empty.
func (d *definition) annotations(in *values) (map[string]string, error) {
	all, err := documents[map[string]string](d, in)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("output %s is not one mapping", d.Name)
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// secrets carries out the template of Secrets in the management cluster. What such a template can say is in the type.
func (d *definition) secrets(in *values) ([]Secret, error) {
	all, err := documents[struct {
		Kind     string
		Metadata struct {
			Name   string
			Labels map[string]string
		}
		StringData map[string]string
	}](d, in)
	secrets := make([]Secret, len(all))
	for i, one := range all {
		end, found := strings.CutPrefix(one.Metadata.Name, in.Cluster+"-")
		if one.Kind != "Secret" || !found {
			return nil, fmt.Errorf("%s %s of output %s is not a Secret of the Cluster", one.Kind, one.Metadata.Name, d.Name)
		}
		secrets[i] = secretOf(in.Cluster, end)
		secrets[i].Labels, secrets[i].Data = one.Metadata.Labels, map[string][]byte{}
		for key, value := range one.StringData {
			secrets[i].Data[key] = []byte(value)
		}
	}
	return secrets, err
}
