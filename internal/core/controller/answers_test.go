package controller

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/crdschema"
)

// stored is an object on an API server.
type stored struct {
	*testing.T

	object map[string]any
}

// read returns the object as the controller sees it.
func (s *stored) read() Object {
	s.Helper()
	text, err := json.Marshal(s.object)
	if err != nil {
		s.Fatal(err)
	}
	kind, _ := s.object["kind"].(string)
	into := kinds.NewBootstrapObject(kind)
	if err := json.Unmarshal(text, into); err != nil {
		s.Fatal(err)
	}
	return NewObject(into, kind, false)
}

// write carries out edits as the API server does. It validates the outcome by the schemas of both versions.
func (s *stored) write(edits []patch.Edit, version int) {
	s.Helper()
	if len(edits) == 0 {
		return
	}
	record := ""
	if version != 0 {
		record = strconv.Itoa(version)
	}
	o := s.read()
	metadata, _ := s.object["metadata"].(map[string]any)
	metadata["resourceVersion"] = "1"
	o.SetResourceVersion("1")
	before, err := json.Marshal(s.object)
	if err != nil {
		s.Fatal(err)
	}
	operations, err := json.Marshal(operations(o, plan.Decision{
		Edits: edits, Annotations: map[string]string{contract.AnnotationOutputVersion: record},
	}, nil))
	if err != nil {
		s.Fatal(err)
	}
	decoded, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		s.Fatal(err)
	}
	after, err := decoded.Apply(before)
	if err != nil {
		s.Fatalf("%v: %s to %.1000s", err, operations, before)
	}
	s.object = nil
	if err := json.Unmarshal(after, &s.object); err != nil {
		s.Fatal(err)
	}
	s.check(string(operations))
}

func (s *stored) check(operations string) {
	s.Helper()
	for _, o := range []map[string]any{s.object, crdschema.AsV1Beta1(s, s.object)} {
		if problems := crdschema.Problems(s, o); len(problems) > 0 {
			s.Fatalf("%s %s: %v\nafter %.2000s", o["apiVersion"], o["kind"], problems, operations)
		}
	}
}

// ensure applies recipe to the object, unless an entry of the user conflicts. A second pass changes nothing.
func (s *stored) ensure(recipe patch.Recipe) {
	s.Helper()
	goal, err := patch.Ensure(s.read().Spec, recipe)
	if err != nil {
		return
	}
	s.write(goal.Edits, recipe.Version)
	if again, err := patch.Ensure(s.read().Spec, recipe); err != nil || len(again.Edits) > 0 {
		s.Fatalf("a second pass has edits %v, error %v", again.Edits, err)
	}
}

// keep removes entries of the user from the lists and leaves managed ones, like a write without webhooks.
func (s *stored) keep(which func() bool) {
	s.Helper()
	spec := api.Locate(s.read().Kind, s.object)
	for _, list := range []patch.List{patch.ListFiles, patch.ListPre, patch.ListPost} {
		entries, _ := spec[string(list)].([]any)
		entries = slices.DeleteFunc(entries, func(entry any) bool {
			alone := map[string]any{string(list): []any{entry}}
			return !patch.IsPatched(api.Spec(alone)) && which()
		})
		if spec[string(list)] = entries; len(entries) == 0 {
			delete(spec, string(list))
		}
	}
}

func TestController_WritesValidObjects(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // for tests
	recipe := func(targets ...contract.Target) patch.Recipe {
		r, err := patch.NewRecipe(patch.Options{
			Targets:    targets,
			SecretName: "one-proxy-files",
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	all, narrow := recipe(contract.Targets()...), recipe(contract.TargetContainerd)
	for _, kind := range []string{plan.KindControlPlane, plan.KindTemplate, plan.KindConfig} {
		for range 15 {
			s := &stored{t, crdschema.Object(random, kind, "v1beta2")}
			s.write(nil, 0)
			original := s.read()
			s.ensure(all)
			s.ensure(narrow)
			s.ensure(all)
			s.write(patch.Remove(s.read().Spec), 0)
			left := s.read()
			if diff := cmp.Diff(original.Spec, left.Spec); diff != "" {
				t.Fatalf("after removal (-before +after):\n%s", diff)
			}
			s.ensure(all)
			s.keep(func() bool { return random.IntN(2) == 0 })
			s.ensure(all)
			s.keep(func() bool { return true })
			s.ensure(all)
			s.write(patch.Remove(s.read().Spec), 0)
			if patch.IsPatched(s.read().Spec) {
				t.Fatal("still patched")
			}
		}
	}
}
