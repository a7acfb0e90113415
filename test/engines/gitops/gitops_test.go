// Package gitops runs the health checks of docs/gitops.md in the engines of Argo CD and Flux, on a Cluster with each
// reason of the condition.
package gitops

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	lua "github.com/yuin/gopher-lua"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

const (
	condition = "capi-proxy-patcher.io/ProxyConfigured"
	label     = "capi-proxy-patcher.io/enabled"
	luaKey    = "resource.customizations.health.cluster.x-k8s.io_Cluster"
)

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// example is what the test reads of the YAML examples of the page.
type example struct {
	Kind     string
	Metadata struct{ Annotations, Labels map[string]string }
	Data     map[string]string
	Spec     struct {
		SyncPolicy       struct{ SyncOptions []string }
		HealthCheckExprs []struct{ APIVersion, Kind, Failed, InProgress, Current string }
	}
}

// examples returns the YAML examples of the page by their kind.
func examples(t *testing.T) map[string]example {
	t.Helper()
	found := map[string]example{}
	for i, part := range strings.Split(read(t, "gitops.md"), "```") {
		code, isYAML := strings.CutPrefix(part, "yaml\n")
		if i%2 == 0 || !isYAML {
			continue
		}
		var e example
		if err := yaml.Unmarshal([]byte(code), &e); err != nil {
			t.Fatalf("%v:\n%s", err, code)
		}
		found[e.Kind] = e
	}
	return found
}

// clusterCase is a Cluster, and whether Argo CD and Flux should call it healthy.
type clusterCase struct {
	name       string
	cluster    map[string]any
	argo, flux string
}

type object = map[string]any

func clusterOf(labels object, phase string, initialized bool, conditions ...any) object {
	status := object{"phase": phase, "initialization": object{"controlPlaneInitialized": initialized}}
	if len(conditions) > 0 {
		status["conditions"] = conditions
	}
	return object{
		"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "status": status,
		"metadata": object{"name": "prod", "labels": labels}, "spec": object{"clusterNetwork": object{}},
	}
}

func conditionOf(kind, status, reason string) object {
	return object{"type": kind, "status": status, "reason": reason, "message": "100% of \"it\""}
}

// cases returns Clusters with each reason, and without the condition.
func cases(t *testing.T) []clusterCase {
	t.Helper()
	labelled, unlabelled := object{label: "true"}, object{"a": "b"}
	available := conditionOf("Available", "True", "Available")
	unavailable := conditionOf("Available", "False", "NotAvailable")
	list := []clusterCase{
		{"no label", clusterOf(unlabelled, "Provisioned", true, available), "Healthy", "Current"},
		{"label false", clusterOf(object{label: "false"}, "Provisioned", true, available), "Healthy", "Current"},
		{"label, not seen yet", clusterOf(labelled, "Provisioned", true, available), "Progressing", "InProgress"},
		{"just created", clusterOf(labelled, "Pending", false), "Progressing", "InProgress"},
		{"not available yet", clusterOf(unlabelled, "Provisioned", false, unavailable), "Progressing", "InProgress"},
		{"not available any more", clusterOf(unlabelled, "Provisioned", true, unavailable), "Degraded", "InProgress"},
		{"failed", clusterOf(unlabelled, "Failed", false, unavailable), "Degraded", "InProgress"},
	}
	paused := clusterOf(labelled, "Provisioned", true, available, conditionOf(condition, "True", "Configured"))
	paused["spec"] = object{"paused": true}
	list = append(list, clusterCase{"paused", paused, "Suspended", "Current"})
	for _, r := range contract.Reasons() {
		argo, flux := "Healthy", "Current"
		switch {
		case r.Status == "Unknown":
			argo, flux = "Progressing", "InProgress"
		case r.Status == "False" && r.Task != contract.TaskRollOut:
			argo, flux = "Degraded", "Failed"
		}
		list = append(list, clusterCase{
			r.Status + " " + r.Name,
			clusterOf(labelled, "Provisioned", true, available, conditionOf(condition, r.Status, r.Name)), argo, flux,
		})
	}
	return list
}

