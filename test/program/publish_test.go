package program_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
)

// publishing is a Cluster that asks for every output, with a proxy that has credentials.
const publishing = `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata:
  name: prod
  namespace: team-a
  labels: {capi-proxy-patcher.io/enabled: "true"}
  annotations:
    capi-proxy-patcher.io/publish: env, values=defaults.env, annotations, giantswarm, pods, trust=cert-manager, kapp-controller
    capi-proxy-patcher.io/publish-credentials: "true"
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}, services: {cidrBlocks: [10.96.0.0/12]}, serviceDomain: cluster.local}
  controlPlaneEndpoint: {host: 203.0.113.7, port: 6443}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: prod}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: prod, namespace: team-a}
spec: {version: v1.36.3}
---
apiVersion: v1
kind: Secret
metadata: {name: http-proxy, namespace: team-a}
stringData: {httpProxy: "http://192.0.2.220:3128", httpsProxy: "http://proxy.example.com:3129", noProxy: "10.0.0.0/8,[2001:db8::]/32", username: u, password: 'p''"\%$'}
`

func rendered(t *testing.T, text string, p render.Publish) render.Result {
	t.Helper()
	p.Publisher = publish.New()
	result, err := render.Render(t.Context(), render.Options{
		Inputs: []clusters.Input{{Name: "-", Data: []byte(text)}}, Publish: p, Now: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestPublish_PrintsEveryOutput(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]render.Publish{
		"all":              {Wanted: true},
		"only":             {Wanted: true, Only: true},
		"workload":         {Wanted: true, Only: true, List: "pods,trust=cert-manager,kapp-controller"},
		"printed":          {Wanted: true, Only: true, List: "tkg"},
		"printed-workload": {Wanted: true, Only: true, List: "istio"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := rendered(t, publishing, p)
			got := strings.Join(result.Notes, "\n") + "\n" + string(result.Output)
			golden.Equal(t, "testdata/publish/"+name+".yaml", got)
		})
	}
}

func TestPublish_AgainChangesNothing(t *testing.T) {
	t.Parallel()
	once := rendered(t, publishing, render.Publish{Wanted: true}).Output
	if twice := rendered(t, string(once), render.Publish{Wanted: true}).Output; string(twice) != string(once) {
		t.Errorf("got\n%s\nwant\n%s", twice, once)
	}
	changed := strings.Replace(string(once), "192.0.2.220", "192.0.2.221", 1)
	again := string(rendered(t, changed, render.Publish{Wanted: true}).Output)
	fresh := string(rendered(t, strings.Replace(publishing, "192.0.2.220", "192.0.2.221", 1), render.Publish{Wanted: true}).Output)
	if again != fresh {
		t.Errorf("after a change\n%s\nwant\n%s", again, fresh)
	}
}

func TestPublish_WithoutItPrintsNothing(t *testing.T) {
	t.Parallel()
	if output := string(rendered(t, publishing, render.Publish{}).Output); strings.Contains(output, "prod-proxy-outputs") {
		t.Error(output)
	}
	unlabelled := strings.Replace(publishing, `enabled: "true"`, `enabled: "false"`, 1)
	if output := rendered(t, unlabelled, render.Publish{Wanted: true, Only: true}).Output; len(output) > 0 {
		t.Errorf("without the label: %s", output)
	}
}

// TestPublish_WithholdsCredentials looks for the password, and for its encodings, in what would leave the management
// cluster.
func TestPublish_WithholdsCredentials(t *testing.T) {
	t.Parallel()
	text := strings.Replace(publishing, `publish-credentials: "true"`, `publish-credentials: "false"`, 1)
	result := rendered(t, text, render.Publish{Wanted: true, Only: true, List: "pods,trust,kapp-controller,istio"})
	if len(result.Notes) < 2 || result.Warnings != 2 {
		t.Errorf("notes are %q", result.Notes)
	}
	for _, needle := range []string{"u:p", "p%27", "U6cC", "cCUy"} { // the last two are in base64, after http://
		if strings.Contains(string(result.Output), needle) {
			t.Errorf("%s is in\n%s", needle, result.Output)
		}
	}
}

func TestPublish_SaysWhyNothingIsPublished(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ old, with, want string }{
		"no endpoint":   {"{host: 203.0.113.7, port: 6443}", "{}", "nothing is published, because spec.controlPlaneEndpoint is not set"},
		"a variable":    {"203.0.113.7", "${ENDPOINT}", "nothing is published, because spec.controlPlaneEndpoint.host has unresolved variables"},
		"another's":     {"kind: Secret\nmetadata: {name: http-proxy", "kind: Secret\nmetadata: {name: prod-proxy-outputs, namespace: team-a}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: http-proxy", "it has the name of an output and was not written for Cluster prod"},
		"not an output": {"env, values", "istio, values", `entry 1: "istio" is not an output; the controller does not write it; print it with render --publish=istio`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(publishing, tc.old, tc.with, 1)
			if text == publishing {
				t.Fatal("nothing is replaced")
			}
			result, err := render.Render(t.Context(), render.Options{
				Inputs: []clusters.Input{{Name: "-", Data: []byte(text)}}, Publish: render.Publish{Publisher: publish.New(), Wanted: true}, Now: now,
			})
			said := strings.Join(result.Notes, "\n")
			if err != nil {
				said = err.Error()
			}
			if !strings.Contains(said, tc.want) || strings.Contains(string(result.Output), "prod-proxy-outputs") {
				t.Errorf("it says %s", said)
			}
		})
	}
}

