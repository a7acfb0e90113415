package check_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/check"
)

// class has the Cluster of the world a ClusterClass, whose status is given, and an ExtensionConfig with a status; "" is none.
func (w *world) class(t *testing.T, class, extension string) {
	t.Helper()
	w.cluster().Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "quick-start"}, Version: "v1.36.3"}
	for name, text := range map[string]string{
		"class":     `{apiVersion: cluster.x-k8s.io/v1beta2, kind: ClusterClass, metadata: {name: quick-start, namespace: team-a}, status: ` + class + `}`,
		"extension": `{apiVersion: runtime.cluster.x-k8s.io/v1beta2, kind: ExtensionConfig, metadata: {name: ours}, spec: {clientConfig: {service: {name: capi-proxy-patcher-hooks}}}, status: ` + extension + `}`,
	} {
		if strings.Contains(text, "status: }") {
			continue
		}
		w.objects[name] = decoded(t, text)
	}
}

func (w *world) cluster() *clusterv1.Cluster {
	cluster, _ := w.objects["cluster"].(*clusterv1.Cluster)
	return cluster
}

// decoded returns an object of YAML, as its type if the world has that.
func decoded(t *testing.T, text string) client.Object {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	if object.GetKind() != "ClusterClass" {
		return object
	}
	raw, err := json.Marshal(object.Object)
	typed := &clusterv1.ClusterClass{}
	if err = errors.Join(err, json.Unmarshal(raw, typed)); err != nil {
		t.Fatal(err)
	}
	return typed
}

// TestRun_KnowsWhatClusterClassesNeed has a labelled Cluster with a ClusterClass, for which Cluster API calls the hooks.
func TestRun_KnowsWhatClusterClassesNeed(t *testing.T) {
	t.Parallel()
	const (
		ready      = `{conditions: [{type: VariablesReady, status: "True"}]}`
		discovered = `{conditions: [{type: Discovered, status: "True"}]}`
	)
	for name, test := range map[string]struct {
		class, extension string
		other            string // status of an ExtensionConfig of somebody else
		args             []string
		check            string
		want             string // status: message
	}{
		"hooks that Cluster API has found": {ready, discovered, "", nil, "hooks", "ok: ExtensionConfig ours is discovered"},
		"hooks that do not answer": {
			ready, `{conditions: [{type: Other, status: "True"}, {type: Discovered, status: "False", reason: NotDiscovered, message: x509}]}`, "", nil,
			"hooks", "failed: ExtensionConfig ours is not discovered: NotDiscovered x509",
		},
		"no hooks":      {ready, "", "", nil, "hooks", "failed: a labelled Cluster has ClusterClass team-a/quick-start, and no ExtensionConfig"},
		"a ready class": {ready, discovered, "", nil, "cluster-classes", "ok: VariablesReady: 1"},
		"a class that is not ready": {
			`{conditions: [{type: VariablesReady, status: "False", reason: VariableDiscoveryFailed, message: x509}]}`, discovered, "", nil,
			"cluster-classes", "failed: 1 of 1: ClusterClass team-a/quick-start is not VariablesReady: VariableDiscoveryFailed x509",
		},
		"a class without conditions": {"{}", discovered, "", nil, "cluster-classes", "failed: 1 of 1: ClusterClass team-a/quick-start is not VariablesReady: Cluster API has not"},
		"no class":                   {"", discovered, "", nil, "cluster-classes", "failed: 1 of 1: ClusterClass team-a/quick-start of a labelled Cluster does not exist"},
		"a gate is off":              {ready, discovered, "", []string{"--feature-gates=ClusterTopology=true"}, "feature-gates", "failed: a labelled Cluster has a ClusterClass, and Cluster API runs without feature gate RuntimeSDK"},
		"another extension":          {ready, discovered, discovered, nil, "other-extensions", "ok: "},
		"another that does not answer": {
			ready, discovered, `{conditions: [{type: Discovered, status: "False"}]}`, nil,
			"other-extensions", "failed: ExtensionConfig theirs is not discovered",
		},
		"another about proxies": {
			ready, discovered, `{conditions: [{type: Discovered, status: "True"}], handlers: [{name: httpProxy.theirs}]}`, nil,
			"other-extensions", "warning: handler httpProxy.theirs of another extension is about proxies",
		},
		"no witness of the webhooks": {ready, discovered, "", nil, "admission", "skipped: no labelled Cluster without a ClusterClass has the proxy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class(t, test.class, test.extension)
			if test.other != "" {
				w.objects["other"] = decoded(t, `{apiVersion: runtime.cluster.x-k8s.io/v1beta2, kind: ExtensionConfig, metadata: {name: theirs}, status: `+test.other+`}`)
			}
			if test.args != nil {
				w.deployment("core").Spec.Template.Spec.Containers[0].Args = test.args
			}
			o := w.options(t)
			got := resultsOf(check.Run(t.Context(), o))[test.check]
			if text := string(got.Status) + ": " + got.Message; !strings.HasPrefix(text, test.want) {
				t.Errorf("got %q, want %q", text, test.want)
			}
			if got.Status != check.Failed || !strings.Contains(got.Message, "ClusterClass") {
				return
			}
			o.Cluster = client.ObjectKey{}
			if of := resultsOf(check.Run(t.Context(), o))[test.check]; of.Status != check.Warning || of.Message != got.Message {
				t.Errorf("of somebody else's Cluster: %s: %s", of.Status, of.Message)
			}
		})
	}
}
