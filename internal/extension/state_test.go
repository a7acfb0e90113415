package extension

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
)

// proxies are URLs by the name of their Secret; "" is the Cluster's own.
type proxies map[string]string

func (p proxies) ReadSecret(_ context.Context, name types.NamespacedName) (*resolve.Secret, error) {
	key := name.Name
	if key == contract.DefaultSecretName {
		key = ""
	}
	url, found := p[key]
	if !found {
		return nil, nil //nolint:nilnil // the interface says so
	}
	return &resolve.Secret{Name: name, Data: map[string][]byte{contract.KeyHTTPProxy: []byte(url)}}, nil
}

// stateOf is a management cluster with some Secrets and at most one Cluster.
func stateOf(secrets resolve.SecretReader, cluster *clusterv1.Cluster) ManagementCluster {
	reader := clusters{cluster: cluster, reads: new(int)}
	return ManagementCluster{Cached: reader, Live: reader, Resolver: resolve.Resolver{Secrets: secrets}}
}

// storedCluster is the Cluster that a request for a topology is about.
func storedCluster(o hookrequests.Options, endpoint string) *clusterv1.Cluster {
	variables := func(value string) []clusterv1.ClusterVariable {
		if value == "" {
			return nil
		}
		return []clusterv1.ClusterVariable{{Name: contract.VariableName, Value: apiextensionsv1.JSON{Raw: []byte(value)}}}
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: "cluster-0000",
		Annotations: o.Annotations,
	}}
	if !o.Unlabelled {
		cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	}
	cluster.Spec.ControlPlaneEndpoint.Host = endpoint
	cluster.Spec.Topology.Variables = variables(o.Variable)
	for i := range o.Pools {
		pool := clusterv1.MachineDeploymentTopology{Name: fmt.Sprintf("pool-%03d", i)}
		pool.Metadata.Annotations = o.PoolAnnotations[i]
		pool.Variables.Overrides = variables(o.Overrides[i])
		cluster.Spec.Topology.Workers.MachineDeployments = append(cluster.Spec.Topology.Workers.MachineDeployments, pool)
	}
	return cluster
}

func TestInline_WritesWhatTheClassicPathWrites(t *testing.T) {
	t.Parallel()
	o := hookrequests.Options{
		Pools: 3, Variable: `{"delivery":"Inline","noProxy":["x.example.com"]}`,
		Overrides: map[int]string{1: `{"secretName":"other"}`, 2: `{"secretName":"none"}`},
	}
	state := stateOf(proxies{"": "http://proxy.example.com:3128", "other": "http://other.example.com:3128"},
		storedCluster(o, "10.0.0.10"))
	q := generated(t, o)
	objects := apply(t, q, respond(t, &Handlers{State: state}, q))
	for i, test := range map[int]struct {
		parents []string
		proxy   string
	}{
		1: {controlPlaneParents(), "http://proxy.example.com:3128"}, 3: {poolParents(), "http://proxy.example.com:3128"},
		5: {poolParents(), "http://other.example.com:3128"},
	} {
		settings, err := proxyconfig.Parse(map[string][]byte{contract.KeyHTTPProxy: []byte(test.proxy)})
		if err != nil {
			t.Fatal(err)
		}
		got := patch.SpecOfMap(specAt(object(t, objects[string(q.Items[i].UID)]), test.parents))
		noProxy := ""
		for _, command := range got.PreKubeadmCommands {
			if value, found := strings.CutPrefix(command, "export NO_PROXY='"); found {
				noProxy, _, _ = strings.Cut(value, "'")
			}
		}
		if !strings.Contains(noProxy, "10.0.0.10") || !strings.HasSuffix(noProxy, "x.example.com,.x.example.com") {
			t.Errorf("item %d: NO_PROXY %q", i, noProxy)
		}
		recipe, err := patch.NewRecipe(patch.Options{
			Delivery: contract.DeliveryInline, Targets: contract.Targets(),
			Settings: settings, NoProxy: noProxy,
		})
		if err != nil {
			t.Fatal(err)
		}
		before := patch.SpecOfMap(specAt(object(t, q.Items[i].Object.Raw), test.parents))
		plan, err := patch.Ensure(before, recipe)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(patch.Apply(before, plan.Edits), got); diff != "" {
			t.Errorf("item %d (-classic +got):\n%s", i, diff)
		}
	}
	if got := objects[string(q.Items[7].UID)]; !slices.Equal(got, q.Items[7].Object.Raw) {
		t.Error("a pool without the proxy is patched")
	}
}