// TestPublish_RemovesAnnotationsThatNoClusterAsksFor renders a Cluster again that carries the annotations of an earlier
// run.
func TestPublish_RemovesAnnotationsThatNoClusterAsksFor(t *testing.T) {
	t.Parallel()
	source := strings.NewReplacer("env, values=defaults.env, annotations, giantswarm, pods, trust=cert-manager, kapp-controller",
		"annotations", ", username: u, password: 'p''\"\\%$'", "").Replace(publishing)
	published := string(rendered(t, source, render.Publish{Wanted: true}).Output)
	const mine = "    example.com/http-proxy: mine\n"
	published = strings.Replace(published, "  annotations:\n", "  annotations:\n"+mine, 1)
	if strings.Count(published, "capi-proxy-patcher.io/http-proxy:") != 1 || strings.Count(published, "-proxy:") != 4 {
		t.Fatalf("the annotations are not in\n%s", published)
	}
	const list, label = "    capi-proxy-patcher.io/publish: annotations\n", `  labels: {capi-proxy-patcher.io/enabled: "true"}` + "\n"
	const other, endpoint = "    capi-proxy-patcher.io/publish: env\n", "{host: 203.0.113.7, port: 6443}"
	for name, tc := range map[string]struct {
		change  []string
		all     bool
		publish render.Publish
		stay    bool
	}{
		"asked for":                             {stay: true},
		"asked for and printed":                 {publish: render.Publish{Wanted: true}, stay: true},
		"without the label":                     {change: []string{label, ""}},
		"with the label false":                  {change: []string{`"true"}`, `"false"}`}},
		"without the label, with --publish":     {change: []string{label, ""}, publish: render.Publish{Wanted: true}},
		"without the label, with their list":    {change: []string{label, ""}, publish: render.Publish{Wanted: true, List: "annotations"}},
		"without the label, with --all":         {change: []string{label, ""}, all: true, stay: true},
		"with a label that is not understood":   {change: []string{`"true"}`, `"yes"}`}, stay: true},
		"without the list":                      {change: []string{list, ""}},
		"without the list, with --publish":      {change: []string{list, ""}, publish: render.Publish{Wanted: true}},
		"with another list":                     {change: []string{list, other}},
		"with another list and --publish":       {change: []string{list, other}, publish: render.Publish{Wanted: true}},
		"with another list in --publish":        {publish: render.Publish{Wanted: true, List: "env"}},
		"with their list in --publish":          {change: []string{list, ""}, publish: render.Publish{Wanted: true, List: "annotations"}, stay: true},
		"with a list that cannot be used":       {change: []string{list, strings.Replace(list, "nn", "n", 1)}, stay: true},
		"asked for without an endpoint":         {change: []string{endpoint, "{}"}, publish: render.Publish{Wanted: true}, stay: true},
		"not asked for and without an endpoint": {change: []string{list, other, endpoint, "{}"}, publish: render.Publish{Wanted: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.NewReplacer(tc.change...).Replace(published)
			tc.publish.Publisher = publish.New()
			result, err := render.Render(t.Context(), render.Options{
				Inputs: []clusters.Input{{Name: "-", Data: []byte(text)}}, Publish: tc.publish, All: tc.all, Now: now,
			})
			if err != nil {
				t.Fatal(err)
			}
			want := strings.SplitAfter(text, "---\n")[0]
			if !tc.stay {
				want = annotated.ReplaceAllString(want, "")
			}
			if got := strings.SplitAfter(string(result.Output), "---\n")[0]; got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if said := strings.Contains(strings.Join(result.Notes, "\n"), "removed annotations that an output has written"); said == tc.stay {
				t.Errorf("notes are %q", result.Notes)
			}
		})
	}
}

// annotated are the lines with the annotations of output annotations.
var annotated = regexp.MustCompile(`(?m)^ *capi-proxy-patcher\.io/(http|https|no)-proxy:.*\n`)

func TestLint_PointsAtTheEntryOfPublish(t *testing.T) {
	t.Parallel()
	text := strings.Replace(publishing, "env, values=defaults.env,", "env, nope, trust=A,", 1)
	text = strings.Replace(text, `publish-credentials: "true"`, `publish-credentials: "yes"`, 1)
	_, out, _ := run(t, text, "lint", "-f", "-")
	for _, want := range []string{
		"standard input:8: rejection: Cluster team-a/prod, annotation capi-proxy-patcher.io/publish entry 2",
		"standard input:8: rejection: Cluster team-a/prod, annotation capi-proxy-patcher.io/publish entry 3",
		"standard input:9: rejection: Cluster team-a/prod, annotation capi-proxy-patcher.io/publish-credentials",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func now() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }
