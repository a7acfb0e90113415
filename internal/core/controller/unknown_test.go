package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/backoff"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// unknown is a field of a later version.
const unknown = `"unknown":{"in":1}`

// later is an API server of a later version of Cluster API: its objects, by kind, have fields that types do not know.
type later struct {
	shown

	texts   map[string]string
	refused int
}

func (s *later) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind, err := s.GroupVersionKindFor(into)
	if err != nil {
		return err
	}
	if live, ok := into.(*unstructured.Unstructured); ok {
		err = json.Unmarshal([]byte(s.texts[kind.Kind]), &live.Object)
	} else {
		err = kinds.Decode([]byte(s.texts[kind.Kind]), into)
	}
	if err != nil {
		return err
	}
	into.GetObjectKind().SetGroupVersionKind(kind)
	_, err = kinds.Trim(into)
	return err
}

func (s *later) Patch(_ context.Context, object client.Object, change client.Patch, _ ...client.PatchOption) error {
	kind, err := s.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	data, err := change.Data(object)
	if err != nil {
		return err
	}
	var after []byte
	if before := []byte(s.texts[kind.Kind]); change.Type() == types.JSONPatchType {
		operations, decodeErr := jsonpatch.DecodePatch(data)
		if decodeErr != nil {
			return decodeErr
		}
		after, err = operations.Apply(before)
	} else {
		after, err = jsonpatch.MergePatch(before, data)
	}
	if err != nil {
		s.refused++
		return apierrors.NewGenericServerResponse(422, "patch", schema.GroupResource{}, object.GetName(), err.Error(), 0, false)
	}
	version := `"resourceVersion":"` + object.GetResourceVersion()
	after = []byte(strings.Replace(string(after), version, version+"0", 1))
	s.texts[kind.Kind] = string(after)
	return kinds.Decode(after, object)
}

// TestWrite_LosesNothingUnknown adds entries and removes them where later fields are all that a parent holds, which
// the controller sees as absent.
func TestWrite_LosesNothingUnknown(t *testing.T) {
	t.Parallel()
	recipe, err := patch.NewRecipe(patch.Options{Targets: contract.Targets(), SecretName: "s"})
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for kind, specs := range map[string][]string{
		plan.KindControlPlane: {`{%s}`, `{"kubeadmConfigSpec":{%s}}`, `{"version":"v1","kubeadmConfigSpec":{%s}}`},
		plan.KindTemplate:     {`{%s}`, `{"template":{%s}}`, `{"template":{"spec":{%s}}}`, `{"template":{%[1]s,"spec":{%[1]s}},%[1]s}`},
		plan.KindConfig:       {`{%s}`},
	} {
		for _, spec := range specs {
			before := `{"metadata":{"namespace":"team","name":"one","uid":"u","resourceVersion":"7",` + unknown + `},"spec":` +
				fmt.Sprintf(spec, unknown) + `}`
			s := &later{texts: map[string]string{kind: before}}
			w := &Writer{Client: backoff.New(s, s, noon), Live: s}
			for _, want := range []Change{Added, Removed} {
				object := kinds.NewBootstrapObject(kind)
				if err := s.Get(t.Context(), client.ObjectKey{}, object); err != nil {
					t.Fatal(err)
				}
				o := NewObject(object, kind, false)
				decision := plan.Decision{Edits: patch.Remove(o.Spec)}
				if want == Added {
					ensured, err := patch.Ensure(o.Spec, recipe)
					if err != nil {
						t.Fatal(err)
					}
					decision = plan.Decision{Edits: ensured.Edits, Recipe: &recipe, Version: 1}
				}
				if _, got, err := w.Write(t.Context(), o, decision); err != nil || got != want {
					t.Errorf("%s: change %d, %v", s.texts[kind], got, err)
				}
			}
			refused += s.refused
			if after := s.texts[kind]; strings.Count(after, unknown) != strings.Count(before, unknown) || strings.Contains(after, "files") {
				t.Errorf("%s has become %s", before, after)
			}
		}
	}
	if refused == 0 {
		t.Error("no patch was refused")
	}
}

// TestRollOut_LosesNothingUnknown sets the time in parts of a topology that have later fields only.
func TestRollOut_LosesNothingUnknown(t *testing.T) {
	t.Parallel()
	const (
		metadata = `{"metadata":{"namespace":"team","name":"one","uid":"u","resourceVersion":"7","labels":{"` +
			clusterv1.ClusterTopologyOwnedLabel + `":"","` + clusterv1.ClusterTopologyMachineDeploymentNameLabel + `":"md"},` + unknown + `}`
		set = `"after":"2026-01-01T12:00:00Z"`
	)
	for _, parts := range [][2]string{
		{``, `{"name":"md"}`},
		{`"controlPlane":{%s},`, `{"name":"md",%s}`},
		{`"controlPlane":{"rollout":{%s}},`, `{"name":"md","rollout":{%s}}`},
		{`"controlPlane":{"rollout":{%[1]s},%[1]s},%[1]s,`, `{"name":"md","rollout":{%[1]s},%[1]s},{%[1]s}`},
		{`"controlPlane":{"rollout":{"after":"2020-01-01T00:00:00Z",%s}},`, `{"name":"md","rollout":{"after":"2020-01-01T00:00:00Z",%s}}`},
	} {
		for _, kind := range []string{plan.KindControlPlane, settings.KindMachineDeployment} {
			topology := strings.ReplaceAll(parts[0]+`"workers":{"machineDeployments":[`+parts[1]+`]}`, `%s`, `%[1]s`)
			before := metadata + `,"spec":{"topology":{"classRef":{"name":"c"},` + fmt.Sprintf(topology+`%.0[1]s`, unknown) + `}}}`
			s := &later{texts: map[string]string{"Cluster": before, kind: metadata + `}`}}
			cluster := &clusterv1.Cluster{}
			if err := s.Get(t.Context(), client.ObjectKey{}, cluster); err != nil {
				t.Fatal(err)
			}
			c := rollingController(&s.shown, nil)
			c.Client, c.reader = s, Reader{Client: s}
			done, err := c.replace(t.Context(), &Pass{Cluster: cluster, current: true},
				behind{Group: outdated.Group{Kind: kind, Name: "g"}, replaceable: noon().Add(-time.Hour)})
			if after := s.texts["Cluster"]; err != nil || !done || !strings.Contains(after, set) ||
				strings.Count(after, unknown) != strings.Count(before, unknown) {
				t.Errorf("done %v, error %v: %s has become %s", done, err, before, after)
			}
		}
	}
}
