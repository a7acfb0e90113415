package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/node"
)

const (
	// checkLimit is how long one endpoint may take, checkTries how often it is asked.
	checkLimit, checkTries = 10 * time.Second, 2
	maxHeader              = 64 << 10
	// maxReason is how much of an error is kept, in bytes.
	maxReason = 200
)

// bundles returns where operating systems keep all certificates that they trust, as crypto/x509 knows them.
func bundles() []string {
	return []string{
		"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/var/lib/ca-certificates/ca-bundle.pem", "/etc/ssl/cert.pem",
	}
}

// check asks every endpoint of a version with its variables and certificates, beside those that the node trusts. An
// answer is any response but 407 and those of 5xx; redirects are answers. The error names each endpoint that does not
// answer by scheme and host, and holds no credential.
func check(ctx context.Context, on Files, v node.Version) error {
	if len(v.Endpoints()) == 0 {
		return nil
	}
	roots, _ := trusted(on)
	roots.AppendCertsFromPEM(v.Certificates())
	config := httpproxy.Config{
		HTTPProxy: v.Variable("HTTP_PROXY"), HTTPSProxy: v.Variable("HTTPS_PROXY"), NoProxy: v.Variable("NO_PROXY"),
	}
	client := newClient(roots, config, nil)
	defer client.CloseIdleConnections()
	var failed []string
	for _, endpoint := range v.Endpoints() {
		var err error
		for range checkTries {
			if err = ask(ctx, client, endpoint); err == nil {
				break
			}
		}
		if err != nil {
			failed = append(failed, fmt.Sprintf("%s: %s", nameOf(endpoint), reason(err)))
		}
	}
	if len(failed) > 0 {
		return errors.New("readiness endpoints do not answer with the mounted values: " + strings.Join(failed, "; "))
	}
	return nil
}

// trusted returns the certificates that the node trusts, and the PEM blocks that they are from.
func trusted(on Files) (*x509.CertPool, []byte) {
	roots, all := x509.NewCertPool(), []byte{}
	for _, name := range bundles() {
		if f, err := on.ReadThroughLinks(name); err == nil {
			roots.AppendCertsFromPEM(f.Content)
			all = append(append(all, f.Content...), '\n')
		}
	}
	return roots, all
}

// newClient returns a client that asks as a program with variables does. It follows no redirect. names is nil for the
// resolver of the node.
func newClient(roots *x509.CertPool, variables httpproxy.Config, names *net.Resolver) *http.Client {
	through := variables.ProxyFunc()
	return &http.Client{
		Timeout:       checkLimit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  func(r *http.Request) (*url.URL, error) { return through(r.URL) },
			DialContext:            (&net.Dialer{Resolver: names}).DialContext,
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			OnProxyConnectResponse: connected,
			DisableKeepAlives:      true, MaxResponseHeaderBytes: maxHeader, ForceAttemptHTTP2: true,
		},
	}
}

// answerError is why an answer is none, in the words of the product.
type answerError string

func (e answerError) Error() string { return string(e) }

func statusError(status int) error { return answerError(fmt.Sprintf("status %d", status)) }

// connected returns the error of a proxy that does not connect.
func connected(_ context.Context, _ *url.URL, _ *http.Request, response *http.Response) error {
	if response.StatusCode == http.StatusOK {
		return nil
	}
	if text := http.StatusText(response.StatusCode); text != "" {
		return answerError(text)
	}
	return statusError(response.StatusCode)
}

func ask(ctx context.Context, client *http.Client, endpoint string) error {
	status, _, err := get(ctx, client, endpoint)
	if err == nil && !isAnswer(status) {
		err = statusError(status)
	}
	return err
}

// isAnswer reports whether a status is one of the endpoint: a proxy has others.
func isAnswer(status int) bool {
	return status != http.StatusProxyAuthRequired && status < http.StatusInternalServerError
}

// get returns the status of an endpoint's response, and of its TLS. The body is not read.
func get(ctx context.Context, client *http.Client, endpoint string) (int, *tls.ConnectionState, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, nil)
	if err != nil {
		return 0, nil, answerError("not a URL")
	}
	if request.URL.Scheme != "http" && request.URL.Scheme != "https" {
		return 0, nil, answerError("not a URL of http or https")
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	_ = response.Body.Close() // unread
	return response.StatusCode, response.TLS, nil
}

// nameOf is what of an endpoint may be shown.
func nameOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "an endpoint"
	}
	return finding.Line(u.Scheme+"://"+u.Host, maxReason)
}

// reason is why a request failed, on one line. What the proxy or the endpoint has sent is never part of it: a proxy may
// repeat the header with the credentials, in any encoding. The errors that are quoted are of this node.
func reason(err error) string {
	var (
		own         answerError
		name        *net.DNSError
		errno       syscall.Errno
		operation   *net.OpError
		timeout     interface{ Timeout() bool }
		record      tls.RecordHeaderError
		alert       tls.AlertError
		authority   x509.UnknownAuthorityError
		host        x509.HostnameError
		certificate x509.CertificateInvalidError
	)
	text := "the answer is not HTTP"
	switch {
	case errors.As(err, &own):
		text = own.Error()
	case errors.As(err, &name):
		text = name.Error()
	case errors.As(err, &errno) && errors.As(err, &operation):
		text = operation.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		text = fmt.Sprintf("no answer after %s", checkLimit)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		text = "the connection was closed without an answer"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		text = "the answer is not TLS"
	case errors.As(err, &alert):
		text = alert.Error()
	case errors.As(err, &authority):
		text = "certificate signed by unknown authority"
	case errors.As(err, &host):
		text = "certificate is not for this host"
	case errors.As(err, &certificate) && certificate.Reason == x509.Expired:
		text = "certificate has expired or is not yet valid"
	case errors.As(err, &certificate):
		text = "certificate is not valid"
	}
	return finding.Line(text, maxReason)
}
