package hooks

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/crdschema"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
)

func TestGenerate_AnswersAreValid(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // for tests
	for _, version := range []string{"v1beta1", "v1beta2"} {
		for range 15 {
			controlPlane := encoded(t, crdschema.Object(random, "KubeadmControlPlaneTemplate", version))
			worker := encoded(t, crdschema.Object(random, "KubeadmConfigTemplate", version))
			for _, targets := range []string{
				"", `{"targets":["containerd"]}`, `{"targets":["trust"]}`,
				`{"targets":["commands"]}`,
			} {
				q := with(t, hookrequests.Options{Variable: targets}, controlPlane, worker)
				patched := apply(t, q, respond(t, &Handlers{}, q))
				controlPlane, worker = patched[string(q.Items[1].UID)], patched[string(q.Items[3].UID)]
				for _, text := range [][]byte{controlPlane, worker} {
					o := object(t, text)
					if problems := crdschema.Problems(t, o); len(problems) > 0 {
						t.Fatalf("%s %s with %s: %s", o["apiVersion"], o["kind"], targets, strings.Join(problems, ", "))
					}
				}
				q = with(t, hookrequests.Options{Variable: targets}, controlPlane, worker)
				if again := respond(t, &Handlers{}, q); len(again.Items) > 0 {
					t.Fatalf("a second call has %d patches", len(again.Items))
				}
			}
		}
	}
}
