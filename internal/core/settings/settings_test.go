package settings_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
)

func clusterOf(t *testing.T, text string) *clusterv1.Cluster {
	t.Helper()
	return api.Read[clusterv1.Cluster](t, text, &clusterv1.Cluster{})
}

func defaults() settings.Options {
	return settings.Options{
		Rollout: contract.RolloutOnNextRollout,
		Targets: contract.Targets(),
	}
}

// settingsTest is a Cluster and what it asks for.
type settingsTest struct {
	cluster string
	want    settings.ClusterSettings
}

func optionsWith(change func(*settings.Options)) settings.Options {
	o := defaults()
	change(&o)
	return o
}

func TestOfCluster_ReadsVariableAndAnnotations(t *testing.T) {
	t.Parallel()
	testOfCluster(t, map[string]settingsTest{
		"nothing said is the defaults": {`{}`, settings.ClusterSettings{Options: defaults()}},
		"the variable says everything": {
			`{spec: {topology: {variables: [{name: other, value: 1}, {name: capiProxyPatcher, value: {secretName: corp, targets: [trust, kubelet, trust], noProxy: [a.example.com, 10.0.0.0/8]}}]}}}`,
			settings.ClusterSettings{SecretName: "corp", Options: optionsWith(func(o *settings.Options) {
				o.Targets, o.NoProxy = []contract.Target{contract.TargetKubelet, contract.TargetTrust}, "a.example.com\n10.0.0.0/8"
				o.TargetsIn = "variable capiProxyPatcher.targets"
			})},
		},
		"annotations say the same as in a classic Cluster": {
			`{metadata: {annotations: {capi-proxy-patcher.io/secret: corp, capi-proxy-patcher.io/targets: "kubelet", capi-proxy-patcher.io/rollout: Immediate}}}`,
			settings.ClusterSettings{SecretName: "corp", Options: optionsWith(func(o *settings.Options) {
				o.Targets, o.Rollout = []contract.Target{contract.TargetKubelet}, contract.RolloutImmediate
			})},
		},
		"variable and annotation that agree are one": {
			`{metadata: {annotations: {capi-proxy-patcher.io/secret: corp, capi-proxy-patcher.io/targets: "trust,kubelet"}},
			  spec: {topology: {variables: [{name: capiProxyPatcher, value: {secretName: corp, targets: [kubelet, trust]}}]}}}`,
			settings.ClusterSettings{SecretName: "corp", Options: optionsWith(func(o *settings.Options) {
				o.Targets = []contract.Target{contract.TargetKubelet, contract.TargetTrust}
				o.TargetsIn = "variable capiProxyPatcher.targets"
			})},
		},
		"null fields are not set": {
			`{spec: {topology: {variables: [{name: capiProxyPatcher, value: {secretName: null, targets: null, noProxy: null}}]}}}`,
			settings.ClusterSettings{Options: defaults()},
		},
	})
}

