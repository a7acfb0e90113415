package cli_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
)

const (
	proxySecretPath = secretsPath + "/http-proxy"
	leasePath       = "/apis/coordination.k8s.io/v1/namespaces/system/leases/capi-proxy-patcher.io"
)

// lastPass is what a pass over a Cluster of the tests has used.
const lastPass = `"capi-proxy-patcher.io/last-pass":"{\"lease\":\"system/capi-proxy-patcher.io\",\"secrets\":{\"team-a/CLUSTER-http-proxy\":\"\",\"team-a/http-proxy\":\"7\"}}"`

// metadataOf is a Secret as it is read: without data.
func metadataOf(name, version, labels string) string {
	return fmt.Sprintf(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"namespace":"team-a","name":%q,`+
		`"resourceVersion":%q,"labels":{%s}}}`, name, version, labels)
}

// leaseOf is a Lease that was renewed some time ago.
func leaseOf(age time.Duration) string {
	return fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"namespace":"system","name":"capi-proxy-patcher.io"},`+
		`"spec":{"holderIdentity":"m","leaseDurationSeconds":15,"renewTime":%q}}`,
		time.Now().Add(-age).UTC().Format("2006-01-02T15:04:05.000000Z")) //nolint:forbidigo // the command reads the clock
}

// observed is a management cluster with labelled Clusters: one with Machines that are behind, one that is not True, one
// that is as it should be.
func observed(t *testing.T, only ...string) *api {
	t.Helper()
	cluster := func(name, annotations, status, reason string) string {
		if len(only) > 0 && !slices.Contains(only, name) {
			return ""
		}
		annotations = "{" + annotations + strings.ReplaceAll(lastPass, "CLUSTER", name) + "}"
		return fmt.Sprintf(`{"metadata":{"namespace":"team-a","name":%q,"labels":{"capi-proxy-patcher.io/enabled":"true"},`+
			`"annotations":%s},"spec":{"controlPlaneRef":{"kind":"KubeadmControlPlane"}},"status":{"conditions":[{"type":`+
			`"capi-proxy-patcher.io/ProxyConfigured","status":%q,"reason":%q,"message":"words"}]}}`, name, annotations, status, reason)
	}
	items := slices.DeleteFunc([]string{
		cluster("prod", `"capi-proxy-patcher.io/machines-behind":"[{\"kind\":\"KubeadmControlPlane\",\"name\":\"prod\",\"machines\":3,\"oldest\":\"2026-01-01T12:00:00Z\"}]",`,
			"True", "Configured"), cluster("stage", "", "False", "SettingsNotFound"), cluster("test", "", "True", "Configured"),
	}, func(item string) bool { return item == "" })
	list := `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"ClusterList","metadata":{"resourceVersion":"7"},"items":[` +
		strings.Join(items, ",") + "]}"
	secrets := `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","items":[{"metadata":{"namespace":"team-a",` +
		`"name":"prod-proxy-files","annotations":{"capi-proxy-patcher.io/source":"team-a/http-proxy"}}}]}`
	return newAPI(t, map[string]string{
		clustersPath: list, secretsPath: secrets,
		"/apis/cluster.x-k8s.io/v1beta2/clusters": list, "/api/v1/secrets": secrets,
		proxySecretPath: metadataOf("http-proxy", "7", `"capi-proxy-patcher.io/proxy":""`), leasePath: leaseOf(time.Second),
	})
}

