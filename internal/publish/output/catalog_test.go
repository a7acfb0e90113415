package output

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
)

// entries are an output as a list asks for it, with every kind of argument that it can have.
func entries(d *definition) []string {
	name := string(d.Name)
	switch d.Argument {
	case argumentNamespace:
		return []string{name, name + "=team-a"}
	case argumentPath:
		return []string{fmt.Sprintf("%s=a.b,%[1]s=a.c.d,%[1]s=e", name)}
	case argumentChoice:
		all := []string{name}
		for _, choice := range d.Choices {
			all = append(all, name+"="+choice)
		}
		return all
	}
	return []string{name}
}

// sample are the values of golden files. They hold what ends a value early in a text that is pasted together.
func sample(t *testing.T, data map[string]string, noProxy string) Input {
	t.Helper()
	bytes := map[string][]byte{}
	for key, value := range data {
		bytes[key] = []byte(value)
	}
	proxy, err := settings.ParseSecret(bytes)
	if err != nil {
		t.Fatal(err)
	}
	return Input{
		Cluster: "prod", Namespace: "team-a", Secret: "Secret team-a/http-proxy", Settings: proxy, NoProxy: noProxy,
		HasNodeNetwork: true, Version: "v1.36.3",
	}
}

// described is a result in a form that people read.
func described(t *testing.T, list string, in Input) string {
	t.Helper()
	request, err := parseList(list, writerRender)
	if err != nil {
		t.Fatal(err)
	}
	request.Credentials = true
	result, err := Of(request, in)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	keys := func(secret Secret) {
		for key, value := range secret.Data {
			fmt.Fprintf(&b, "\n### %s: Secret %s, key %s, labels %v\n%s", list, secret.Name, key, secret.Labels, value)
		}
	}
	for _, secret := range result.Secrets {
		if len(secret.Data) != 1 {
			text, err := yaml.Marshal(secret.Data)
			if err != nil {
				t.Fatal(err)
			}
			secret.Data = map[string][]byte{"*": text}
		}
		keys(secret)
	}
	for _, value := range []any{result.Annotations, result.Printed, result.Findings} {
		if text, err := yaml.Marshal(value); err != nil {
			t.Fatal(err)
		} else if !reflect.ValueOf(value).IsZero() {
			fmt.Fprintf(&b, "\n### %s: %T\n%s", list, value, text)
		}
	}
	return b.String()
}

// TestOutputs_HaveGoldenFiles compares every output with its golden file, and every golden file with an output.
func TestOutputs_HaveGoldenFiles(t *testing.T) {
	t.Parallel()
	const ca = "testdata/ca.pem"
	bundle, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	rude := sample(t, map[string]string{
		"httpProxy": "http://[2001:db8::1]:3128", "httpsProxy": "https://proxy.example.com", "trustedCA": string(bundle),
		"username": "u\"%s'\\$`{{ .x }}", "password": "p: #&*!|>'\" \\$`{{",
	}, "localhost,$(X),'\"#,[::1],*.example.com")
	plain := sample(t, map[string]string{"httpsProxy": "http://192.0.2.1:3128"}, "")
	plain.HasNodeNetwork = false
	certificates := sample(t, map[string]string{"trustedCA": string(bundle)}, "")
	known := map[string]bool{}
	for _, d := range catalog() {
		var b strings.Builder
		for _, entry := range entries(d) {
			fmt.Fprintf(&b, "\n##### Credentials and certificates\n%s", described(t, entry, rude))
		}
		last := entries(d)[len(entries(d))-1]
		fmt.Fprintf(&b, "\n##### One URL\n%s", described(t, last, plain))
		fmt.Fprintf(&b, "\n##### Certificates alone\n%s", described(t, last, certificates))
		file := filepath.Join("testdata", "outputs", string(d.Name)+".txt")
		known[file] = true
		golden.Equal(t, file, b.String())
	}
	files, err := filepath.Glob("testdata/outputs/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !known[file] {
			t.Errorf("%s is of no output", file)
		}
	}
}

// TestOutputs_AreInTheDocs looks for the row of each output.
func TestOutputs_AreInTheDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range catalog() {
		row := "\n| `" + string(d.Name)
		if !strings.Contains(string(page), row+"`") && !strings.Contains(string(page), row+"=<") {
			t.Errorf("docs/reference.md has no row for output %s", d.Name)
		}
	}
}