func TestInline_Waits(t *testing.T) {
	t.Parallel()
	inline := hookrequests.Options{Pools: 1, Variable: `{"delivery":"Inline"}`}
	missing := respond(t, &Handlers{State: stateOf(proxies{}, storedCluster(inline, ""))}, generated(t, inline))
	if want := "neither Secret team-a/cluster-0000-http-proxy nor team-a/http-proxy exists; create one of them or name another in annotation capi-proxy-patcher.io/secret"; missing.Message != want || missing.Status != runtimehooksv1.ResponseStatusFailure {
		t.Errorf("%s %q, want %q", missing.Status, missing.Message, want)
	}
	credentials := respond(t,
		&Handlers{State: stateOf(proxies{"": "http://u:s3cret@p:1"}, storedCluster(inline, "x.example.com"))},
		generated(t, inline))
	if credentials.Status != runtimehooksv1.ResponseStatusFailure ||
		!strings.Contains(credentials.Message, "credentials") || strings.Contains(credentials.Message, "s3cret") {
		t.Errorf("%s %q", credentials.Status, credentials.Message)
	}

	h := &Handlers{State: stateOf(proxies{"": "http://p:1"}, storedCluster(inline, ""))}
	const controlPlane = `{"apiVersion":"controlplane.cluster.x-k8s.io/v1beta2","kind":"KubeadmControlPlaneTemplate"`
	const pool = `{"apiVersion":"bootstrap.cluster.x-k8s.io/v1beta2","kind":"KubeadmConfigTemplate"`
	want := map[string]any{clusterv1.PausedAnnotation: contract.PausedForEndpoint}
	for name, test := range map[string]struct {
		metadata string
		want     map[string]any
	}{
		"no metadata":             {``, want},
		"metadata of null":        {`"metadata":null,`, want},
		"no annotations":          {`"metadata":{"labels":{}},`, want},
		"annotations of null":     {`"metadata":{"annotations":null},`, want},
		"annotations":             {`"metadata":{"annotations":{"a":"b"}},`, map[string]any{"a": "b", clusterv1.PausedAnnotation: contract.PausedForEndpoint}},
		"a pause of the user's":   {`"metadata":{"annotations":{"cluster.x-k8s.io/paused":""}},`, map[string]any{clusterv1.PausedAnnotation: ""}},
		"metadata after the spec": {``, want},
	} {
		rest := `,"spec":{"template":{` + test.metadata + `"spec":{}}}}`
		q := with(t, inline, []byte(controlPlane+rest), []byte(pool+rest))
		objects := apply(t, q, respond(t, h, q))
		for _, i := range []int{1, 3} {
			got := object(t, objects[string(q.Items[i].UID)])
			metadata, _ := specAt(got, []string{"/spec", "/template", "/metadata"})["annotations"].(map[string]any)
			if diff := cmp.Diff(test.want, metadata); diff != "" {
				t.Errorf("%s, item %d (-want +got):\n%s", name, i, diff)
			}
			if spec := specAt(got, []string{"/spec", "/template", "/spec"}); len(spec) > 0 {
				t.Errorf("%s, item %d: a spec is patched without the endpoint: %v", name, i, spec)
			}
		}
	}
	three := hookrequests.Options{
		Pools: 3, Variable: `{"delivery":"Inline"}`,
		Overrides: map[int]string{1: `{"secretName":"none"}`},
	}
	h = &Handlers{State: stateOf(proxies{"": "http://p:1"}, storedCluster(three, ""))}
	q := generated(t, three)
	q.Items[3].Object.Raw = []byte(pool + `,"spec":{"template":{"spec":{"files":[{"path":"C:/k/init.ps1"}]}}}}`)
	var held []types.UID
	for _, item := range respond(t, h, q).Items {
		held = append(held, item.UID)
	}
	if want := []types.UID{q.Items[1].UID, q.Items[7].UID}; !slices.Equal(held, want) {
		t.Errorf("patches of %v, want %v: not those of a Windows pool, and of one without the proxy", held, want)
	}
	for kind, without := range map[string][2]string{
		"control plane": {controlPlane + `}`, `{}`},
		"pool":          {`{}`, pool + `}`},
	} {
		q = with(t, inline, []byte(without[0]), []byte(without[1]))
		if response := respond(t, h, q); response.Status != runtimehooksv1.ResponseStatusFailure {
			t.Errorf("a %s that cannot be held back: %s", kind, response.Status)
		}
	}
}

