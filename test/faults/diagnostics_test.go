package faults

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// account makes a ServiceAccount that may use some paths, and returns a token of it.
func account(t *testing.T, ns, name string, rules ...rbacv1.PolicyRule) string {
	t.Helper()
	create(t,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + name}, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ns + "-" + name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}},
		})
	config, err := mgmt.ServiceAccountConfig(t.Context(), shared.Cluster.Config(), ns, name)
	if err != nil {
		t.Fatal(err)
	}
	return config.BearerToken
}

// listens waits until the diagnostics are served. They need a key first, so they come after readiness.
func (p *process) listens() {
	p.t.Helper()
	eventually(p.t, "diagnostics", func() string {
		c, err := (&net.Dialer{}).DialContext(p.t.Context(), "tcp", p.diagnostics)
		if err != nil {
			return err.Error()
		}
		_ = c.Close()
		return ""
	})
}

// diagnose sends a request to the diagnostics of a manager, and returns the status and the body, or 0.
func (p *process) diagnose(scheme, method, path, token, body string) (int, string) {
	p.t.Helper()
	p.listens()
	q, err := http.NewRequestWithContext(p.t.Context(), method, scheme+"://"+p.diagnostics+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS13}, //nolint:gosec // self-signed
	}}
	answer, err := client.Do(q)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(text)
}

// asks sends requests to the diagnostics. It fails if one gets another status, or if the metrics lack a part. reader is the
// token of an account that may read metrics.
func (p *process) asks(reader, part string, tests ...diagnosis) {
	p.t.Helper()
	for _, test := range append(tests, diagnosis{"GET", "/metrics", "", 401},
		diagnosis{"GET", "/metrics", "s3cr", 500}, // controller-runtime: the token is not valid
		diagnosis{"PUT", "/debug/flags/v", reader, 403}) {
		if status, body := p.diagnose("https", test.method, test.path, test.token, "4"); status != test.status {
			p.t.Errorf("%s %s: status %d, want %d: %.200s", test.method, test.path, status, test.status, body)
		}
	}
	if status, body := p.diagnose("https", "GET", "/metrics", reader, ""); status != 200 || !strings.Contains(body, part) {
		p.t.Errorf("metrics: status %d without %s: %.200s", status, part, body)
	}
}

// diagnosis is a request with a token, and the status that it gets.
type diagnosis struct {
	method, path, token string
	status              int
}

// TestDiagnostics_AreForWhomRBACAllowsThem asks a manager and hooks with tokens of real ServiceAccounts. Their own rights are
// those of config/rbac and config/extension.
func TestDiagnostics_AreForWhomRBACAllowsThem(t *testing.T) {
	ns := namespace(t)
	t.Parallel()
	paths := func(verb string, paths ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{verb}, NonResourceURLs: paths}
	}
	reader := account(t, ns, "reader", paths("get", "/metrics"))
	operator := account(t, ns, "operator", paths("get", "/debug/pprof/*"), paths("put", "/debug/flags/v"))
	p := manager(t, ns, "--tls-min-version=VersionTLS13")
	p.asks(reader, "controller_runtime_", diagnosis{"GET", "/debug/pprof/heap", reader, 403},
		diagnosis{"GET", "/debug/pprof/heap", operator, 200}, diagnosis{"PUT", "/debug/flags/v", operator, 200})
	if status, _ := p.diagnose("http", "GET", "/metrics", reader, ""); status == 200 {
		t.Error("metrics are served without TLS")
	}
	old := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}} //nolint:gosec // self-signed
	if c, err := old.DialContext(t.Context(), "tcp", p.diagnostics); err == nil {
		_ = c.Close()
		t.Error("TLS 1.2 is accepted in spite of --tls-min-version")
	}
	first, _, _ := strings.Cut(p.log.String(), "\n")
	if !strings.Contains(first, `"Starting manager" version=`) || !strings.Contains(first, "--namespace="+ns) {
		t.Errorf("the first line is %s", first)
	}

	for _, object := range vocabulary.Kustomize(t, "../../config/extension/resources") {
		switch object.GetKind() {
		case "ServiceAccount", "ClusterRole", "ClusterRoleBinding":
			create(t, object)
		}
	}
	folder := t.TempDir()
	pki.Serve(t, folder)
	_, port, _ := net.SplitHostPort(vocabulary.FreeAddress(t))
	p = command(t, "hooks", "--kubeconfig", kubeconfigOf(t, mgmt.SystemNamespace, "capi-proxy-patcher-hooks"),
		"--bind-address", "127.0.0.1", "--port", port, "--cert-dir", folder)
	p.ready()
	p.asks(reader, `controller_runtime_webhook_requests_total{code="200",webhook="/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery"}`)
}