func TestOfCluster_ReadsPools(t *testing.T) {
	t.Parallel()
	const worker = `{spec: {topology: {workers: {machineDeployments: [{name: md-0, class: w%s}]}}}}`
	testOfCluster(t, map[string]settingsTest{
		"pools name Secrets in both ways, and none": {
			`{spec: {topology: {workers: {
			  machineDeployments: [
			    {name: plain, class: w},
			    {name: annotated, class: w, metadata: {annotations: {capi-proxy-patcher.io/secret: a}}},
			    {name: overridden, class: w, variables: {overrides: [{name: capiProxyPatcher, value: {secretName: b}}]}},
			    {name: both, class: w, metadata: {annotations: {capi-proxy-patcher.io/secret: none}}, variables: {overrides: [{name: capiProxyPatcher, value: {secretName: none}}]}}],
			  machinePools: [{name: plain, class: w, metadata: {annotations: {capi-proxy-patcher.io/secret: c}}}]}}}}`,
			settings.ClusterSettings{Options: defaults(), Pools: []settings.Pool{
				{Kind: "MachineDeployment", Name: "plain", Topology: true},
				{Kind: "MachineDeployment", Name: "annotated", Topology: true, Override: "a"},
				{Kind: "MachineDeployment", Name: "overridden", Topology: true, Override: "b"},
				{Kind: "MachineDeployment", Name: "both", Topology: true, Override: "none"},
				{Kind: "MachinePool", Name: "plain", Topology: true, Override: "c"},
			}},
		},
		"an override repeats what the Cluster says": {
			`{spec: {topology: {
			  variables: [{name: capiProxyPatcher, value: {secretName: corp, noProxy: [a.example.com]}}],
			  controlPlane: {variables: {overrides: [{name: capiProxyPatcher, value: {secretName: corp}}]}},
			  workers: {machineDeployments: [{name: md, class: w, variables: {overrides: [{name: capiProxyPatcher, value: {noProxy: [a.example.com], targets: [trust, commands, kubelet, containerd]}}]}}]}}}}`,
			settings.ClusterSettings{
				SecretName: "corp", Options: optionsWith(func(o *settings.Options) { o.NoProxy = "a.example.com" }),
				Pools: []settings.Pool{{Kind: "MachineDeployment", Name: "md", Topology: true}},
			},
		},
		"a pool without a variable": {strings.Replace(worker, "%s", "", 1), settings.ClusterSettings{
			Options: defaults(), Pools: []settings.Pool{{Kind: "MachineDeployment", Name: "md-0", Topology: true}},
		}},
	})
}

func testOfCluster(t *testing.T, tests map[string]settingsTest) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := clusterOf(t, test.cluster)
			before := cluster.DeepCopy()
			got, err := settings.Of(cluster)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, cluster); diff != "" {
				t.Errorf("the argument was changed:\n%s", diff)
			}
		})
	}
}