func TestValidateTopology(t *testing.T) {
	t.Parallel()
	state := proxies{"corp": "http://p:1", "broken": "p:1"}
	for name, test := range map[string]struct {
		state   resolve.SecretReader
		options hookrequests.Options
		want    string // beginning of the message
	}{
		"nothing said":                          {nil, hookrequests.Options{Pools: 1}, ""},
		"an unlabelled Cluster":                 {nil, hookrequests.Options{Unlabelled: true, Variable: `{"delivery":"x"}`}, ""},
		"an unknown Secret, without look":       {nil, hookrequests.Options{Variable: `{"secretName":"gone"}`}, ""},
		"an unknown Secret":                     {state, hookrequests.Options{Variable: `{"secretName":"gone"}`}, "Secret team-a/gone does not exist; "},
		"an unknown Secret in an annotation":    {state, hookrequests.Options{Annotations: map[string]string{contract.AnnotationSecret: "gone"}}, "Secret team-a/gone does not exist; "},
		"a known Secret":                        {state, hookrequests.Options{Variable: `{"secretName":"corp"}`}, ""},
		"a Secret that cannot be used":          {state, hookrequests.Options{Variable: `{"secretName":"broken"}`}, "Secret team-a/broken, key httpProxy: "},
		"no Secret by any of the default names": {state, hookrequests.Options{}, ""},
		"unknown Secrets of pools, each once": {
			state,
			hookrequests.Options{Pools: 3, Overrides: map[int]string{
				0: `{"secretName":"b"}`, 1: `{"secretName":"a"}`,
				2: `{"secretName":"b"}`,
			}},
			"MachineDeployment pool-000: Secret team-a/b does not exist; create it or change annotation capi-proxy-patcher.io/secret; MachineDeployment pool-001: Secret team-a/a does not exist; create it or change annotation capi-proxy-patcher.io/secret",
		},
		"overrides that contradict, all at once": {
			nil,
			hookrequests.Options{
				Pools: 1, MachinePools: 1,
				Overrides: map[int]string{0: `{"delivery":"Inline"}`, 1: `{"noProxy":["x"]}`},
			},
			"spec.topology.workers.machineDeployments[pool-000].variables.overrides[capiProxyPatcher].delivery: differs from the Cluster's value; a Cluster has one; remove the field from the override; " +
				"spec.topology.workers.machinePools[pool-001].variables.overrides[capiProxyPatcher].noProxy: differs from the Cluster's value; a Cluster has one; remove the field from the override",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &Handlers{}
			if test.state != nil {
				h.State = stateOf(test.state, storedCluster(test.options, ""))
			}
			response := validate(t, h, generated(t, test.options))
			failed := response.Status == runtimehooksv1.ResponseStatusFailure
			if failed != (test.want != "") || !strings.HasPrefix(response.Message, test.want) || !failed &&
				response.Status != runtimehooksv1.ResponseStatusSuccess {
				t.Errorf("%s %q, want %q", response.Status, response.Message, test.want)
			}
		})
	}
	if response := string(answer(t, (&Handlers{}).respondValidate,
		[]byte(`{"items":[null]}`))); response != `{"status":"Success"}` {
		t.Errorf("an empty request: %s", response)
	}
}

