package settings

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
)

// Codes of findings about a proxy Secret, beside those of package noproxy.
const (
	// CodeNoProxyURL rejects a Secret with neither httpProxy nor httpsProxy, unless trustedCA is all that it has.
	CodeNoProxyURL finding.Code = "no-proxy-url"
	// CodeNotProxySecret rejects a Secret that has other keys and none of a proxy Secret.
	CodeNotProxySecret finding.Code = "not-a-proxy-secret" //nolint:gosec // a code, no credential
	// CodeUnknownKey rejects a key that a proxy Secret does not have.
	CodeUnknownKey finding.Code = "unknown-key"
	// CodeBadCredentials rejects username and password that cannot be used.
	CodeBadCredentials finding.Code = "bad-credentials"
	// CodeBadCA rejects a trustedCA that is not a bundle of PEM certificates.
	CodeBadCA finding.Code = "bad-ca"
	// CodeProxyPort warns of a proxy URL without a port, which clients complete differently.
	CodeProxyPort finding.Code = "proxy-port"
)

// Proxy are the validated values of one proxy Secret: proxy URLs, or trusted certificates, or both. The zero value
// is not usable; ParseSecret returns Proxy.
type Proxy struct {
	// HTTPProxy is the proxy for http destinations. It is unset when the Secret has only httpsProxy.
	HTTPProxy URL
	// HTTPSProxy is the proxy for https destinations. It equals HTTPProxy when the Secret has only httpProxy.
	HTTPSProxy URL
	// NoProxy is the text of the key noProxy, as written. Package noproxy parses it.
	NoProxy string
	// TrustedCA are the certificates of the key trustedCA, in order and without duplicates.
	TrustedCA []Certificate
	// ReadinessEndpoints are the URLs of the key readinessEndpoints, in order. They hold no userinfo, but may hold tokens.
	ReadinessEndpoints []string
	// Warnings are findings that do not keep the Proxy from being used.
	Warnings []finding.Finding
}

// HasCredentials reports whether a proxy URL carries a user or a password.
func (s Proxy) HasCredentials() bool {
	return s.HTTPProxy.HasCredentials() || s.HTTPSProxy.HasCredentials()
}

// IsTrustOnly reports whether s has certificates and no proxy URL: nodes trust the certificates and get no variables.
func (s Proxy) IsTrustOnly() bool {
	return len(s.TrustedCA) > 0 && !s.HTTPProxy.IsSet() && !s.HTTPSProxy.IsSet()
}

// Vars returns the environment variables of a node, in their final order: every variable that is set in upper
// case and, with the same value, in lower case. Clients read one spelling, the other or both, so both are needed
// (docs/no-proxy.md). noProxy is the composed NO_PROXY value. Without a proxy URL there are no variables.
//
// The values hold the proxy's credentials.
func (s Proxy) Vars(noProxy string) []systemd.Var {
	var vars []systemd.Var
	add := func(name, value string) {
		if value != "" {
			vars = append(vars, systemd.Var{Name: name, Value: value},
				systemd.Var{Name: strings.ToLower(name), Value: value})
		}
	}
	add("HTTP_PROXY", s.HTTPProxy.Reveal())
	add("HTTPS_PROXY", s.HTTPSProxy.Reveal())
	if len(vars) > 0 {
		add("NO_PROXY", noProxy)
	}
	return vars
}

// Redacted returns s with every userinfo replaced by xxxxx, for display.
func (s Proxy) Redacted() Proxy {
	s.HTTPProxy = s.HTTPProxy.redacted()
	s.HTTPSProxy = s.HTTPSProxy.redacted()
	return s
}

// Format implements fmt.Formatter. It prints neither credentials nor entries, whatever the verb.
func (s Proxy) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "{httpProxy: %s, httpsProxy: %s}", s.HTTPProxy, s.HTTPSProxy)
}

// MarshalLog implements logr.Marshaler with the same text as Format.
func (s Proxy) MarshalLog() any { return fmt.Sprint(s) }

// MarshalJSON implements json.Marshaler with the same text as Format: a Proxy is never serialized by accident.
func (s Proxy) MarshalJSON() ([]byte, error) { return []byte(fmt.Sprintf("%q", fmt.Sprint(s))), nil }