func TestOfCluster_Refuses(t *testing.T) {
	t.Parallel()
	variable := func(value string) string {
		return `{spec: {topology: {variables: [{name: capiProxyPatcher, value: ` + value + `}]}}}`
	}
	const own = "spec.topology.variables[capiProxyPatcher]"
	for name, test := range map[string]struct {
		cluster string
		want    []string // place and why
	}{
		"a value that is no object":     {variable(`text`), []string{own + ": is not an object"}},
		"an unknown field":              {variable(`{SecretName: corp}`), []string{own + `["SecretName"]: is not a field of the variable`}},
		"fields of other types":         {variable(`{secretName: 1, targets: kubelet, noProxy: [1]}`), []string{own + ".noProxy: is not an array of strings", own + ".secretName: is not a string", own + ".targets: is not an array of strings"}},
		"null inside an array":          {variable(`{noProxy: [a, null]}`), []string{own + ".noProxy[1]: is not a string"}},
		"a name that is none":           {variable(`{secretName: "../x"}`), []string{own + ".secretName: is not the name of a Secret"}},
		"an empty name":                 {variable(`{secretName: ""}`), []string{own + ".secretName: is not the name of a Secret"}},
		"none for the whole Cluster":    {variable(`{secretName: none}`), []string{own + ".secretName: only a pool can opt out of the proxy"}},
		"an unknown target":             {variable(`{targets: [kubelet, crio]}`), []string{own + `.targets[1]: "crio" is not a target`}},
		"no target":                     {variable(`{targets: []}`), []string{own + ".targets: is empty"}},
		"a list inside an entry":        {variable(`{noProxy: ["a,s3cret", "c d", "", "-", "e"]}`), []string{own + ".noProxy[0]: is not a single entry", own + ".noProxy[1]: is not a single entry", own + ".noProxy[2]: is not a single entry", own + ".noProxy[3]: is not a single entry"}},
		"entries that are not ones":     {variable(`{noProxy: [ok.example.com, "http://user:s3cret@x/", "10.0.0.0/33"]}`), []string{own + ".noProxy[1]: ", own + ".noProxy[2]: "}},
		"too many entries":              {variable(`{noProxy: [` + strings.Repeat("a, ", 1001) + `]}`), []string{own + ".noProxy: has 1001 entries, but at most 1000 are allowed"}},
		"hostile characters":            {variable(`{noProxy: ["$(x)", "a;b", "a'b", "{{x}}"]}`), []string{own + ".noProxy[0]: ", own + ".noProxy[1]: ", own + ".noProxy[2]: ", own + ".noProxy[3]: "}},
		"an annotation as in a classic": {`{metadata: {annotations: {capi-proxy-patcher.io/rollout: x}}}`, []string{`annotation capi-proxy-patcher.io/rollout: unknown value "x"`}},
		"variable against annotation": {
			`{metadata: {annotations: {capi-proxy-patcher.io/secret: a, capi-proxy-patcher.io/targets: kubelet}},
			  spec: {topology: {variables: [{name: capiProxyPatcher, value: {secretName: b, targets: [trust]}}]}}}`,
			[]string{
				own + ".secretName: differs from metadata.annotations[capi-proxy-patcher.io/secret]",
				own + ".targets: differs from metadata.annotations[capi-proxy-patcher.io/targets]",
			},
		},
		"overrides against the Cluster and against each other, all at once": {
			`{spec: {topology: {
			  variables: [{name: capiProxyPatcher, value: {secretName: corp}}],
			  controlPlane: {variables: {overrides: [{name: capiProxyPatcher, value: {secretName: other, targets: [trust]}}]}},
			  workers: {
			    machineDeployments: [{name: md, class: w, metadata: {annotations: {capi-proxy-patcher.io/secret: a}}, variables: {overrides: [{name: capiProxyPatcher, value: {secretName: b, noProxy: [x]}}]}}],
			    machinePools: [{name: mp, class: w, variables: {overrides: [{name: capiProxyPatcher, value: {secretName: "!"}}]}}]}}}}`,
			[]string{
				"spec.topology.controlPlane.variables.overrides[capiProxyPatcher].secretName: differs from the Cluster's value",
				"spec.topology.controlPlane.variables.overrides[capiProxyPatcher].targets: differs from the Cluster's value",
				"spec.topology.workers.machineDeployments[md].variables.overrides[capiProxyPatcher].secretName: differs from spec.topology.workers.machineDeployments[md].metadata.annotations[capi-proxy-patcher.io/secret]",
				"spec.topology.workers.machineDeployments[md].variables.overrides[capiProxyPatcher].noProxy: differs from the Cluster's value",
				"spec.topology.workers.machinePools[mp].variables.overrides[capiProxyPatcher].secretName: is not the name of a Secret",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := settings.Of(clusterOf(t, test.cluster))
			found := finding.Of(err)
			var got []string
			for _, f := range found {
				got = append(got, f.Place.String()+": "+f.Message)
			}
			if len(got) != len(test.want) {
				t.Fatalf("got %q, want %q", got, test.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], test.want[i]) {
					t.Errorf("finding %d: %q, want %q", i, got[i], test.want[i])
				}
			}
			if !found.Has(contract.ReasonInvalidSettings) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%v has another reason, or an entry", found)
			}
			_, again := settings.Of(clusterOf(t, test.cluster))
			if err.Error() != again.Error() {
				t.Errorf("%q is not %q", again, err)
			}
		})
	}
}

func TestParseVariable_AllowsAThousandEntries(t *testing.T) {
	t.Parallel()
	value := `{"noProxy":["a.example.com"` + strings.Repeat(`,"a.example.com"`, settings.MaxNoProxy-1) + `]}`
	if _, err := settings.ParseVariable([]byte(value)); err != nil {
		t.Error(err)
	}
}

