// Package charts has the programs that read outputs in the management cluster read them: Helm's engine, Flux's reader of
// valuesFrom, and the template of a HelmChartProxy.
package charts

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"reflect"
	"strings"
	"testing"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"github.com/fluxcd/pkg/apis/meta"
	fluxutil "github.com/fluxcd/pkg/chartutil"
	"github.com/go-logr/logr"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
)

const (
	password = `p: #&*!|>'" \$` + "`{{ .x }}"
	noProxy  = "localhost,.svc,10.0.0.0/8,192.168.0.0/16,.example.com"
)

func published(t *testing.T, list string, data map[string][]byte) (output.Result, string) {
	t.Helper()
	settings, err := settings.ParseSecret(data)
	if err != nil {
		t.Fatal(err)
	}
	asks, err := output.ParseList(list)
	if err != nil {
		t.Fatal(err)
	}
	result, err := output.Of(asks, output.Input{
		Cluster: "prod", Secret: "s", Settings: settings, NoProxy: noProxy, HasNodeNetwork: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return result, settings.HTTPSProxy.Reveal()
}

// render renders a chart of one template with the values of a key, and returns the variables of the Pod in it.
func render(t *testing.T, values []byte, text string) map[string]string {
	t.Helper()
	given, err := chartutil.ReadValues(values)
	if err != nil {
		t.Fatal(err)
	}
	c := &chart.Chart{
		Metadata:  &chart.Metadata{Name: "c", Version: "1.0.0", APIVersion: "v2"},
		Templates: []*chart.File{{Name: "templates/env.yaml", Data: []byte(text)}},
	}
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: "r", Namespace: "n"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	var env []struct{ Name, Value string }
	if err := yaml.UnmarshalStrict([]byte(rendered["c/templates/env.yaml"]), &env); err != nil {
		t.Fatalf("%v in\n%s", err, rendered["c/templates/env.yaml"])
	}
	found := map[string]string{}
	for _, v := range env {
		found[v.Name] = v.Value
	}
	return found
}

func TestCharts_ReadTheValues(t *testing.T) {
	t.Parallel()
	result, url := published(t, "values=defaults.env,giantswarm", map[string][]byte{
		"httpProxy": []byte("http://proxy.example.com:3128"), "username": []byte("user"), "password": []byte(password),
	})
	keys := map[string][]byte{}
	for _, secret := range result.Secrets {
		maps.Copy(keys, secret.Data)
	}
	want := map[string]string{"HTTPS_PROXY": url, "HTTP_PROXY": url, "NO_PROXY": noProxy}
	const three = `- {name: HTTPS_PROXY, value: {{ %1 | quote }}}
- {name: HTTP_PROXY, value: {{ %2 | quote }}}
- {name: NO_PROXY, value: {{ %3 | quote }}}
`
	variables := func(https, http, no string) string {
		return strings.NewReplacer("%1", https, "%2", http, "%3", no).Replace(three)
	}
	const proxy, connectivity = ".Values.cluster.proxy.", ".Values.global.connectivity.proxy."
	for name, test := range map[string]struct{ key, text string }{
		"a list at a path": {"values.yaml", "{{- range .Values.defaults.env }}\n- name: {{ .name }}\n  value: {{ .value | quote }}\n{{- end }}\n"},
		"as YAML":          {"values.yaml", "{{ toYaml .Values.defaults.env }}\n"},
		"cluster.proxy":    {"values", variables(proxy+"https", proxy+"http", proxy+"noProxy")},
		"https_proxy":      {"values", variables(".Values.https_proxy", ".Values.http_proxy", ".Values.no_proxy")},
		"env":              {"values", "{{ toYaml .Values.env }}\n"},
		"global.connectivity": {"values", "{{- if " + connectivity + "enabled }}\n" +
			variables(connectivity+"httpsProxy", connectivity+"httpProxy", connectivity+"noProxy") + "{{- end }}\n"},
	} {
		if got := render(t, keys[test.key], test.text); !maps.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// secrets are the Secrets that Flux reads.
type secrets struct {
	client.Client

	data map[string]map[string][]byte
}

func (s secrets) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	secret, ok := object.(*corev1.Secret)
	if !ok || key.Namespace != "team-a" {
		return fmt.Errorf("no such object: %T %s", object, key)
	}
	secret.Data = s.data[key.Name]
	return nil
}

// TestFlux_ReadsTheSecret reads the Secret of outputs as Flux does for a HelmRelease, with the valuesFrom of
// docs/publish.md.
func TestFlux_ReadsTheSecret(t *testing.T) {
	t.Parallel()
	result, url := published(t, "env,values=defaults.env", map[string][]byte{
		"httpProxy": []byte("http://us$(ER):a,b=c$d@proxy.example.com:3128"),
	})
	stored := secrets{data: map[string]map[string][]byte{}}
	for _, secret := range result.Secrets {
		stored.data[secret.Name] = secret.Data
	}
	page, err := os.ReadFile("../../../docs/publish.md")
	if err != nil {
		t.Fatal(err)
	}
	var refs []meta.ValuesReference
	for line := range strings.Lines(string(page)) {
		if text := strings.TrimSpace(line); strings.HasPrefix(text, "- {kind: Secret, name: prod-proxy-outputs, valuesKey:") {
			var one []meta.ValuesReference
			if err := yaml.UnmarshalStrict([]byte(text), &one); err != nil {
				t.Fatal(err)
			}
			refs = append(refs, one...)
		}
	}
	list := []any{
		map[string]any{"name": "HTTPS_PROXY", "value": strings.ReplaceAll(url, "$", "$$")},
		map[string]any{"name": "HTTP_PROXY", "value": strings.ReplaceAll(url, "$", "$$")},
		map[string]any{"name": "NO_PROXY", "value": noProxy},
	}
	want := map[string]any{
		"defaults": map[string]any{"env": list}, "proxy": map[string]any{"https": url, "noProxy": noProxy}, "mine": "own",
	}
	read := func() (map[string]any, error) {
		return fluxutil.ChartValuesFromReferences(t.Context(), logr.Discard(), stored, "team-a", map[string]any{"mine": "own"}, refs...)
	}
	got, err := read()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for i := range refs { // what the page says of it
		refs[i].Literal = false
	}
	if got, err := read(); err == nil && reflect.DeepEqual(got, want) {
		t.Error("without literal the values are the same")
	}
}

// TestHelmChartProxy_ReadsTheAnnotations renders as the Helm add-on provider does: text/template with the functions of
// sprig over the Cluster as it is stored.
func TestHelmChartProxy_ReadsTheAnnotations(t *testing.T) {
	t.Parallel()
	result, url := published(t, "annotations", map[string][]byte{"httpProxy": []byte("http://proxy.example.com:3128")})
	annotations := map[string]any{}
	for key, value := range result.Annotations {
		annotations[key] = value
	}
	text := `https_proxy: {{ index .Cluster.metadata.annotations "` + output.AnnotationHTTPSProxy + `" | quote }}
no_proxy: {{ index .Cluster.metadata.annotations "` + output.AnnotationNoProxy + `" | quote }}
`
	parsed, err := template.New("values").Funcs(sprig.TxtFuncMap()).Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	cluster := map[string]any{"metadata": map[string]any{"annotations": annotations}}
	if err := parsed.Execute(&b, map[string]any{"Cluster": cluster}); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	if err := yaml.UnmarshalStrict(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"https_proxy": url, "no_proxy": noProxy}; !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
