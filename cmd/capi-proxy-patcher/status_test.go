package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

const leasePath = "/apis/coordination.k8s.io/v1/namespaces/capi-proxy-patcher-system/leases/capi-proxy-patcher.io"

// renewed is the line about a manager that runs.
const renewed = "A manager renews Lease capi-proxy-patcher-system/capi-proxy-patcher.io.\n"

// leaseOf is a Lease that was renewed some time ago.
func leaseOf(age time.Duration) string {
	return fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"namespace":"capi-proxy-patcher-system","name":"capi-proxy-patcher.io"},`+
		`"spec":{"holderIdentity":"m","leaseDurationSeconds":900,"renewTime":%q}}`,
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
		return fmt.Sprintf(`{"metadata":{"namespace":"team-a","name":%q,"labels":{"capi-proxy-patcher.io/enabled":"true"},`+
			`"annotations":{%s}},"spec":{"controlPlaneRef":{"kind":"KubeadmControlPlane"}},"status":{"conditions":[{"type":`+
			`"capi-proxy-patcher.io/ProxyConfigured","status":%q,"reason":%q,"message":"words"}]}}`, name, annotations, status, reason)
	}
	items := slices.DeleteFunc([]string{
		cluster("prod", `"capi-proxy-patcher.io/machines-behind":"[{\"kind\":\"KubeadmControlPlane\",\"name\":\"prod\",\"machines\":3,\"oldest\":\"2026-01-01T12:00:00Z\"}]"`,
			"True", "Configured"), cluster("stage", "", "False", "SettingsNotFound"), cluster("test", "", "True", "Configured"),
	}, func(item string) bool { return item == "" })
	list := `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"ClusterList","metadata":{"resourceVersion":"7"},"items":[` +
		strings.Join(items, ",") + "]}"
	secrets := `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","items":[{"metadata":{"namespace":"team-a",` +
		`"name":"prod-proxy-files","annotations":{"capi-proxy-patcher.io/source":"team-a/http-proxy"}}}]}`
	return newAPI(t, map[string]string{
		clustersPath: list, secretsPath: secrets,
		"/apis/cluster.x-k8s.io/v1beta2/clusters": list, "/api/v1/secrets": secrets,
		leasePath: leaseOf(time.Second),
	})
}

func TestStatus_ReadsEachObjectOnce(t *testing.T) {
	t.Parallel()
	manager := []string{"GET /apis/apps/v1/deployments", "GET " + leasePath}
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
			links := kit.Links("cluster-machines", contract.ReasonSettingsNotFound)
			if status != 0 || stderr != renewed+links || !strings.Contains(stdout, "team-a/http-proxy") ||
				!strings.Contains(stdout, "3 behind") {
				t.Fatalf("exit status %d, standard error %s, output\n%s", status, stderr, stdout)
			}
			if diff := cmp.Diff(slices.Concat(test.asked, manager), a.asked); diff != "" {
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
	const want = "The table may be old: no manager holds Lease sys/capi-proxy-patcher.io.\nThe installation in namespace sys does not work (deployments"
	if status, stdout, stderr := run(t, "", "status", "--kubeconfig", a.kubeconfig(t)); status != 0 ||
		!strings.HasPrefix(stderr, want) || !strings.Contains(stdout, "3 behind") {
		t.Errorf("exit status %d, standard error %s, output\n%s", status, stderr, stdout)
	}
	if status, _, stderr := run(t, "", "status", "--kubeconfig", a.kubeconfig(t), "-o", "json"); status != 0 || stderr != "" {
		t.Errorf("exit status %d, standard error of JSON %s", status, stderr)
	}
}

// TestStatus_SaysWhetherAManagerRuns has a Cluster that is as it should be, as far as is recorded. No pass over it can be
// made, so no record opens the gate before an old password is withdrawn.
func TestStatus_SaysWhetherAManagerRuns(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ lease, want string }{
		"a manager":              {leaseOf(time.Second), renewed},
		"no manager for an hour": {leaseOf(time.Hour), "The table may be old: m has not renewed Lease capi-proxy-patcher-system/capi-proxy-patcher.io for "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := observed(t, "test")
			if a.objects[leasePath] = test.lease; test.lease == "" {
				delete(a.objects, leasePath)
			}
			args := []string{"status", "--kubeconfig", a.kubeconfig(t)}
			status, stdout, stderr := run(t, "", args...)
			if status != 0 || !strings.HasPrefix(stderr, test.want) || !strings.Contains(stdout, "True    -\n") {
				t.Errorf("exit status %d, standard error %s, output\n%s", status, stderr, stdout)
			}
			for _, failOn := range []string{"behind", "not-true", "behind,not-true"} {
				status, stdout, stderr := run(t, "", append(args, "-o", "json", "--fail-on", failOn)...)
				if status != 3 || !strings.HasPrefix(stderr, "Cluster team-a/test: cannot be read: ") || !strings.Contains(stdout, `"UpToDate"`) {
					t.Errorf("%s: exit status %d, standard error %s, output\n%s", failOn, status, stderr, stdout)
				}
			}
		})
	}
}