func TestApplyTo_NamesTheSecretOfTheVariable(t *testing.T) {
	t.Parallel()
	cluster := settings.Cluster{Namespace: "team", Name: "one", Annotations: map[string]string{"a": "b"}}
	got := settings.ClusterSettings{SecretName: "corp"}.ApplyTo(cluster)
	if diff := cmp.Diff(map[string]string{"a": "b", contract.AnnotationSecret: "corp"}, got.Annotations); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(cluster.Annotations) != 1 {
		t.Error("the argument was changed")
	}
	if got := (settings.ClusterSettings{SecretName: "corp"}).ApplyTo(settings.Cluster{}); got.Annotations[contract.AnnotationSecret] != "corp" {
		t.Errorf("a Cluster without annotations has %v", got.Annotations)
	}
	candidates := settings.SecretCandidates(got, "")
	if len(candidates) != 1 || candidates[0].Name != "corp" {
		t.Errorf("candidates %v", candidates)
	}
	candidates = settings.SecretCandidates(settings.Cluster{Name: "one"}, "")
	if len(candidates) != 2 || candidates[0].Name != "one-http-proxy" || candidates[1].Name != contract.DefaultSecretName {
		t.Errorf("candidates %v of a Cluster that names none", candidates)
	}
	if got := (settings.ClusterSettings{}).ApplyTo(settings.Cluster{}); got.Annotations != nil {
		t.Errorf("annotations %v, want none", got.Annotations)
	}
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	on := map[string]string{contract.LabelEnabled: "true"}
	for name, test := range map[string]struct {
		labels  map[string]string
		hold    string
		version string
		want    bool
	}{
		"no hold, label":                        {on, "", "v1.36.3", true},
		"no hold, no label":                     {nil, "", "v1.36.3", false},
		"another label value":                   {map[string]string{contract.LabelEnabled: "yes"}, "", "v1.36.3", false},
		"held without, still at the version":    {on, "disabled@v1.36.3", "v1.36.3", false},
		"held without, upgraded":                {on, "disabled@v1.36.3", "v1.37.0", true},
		"held with, still at the version":       {nil, "enabled@v1.36.3", "v1.36.3", true},
		"held with, upgraded":                   {nil, "enabled@v1.36.3", "v1.37.0", false},
		"held with, earlier than the hold":      {nil, "enabled@v1.37.0", "v1.36.3", true},
		"held without, earlier by a number":     {on, "disabled@v1.10.0", "v1.9.0", false},
		"other metadata of the same version":    {on, "disabled@v1.36.3+vendor.1", "v1.36.3+vendor.2", true},
		"what is no version":                    {on, "disabled@v1.36.3", "rubbish", true},
		"rubbish is no hold":                    {on, "disabled", "disabled", true},
		"an unknown state is no hold":           {on, "off@v1.36.3", "v1.36.3", true},
		"a hold of no version is none":          {on, "disabled@", "", true},
		"an object whose version nobody knows":  {on, "disabled@v1.36.3", "", true},
		"a version is compared with its prefix": {on, "disabled@1.36.3", "v1.36.3", true},
	} {
		annotations := map[string]string{contract.AnnotationTopologyHold: test.hold}
		if got := settings.IsEnabledAt(test.labels, annotations, test.version); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		if hold, held := settings.FreezeOf(annotations); held && hold.String() != test.hold {
			t.Errorf("%s: %q is written as %q", name, test.hold, hold)
		}
	}
}

func FuzzParseVariable(f *testing.F) {
	f.Add([]byte(
		`{"secretName":"corp","targets":["kubelet"],"noProxy":["10.0.0.0/8",".example.com","::1","münchen.example"]}`))
	f.Add([]byte(`{"noProxy":["a b","-","\n","%","{{"]}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"secretName":"none","secretName":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := settings.ParseVariable(raw)
		_, again := settings.ParseVariable(raw)
		if (err == nil) != (again == nil) || err != nil && err.Error() != again.Error() {
			t.Fatalf("%v is not %v", again, err)
		}
		if err != nil {
			return
		}
		// An accepted value is accepted again in its written form.
		fields := map[string]any{}
		if v.SecretName != "" {
			fields[contract.VariableSecretName] = v.SecretName
		}
		if v.Targets != nil {
			fields[contract.VariableTargets] = v.Targets
		}
		if v.NoProxy != nil {
			fields[contract.VariableNoProxy] = v.NoProxy
		}
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		read, err := settings.ParseVariable(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(v, read); diff != "" {
			t.Errorf("%s (-first +again):\n%s", text, diff)
		}
	})
}
