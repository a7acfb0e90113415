package hooks

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
)

func seeds(f *testing.F) {
	f.Helper()
	q, err := hookrequests.Generate(hookrequests.Options{Pools: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(q.Items[3].Object.Raw)
	for _, text := range []string{
		`{}`, `{"spec":{"template":{"spec":{}}}}`, `{"spec":{"template":{"spec":{"files":[],"preKubeadmCommands":null,"postKubeadmCommands":["a"]}}}}`,
		`{"spec":{"template":{"spec":{"files":[{"path":"/etc/capi-proxy-patcher/setup.sh","content":"#!/bin/sh\n# Managed by capi-proxy-patcher\n"}]}}}}`,
		`{"spec":{"template":{"spec":{"files":[{"path":"a","path":"b","content":1,"contentFrom":{"secret":{"name":"x"},"secret":{"key":"y"}}},null,[],1]}}}}`,
		`{"spec":{"template":{"spec":{"joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":{"windows-a":"b"},"criSocket":"npipe:x"}}}}}}`,
		`{"spec":{"template":{"spec":{"files":[1]}},"template":{"spec":{"preKubeadmCommands":["b"]}}},"spec":{"template":[]}}`,
		`{"spec":{"template":{"spec":{"preKubeadmCommands":["set -a; . /etc/capi-proxy-patcher/proxy.env; set +a # capi-proxy-patcher","x\u0000","{{y}}","$(z)"]}}}}`,
	} {
		f.Add([]byte(text))
	}
}

// FuzzGenerate feeds templates to the handler: it never panics, what it answers applies, a second call changes nothing,
// and without our entries the template says what it said.
func FuzzGenerate(f *testing.F) {
	seeds(f)
	base, err := hookrequests.Generate(hookrequests.Options{Pools: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var o map[string]any
		if json.Unmarshal(text, &o) != nil || o == nil {
			return
		}
		o["apiVersion"], o["kind"] = "bootstrap.cluster.x-k8s.io/v1beta2", "KubeadmConfigTemplate"
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		q := *base
		q.Items = slices.Clone(base.Items)
		ask := func(raw []byte) []byte {
			q.Items[3].Object.Raw = raw
			response := respond(t, &Handlers{}, &q)
			for _, it := range response.Items {
				if it.UID == q.Items[3].UID {
					return it.Patch
				}
			}
			if response.Message != "" {
				t.Fatal(response.Message)
			}
			return nil
		}
		made := ask(text)
		if made == nil {
			return
		}
		decoded, err := jsonpatch.DecodePatch(made)
		if err != nil {
			t.Fatal(err)
		}
		patched, err := decoded.Apply(text)
		if err != nil {
			t.Fatalf("%v: %s to %s", err, made, text)
		}
		if again := ask(patched); again != nil {
			t.Fatalf("a second call patches %s with %s", patched, again)
		}
		before := api.Locate(plan.KindTemplate, o)
		var p map[string]any
		if err := json.Unmarshal(patched, &p); err != nil {
			t.Fatal(err)
		}
		after := api.Locate(plan.KindTemplate, p)
		if diff := cmp.Diff(patch.Own(before), patch.Own(after), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-before +after):\n%s", diff)
		}
	})
}

// FuzzBody feeds whole requests to the handler: it never panics, and answers the same again.
func FuzzBody(f *testing.F) {
	for _, o := range []hookrequests.Options{
		{Pools: 1},
		{Pools: 1, Unlabelled: true},
		{MachinePools: 1, Variable: `{"secretName":"x"}`, EverySecond: `{}`},
		{Variable: `{"targets":["trust"]}`},
	} {
		q, err := hookrequests.Generate(o)
		if err != nil {
			f.Fatal(err)
		}
		body, err := json.Marshal(q)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add([]byte(
		`{"variables":[{"name":"builtin","value":{"cluster":{"metadata":{"labels":{"capi-proxy-patcher.io/enabled":"true"}}}}}],"items":[{"uid":"a","uid":1,"holderReference":{"kind":"MachinePool","fieldPath":"spec.template.spec.bootstrap.configRef"},"object":{"kind":"KubeadmConfigTemplate","apiVersion":"bootstrap.cluster.x-k8s.io/v1"}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var q runtimehooksv1.GeneratePatchesRequest
		if json.Unmarshal(body, &q) != nil {
			return
		}
		h := &Handlers{}
		first := encoded(t, respond(t, h, &q))
		if !bytes.Equal(first, encoded(t, respond(t, h, &q))) {
			t.Fatalf("%s", first)
		}
	})
}
