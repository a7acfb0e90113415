package crdschema_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/crdschema"
)

func TestCheck_AcceptsGeneratedObjects(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // for tests
	for _, kind := range []string{
		"KubeadmControlPlane", "KubeadmControlPlaneTemplate", "KubeadmConfigTemplate",
		"KubeadmConfig",
	} {
		for range 50 {
			object := crdschema.Object(random, kind, "v1beta2")
			for _, o := range []map[string]any{
				object, crdschema.AsV1Beta1(t, object),
				crdschema.Object(random, kind, "v1beta1"),
			} {
				if problems := crdschema.Problems(t, o); len(problems) > 0 {
					t.Fatalf("%v: %v", o, problems)
				}
			}
		}
	}
}

func TestProblems_NamesWhatTheAPIServerRefuses(t *testing.T) {
	t.Parallel()
	of := func(spec map[string]any) map[string]any {
		return map[string]any{"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "kind": "KubeadmConfig", "spec": spec}
	}
	for want, spec := range map[string]map[string]any{
		"should have at least 1 items":           {"postKubeadmCommands": []any{}},
		"should have at most 200 items":          {"files": make([]any, 201)},
		"should be at most 10240 chars long":     {"preKubeadmCommands": []any{strings.Repeat("x", 10241)}},
		"should have at least 1 properties":      {},
		"must be of type array":                  {"files": "text"},
		"spec.files[0].path in body is required": {"files": []any{map[string]any{"content": "x"}}},
	} {
		if got := strings.Join(crdschema.Problems(t, of(spec)), "\n"); !strings.Contains(got, want) {
			t.Errorf("%.80v: got %q, want %q", spec, got, want)
		}
	}
}
