package plan_test

import (
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// reference is the recipe of some targets, or else of those by default.
func reference(t *testing.T, targets ...contract.Target) patch.Recipe {
	t.Helper()
	if len(targets) == 0 {
		targets = contract.Targets()
	}
	recipe, err := plan.Recipe(settings.Options{Targets: targets}, patch.OutputVersion, false, "one-proxy-files")
	if err != nil {
		t.Fatal(err)
	}
	return recipe
}

func ensured(t *testing.T, spec patch.Spec, targets ...contract.Target) patch.Spec {
	t.Helper()
	applied, err := patch.Ensure(spec, reference(t, targets...))
	if err != nil {
		t.Fatal(err)
	}
	return patch.Apply(spec, applied.Edits)
}

func own() patch.Spec {
	return patch.Spec{
		Files:               []patch.File{{Path: "/etc/motd", Content: "%n\"'`$(id){{ x }}"}},
		PreKubeadmCommands:  []string{"echo own"},
		PostKubeadmCommands: []string{"echo done"},
	}
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// readByRolls returns an object with the members of its spec that RollsBy names.
func readByRolls(object map[string]any) map[string]any {
	spec, _ := object["spec"].(map[string]any)
	read := map[string]any{}
	for _, name := range plan.RollsBy() {
		if value, found := spec[name]; found {
			read[name] = value
		}
	}
	return map[string]any{"spec": read}
}

func TestRolls(t *testing.T) {
	t.Parallel()
	const stored = `
spec:
  version: v1.36.3
  replicas: 3
  machineTemplate:
    metadata: {labels: {a: b}}
    spec:
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DemoMachineTemplate, name: one}
      deletion: {nodeDrainTimeoutSeconds: 10}
  rollout: {after: "2026-01-01T00:00:00Z"}
  kubeadmConfigSpec:
    clusterConfiguration: {dns: {imageTag: a}, imageRepository: example.com}
    initConfiguration: {nodeRegistration: {name: a}}
    joinConfiguration: {nodeRegistration: {name: a}, discovery: {tlsBootstrapToken: a}, timeouts: {controlPlaneComponentHealthCheckSeconds: 1, tlsBootstrapSeconds: 1}}
    files: [{path: /etc/motd, content: hello, append: true}]
    preKubeadmCommands: [echo own]
`
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		change string // a merge patch
		want   bool
	}{
		"nothing":                              {`{}`, false},
		"the version":                          {`{"spec":{"version":"v1.37.0"}}`, true},
		"another infrastructure template":      {`{"spec":{"machineTemplate":{"spec":{"infrastructureRef":{"name":"two"}}}}}`, true},
		"labels of Machines change in place":   {`{"spec":{"machineTemplate":{"metadata":{"labels":{"a":"c"}}}}}`, false},
		"timeouts of Machines change in place": {`{"spec":{"machineTemplate":{"spec":{"deletion":{"nodeDrainTimeoutSeconds":20}}}}}`, false},
		"replicas":                             {`{"spec":{"replicas":5}}`, false},
		"an annotation":                        {`{"metadata":{"annotations":{"a":"b"}}}`, false},
		"a file of the user":                   {`{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/etc/motd","content":"new","append":true}]}}}`, true},
		"a field of a file that decisions do not look at": {`{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/etc/motd","content":"hello","append":false}]}}}`, true},
		"a command of the user":                           {`{"spec":{"kubeadmConfigSpec":{"preKubeadmCommands":["echo own","echo new"]}}}`, true},
		"an empty list that was not there":                {`{"spec":{"kubeadmConfigSpec":{"postKubeadmCommands":[]}}}`, false},
		"a managed command":                               {`{"spec":{"kubeadmConfigSpec":{"preKubeadmCommands":["sh /etc/capi-proxy-patcher/setup.sh || : # capi-proxy-patcher","echo own"]}}}`, false},
		"a managed file": {`{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/etc/motd","content":"hello","append":true},
			{"path":"/etc/capi-proxy-patcher/proxy.env","contentFrom":{"secret":{"name":"x","key":"proxy.env"}}}]}}}`, false},
		"cluster configuration":                 {`{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"imageRepository":"new"}}}}`, true},
		"DNS is updated in place":               {`{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"b"}}}}}`, false},
		"the node registration":                 {`{"spec":{"kubeadmConfigSpec":{"joinConfiguration":{"nodeRegistration":{"name":"b"}}}}}`, true},
		"discovery":                             {`{"spec":{"kubeadmConfigSpec":{"joinConfiguration":{"discovery":{"tlsBootstrapToken":"b"}}}}}`, false},
		"the health check timeout":              {`{"spec":{"kubeadmConfigSpec":{"joinConfiguration":{"timeouts":{"controlPlaneComponentHealthCheckSeconds":2}}}}}`, false},
		"another timeout":                       {`{"spec":{"kubeadmConfigSpec":{"joinConfiguration":{"timeouts":{"tlsBootstrapSeconds":2}}}}}`, true},
		"init beside join":                      {`{"spec":{"kubeadmConfigSpec":{"initConfiguration":{"nodeRegistration":{"name":"b"}}}}}`, false},
		"init without join":                     {`{"spec":{"kubeadmConfigSpec":{"joinConfiguration":null,"initConfiguration":{"nodeRegistration":{"name":"b"}}}}}`, true},
		"a rollout now":                         {`{"spec":{"rollout":{"after":"2026-06-01T00:00:00Z"}}}`, true},
		"a rollout a second from now":           {`{"spec":{"rollout":{"after":"2026-06-01T00:00:01Z"}}}`, false},
		"a rollout at a time that is not one":   {`{"spec":{"rollout":{"after":"soon"}}}`, false},
		"a rollout that is taken back":          {`{"spec":{"rollout":null}}`, false},
		"bootstrap configuration that is taken": {`{"spec":{"kubeadmConfigSpec":null}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := object(t, stored)
			text, err := json.Marshal(before)
			if err != nil {
				t.Fatal(err)
			}
			if text, err = jsonpatch.MergePatch(text, []byte(test.change)); err != nil {
				t.Fatal(err)
			}
			after := object(t, string(text))
			if got := plan.Rolls(before, after, now); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if got := plan.Rolls(readByRolls(before), readByRolls(after), now); got != test.want {
				t.Errorf("with the members of RollsBy alone: got %v, want %v", got, test.want)
			}
			if diff := cmp.Diff(object(t, stored), before); diff != "" {
				t.Errorf("the argument was changed:\n%s", diff)
			}
		})
	}
}

func TestVersion_IsThatOfThePatchedObjects(t *testing.T) {
	t.Parallel()
	const newest = 3
	// Each version gives the managed files another mode.
	recipe := func(version int) (patch.Recipe, error) {
		if version < 1 || version > 9 {
			return patch.Recipe{}, errors.New("there is no such version")
		}
		made := reference(t)
		for i := range made.Files {
			made.Files[i].Permissions = "070" + strconv.Itoa(version)
		}
		return made, nil
	}
	patched := func(version int) patch.Spec {
		made, err := recipe(version)
		if err != nil {
			t.Fatal(err)
		}
		applied, err := patch.Ensure(own(), made)
		if err != nil {
			t.Fatal(err)
		}
		return patch.Apply(own(), applied.Edits)
	}
	for name, test := range map[string]struct {
		recorded string
		spec     patch.Spec
		want     int
	}{
		"patched by an older program":             {"0", patched(1), 0},
		"patched by a newer program":              {"7", patched(1), 7},
		"the record counts, not what is there":    {"1", patched(2), 1},
		"no record, made by the oldest":           {"", patched(1), 1},
		"no record, made by the one before":       {"", patched(2), 2},
		"no record, made by the newest":           {"", patched(3), 3},
		"no record, made by none that is known":   {"", patched(9), 3},
		"a record of rubbish, made by the oldest": {"v1", patched(1), 1},
		"not patched":      {"7", own(), 3},
		"nothing is there": {"1", patch.Spec{}, 3},
	} {
		if got := plan.Version(map[string]string{contract.AnnotationOutputVersion: test.recorded}, test.spec, newest,
			recipe); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
	failing := func(int) (patch.Recipe, error) { return patch.Recipe{}, errors.New("no recipe") }
	if got := plan.Version(nil, patched(1), newest, failing); got != newest {
		t.Errorf("without recipes: %d, want %d", got, newest)
	}
	_, err := plan.Recipe(settings.Options{}, 7, false, "x")
	if err == nil ||
		err.Error() != "output version 7 is not known to this version of capi-proxy-patcher; use a newer one" {
		t.Errorf("got %v, want to be asked for version 7", err)
	}
}

func TestAnnotationOperations(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		current, want, after map[string]string
		operations           int
	}{
		"the first annotations of an object":     {nil, map[string]string{"a/b": "1", "c": "2"}, map[string]string{"a/b": "1", "c": "2"}, 2},
		"one more":                               {map[string]string{"x": "y"}, map[string]string{"a/b": "1"}, map[string]string{"a/b": "1", "x": "y"}, 1},
		"another value":                          {map[string]string{"a/b": "0"}, map[string]string{"a/b": "1"}, map[string]string{"a/b": "1"}, 1},
		"the same value":                         {map[string]string{"a/b": "1"}, map[string]string{"a/b": "1"}, map[string]string{"a/b": "1"}, 0},
		"one less":                               {map[string]string{"a/b": "1", "x": "y"}, map[string]string{"a/b": ""}, map[string]string{"x": "y"}, 1},
		"one less that is not there":             {nil, map[string]string{"a/b": ""}, nil, 0},
		"keys that a JSON pointer has to escape": {map[string]string{"x": "y"}, map[string]string{"a~/b": "1"}, map[string]string{"a~/b": "1", "x": "y"}, 1},
	} {
		operations := plan.AnnotationOperations(test.current, test.want)
		if len(operations) != test.operations {
			t.Errorf("%s: operations %v, want %d", name, operations, test.operations)
		}
		var o struct {
			Metadata struct {
				Annotations map[string]string `json:"annotations,omitempty"`
			} `json:"metadata"`
		}
		o.Metadata.Annotations = test.current
		document, _ := json.Marshal(o)
		if len(operations) > 0 {
			text, _ := json.Marshal(operations)
			decoded, err := jsonpatch.DecodePatch(text)
			if err != nil {
				t.Fatal(err)
			}
			if document, err = decoded.Apply(document); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		o.Metadata.Annotations = nil
		if err := json.Unmarshal(document, &o); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.after, o.Metadata.Annotations); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestBring_ChangesNothingThatIsThere(t *testing.T) {
	t.Parallel()
	stored := ensured(t, own())
	moved := stored
	moved.Files = append(append([]patch.File{}, stored.Files[1:]...), stored.Files[0])
	for name, before := range map[string]patch.Spec{"in our order": stored, "in an order of the user's": moved} {
		for what, asked := range map[string]patch.Spec{"the stored object": before, "the unpatched manifest": own()} {
			applied, err := plan.Apply(before, asked, reference(t))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, patch.Apply(asked, applied.Edits)); diff != "" {
				t.Errorf("%s, %s (-stored +got):\n%s", name, what, diff)
			}
		}
	}
}

func TestBring_KeepsWhatIsThereOnAConflict(t *testing.T) {
	t.Parallel()
	asked := own()
	asked.Files = append(asked.Files, patch.File{Path: contract.PathSetup, Content: "mine"})
	applied, err := plan.Apply(ensured(t, own()), asked, reference(t))
	if err == nil {
		t.Fatal("no conflict")
	}
	got := patch.Apply(asked, applied.Edits)
	for _, f := range got.Files {
		if f.Path == contract.PathSetup && f.Content != "mine" {
			t.Errorf("a managed file came back beside that of the user: %v", got.Files)
		}
	}
	if !patch.IsPatched(got) {
		t.Error("the other managed entries are gone")
	}
}

func TestIsOthers_GoesByTheNameOfTheSecret(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		secrets []string
		want    bool
	}{
		"no managed file":                           {},
		"the Secret of the Cluster":                 {secrets: []string{"prod-proxy-files"}},
		"that of a pool":                            {secrets: []string{"prod.eu.md.proxy-files"}},
		"that of a Cluster whose name begins alike": {secrets: []string{"prod-eu-proxy-files"}, want: true},
		"that of a pool of the latter":              {secrets: []string{"prod-eu.a.md.proxy-files"}, want: true},
		"that of a Cluster with a dot in its name":  {secrets: []string{"prod.eu.a.md1.proxy-files"}, want: true},
		"one of two":                                {secrets: []string{"prod-proxy-files", "x-proxy-files"}, want: true},
		"a name that is no generated one":           {secrets: []string{"x"}, want: true},
	} {
		var spec patch.Spec
		for _, secret := range test.secrets {
			spec.Files = append(spec.Files,
				patch.File{Path: contract.PathProxyEnv, ContentFrom: patch.SecretKey{Name: secret, Key: contract.KeyProxyEnv}})
		}
		spec.Files = append(spec.Files, patch.File{Path: "/etc/own", ContentFrom: patch.SecretKey{Name: "own", Key: "own"}})
		if got := plan.IsOthers(spec, "prod"); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestAtRest_IsFalseOnlyWhileClusterAPIWorks(t *testing.T) {
	t.Parallel()
	for paused, want := range map[metav1.ConditionStatus]bool{
		"": true, metav1.ConditionTrue: true, metav1.ConditionUnknown: true, metav1.ConditionFalse: false,
	} {
		if got := plan.AtRest(paused); got != want {
			t.Errorf("AtRest(%q) is %v, want %v", paused, got, want)
		}
	}
}

func TestObject_NamesTheProxySecretOfItsPools(t *testing.T) {
	t.Parallel()
	pool := plan.Pool{Pool: settings.Pool{Kind: settings.KindMachineDeployment}, Object: "md"}
	own := pool
	own.Override = "s"
	for name, test := range map[string]struct {
		pools                   []plan.Pool
		override, by, generated string
	}{
		"no pool":              {nil, "", "", "one-proxy-files"},
		"one of the Cluster's": {[]plan.Pool{pool}, "", "", "one-proxy-files"},
		"one with its own":     {[]plan.Pool{own, own}, "s", "MachineDeployment md", "one..md.proxy-files"},
	} {
		o := plan.Object{Pools: test.pools}
		if o.Override() != test.override || o.Overrider() != test.by || o.GeneratedSecret("one") != test.generated {
			t.Errorf("%s: %q by %q, generated %q", name, o.Override(), o.Overrider(), o.GeneratedSecret("one"))
		}
	}
}