// TestOutputs_WriteNothingTwice holds that no two outputs have a key of a Secret in common.
func TestOutputs_WriteNothingTwice(t *testing.T) {
	t.Parallel()
	in := sample(t, map[string]string{"httpProxy": "http://p:1"}, "a.example.com")
	known := map[string]Name{}
	for _, d := range catalog() {
		if !d.isBeside() {
			continue
		}
		secrets, err := d.secrets(in.values(d, []Output{{Name: d.Name, Argument: "a"}}))
		if err != nil {
			t.Fatal(err)
		}
		for i, secret := range secrets {
			if secret.Output != d.writes[i] || len(d.writes) != len(secrets) {
				t.Errorf("the Secrets of output %s depend on values: %s", d.Name, secret.Name)
			}
			for key := range secret.Data {
				if other, found := known[secret.Name+key]; found {
					t.Errorf("outputs %s and %s write key %s of Secret %s", other, d.Name, key, secret.Name)
				}
				known[secret.Name+key] = d.Name
			}
		}
	}
}

// TestOutputs_SeeNoCredentialsUnlessTheirHeaderSaysSo looks into everything that a template sees.
func TestOutputs_SeeNoCredentialsUnlessTheirHeaderSaysSo(t *testing.T) {
	t.Parallel()
	in := sample(t, map[string]string{"httpProxy": "http://p:1", "username": "needle", "password": "needle"}, "a.example.com")
	for _, d := range catalog() {
		seen := fmt.Sprintf("%+v", in.values(d, []Output{{Name: d.Name}}))
		if strings.Contains(seen, "needle") != *d.Credentials || !strings.Contains(seen, "a.example.com") {
			t.Errorf("output %s sees %s", d.Name, seen)
		}
	}
}

func TestLoad_RefusesWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	const good = "name: x\nargument: none\ngoes: management\nwriter: controller\ncredentials: true\n---\n" +
		"kind: Secret\nmetadata:\n  name: {{ yaml (print .Cluster \"-x\") }}\nstringData: {a: {{ yaml .NoProxy }}}\n"
	for edit, want := range map[string]string{
		"":                                    "",
		"name: x->name: z":                    `name is "z"; write one of x`,
		"name: x\n->":                         `name is ""`,
		"argument: none\n->":                  `argument is ""; write one of none, namespace, path, choice`,
		"argument: none->argument: choice":    "a choice has choices",
		"argument: none->argument: namespace": "a namespace, and nothing else, has a default",
		"argument: none->argument: path\ndefault: a":                       "a namespace, and nothing else, has a default",
		"goes: management\n->":                                             `goes is ""; write one of management, annotations, workload`,
		"goes: management->goes: annotations":                              "annotations hold no credentials",
		"argument: none\ngoes: management->argument: path\ngoes: workload": "only Secrets in the management cluster have a path",
		"writer: controller\n->":                                           `writer is ""; write one of controller, render`,
		"credentials: true\n->":                                            "credentials is missing",
		"credentials: true->credential: true":                              "unknown field",
		"---\n->":                                                          "its header: ",
		"{{ yaml .NoProxy }}->{{ .NoProxy }}":                              "{{.NoProxy}} does not end in one of yaml, lines, .Note",
		"{{ yaml .NoProxy }}->{{ yaml .NoProxy | print }}":                 "does not end in one of",
		"{{ yaml .NoProxy }}->{{ range .Variables }}{{ if .Name }}{{ else }}{{ .Value }}{{ end }}{{ end }}": "{{.Value}} does not end in one of",
		"{{ yaml .NoProxy }}->{{ .Refuse \"TooLarge\" \"\" }}":                                              "does not end in one of",
		"{{ yaml .NoProxy }}->{{ yaml .NoSuch }}":                                                           "can't evaluate field NoSuch",
		"{{ yaml .NoProxy }}->{{ yaml .NoProxy ":                                                            "unexpected",
		"kind: Secret->kind: ConfigMap":                                                                     "is not a Secret of the Cluster",
		"(print .Cluster \"-x\")->\"x\"":                                                                    "is not a Secret of the Cluster",
		"stringData->data":                                                                                  "unknown field",
		"stringData: {->stringData: [":                                                                      "reading output x",
	} {
		old, replacement, _ := strings.Cut(edit, "->")
		text := strings.Replace(good, old, replacement, 1)
		all, err := load(fstest.MapFS{"outputs/x.yaml": {Data: []byte(text)}})
		switch {
		case want == "" && (err != nil || len(all) != 1 || all[0].writes[0] != "x"):
			t.Errorf("a good one: %v", err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "outputs/x.yaml")):
			t.Errorf("%s: got %v, want %s", edit, err, want)
		}
	}
}

func TestRefuse_KnowsItsReasons(t *testing.T) {
	t.Parallel()
	if _, err := (&values{}).Refuse("Configured", ""); err == nil {
		t.Error("any reason is accepted")
	}
}

