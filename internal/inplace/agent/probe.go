package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// Names of the probes of a node. Each has a section in docs/troubleshooting.md.
const (
	CodeNodeProblems  finding.Code = "node-problems"
	CodeNodeVariables finding.Code = "node-variables"
	CodeNodeTrust     finding.Code = "node-trust"
	CodeNodeEndpoint  finding.Code = "node-endpoint"
	CodeNodeAPIServer finding.Code = "node-api-server"
	CodeNodeDNS       finding.Code = "node-dns"
	CodeNodeNetwork   finding.Code = "node-network"
)

const (
	// maxProbes is how many endpoints, and how many addresses of nodes, one probe takes: all answers together have to fit
	// into the 4,096 bytes of a termination message.
	maxProbes = 6
	// maxProbe is how much of one answer is kept, and maxIssuer how much of a name in a certificate, in bytes.
	maxProbe, maxIssuer = 240, 60
	// pathClusterCA is the authority of the API server on nodes of kubeadm.
	pathClusterCA = "/etc/kubernetes/pki/ca.crt"
)

// ProbeOptions say what a probe asks.
type ProbeOptions struct {
	// Root is the folder that is the root of the node.
	Root string
	// Endpoints are URLs outside the cluster, which are asked with the variables of the node.
	Endpoints []string
	// APIServer is the URL of the API server, and DNSName the name of its Service, which DNSServer, the address of the
	// cluster's own DNS, has to know. Empty ones are skipped.
	APIServer, DNSName, DNSServer string
	// Nodes are addresses of nodes. They are not asked: what counts is whether clients would ask the proxy for them.
	Nodes []string
}

// Answer is the outcome of one probe. Its JSON is read by the command check, of the same version.
type Answer struct {
	Check   finding.Code `json:"check"`
	OK      bool         `json:"ok"`
	Message string       `json:"message"`
}

// Probe asks as containerd does: with the variables in the files of the node and the certificates that it trusts. No
// answer has a value of a variable, or more than a name of a certificate from a proxy or an endpoint.
func Probe(ctx context.Context, o ProbeOptions) ([]Answer, error) {
	on, err := Open(o.Root)
	if err != nil {
		return nil, err
	}
	p := prober{on: on}
	p.problems()
	p.variables()
	roots := p.trust()
	outside := newClient(roots, p.config, nil)
	defer outside.CloseIdleConnections()
	for _, endpoint := range o.Endpoints[:min(len(o.Endpoints), maxProbes)] {
		p.ask(ctx, CodeNodeEndpoint, outside, endpoint)
	}
	if f, err := on.ReadThroughLinks(pathClusterCA); err == nil {
		roots = x509.NewCertPool()
		roots.AppendCertsFromPEM(f.Content)
	}
	inside := newClient(roots, httpproxy.Config{}, nil)
	defer inside.CloseIdleConnections()
	p.askDirectly(ctx, CodeNodeAPIServer, inside, o.APIServer)
	if o.DNSName != "" && o.DNSServer != "" {
		pods := newClient(roots, httpproxy.Config{}, &net.Resolver{
			PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(o.DNSServer, "53"))
			},
		})
		defer pods.CloseIdleConnections()
		p.askDirectly(ctx, CodeNodeDNS, pods, "https://"+o.DNSName)
	}
	p.nodes(o.Nodes)
	return p.answers, nil
}

// prober makes the probes of one node.
type prober struct {
	on      Files
	config  httpproxy.Config
	answers []Answer
}

func (p *prober) say(code finding.Code, good bool, format string, args ...any) {
	p.answers = append(p.answers, Answer{code, good, finding.Line(fmt.Sprintf(format, args...), maxProbe)})
}

// problems passes on what could not be done when the node was prepared.
func (p *prober) problems() {
	if found := problems(p.on); found != "" {
		p.say(CodeNodeProblems, false, "%s", found)
	} else {
		p.say(CodeNodeProblems, true, "nothing failed when the node was prepared")
	}
}

// problems returns what is in contract.PathProblems, on one line, "" if there is no such file.
func problems(on Files) string {
	f, err := on.Read(contract.PathProblems)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ""
	case err != nil:
		return err.Error()
	}
	text := strings.ReplaceAll(string(f.Content), contract.Name+": ", "")
	return finding.Line(strings.Join(strings.Split(strings.TrimSpace(text), "\n"), "; "), maxProbe)
}