func TestStatus_ReadsEachObjectOnce(t *testing.T) {
	t.Parallel()
	proofs := []string{
		"GET " + secretsPath + "/http-proxy", "GET " + secretsPath + "/prod-http-proxy", "GET " + secretsPath + "/stage-http-proxy",
		"GET " + secretsPath + "/test-http-proxy", "GET " + leasePath,
		"GET /apis/apps/v1/deployments", // whether the installation works
	}
	for name, test := range map[string]struct {
		args  []string
		asked []string
	}{
		"a namespace":    {nil, []string{"GET " + clustersPath, "GET " + secretsPath}},
		"all namespaces": {[]string{"-A"}, []string{"GET /apis/cluster.x-k8s.io/v1beta2/clusters", "GET /api/v1/secrets"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := observed(t)
			status, stdout, stderr := run(t, "", append([]string{"status", "--kubeconfig", a.kubeconfig(t)}, test.args...)...)
			links := finding.Links("cluster-machines", contract.ReasonSettingsNotFound)
			if status != 0 || stderr != links || !strings.Contains(stdout, "team-a/http-proxy") ||
				!strings.Contains(stdout, "3 behind") || strings.Contains(stdout, "STALE  ") {
				t.Fatalf("exit status %d, standard error %s, output\n%s", status, stderr, stdout)
			}
			slices.Sort(a.asked[2:])
			want := slices.Concat(test.asked, proofs)
			slices.Sort(want[2:])
			if diff := cmp.Diff(want, a.asked); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestStatus_SaysThatTheInstallationDoesNotWork has a manager without a Pod: what the table says may be old.
func TestStatus_SaysThatTheInstallationDoesNotWork(t *testing.T) {
	t.Parallel()
	a := observed(t)
	a.objects["/apis/apps/v1/deployments"] = `{"apiVersion":"apps/v1","kind":"DeploymentList","items":[{"metadata":{"namespace":"sys","name":"manager",` +
		`"labels":{"control-plane":"controller-manager"}},"spec":{"replicas":2}}]}`
	a.objects["/apis/apps/v1/namespaces/sys/deployments"] = a.objects["/apis/apps/v1/deployments"]
	const want = "The installation in namespace sys does not work (deployments"
	if status, stdout, stderr := run(t, "", "status", "--kubeconfig", a.kubeconfig(t)); status != 0 ||
		!strings.HasPrefix(stderr, want) || !strings.Contains(stdout, "3 behind") {
		t.Errorf("exit status %d, standard error %s, output\n%s", status, stderr, stdout)
	}
	if status, _, stderr := run(t, "", "status", "--kubeconfig", a.kubeconfig(t), "-o", "json"); status != 0 || stderr != "" {
		t.Errorf("exit status %d, standard error of JSON %s", status, stderr)
	}
}

// TestStatus_FailsUnlessARowProvesThatItIsCurrent is the gate before an old password is withdrawn.
func TestStatus_FailsUnlessARowProvesThatItIsCurrent(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		path, object string
		args         []string
		status       int
		want         string
	}{
		"current":                     {"", "", nil, 0, "up to date"},
		"another value, no label":     {proxySecretPath, metadataOf("http-proxy", "8", ""), nil, 3, "Secret team-a/http-proxy was changed after the last pass; it has no label"},
		"a nearer Secret":             {secretsPath + "/test-http-proxy", metadataOf("test-http-proxy", "8", ""), nil, 3, "Secret team-a/test-http-proxy was created after"},
		"a deleted Secret":            {proxySecretPath, "", nil, 3, "Secret team-a/http-proxy was deleted"},
		"no manager for an hour":      {leasePath, leaseOf(time.Hour), nil, 3, "no manager has renewed Lease system/capi-proxy-patcher.io for "},
		"no manager at all":           {leasePath, "", nil, 3, "no manager holds Lease"},
		"any state that fails":        {leasePath, "", []string{"--fail-on", "not-true"}, 3, "STALE"},
		"in the form of programs":     {leasePath, "", []string{"-o", "json"}, 3, `"stale": "no manager holds Lease`},
		"a Lease without a renewal":   {leasePath, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"x"},"spec":{}}`, nil, 3, "no manager holds Lease"},
		"unlabelled, but not changed": {proxySecretPath, metadataOf("http-proxy", "7", ""), nil, 0, "unlabelled-secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := observed(t, "test")
			if test.path != "" {
				delete(a.objects, test.path)
			}
			if test.object != "" {
				a.objects[test.path] = test.object
			}
			args := append([]string{"status", "--kubeconfig", a.kubeconfig(t), "--fail-on", "behind"}, test.args...)
			status, stdout, stderr := run(t, "", args...)
			links := strings.Contains(stderr, "troubleshooting.md#") // of what is stale, or a warning
			if status != test.status || links != (name != "current" && name != "in the form of programs") || !strings.Contains(stdout, test.want) {
				t.Errorf("exit status %d, want %d; standard error %s, output\n%s\nwant in it %q", status, test.status, stderr, stdout, test.want)
			}
		})
	}
}

func TestStatus_FailsOnStates(t *testing.T) {
	t.Parallel()
	a := observed(t)
	for failOn, want := range map[string]int{"behind,not-true": 3, "": 0} {
		if status, _, stderr := run(t, "", "status", "--kubeconfig", a.kubeconfig(t), "--fail-on", failOn); status != want {
			t.Errorf("%q: exit status %d, want %d; %s", failOn, status, want, stderr)
		}
	}
	for only, want := range map[string][2]int{"prod": {3, 0}, "stage": {3, 3}, "test": {0, 0}} {
		for i, failOn := range []string{"behind", "not-true"} {
			if status, _, stderr := run(t, "", "status", "--kubeconfig", observed(t, only).kubeconfig(t), "--fail-on", failOn); status != want[i] {
				t.Errorf("%s, %s: exit status %d, want %d; %s", only, failOn, status, want[i], stderr)
			}
		}
	}
	for _, wrong := range [][]string{
		{"--fail-on", "sad"},
		{"-o", "xml"},
		{"-A", "--namespace", "x"},
		{"--watch", "--fail-on", "behind"},
		{"--machines"},
		{"--machines", "--cluster", "x", "--watch"},
		{"--default-proxy-secret", "a/b"},
	} {
		if status, _, stderr := run(t, "", append([]string{"status"}, wrong...)...); status != 2 || stderr == "" {
			t.Errorf("%q: exit status %d, %s", wrong, status, stderr)
		}
	}
}

func TestStatus_HasAFormForPrograms(t *testing.T) {
	t.Parallel()
	a := observed(t)
	_, text, _ := run(t, "", "status", "--kubeconfig", a.kubeconfig(t), "-o", "json")
	var got struct {
		Version  int
		Clusters []struct{ Name, Secret, Reason string }
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Version != 1 || len(got.Clusters) != 3 ||
		got.Clusters[0].Secret != "team-a/http-proxy" || got.Clusters[1].Reason != "SettingsNotFound" {
		t.Errorf("%v in %s", err, text)
	}
	if _, text, _ = run(t, "", "status", "--kubeconfig", a.kubeconfig(t), "-o", "yaml"); !strings.HasPrefix(text, "clusters:\n- ") {
		t.Errorf("no YAML: %s", text)
	}
}

func TestStatus_SaysWhatItMayNotRead(t *testing.T) {
	t.Parallel()
	a := observed(t)
	delete(a.objects, secretsPath)
	if status, _, stderr := run(t, "", "status", "--kubeconfig", a.kubeconfig(t)); status != 1 ||
		!strings.Contains(stderr, "listing generated Secrets") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	a.objects[clustersPath] = `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"ClusterList","items":[]}`
	a.objects[secretsPath] = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","items":[]}`
	if status, stdout, stderr := run(t, "", "status", "--kubeconfig", a.kubeconfig(t)); status != 0 || stdout != "" ||
		!strings.Contains(stderr, "No labelled Clusters found") {
		t.Errorf("exit status %d, %s%s", status, stdout, stderr)
	}
	if status, _, stderr := run(t, "", "status", "--kubeconfig", a.kubeconfig(t), "--cluster", "prod"); status != 1 ||
		!strings.Contains(stderr, "no labelled Cluster prod in namespace team-a") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	if status, _, stderr := run(t, "", "status", "--kubeconfig", a.kubeconfig(t), "--context", "nobody"); status != 1 ||
		!strings.Contains(stderr, "listing Clusters") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
}

func TestStatus_TakesANameByPosition(t *testing.T) {
	t.Parallel()
	a := observed(t, "prod")
	status, stdout, stderr := run(t, "", "status", "--kubeconfig", a.kubeconfig(t), "prod")
	if status != 0 || !strings.Contains(stdout, "3 behind") {
		t.Errorf("exit status %d, standard error %s, output\n%s", status, stderr, stdout)
	}
	for args, want := range map[string]string{
		"prod test": "takes one argument", "prod --cluster test": "names two Clusters",
		"prod -w -o json": "--watch prints a table",
	} {
		all := append([]string{"status", "--kubeconfig", a.kubeconfig(t)}, strings.Fields(args)...)
		if status, _, stderr := run(t, "", all...); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit status %d, standard error %s", args, status, stderr)
		}
	}
}