// leaves adds what is in a value of YAML, by its path. A text of many lines that is YAML itself is looked into.
func leaves(all map[string]string, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			leaves(all, path+"/"+key, inner)
		}
	case []any:
		for i, inner := range value {
			leaves(all, fmt.Sprintf("%s/%d", path, i), inner)
		}
	case string:
		var inner map[string]any
		if (strings.HasSuffix(path, "/values") || strings.HasSuffix(path, "/values.yaml")) && yaml.UnmarshalStrict([]byte(value), &inner) == nil {
			leaves(all, path, inner)
			return
		}
		all[path] = value
	default:
		all[path] = fmt.Sprint(value)
	}
}

// read returns what is in an output.
func readOutput(d *definition, in *values) (map[string]string, error) {
	in.withdrawn = true // nothing is refused
	objects, err := documents[map[string]any](d, in)
	all := map[string]string{}
	for i, object := range objects {
		leaves(all, fmt.Sprint(i), object)
	}
	return all, err
}

// FuzzOutputs writes any values with every output, and reads them again: each is where a harmless one stands, and
// nothing else has changed.
func FuzzOutputs(f *testing.F) {
	f.Add("http://u:%40'\"\\$`{{x}}: #\n---\n@[2001:db8::1]:3128", "a\tb\u2028 \x7f\u0085", "- {a: *b}", "-----BEGIN\nx\n", "a.b")
	f.Add("yes", "0x1", "~", "|\n  x\n", "=")
	f.Add("{{", "'", "? a", "\n\n x\n\n", "null")
	f.Add("%a", "!x", "&a", ">-\n", "1e3")
	f.Fuzz(func(t *testing.T, http, https, noProxy, bundle, argument string) {
		of := func(http, https, noProxy, bundle, argument string) *values {
			return &values{
				Cluster: "prod", Namespace: "team-a", Argument: argument, Arguments: []string{"a.b"},
				HTTPProxy: http, HTTPSProxy: https, NoProxy: noProxy, TrustedCA: bundle, Version: "v1.36.0",
				Variables: []systemd.Var{{Name: "HTTP_PROXY", Value: http}, {Name: "HTTPS_PROXY", Value: https}, {Name: "NO_PROXY", Value: noProxy}},
				Proxies:   []proxy{{Name: "http-proxy", Host: http, Port: 1}, {Name: "https-proxy", Host: https, Port: 2, Network: noProxy, Hyphenated: bundle}},
			}
		}
		for _, one := range []string{http, https, noProxy, bundle, argument} {
			if one == "" || !utf8.ValidString(one) {
				return
			}
		}
		harmless, rude := of("hhh", "sss", "nnn", "bbb", "aaa"), of(http, https, noProxy, bundle, argument)
		for _, d := range catalog() {
			if d.Argument == argumentChoice {
				harmless.Argument, rude.Argument = d.Choices[0], d.Choices[0]
			} else {
				harmless.Argument, rude.Argument = "aaa", argument
			}
			want, err := readOutput(d, harmless)
			if err != nil {
				t.Fatal(err)
			}
			got, err := readOutput(d, rude)
			if err != nil && systemd.ValidateVars(rude.Variables) != nil {
				continue // a drop-in cannot have them
			}
			if err != nil || len(got) != len(want) {
				t.Fatalf("output %s: %v: got %q, want %q", d.Name, err, got, want)
			}
			for path, text := range want {
				if expected := translated(t, text, harmless, rude); got[path] != expected {
					t.Errorf("output %s, %s: got %q, want %q", d.Name, path, got[path], expected)
				}
			}
		}
	})
}

// translated returns a text of harmless values as it is with others.
func translated(t *testing.T, text string, harmless, rude *values) string {
	t.Helper()
	encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	files := func(v *values) []string {
		dropIn, _ := systemd.EnvironmentDropIn(v.Variables)
		file, _ := systemd.EnvironmentFile(v.Variables)
		return []string{string(dropIn), string(file)}
	}
	old, replacement := files(harmless), files(rude)
	for i := range old {
		if text == old[i] {
			return replacement[i]
		}
	}
	for _, pair := range [][2]string{
		{harmless.HTTPProxy, rude.HTTPProxy},
		{harmless.HTTPSProxy, rude.HTTPSProxy},
		{harmless.NoProxy, rude.NoProxy},
		{harmless.TrustedCA, rude.TrustedCA},
		{harmless.Argument, rude.Argument},
	} {
		switch {
		case text == pair[0]:
			return pair[1]
		case text == encoded(pair[0]):
			return encoded(pair[1])
		case strings.HasPrefix(text, pair[0]+"."): // a name in a domain
			return pair[1] + strings.TrimPrefix(text, pair[0])
		}
	}
	return text
}