// TestLog_IsQuietWhileNothingHappens counts reconciles, and lines of a log at level 2.
func TestLog_IsQuietWhileNothingHappens(t *testing.T) {
	f := newFleet(t, 3)
	t.Parallel()
	p := manager(t, f.ns, shortResync, "--insecure-diagnostics")
	f.create(enabled)
	f.eventuallyReports(contract.ReasonConfigured)
	reconciles := regexp.MustCompile(`controller_runtime_reconcile_total\{.*\} ([0-9]+)`)
	count := func() (sum int) {
		status, body := p.diagnose("http", "GET", "/metrics", "", "")
		if status != http.StatusOK {
			t.Errorf("metrics: status %d: %s", status, body)
		}
		for _, match := range reconciles.FindAllStringSubmatch(body, -1) {
			n, _ := strconv.Atoi(match[1])
			sum += n
		}
		return sum
	}
	more := func(n int) {
		t.Helper()
		before := count()
		eventually(t, "reconciles", func() string {
			if now := count(); now < before+n {
				return strconv.Itoa(now - before)
			}
			return ""
		})
	}
	// A cache that was behind brings more writes at first. Then each Cluster is reconciled once in ten resyncs.
	eventually(t, "the log", func() string {
		before := p.log.String()
		more(3)
		if after := p.log.String(); after != before {
			return "is written while nothing happens:\n" + strings.TrimPrefix(after, before)
		}
		return ""
	})
}

// TestMetrics_AreTheStateOfTheWorld compares what is scraped with the objects of the namespace.
func TestMetrics_AreTheStateOfTheWorld(t *testing.T) {
	f := newFleet(t, 3)
	t.Parallel()
	p := manager(t, f.ns, shortResync, "--insecure-diagnostics", "--leader-elect", "--leader-elect-namespace", f.ns)
	f.create(enabled)
	f.eventuallyReports(contract.ReasonConfigured)
	for _, want := range []string{
		`capi_proxy_patcher_clusters{reason="Configured",status="True"} 3`,
		`capi_proxy_patcher_bootstrap_objects{state="configured"} 6`,
		`capi_proxy_patcher_bootstrap_objects{state="conflict"} 0`,
		`capi_proxy_patcher_machines_behind 0`,
		`capi_proxy_patcher_renders_total{by="controller",outcome="changed"} 6`,
	} {
		eventually(t, want, func() string {
			_, body := p.diagnose("http", "GET", "/metrics", "", "")
			if strings.Contains(body, "\n"+want+"\n") {
				return ""
			}
			return strings.Join(regexp.MustCompile(`(?m)^capi_proxy_patcher_.*$`).FindAllString(body, -1), "\n")
		})
	}
	// Alert rules and the dashboard query these as well. Those of others are not served here, nor those of webhooks.
	others := regexp.MustCompile(`^(apiserver|certmanager|controller_runtime_webhook)_`)
	names, err := os.ReadFile("../engines/alerts/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, body := p.diagnose("http", "GET", "/metrics", "", "")
	for name := range strings.FieldsSeq(string(names)) {
		if !others.MatchString(name) && !strings.Contains(body, "\n"+name+"{") {
			t.Errorf("metric %s of test/engines/alerts/metrics.txt is not served", name)
		}
	}
}
