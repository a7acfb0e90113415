//go:build node

package kubernetes_test

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/node/lab"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

// pull is a machine that does no more than pull one image where kubeadm would run.
type pull struct {
	name string
	// unlabelled removes the label.
	unlabelled bool
	// change is what differs in the Cluster's Secret; an empty value removes a key.
	change map[string]string
	// proxy is the name of the proxy that the machine's requests are in the log of; empty: in none.
	proxy string
	// fails is a regular expression for why the pull fails; empty: it works.
	fails string
	// cluster is the Cluster of the machine.
	cluster cluster
}

// pulls has machines pull, each with other settings.
func (s *suite) pulls(t *testing.T) {
	t.Helper()
	intercepting := pki.Make(t, "proxy CA")
	s.lab.StartProxy(t, lab.Proxy{
		Name: "intercepting", Port: 3130, Username: username, Password: password,
		Intercept: intercepting,
	})
	through := map[string]string{contract.KeyHTTPProxy: "http://10.77.0.1:3130"}
	with := func(values map[string]string, key, value string) map[string]string {
		values = maps.Clone(values)
		values[key] = value
		return values
	}
	const untrusted = `x509: certificate signed by unknown authority`
	pulls := []pull{
		{name: "without the label", unlabelled: true, fails: `lookup registry\.k8s\.io`},
		{name: "without trustedCA, from a registry with a private CA", change: map[string]string{contract.KeyTrustedCA: ""}, proxy: "main", fails: untrusted},
		{name: "with trustedCA, from a registry with a private CA", proxy: "main"},
		{name: "with the registry's CA only, through a proxy that intercepts TLS", change: through, proxy: "intercepting", fails: untrusted},
		{name: "with the proxy's CA, through a proxy that intercepts TLS", change: with(through, contract.KeyTrustedCA, string(intercepting.PEM)), proxy: "intercepting"},
		{name: "with a wrong password", change: map[string]string{contract.KeyPassword: "wrong"}, proxy: "main", fails: `Proxy Authentication Required`},
	}
	pulls = append(pulls, pull{
		name:  "of a replacement before the Secret is changed, the old proxy being gone",
		fails: `10\.77\.0\.1:3128: connect: connection refused`,
	}, pull{name: "before requests into the cluster"})
	// All at once, because Cluster API takes its time for each.
	for i := range pulls {
		pulls[i].cluster = s.puller(t, fmt.Sprintf("pull-%d", i), pulls[i])
	}
	last := len(pulls) - 2
	gone, inside := pulls[last], pulls[last+1]
	for _, p := range pulls[:last] {
		t.Run(p.name, func(t *testing.T) { s.pull(t, p) })
	}
	t.Run("the log does have requests into the cluster where NO_PROXY is missing",
		func(t *testing.T) { s.withoutNoProxy(t, inside) })

	s.lab.StopProxy(t, "main")
	t.Run(gone.name, func(t *testing.T) { s.pull(t, gone) })
}

// pull boots a machine and compares what became of its pull.
func (s *suite) pull(t *testing.T, p pull) {
	t.Helper()
	step := "a pull " + p.name
	s.report.Step(t, step)
	before := map[string]int{}
	for _, proxy := range s.proxies() {
		before[proxy] = len(s.lab.Requests(t, proxy))
	}
	n := s.pulling(t, p)
	output := n.ReadFile(t, "/var/lib/node-test/pull")
	n.Stop(t)
	if p.fails == "" && !strings.HasPrefix(output, "pulled "+pauseImage+" sha256:") {
		t.Errorf("the pull does not work: %s", output)
	}
	if p.fails != "" && !regexp.MustCompile(p.fails).MatchString(output) {
		t.Errorf("the pull says %s, want it to fail with %s", output, p.fails)
	}
	for _, proxy := range s.proxies() {
		requests := s.lab.Requests(t, proxy)[before[proxy]:]
		if (len(requests) > 0) != (proxy == p.proxy) {
			t.Errorf("the proxy %s has %d requests: %v", proxy, len(requests), requests)
		}
		for _, r := range requests {
			if r.Client != n.address || r.Host != registryHost {
				t.Errorf("the proxy %s has %+v", proxy, r)
			}
		}
	}
	if strings.Contains(output, needle) {
		t.Errorf("the message has the password: %s", output)
	}
	if p.fails == "" {
		s.report.Saw(t, step, "works, through proxy %s", p.proxy)
	} else {
		s.report.Saw(t, step, "fails: %s", strings.ReplaceAll(p.fails, `\`, ""))
	}
}

// puller makes the Cluster of a pull.
func (s *suite) puller(t *testing.T, namespace string, p pull) cluster {
	t.Helper()
	secrets := s.secrets()
	for key, value := range p.change {
		secrets["http-proxy"][key] = value
		if value == "" {
			delete(secrets["http-proxy"], key)
		}
	}
	manifest := clusterManifest
	if p.unlabelled {
		manifest = unlabelled()
	}
	return s.management.newCluster(t, namespace, manifest, secrets)
}

// pulling boots a machine that pulls and returns when it has.
func (s *suite) pulling(t *testing.T, p pull) node {
	t.Helper()
	n := s.node(t, nodeOptions{
		name: "pulls", address: "10.77.0.20", pods: "10.244.3.0/24", boot: p.cluster.waitBoot(t, ofControlPlane), pulls: true,
	})
	n.Start(t)
	n.waitForBootstrap(t)
	return n
}

// proxies are the names of all that were ever started.
func (s *suite) proxies() []string {
	return []string{"main", "pool", "intercepting", "next", openProxy, staticProxy, rotatingProxy}
}

// withoutNoProxy shows that a request into the cluster would be seen: a log without one is no accident.
func (s *suite) withoutNoProxy(t *testing.T, p pull) {
	t.Helper()
	const step = "the counter-proof: requests into the cluster without NO_PROXY"
	s.report.Step(t, step)
	n := s.pulling(t, p)
	before := len(s.lab.Requests(t, "main"))
	inside := []string{
		"https://10.77.0.10:6443/", "https://10.96.0.1/", "http://10.244.0.1/", "http://169.254.169.254/", "http://127.0.0.1/",
		"http://localhost/", "https://kubernetes.default.svc/", "https://kubernetes.default.svc.cluster.local/",
	}
	n.MustRun(t,
		append([]string{
			"sh", "-c", strings.Replace(askWithCurl, "set +a", "set +a; unset NO_PROXY no_proxy", 1),
			"sh",
		}, inside...)...)
	n.Stop(t)
	networks := map[string]netip.Prefix{
		"a Pod": netip.MustParsePrefix("10.244.0.0/16"), "a Service": netip.MustParsePrefix("10.96.0.0/16"),
		"the endpoint": netip.MustParsePrefix("10.77.0.10/32"),
	}
	found := 0
	for _, r := range s.lab.Requests(t, "main")[before:] {
		if _, ok := lab.InCluster(r.Host, networks, "cluster.local"); ok {
			found++
		}
	}
	if found != len(inside) {
		t.Errorf("%d requests into the cluster are in the log, want %d", found, len(inside))
	}
	s.report.Saw(t, step, "%d of %d in the proxy's log", found, len(inside))
}