func TestStatus_RejectsFlagsThatExcludeEachOther(t *testing.T) {
	t.Parallel()
	for _, wrong := range [][]string{
		{"--fail-on", "sad"},
		{"-o", "xml"},
		{"-A", "--namespace", "x"},
		{"--watch", "--fail-on", "behind"},
		{"--machines"},
		{"--machines", "--cluster", "x", "--watch"},
		{"--default-proxy-secret", "a/b"},
		{"--default-proxy-secret", "b", "--fail-on", "behind"},
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
		!strings.Contains(stderr, "Cluster team-a/prod not found, and namespace team-a has none") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	a.objects[clustersPath] = `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"ClusterList","items":[{"metadata":{"namespace":"team-a","name":"prod"}}]}`
	for name, want := range map[string]string{
		"prod": "no labelled Cluster prod in namespace team-a", "prd": "Cluster team-a/prd not found; found: team-a/prod",
	} {
		status, _, stderr := run(t, "", "status", "--kubeconfig", a.kubeconfig(t), name)
		if status != 1 || !strings.Contains(stderr, want) {
			t.Errorf("exit status %d, %s, want %s", status, stderr, want)
		}
	}
	if status, _, stderr := run(t, "", "status", "--kubeconfig", a.kubeconfig(t), "--context", "nobody"); status != 1 ||
		!strings.Contains(stderr, "listing Clusters") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
}

func TestCommands_TakeANameByPosition(t *testing.T) {
	t.Parallel()
	a := observed(t, "prod")
	status, stdout, stderr := run(t, "", "status", "--kubeconfig", a.kubeconfig(t), "prod")
	if status != 0 || !strings.Contains(stdout, "3 behind") {
		t.Errorf("exit status %d, standard error %s, output\n%s", status, stderr, stdout)
	}
	for _, test := range []struct {
		args   string
		status int
		want   string
	}{
		{"status prod test", 2, `status takes one argument, a Cluster, got ["prod" "test"]`},
		{"plan prod --cluster test", 2, `plan names two Clusters, "test" and "prod"`},
		{"check prod test", 2, "check takes one argument"},
		{"status prod -w -o json", 2, "--watch prints a table"},
		{"plan", 2, "no Cluster; name it"},
		{"status -n elsewhere team-a/prod", 0, ""},
		{"plan elsewhere/prd", 1, "Cluster elsewhere/prd"},
		{"explain --cluster elsewhere/prd", 1, "listing Clusters in namespace elsewhere"},
		{"explain prd", 2, "--cluster prd"},
	} {
		args := strings.Fields(test.args)
		args = slices.Insert(args, 1, "--kubeconfig", a.kubeconfig(t))
		if status, _, stderr := run(t, "", args...); status != test.status || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: exit status %d, standard error %s", test.args, status, stderr)
		}
	}
}