// luaValue converts a value as Argo CD does.
func luaValue(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case bool:
		return lua.LBool(v)
	case string:
		return lua.LString(v)
	case float64:
		return lua.LNumber(v)
	case []any:
		table := state.CreateTable(len(v), 0)
		for _, item := range v {
			table.Append(luaValue(state, item))
		}
		return table
	case map[string]any:
		table := state.CreateTable(0, len(v))
		for key, item := range v {
			table.RawSetString(key, luaValue(state, item))
		}
		return table
	}
	return lua.LNil
}

// health runs the check as Argo CD does: with the libraries base, package and table.
func health(t *testing.T, script string, cluster object) (status, message string) {
	t.Helper()
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
	} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			t.Fatal(err)
		}
	}
	state.SetGlobal("obj", luaValue(state, cluster))
	if err := state.DoString(script); err != nil {
		t.Fatal(err)
	}
	result, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the check returns %v", state.Get(-1))
	}
	return lua.LVAsString(result.RawGetString("status")), lua.LVAsString(result.RawGetString("message"))
}

// plain returns an object as a decoder of JSON makes it.
func plain(t *testing.T, o object) object {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var out object
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestArgoCD_HealthOfEachReason(t *testing.T) {
	t.Parallel()
	script := examples(t)["ConfigMap"].Data[luaKey]
	if script == "" {
		t.Fatalf("the page has no %s", luaKey)
	}
	for _, c := range cases(t) {
		status, message := health(t, script, plain(t, c.cluster))
		if status != c.argo || message == "" {
			t.Errorf("%s: %s (%s), want %s", c.name, status, message, c.argo)
		}
	}
}

// evaluate evaluates an expression as Flux does: without declarations of the variables.
func evaluate(t *testing.T, expression string, cluster object) bool {
	t.Helper()
	env, err := cel.NewEnv(cel.HomogeneousAggregateLiterals(), cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true), cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), ext.Strings(), ext.Sets(),
		ext.Encoders())
	if err != nil {
		t.Fatal(err)
	}
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := env.Program(parsed, cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		t.Fatal(err)
	}
	value, _, err := program.ContextEval(t.Context(), cluster)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	result, ok := value.Value().(bool)
	if !ok {
		t.Fatalf("%s is %v", expression, value)
	}
	return result
}

func TestFlux_HealthOfEachReason(t *testing.T) {
	t.Parallel()
	checks := examples(t)["Kustomization"].Spec.HealthCheckExprs
	if len(checks) != 1 || checks[0].APIVersion != "cluster.x-k8s.io/v1beta2" || checks[0].Kind != "Cluster" {
		t.Fatalf("the page checks %+v", checks)
	}
	unlabelled := clusterOf(nil, "Provisioned", true, conditionOf("Available", "True", "Available"))
	delete(unlabelled["metadata"].(object), "labels")
	all := append(cases(t), clusterCase{"no labels at all", unlabelled, "Healthy", "Current"})
	for _, c := range all {
		got := "InProgress"
		for _, e := range []struct{ expression, health string }{
			{checks[0].InProgress, "InProgress"}, {checks[0].Failed, "Failed"}, {checks[0].Current, "Current"},
		} {
			if e.expression != "" && evaluate(t, e.expression, plain(t, c.cluster)) {
				got = e.health
				break
			}
		}
		if got != c.flux {
			t.Errorf("%s: %s, want %s", c.name, got, c.flux)
		}
	}
}

func TestArgoCD_ComparesWithTheWebhooks(t *testing.T) {
	t.Parallel()
	found := examples(t)
	options := found["Application"].Metadata.Annotations["argocd.argoproj.io/compare-options"]
	if options != "ServerSideDiff=true,IncludeMutationWebhook=true" ||
		fmt.Sprint(found["Application"].Spec.SyncPolicy.SyncOptions) != "[ServerSideApply=true]" {
		t.Errorf("the Application has compare-options %q", options)
	}
	if wave := found["Secret"].Metadata.Annotations["argocd.argoproj.io/sync-wave"]; wave != "-1" {
		t.Errorf("the Secret is in wave %q", wave)
	}
}