// ParseSecret validates the decoded data of a proxy Secret. Spaces and line ends around a value are dropped.
//
// Its error is finding.Errors, each of which names the key and what to do, in a fixed order: values that are too long,
// or else unknown keys, the first 16 of them, URLs, credentials, trustedCA, readinessEndpoints. No finding quotes a
// value, since any value may hold a password. A Secret that is not a proxy Secret is one finding that names none of its
// keys: otherwise everybody who may write a Cluster could read the keys of any Secret in its namespace. noproxy.Compose
// validates the entries of noProxy. With an error the Proxy has nothing but warnings.
func ParseSecret(data map[string][]byte) (Proxy, error) {
	var (
		settings Proxy
		found    finding.Errors
	)
	reject := func(f *finding.Finding) {
		if f != nil {
			found = append(found, *f)
		}
	}
	data = Bound(data)
	if len(data) > 0 && !isProxySecret(data) {
		return Proxy{}, finding.Errors{finding.Rejection(CodeNotProxySecret, finding.Keys(), "not a proxy Secret",
			"name another one, or give it one of the keys httpProxy, httpsProxy, noProxy and trustedCA")}
	}
	if found := checkSizes(data); len(found) > 0 {
		return Proxy{}, found
	}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if !slices.Contains(contract.SecretKeys(), key) {
			reject(rejection(CodeUnknownKey, key, "unknown key", nearest(key)))
		}
	}

	parse := func(key string) URL {
		u, bad := parseURL(key, trim(data[key]))
		reject(bad)
		return u
	}
	settings.HTTPProxy = parse(contract.KeyHTTPProxy)
	settings.HTTPSProxy = parse(contract.KeyHTTPSProxy)
	reject(missingURL(data))

	if user, bad := credentials(data); bad != nil {
		reject(bad)
	} else if user != "" {
		for _, target := range []struct {
			key string
			url *URL
		}{{contract.KeyHTTPProxy, &settings.HTTPProxy}, {contract.KeyHTTPSProxy, &settings.HTTPSProxy}} {
			if target.url.HasCredentials() {
				reject(rejection(CodeBadCredentials, target.key,
					"the URL has userinfo and the key username is given too",
					"remove the userinfo from the URL, or remove the keys username and password"))
			} else if target.url.IsSet() {
				target.url.userinfo = user
			}
		}
	}
	if !settings.HTTPSProxy.IsSet() {
		settings.HTTPSProxy = settings.HTTPProxy
	}

	settings.NoProxy = string(data[contract.KeyNoProxy])
	if bundle, given := data[contract.KeyTrustedCA]; given {
		certificates, bad := parseCertificates(bundle)
		reject(bad)
		settings.TrustedCA = certificates
	}
	endpoints, bad := parseEndpoints(string(data[contract.KeyReadinessEndpoints]))
	found = append(found, bad...)
	settings.ReadinessEndpoints = endpoints
	settings.Warnings = append(urlWarnings(contract.KeyHTTPProxy, data, settings.HTTPProxy),
		urlWarnings(contract.KeyHTTPSProxy, data, settings.HTTPSProxy)...)
	if err := found.Err(); err != nil {
		return Proxy{Warnings: settings.Warnings}, err
	}
	return settings, nil
}

// missingURL says that a Secret has no proxy URL and yet something that is of use only with one, or nothing at all.
func missingURL(data map[string][]byte) *finding.Finding {
	given := func(key string) bool { return trim(data[key]) != "" }
	if given(contract.KeyHTTPProxy) || given(contract.KeyHTTPSProxy) {
		return nil
	}
	advice := "set httpProxy, for example to http://proxy.example.com:3128"
	if _, certificates := data[contract.KeyTrustedCA]; certificates {
		forURL := slices.DeleteFunc([]string{contract.KeyNoProxy, contract.KeyUsername, contract.KeyPassword},
			func(key string) bool { return !given(key) })
		if len(forURL) == 0 {
			return nil
		}
		advice += ", or remove " + strings.Join(forURL, " and ") +
			" if nodes only have to trust the certificates of trustedCA"
	}
	f := finding.Rejection(CodeNoProxyURL, finding.Keys(contract.KeyHTTPProxy, contract.KeyHTTPSProxy),
		"no proxy URL", advice)
	return &f
}

// rejection returns a finding about the value of a key, without quoting it.
func rejection(code finding.Code, key, message, advice string) *finding.Finding {
	f := finding.Rejection(code, finding.Key(key), message, advice)
	return &f
}

func trim(value []byte) string { return strings.TrimSpace(string(value)) }

// credentials returns the userinfo that the keys username and password make, or "".
func credentials(data map[string][]byte) (string, *finding.Finding) {
	bad := func(key, message, advice string) (string, *finding.Finding) {
		return "", rejection(CodeBadCredentials, key, message, advice)
	}
	// A line end at the end comes from `kubectl create secret --from-file`; spaces may be part of a password.
	user := strings.TrimRight(string(data[contract.KeyUsername]), "\r\n")
	password := strings.TrimRight(string(data[contract.KeyPassword]), "\r\n")
	switch {
	case user == "" && password == "":
		return "", nil
	case user == "":
		return bad(contract.KeyPassword, "a password without a username", "add the key username")
	case strings.Contains(user, ":"):
		return bad(contract.KeyUsername, "a user name cannot contain a colon (RFC 7617)",
			"put only the user name here and the password into the key password")
	}
	for _, value := range []struct{ key, text string }{{contract.KeyUsername, user}, {contract.KeyPassword, password}} {
		if strings.ContainsFunc(value.text, unicode.IsControl) {
			return bad(value.key, "a control character", "remove it; a line end inside the value is the usual cause")
		}
	}
	if password == "" {
		return percentEncode(user), nil
	}
	return percentEncode(user) + ":" + percentEncode(password), nil
}

// percentEncode encodes everything but the unreserved characters of RFC 3986.
func percentEncode(text string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(text) {
		if isUnreserved(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&0xf])
		}
	}
	return b.String()
}

// isProxySecret reports whether a Secret has a key that only a proxy Secret has, however it is spelt. Other Secrets
// have a username and a password too.
func isProxySecret(data map[string][]byte) bool {
	for key := range data {
		for _, own := range []string{
			contract.KeyHTTPProxy, contract.KeyHTTPSProxy, contract.KeyNoProxy,
			contract.KeyTrustedCA,
		} {
			if finding.SameName(key, own) {
				return true
			}
		}
	}
	return false
}

// nearest is the advice about an unknown key: the known key that was probably meant.
func nearest(key string) string {
	if known := finding.NearestName(key, contract.SecretKeys()); known != "" {
		return fmt.Sprintf("did you mean %s?", known)
	}
	return "the keys are " + strings.Join(contract.SecretKeys(), ", ")
}