func TestHandlers_RefuseLabelledClustersOfOtherNamespaces(t *testing.T) {
	t.Parallel()
	const want = "this manager serves only --namespace team-b, not Cluster team-a/cluster-0000; exclude its namespace in the namespaceSelector of the ExtensionConfig"
	h := &Handlers{State: stateOf(proxies{}, nil), Scope: intent.Scope{Namespace: "team-b"}}
	q := generated(t, hookrequests.Options{Pools: 1})
	if response := respond(t, h, q); response.Status != runtimehooksv1.ResponseStatusFailure || response.Message != want {
		t.Errorf("GeneratePatches: %s %q", response.Status, response.Message)
	}
	validated := validate(t, h, q)
	if validated.Message != want {
		t.Errorf("ValidateTopology: %s %q", validated.Status, validated.Message)
	}
	create := &runtimehooksv1.BeforeClusterCreateRequest{Cluster: clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: "one", Labels: map[string]string{contract.LabelEnabled: "true"},
		CreationTimestamp: metav1.Now(),
	}}}
	created := beforeCreate(t, h, create)
	if created.RetryAfterSeconds != 0 || created.Message != "" {
		t.Errorf("BeforeClusterCreate: %q", created.Message)
	}
	for name, answered := range map[string]*runtimehooksv1.GeneratePatchesResponse{
		"an unlabelled Cluster": respond(t, h, generated(t, hookrequests.Options{Pools: 1, Unlabelled: true})),
		"its own namespace":     respond(t, &Handlers{Scope: intent.Scope{Namespace: "team-a"}}, q),
	} {
		if answered.Status != runtimehooksv1.ResponseStatusSuccess {
			t.Errorf("%s: %s %q", name, answered.Status, answered.Message)
		}
	}
}

func TestHandlers_RefuseLabelledClustersOfOtherFilters(t *testing.T) {
	t.Parallel()
	const want = `this manager serves only --watch-filter blue, not Cluster team-a/cluster-0000 with cluster.x-k8s.io/watch-filter "%s"; in its ClusterClass name the hooks of the manager that serves it`
	blue := &Handlers{Scope: intent.Scope{WatchFilter: "blue"}}
	for label, message := range map[string]string{"blue": "", "green": fmt.Sprintf(want, "green"), "": fmt.Sprintf(want, "")} {
		q := generated(t, hookrequests.Options{Pools: 1})
		labels := map[string]string{contract.LabelEnabled: "true"}
		if label != "" {
			labels[clusterv1.WatchLabel] = label
			for i := range q.Variables {
				q.Variables[i].Value.Raw = bytes.Replace(q.Variables[i].Value.Raw, []byte(`"capi-proxy-patcher.io/enabled":"true"`),
					[]byte(`"capi-proxy-patcher.io/enabled":"true","cluster.x-k8s.io/watch-filter":"`+label+`"`), 1)
			}
		}
		if got := respond(t, blue, q); got.Message != message || (len(got.Items) > 0) != (message == "") {
			t.Errorf("%q: GeneratePatches answers %q with %d items", label, got.Message, len(got.Items))
		}
		if got := validate(t, blue, q); got.Message != message {
			t.Errorf("%q: ValidateTopology answers %q", label, got.Message)
		}
		create := &runtimehooksv1.BeforeClusterCreateRequest{Cluster: clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "one", Labels: labels, CreationTimestamp: metav1.Now(),
		}}}
		holds := &Handlers{
			Scope: blue.Scope, State: stateOf(proxies{}, &create.Cluster), MaxWait: time.Hour,
			Now: func() time.Time { return create.Cluster.CreationTimestamp.Time },
		}
		if got := beforeCreate(t, holds, create); (got.RetryAfterSeconds > 0) != (label == "blue") {
			t.Errorf("%q: BeforeClusterCreate answers %q", label, got.Message)
		}
	}
	unlabelled := respond(t, blue, generated(t, hookrequests.Options{Pools: 1, Unlabelled: true}))
	if unlabelled.Status != runtimehooksv1.ResponseStatusSuccess {
		t.Errorf("an unlabelled Cluster: %q", unlabelled.Message)
	}
}

