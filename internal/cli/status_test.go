package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// observed is a management cluster with labelled Clusters: one with Machines that are behind, one that is not True.
func observed(t *testing.T) *api {
	t.Helper()
	cluster := func(name, annotations, status, reason string) string {
		return fmt.Sprintf(`{"metadata":{"namespace":"team-a","name":%q,"labels":{"capi-proxy-patcher.io/enabled":"true"},`+
			`"annotations":%s},"spec":{"controlPlaneRef":{"kind":"KubeadmControlPlane"}},"status":{"conditions":[{"type":`+
			`"capi-proxy-patcher.io/ProxyConfigured","status":%q,"reason":%q,"message":"words"}]}}`, name, annotations, status, reason)
	}
	list := `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"ClusterList","metadata":{"resourceVersion":"7"},"items":[` +
		cluster("prod", `{"capi-proxy-patcher.io/machines-behind":"[{\"kind\":\"KubeadmControlPlane\",\"name\":\"prod\",\"machines\":3,\"oldest\":\"2026-01-01T12:00:00Z\"}]"}`,
			"True", "Configured") + "," + cluster("stage", "{}", "False", "SettingsNotFound") + "]}"
	secrets := `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","items":[{"metadata":{"namespace":"team-a",` +
		`"name":"prod-proxy-files","annotations":{"capi-proxy-patcher.io/source":"team-a/http-proxy"}}}]}`
	return newAPI(t, map[string]string{
		clustersPath: list, secretsPath: secrets,
		"/apis/cluster.x-k8s.io/v1beta2/clusters": list, "/api/v1/secrets": secrets,
	})
}

func TestStatus_TakesTwoRequests(t *testing.T) {
	t.Parallel()
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
			if status != 0 || stderr != "" || !strings.Contains(stdout, "team-a/http-proxy") ||
				!strings.Contains(stdout, "3 behind") {
				t.Fatalf("exit status %d, standard error %s, output\n%s", status, stderr, stdout)
			}
			if diff := cmp.Diff(test.asked, a.asked); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatus_FailsOnStates(t *testing.T) {
	t.Parallel()
	a := observed(t)
	for failOn, want := range map[string]int{"behind": 3, "not-true": 3, "behind,not-true": 3, "": 0} {
		if status, _, stderr := run(t, "", "status", "--kubeconfig", a.kubeconfig(t), "--fail-on", failOn); status != want {
			t.Errorf("%q: exit status %d, want %d; %s", failOn, status, want, stderr)
		}
	}
	for _, wrong := range [][]string{
		{"--fail-on", "sad"},
		{"-o", "xml"},
		{"-A", "--namespace", "x"},
		{"--watch", "-o", "json"},
		{"--watch", "--fail-on", "behind"},
		{"extra"},
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
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Version != 1 || len(got.Clusters) != 2 ||
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
		!strings.Contains(stderr, "no Cluster has label capi-proxy-patcher.io/enabled") {
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
