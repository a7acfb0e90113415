package foreign

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
)

// settings are what one place of the text has.
type settings struct {
	form, place     string
	http, https, ca value
	noProxy         []string
	noProxyKey      string
	// off is the key that switches the proxy off.
	off string
	// bare accepts URLs without a scheme: the proxy is reached by http.
	bare bool
	// unplaced are the keys that a proxy Secret has no key for.
	unplaced []string
}

// value is a text and the key that it is from.
type value struct {
	text, key string
	set       bool
}

// set sets a value unless another key had set another one.
func (s *settings) set(v *value, key, text string) error {
	if v.set && v.text != text {
		return s.different(v.key, key)
	}
	*v = value{text: text, key: key, set: true}
	return nil
}

func (s *settings) setNoProxy(key string, entries []string) error {
	if s.noProxy != nil && !slices.Equal(s.noProxy, entries) {
		return s.different(s.noProxyKey, key)
	}
	s.noProxy, s.noProxyKey = append([]string{}, entries...), key
	return nil
}

func (s *settings) different(first, second string) error {
	return fmt.Errorf("%s: %s and %s have different values; keep one of them", s.place, first, second)
}

// equal reports whether two places say the same.
func (s *settings) equal(other settings) bool {
	return s.http.text == other.http.text && s.https.text == other.https.text && s.ca.text == other.ca.text &&
		slices.Equal(s.noProxy, other.noProxy) && s.off == other.off
}

// secret returns the data of the proxy Secret, and notes. Its error has everything that is wrong.
func (s *settings) secret(n network) (data map[string]string, notes []string, err error) {
	data = map[string]string{}
	put := func(key, text string) {
		if text != "" {
			data[key] = text
		}
	}
	put(contract.KeyHTTPProxy, s.url(s.http))
	put(contract.KeyHTTPSProxy, s.url(s.https))
	splitUserinfo(data)
	entries, notes, entriesErr := s.entries(n)
	put(contract.KeyNoProxy, strings.Join(entries, ","))
	bundle, bundleErr := certificates(s.ca)
	put(contract.KeyTrustedCA, bundle)

	raw := map[string][]byte{}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		raw[key] = []byte(data[key])
	}
	parsed, parseErr := proxyconfig.Parse(raw)
	if err := errors.Join(parseErr, entriesErr, bundleErr); err != nil {
		return nil, nil, err
	}
	for _, warning := range parsed.Warnings {
		notes = append(notes, warning.String())
	}
	return data, notes, nil
}

// url returns a proxy URL without the slash of its empty path.
func (s *settings) url(v value) string {
	text := strings.TrimSpace(v.text)
	if s.bare && text != "" && !strings.Contains(text, "://") {
		text = "http://" + text
	}
	if scheme, rest, found := strings.Cut(text, "://"); found && strings.Count(rest, "/") == 1 {
		text = scheme + "://" + strings.TrimSuffix(rest, "/")
	}
	return text
}

// splitUserinfo moves the userinfo of the URLs into keys of its own if they have the same, and it has a form that these
// keys can hold.
func splitUserinfo(data map[string]string) {
	var urls []string
	userinfo := ""
	for _, key := range []string{contract.KeyHTTPProxy, contract.KeyHTTPSProxy} {
		if data[key] == "" {
			continue
		}
		scheme, rest, _ := strings.Cut(data[key], "://")
		at := strings.LastIndexByte(rest, '@')
		if at <= 0 || len(urls) > 0 && rest[:at] != userinfo {
			return
		}
		userinfo = rest[:at]
		urls = append(urls, key, scheme+"://"+rest[at+1:])
	}
	user, password, hasPassword := strings.Cut(userinfo, ":")
	name, nameErr := url.PathUnescape(user)
	secret, secretErr := url.PathUnescape(password)
	reserved := strings.ContainsAny(userinfo, "/?#@ ")
	if name == "" || nameErr != nil || secretErr != nil || reserved || strings.Contains(name, ":") ||
		hasPassword && secret == "" {
		return // validation says what is wrong with it, if anything is
	}
	for i := 0; i < len(urls); i += 2 {
		data[urls[i]] = urls[i+1]
	}
	data[contract.KeyUsername] = name
	if secret != "" {
		data[contract.KeyPassword] = secret
	}
}

// certificates returns the PEM text of a bundle that is PEM, or PEM in base64.
func certificates(v value) (string, error) {
	text := strings.TrimSpace(v.text)
	if text == "" || strings.HasPrefix(text, "-----BEGIN") {
		return text, nil
	}
	decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return "", fmt.Errorf("%s is neither PEM nor base64 of it; give the whole certificate", v.key)
	}
	return string(decoded), nil
}

// entries returns the entries of noProxy that are not composed anyway, and a note for each of the others.
func (s *settings) entries(n network) (kept, notes []string, err error) {
	in := noproxy.Input{
		PodCIDRs: n.pods, ServiceCIDRs: n.services, ServiceDomain: n.domain, EndpointHost: n.endpoint,
	}
	if len(n.services) == 0 {
		// The Service network is kubeadm's or another one.
		in.OmitGroups = []noproxy.Group{noproxy.GroupServices, noproxy.GroupServiceAddresses}
	}
	composed, err := noproxy.Compose(in)
	if err != nil {
		return nil, nil, err
	}
	in.User = noproxy.Layer{Text: strings.Join(s.noProxy, ","), Place: finding.Field(s.noProxyKey)}
	if _, err := noproxy.Compose(in); err != nil {
		return nil, nil, err
	}
	for _, entry := range s.noProxy {
		in.User.Text = entry
		with, err := noproxy.Compose(in)
		switch {
		case err != nil:
			return nil, nil, err
		case with.Value == composed.Value:
			notes = append(notes, fmt.Sprintf("%s: %s is left out, because it is composed anyway", s.place, entry))
		default:
			kept = append(kept, entry)
		}
	}
	return kept, notes, nil
}