func TestBeforeClusterCreate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	good := proxies{"": "http://p:1", "corp": "http://p:1"}
	labelled := map[string]string{contract.LabelEnabled: "true"}
	for name, test := range map[string]struct {
		state  proxies
		labels map[string]string
		age    time.Duration
		hold   time.Duration
		named  string
		want   string // part of the message; empty is to let go
	}{
		"the Secret is there":          {good, labelled, 0, time.Hour, "", ""},
		"no Secret":                    {proxies{}, labelled, 0, time.Hour, "", "Cluster team-a/one waits for its proxy Secret: neither Secret team-a/one-http-proxy nor"},
		"no Secret, not labelled":      {proxies{}, nil, 0, time.Hour, "", ""},
		"no Secret, just before":       {proxies{}, labelled, time.Hour - time.Second, time.Hour, "", "creation continues anyway after 1h0m0s"},
		"no Secret, for long enough":   {proxies{}, labelled, time.Hour, time.Hour, "", ""},
		"switched off":                 {proxies{}, labelled, 0, 0, "", ""},
		"a Secret that cannot be used": {proxies{"": "p:1"}, labelled, 0, time.Hour, "", "key httpProxy: "},
		"a named Secret is missing":    {good, labelled, 0, time.Hour, "gone", "Secret team-a/gone does not exist"},
		"an unusable variable":         {good, labelled, 0, time.Hour, "../", "spec.topology.variables[capiProxyPatcher].secretName: is not the name of a Secret"},
		"a named Secret is there":      {good, labelled, 0, time.Hour, "corp", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := &runtimehooksv1.BeforeClusterCreateRequest{Cluster: clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team-a", Name: "one", Labels: test.labels, CreationTimestamp: metav1.NewTime(now.Add(-test.age)),
			}}}
			if test.named != "" {
				variable := clusterv1.ClusterVariable{
					Name:  contract.VariableName,
					Value: literal(map[string]string{"secretName": test.named}),
				}
				q.Cluster.Spec.Topology.Variables = append(q.Cluster.Spec.Topology.Variables, variable)
			}
			h := &Handlers{State: stateOf(test.state, &q.Cluster), MaxWait: test.hold, Now: func() time.Time { return now }}
			response := beforeCreate(t, h, q)
			held := response.RetryAfterSeconds > 0
			if response.Status != runtimehooksv1.ResponseStatusSuccess || held != (test.want != "") ||
				!strings.Contains(response.Message, test.want) || held == (response.Message == "") {
				t.Errorf("%s %q, again in %d s; want %q", response.Status, response.Message, response.RetryAfterSeconds, test.want)
			}
		})
	}
}

