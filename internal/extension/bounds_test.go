package extension

import (
	"bytes"
	"context"
	"strings"
	"testing"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
)

func TestRespond_RefusesMoreTemplatesThanAClusterCanHave(t *testing.T) {
	t.Parallel()
	for count, want := range map[int]string{
		20_000: "",
		20_001: "reading the request: it has more than 20000 templates; split the pools of the Cluster among several Clusters",
	} {
		body := []byte(`{"items":[` + strings.TrimSuffix(strings.Repeat("{},", count), ",") + `]}`)
		for name, respond := range map[string]directHandler{
			"GeneratePatches":  (&Handlers{}).respond,
			"ValidateTopology": (&Handlers{}).respondValidate,
		} {
			err := respond(t.Context(), body, &bytes.Buffer{})
			if (err == nil) != (want == "") || err != nil && err.Error() != want {
				t.Errorf("%s, %d templates: %v", name, count, err)
			}
		}
	}
}

func TestRespond_RefusesMoreVariablesThanAClusterCanHave(t *testing.T) {
	t.Parallel()
	for pools, want := range map[int]string{ // of 1 MiB, the most that one may have
		4: "",
		5: "spec.topology.workers: the variables capiProxyPatcher of all pools have more than 4 MiB together; shorten their lists",
	} {
		item := `{"uid":"x","holderReference":{"kind":"MachineDeployment","fieldPath":"spec.template.spec.bootstrap.configRef"},` +
			`"object":{"apiVersion":"bootstrap.cluster.x-k8s.io/v1beta2","kind":"KubeadmConfigTemplate"},"variables":[{"name":"capiProxyPatcher",` +
			`"value":{` + strings.Repeat(" ", 1<<20-2) + `}}]}`
		body := []byte(`{"variables":[{"name":"builtin","value":{"cluster":{"name":"c","metadata":{"labels":{"capi-proxy-patcher.io/enabled":` +
			`"true"}}}}}],"items":[` + strings.Repeat(item+",", pools-1) + item + `]}`)
		for name, respond := range map[string]directHandler{
			"GeneratePatches":  (&Handlers{}).respond,
			"ValidateTopology": (&Handlers{}).respondValidate,
		} {
			err := respond(t.Context(), body, &bytes.Buffer{})
			if (err == nil) != (want == "") || err != nil && err.Error() != want {
				t.Errorf("%s, %d pools: %v", name, pools, err)
			}
		}
	}
}

func TestRespond_BoundsItsAnswer(t *testing.T) {
	t.Parallel()
	// Small templates without anything of their own get answers that are many times their size.
	item := `{"uid":"x","holderReference":{"kind":"MachineDeployment","fieldPath":"spec.template.spec.bootstrap.configRef"},` +
		`"object":{"apiVersion":"bootstrap.cluster.x-k8s.io/v1beta2","kind":"KubeadmConfigTemplate"}}`
	// So does a name of the Cluster, which is in each of them three times.
	body := []byte(`{"variables":[{"name":"builtin","value":{"cluster":{"name":"` + strings.Repeat("c", 253) +
		`","metadata":{"labels":{"capi-proxy-patcher.io/enabled":"true"}}}}}],"items":[` +
		strings.Repeat(item+",", 5000) + item + `]}`)
	var response bytes.Buffer
	err := (&Handlers{}).respond(t.Context(), body, &response)
	if err == nil || !strings.HasPrefix(err.Error(), "the response would have more than ") ||
		response.Len() > maxAnswer(len(body)) {
		t.Errorf("%d bytes for %d, %v", response.Len(), len(body), err)
	}
}

func TestRespond_StopsWhenNobodyWaits(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&Handlers{}).respond(ctx, bodyOf(t, hookrequests.Options{Pools: 3}), &bytes.Buffer{}); err == nil ||
		err.Error() != errTooLong.Error() {
		t.Errorf("%v", err)
	}
}

func TestRespond_DecodesNoTemplateOfMillionsOfValues(t *testing.T) {
	t.Parallel()
	list := func(values int) string { return "[" + strings.TrimSuffix(strings.Repeat("{},", values/2), ",") + "]" }
	const bootstrap = `{"apiVersion":"bootstrap.cluster.x-k8s.io/v1beta2","kind":"KubeadmConfigTemplate","spec":{"template":{"spec":{"files":`
	for name, test := range map[string]struct {
		item   int
		object string
		want   string
	}{
		"a bootstrap template":             {3, bootstrap + list(maxValues) + `}}}}`, "reading the spec.template.spec.bootstrap.configRef of MachineDeployment: it has more than 50000 values"},
		"a machine template":               {4, `{"spec":{"os":` + list(maxValues) + `}}`, "reading the spec.template.spec.infrastructureRef of MachineDeployment: it has more than 50000 values"},
		"as many as the API server takes":  {3, bootstrap + list(maxValues-100) + `}}}}`, ""},
		"a machine template that is usual": {4, `{"spec":{"os":` + list(maxValues-100) + `}}`, ""},
		"one that names no system":         {4, `{"spec":{"tags":` + list(2*maxValues) + `}}`, ""},
		"what is not decoded":              {0, list(2 * maxValues), ""},
	} {
		q := generated(t, hookrequests.Options{Pools: 1})
		q.Items[test.item].Object.Raw = []byte(test.object)
		response := respond(t, &Handlers{}, q)
		if response.Message != test.want || (response.Status == runtimehooksv1.ResponseStatusSuccess) != (test.want == "") {
			t.Errorf("%s: %s %q", name, response.Status, response.Message)
		}
	}
}
