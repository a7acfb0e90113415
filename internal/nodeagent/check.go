package nodeagent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/node"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/nodeagent/rootfiles"
)

const (
	// checkLimit is how long one endpoint may take, checkTries how often it is asked.
	checkLimit, checkTries = 10 * time.Second, 2
	maxHeader              = 64 << 10
	// maxReason is how much of an error is kept, in bytes.
	maxReason = 200
	// minSecret is the shortest text that is taken out of an error: shorter ones are in other words by chance.
	minSecret = 4
	hidden    = "xxxxx"
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
func check(ctx context.Context, on rootfiles.Files, v node.Version) error {
	if len(v.Endpoints()) == 0 {
		return nil
	}
	roots := x509.NewCertPool()
	for _, name := range bundles() {
		if f, err := on.Read(name); err == nil {
			roots.AppendCertsFromPEM(f.Content)
		}
	}
	roots.AppendCertsFromPEM(v.Certificates())
	config := httpproxy.Config{
		HTTPProxy: v.Variable("HTTP_PROXY"), HTTPSProxy: v.Variable("HTTPS_PROXY"), NoProxy: v.Variable("NO_PROXY"),
	}
	through := config.ProxyFunc()
	client := &http.Client{
		Timeout:       checkLimit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  func(r *http.Request) (*url.URL, error) { return through(r.URL) },
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			OnProxyConnectResponse: connected,
			DisableKeepAlives:      true, MaxResponseHeaderBytes: maxHeader, ForceAttemptHTTP2: true,
		},
	}
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
			failed = append(failed, fmt.Sprintf("%s: %s", nameOf(endpoint), reason(err, secretsOf(config, endpoint))))
		}
	}
	if len(failed) > 0 {
		return errors.New("readiness endpoints do not answer with the mounted values: " + strings.Join(failed, "; "))
	}
	return nil
}

// connected returns the error of a proxy that does not connect, in words of ours: its own may repeat a password.
func connected(_ context.Context, _ *url.URL, _ *http.Request, response *http.Response) error {
	if response.StatusCode == http.StatusOK {
		return nil
	}
	if text := http.StatusText(response.StatusCode); text != "" {
		return errors.New(text)
	}
	return fmt.Errorf("status %d", response.StatusCode)
}

func ask(ctx context.Context, client *http.Client, endpoint string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, nil)
	if err != nil {
		return errors.New("not a URL")
	}
	if request.URL.Scheme != "http" && request.URL.Scheme != "https" {
		return errors.New("not a URL of http or https")
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close() // unread
	switch {
	case response.StatusCode == http.StatusProxyAuthRequired, response.StatusCode >= http.StatusInternalServerError:
		return fmt.Errorf("status %d", response.StatusCode)
	}
	return nil
}

// nameOf is what of an endpoint may be shown.
func nameOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "an endpoint"
	}
	return finding.Line(u.Scheme+"://"+u.Host, maxReason)
}

// secretsOf are the texts that an error may not have: users and passwords, as they are written and as they are meant.
func secretsOf(config httpproxy.Config, endpoint string) []string {
	var secrets []string
	for _, text := range []string{config.HTTPProxy, config.HTTPSProxy, endpoint} {
		_, rest, _ := strings.Cut(text, "://")
		at := strings.LastIndex(rest, "@")
		if at <= 0 {
			continue
		}
		secrets = append(secrets, text, rest[:at])
		user, password, _ := strings.Cut(rest[:at], ":")
		for _, part := range []string{password, user} {
			secrets = append(secrets, part)
			if meant, err := url.PathUnescape(part); err == nil {
				secrets = append(secrets, meant)
			}
		}
	}
	return secrets
}

// reason is the cause of an error on one line, without the URLs that errors of net/http begin with.
func reason(err error, secrets []string) string {
	if withURL := (*url.Error)(nil); errors.As(err, &withURL) {
		err = withURL.Err
	}
	text := err.Error()
	for _, secret := range secrets {
		if len(secret) >= minSecret {
			text = strings.ReplaceAll(text, secret, hidden)
		}
	}
	return finding.Line(text, maxReason)
}