func TestDiscoverVariables(t *testing.T) {
	t.Parallel()
	response := &runtimehooksv1.DiscoverVariablesResponse{}
	(&Handlers{}).DiscoverVariables(t.Context(), nil, response)
	if response.Status != runtimehooksv1.ResponseStatusSuccess || len(response.Variables) != 1 {
		t.Fatalf("%s with %d variables", response.Status, len(response.Variables))
	}
	variable := response.Variables[0]
	if variable.Name != contract.VariableName || variable.Required == nil || *variable.Required {
		t.Errorf("variable %s, required %v; the ClusterClass needs an explicit false", variable.Name, variable.Required)
	}
	schema := variable.Schema.OpenAPIV3Schema
	if v, err := intent.ParseVariable(schema.Example.Raw); err != nil || v.SecretName == "" || v.Delivery == "" ||
		v.Targets == nil || v.NoProxy == nil {
		t.Errorf("the example %s: %+v %v", schema.Example.Raw, v, err)
	}
	var names []string
	for name, property := range schema.Properties {
		names = append(names, name)
		if property.Description == "" || property.Example == nil || !strings.Contains(property.Description, "Default") ||
			property.Default != nil {
			t.Errorf("%s: %+v", name, property)
		}
		text := encoded(t, map[string]json.RawMessage{name: property.Example.Raw})
		if _, err := intent.ParseVariable(text); err != nil {
			t.Errorf("the example of %s: %v", name, err)
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{
		contract.VariableDelivery, contract.VariableNoProxy, contract.VariableSecretName,
		contract.VariableTargets,
	}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	pattern := regexp.MustCompile(schema.Properties[contract.VariableSecretName].Pattern)
	for _, name := range []string{"a", "a-b", "a.b-c.d1", "", "-a", "a-", "A", "a..b", ".a", "a_b", "a\n", "none", "ä"} {
		if want := len(validation.IsDNS1123Subdomain(name)) == 0; pattern.MatchString(name) != want {
			t.Errorf("the pattern and Kubernetes disagree about %q", name)
		}
	}
}

// brokenReader fails as an API server does, with another text every time.
type brokenReader struct{ calls *int }

func (b brokenReader) ReadSecret(context.Context, types.NamespacedName) (*resolve.Secret, error) {
	*b.calls++
	return nil, fmt.Errorf("dial tcp: attempt %d: password=s3cret", *b.calls)
}

func TestState_ReportsAnAbsentAPIServerInTheSameWords(t *testing.T) {
	t.Parallel()
	m := ManagementCluster{Resolver: resolve.Resolver{Secrets: brokenReader{new(int)}}}
	cluster := &Stored{Cluster: intent.Cluster{Namespace: "team-a", Name: "one"}}
	first := m.Check(t.Context(), cluster, "")
	second := m.Check(t.Context(), cluster, "")
	want := errors.New(
		"reading the proxy Secret of Cluster team-a/one: the API server returned an error; see the manager's log")
	if first == nil || first.Error() != want.Error() || second.Error() != want.Error() {
		t.Errorf("%v and %v, want %v", first, second, want)
	}
}

// clusters is a reader of one Cluster, which may be behind.
type clusters struct {
	client.Reader // nothing else of it is called

	cluster *clusterv1.Cluster
	reads   *int
}

func (c clusters) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	*c.reads++
	if c.cluster == nil || client.ObjectKeyFromObject(c.cluster) != key {
		return apierrors.NewNotFound(clusterv1.GroupVersion.WithResource("clusters").GroupResource(), key.Name)
	}
	c.cluster.DeepCopyInto(into.(*clusterv1.Cluster))
	return nil
}

func TestState_ReadsAnEndpointLiveThatTheCacheLacks(t *testing.T) {
	t.Parallel()
	without := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "one"}}
	known := without.DeepCopy()
	known.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "10.0.0.10", Port: 6443}
	for name, test := range map[string]struct {
		cached, live *clusterv1.Cluster
		complete     bool
		liveReads    int
	}{
		"the cache knows":     {known, nil, true, 0},
		"the cache is behind": {without, known, true, 1},
		"nobody knows":        {without, without, false, 1},
		"deleted in between":  {without, nil, false, 1},
	} {
		reads := 0
		m := ManagementCluster{
			Cached: clusters{cluster: test.cached, reads: new(int)}, Live: clusters{cluster: test.live, reads: &reads},
			Resolver: resolve.Resolver{Secrets: proxies{"": "http://p:1"}},
		}
		stored, err := m.Stored(t.Context(), "team-a", "one")
		if err != nil {
			t.Fatal(err)
		}
		values, err := m.Values(t.Context(), stored, "")
		if err != nil || values.Complete != test.complete || reads != test.liveReads {
			t.Errorf("%s: complete %v, %d live reads, %v", name, values.Complete, reads, err)
		}
	}
}
