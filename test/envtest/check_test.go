package envtest

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/check"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain"
)

// checked runs the command as the administrator and returns its exit status and its results by name.
func checked(t *testing.T, args ...string) (status int, results map[string]check.Result) {
	t.Helper()
	var text, errs bytes.Buffer
	status = cli.Main(t.Context(), append([]string{"check", "-o", "json", "--kubeconfig", shared.kubeconfig}, args...),
		kit.Streams{In: strings.NewReader(""), Out: &text, Err: &errs}, check.New(), explain.New())
	var report check.Report
	if err := json.Unmarshal(text.Bytes(), &report); err != nil {
		t.Fatalf("%v: %s%s", err, text.String(), errs.String())
	}
	results = map[string]check.Result{}
	for _, group := range report.Groups {
		for _, result := range group.Checks {
			results[string(result.Check)] = result
		}
	}
	return status, results
}

// TestCheck_SeesTheManagerWork has no Pods and no cert-manager in the API server. Hooks depend on the Clusters of other
// tests.
func TestCheck_SeesTheManagerWork(t *testing.T) {
	ns := admitted(t, namespace(t), webhooksLive)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonConfigured)
	before := c.snapshot()
	status, results := checked(t, "--cluster", ns+"/one")
	for name, want := range map[string]check.Status{
		"cluster-api-version": check.Skipped, "cluster-api-kinds": check.OK, "cert-manager": check.Failed,
		"other-extensions": check.OK, "deployments": check.Failed, "replicas": check.Warning, "lease": check.OK,
		"permissions": check.OK, "admission": check.OK, "certificates": check.Failed,
		"cluster-label": check.OK, "cluster-condition": check.OK, "cluster-machines": check.OK, "cluster-addresses": check.Skipped,
	} {
		if got := results[name]; got.Status != want || got.Message == "" {
			t.Errorf("%s: %+v, want %s", name, got, want)
		}
	}
	if status != 1 {
		t.Errorf("exit status %d", status)
	}
	if diff := c.snapshot(); diff != before {
		t.Errorf("check has written: %s", diff)
	}
}

// alone creates a labelled Cluster without a bootstrap object.
func alone(t *testing.T, ns string) classic {
	t.Helper()
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := classic{t: t, ns: ns, name: "one"}
	cluster, isCluster := c.objects()[0].(*clusterv1.Cluster)
	if !isCluster {
		t.Fatalf("the vocabulary has another object: %T", c.objects()[0])
	}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{}
	create(t, cluster)
	return c
}

// TestCheck_NamesWhatTheManagerReports has failures that the manager finds, and the section that check sends to.
func TestCheck_NamesWhatTheManagerReports(t *testing.T) {
	t.Parallel()
	for reason, produce := range map[string]func(t *testing.T, ns string) classic{
		contract.ReasonSettingsNotFound: func(t *testing.T, ns string) classic {
			t.Helper()
			return newCluster(t, ns, "one")
		},
		contract.ReasonInvalidSettings: func(t *testing.T, ns string) classic {
			t.Helper()
			proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": "proxy:1"})
			return newCluster(t, ns, "one")
		},
		contract.ReasonNameTaken: func(t *testing.T, ns string) classic {
			t.Helper()
			proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
			proxySecret(t, ns, "one-proxy-files", map[string]string{"a": "b"})
			return newCluster(t, ns, "one")
		},
		contract.ReasonWaitingForObjects: func(t *testing.T, ns string) classic { t.Helper(); return alone(t, ns) },
	} {
		t.Run(reason, func(t *testing.T) {
			ns := namespace(t)
			produce(t, ns).eventuallyReports(reason)
			_, results := checked(t, "--cluster", ns+"/one")
			got := results["cluster-condition"]
			if got.Status == check.OK || !strings.HasPrefix(got.Message, reason+": ") ||
				!strings.HasSuffix(got.Link, "/docs/troubleshooting.md#"+strings.ToLower(reason)) {
				t.Errorf("%+v", got)
			}
		})
	}
}