// variables reads the files that systemd reads for containerd and kubelet, in their order.
func (p *prober) variables() {
	var names []string
	for _, name := range []string{contract.PathProxyEnv, contract.PathNodeEnv} {
		f, err := p.on.Read(name)
		if err != nil {
			if name == contract.PathProxyEnv {
				p.say(CodeNodeVariables, false, "the node has no %s", name)
				return
			}
			continue
		}
		variables, err := systemd.ParseEnvironmentFile(f.Content)
		if err != nil {
			p.say(CodeNodeVariables, false, "%s cannot be parsed", name)
			return
		}
		for _, v := range variables {
			names = append(names, v.Name)
			switch v.Name {
			case "HTTP_PROXY":
				p.config.HTTPProxy = v.Value
			case "HTTPS_PROXY":
				p.config.HTTPSProxy = v.Value
			case "NO_PROXY":
				p.config.NoProxy = v.Value
			}
		}
	}
	slices.Sort(names)
	p.say(CodeNodeVariables, len(names) > 0, "the files of the node set %d variables", len(slices.Compact(names)))
}

// trust compares the certificates of the product with those that programs of the node trust.
func (p *prober) trust() *x509.CertPool {
	roots, all := trusted(p.on)
	f, err := p.on.Read(contract.PathTrustedCA)
	if err != nil {
		return roots
	}
	known := certificates(all)
	count := 0
	for _, one := range certificates(f.Content) {
		count++
		if !slices.ContainsFunc(known, one.Equal) {
			p.say(CodeNodeTrust, false, "certificate %d of %s (%s) is in no bundle that programs read", count,
				contract.PathTrustedCA, named(one.Subject.String()))
			return roots
		}
	}
	p.say(CodeNodeTrust, true, "%d certificates of %s are trusted", count, contract.PathTrustedCA)
	return roots
}

func certificates(text []byte) (all []*x509.Certificate) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if one, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, one)
		}
	}
	return all
}

// ask asks an endpoint with the variables of the node, and says who answered.
func (p *prober) ask(ctx context.Context, code finding.Code, client *http.Client, endpoint string) {
	way, err := p.way(endpoint)
	if err != nil {
		p.say(code, false, "%s: not a URL", nameOf(endpoint))
		return
	}
	status, connection, err := get(ctx, client, endpoint)
	if err != nil {
		p.say(code, false, "%s, %s: %s%s", nameOf(endpoint), way, reason(err), unknownIssuer(err))
		return
	}
	p.say(code, isAnswer(status), "%s, %s: status %d%s", nameOf(endpoint), way, status, issuer(connection))
}

// askDirectly asks something of the cluster without a proxy, after it has said if clients would ask the proxy.
func (p *prober) askDirectly(ctx context.Context, code finding.Code, client *http.Client, endpoint string) {
	if endpoint == "" {
		return
	}
	if way, err := p.way(endpoint); err != nil || way != direct {
		p.say(code, false, "%s would be asked for through the proxy", nameOf(endpoint))
		return
	}
	p.ask(ctx, code, client, endpoint)
}

const direct, proxied = "directly", "through the proxy"

// way returns how a client with the variables of the node reaches a URL.
func (p *prober) way(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return "", errors.New("not a URL")
	}
	proxy, err := p.config.ProxyFunc()(u)
	if proxy != nil || err != nil {
		return proxied, nil //nolint:nilerr // a proxy that cannot be used is asked for, too
	}
	return direct, nil
}

// nodes says for which addresses of nodes clients would ask the proxy.
func (p *prober) nodes(addresses []string) {
	var asked []string
	for _, text := range addresses[:min(len(addresses), maxProbes)] {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		if way, err := p.way("https://" + netip.AddrPortFrom(ip, 10250).String()); err == nil && way == proxied {
			asked = append(asked, ip.String())
		}
	}
	if len(addresses) > 0 {
		p.say(CodeNodeNetwork, len(asked) == 0, "%s", map[bool]string{
			true:  "nodes are reached directly",
			false: "clients would ask the proxy for nodes: " + strings.Join(asked, ", "),
		}[len(asked) == 0])
	}
}

// issuer names who has issued the certificate of an answer: that of a proxy that intercepts TLS is not the registry's.
func issuer(state *tls.ConnectionState) string {
	if state == nil || len(state.PeerCertificates) == 0 {
		return ""
	}
	return ", certificate issued by " + named(state.PeerCertificates[0].Issuer.String())
}

func unknownIssuer(err error) string {
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) || unknown.Cert == nil {
		return ""
	}
	return " " + named(unknown.Cert.Issuer.String())
}

// named returns a name of a certificate on one line. Others have chosen it.
func named(text string) string {
	return finding.Line(string(bytes.ToValidUTF8([]byte(text), []byte("?"))), maxIssuer)
}
