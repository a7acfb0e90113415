package foreign

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/noproxy"
)

var (
	errUnknown = errors.New("no proxy settings of a known form; docs/reference.md lists the forms")
	// proxyKey is a key that is called after a proxy.
	proxyKey = regexp.MustCompile(`(^|_)(?i:proxy)|[a-z]Proxy`)
	// hostPort is a URL without its scheme.
	hostPort = regexp.MustCompile(`^[^\s/{}<>$]+:[0-9]+/?$`)
	// secretName is the name of a Secret of a Cluster.
	secretName = regexp.MustCompile(`^(.*)-(config-values|cluster-values|systemd-proxy)$`)
)

// settings are what one mapping has, or several that belong together.
type settings struct {
	place string
	whole bool
	// values are texts by role and key, several of one key in lines.
	values map[string]map[string]string
	// others are keys without a role.
	others []string
}

func (s *settings) add(role, key, text string) {
	if decoded, err := decode(text); err == nil && role == contract.KeyTrustedCA {
		text = decoded
	}
	if s.values == nil {
		s.values = map[string]map[string]string{}
	}
	if s.values[role] == nil {
		s.values[role] = map[string]string{}
	}
	text = strings.TrimSpace(text)
	if before, found := s.values[role][key]; found && before != text {
		text = before + "\n" + text
	}
	s.values[role][key] = text
}

// get returns the text of a role, and its key. Two keys with different texts are an error.
func (s *settings) get(role string) (text, key string, err error) {
	for i, k := range slices.Sorted(maps.Keys(s.values[role])) {
		if i > 0 && s.values[role][k] != text {
			return "", "", fmt.Errorf("%s: found both %s and %s with different values; keep one", s.place, key, k)
		}
		text, key = s.values[role][k], k
	}
	lists := []string{contract.KeyNoProxy, contract.KeyTrustedCA, contract.KeyReadinessEndpoints, "pods", "services"}
	if strings.Contains(text, "\n") && !slices.Contains(lists, role) {
		return "", "", fmt.Errorf("%s: %s has more than one value; keep one", s.place, key)
	}
	return text, key, nil
}

// empty reports whether a mapping has no setting.
func (s *settings) empty() bool {
	roles := append(contract.SecretKeys(), "bundle")
	return !slices.ContainsFunc(roles, func(role string) bool { return s.values[role] != nil })
}

// settings reads the leaves of one document, within which everything after the first settings of r.found was found.
func (r *reader) settings(place, kind string, leaves []leaf, before int) error {
	var (
		sections = map[string]*settings{}
		order    []*settings
		shared   = &settings{place: place}
		others   []leaf
	)
	section := func(path []string, known bool) *settings {
		id := strings.Join(path, "\x00")
		if sections[id] == nil && known {
			sections[id] = &settings{place: placeOf(place, path...)}
			order = append(order, sections[id])
		}
		return sections[id]
	}
	for _, l := range leaves {
		i := slices.IndexFunc(r.rows, func(r row) bool { return r.matches(kind, l.path) })
		switch {
		case i < 0:
			others = append(others, l)
			continue
		case l.mapping:
			return fmt.Errorf("%s: the value is somewhere else, or no text; read it there", placeOf(place, l.path...))
		case strings.HasPrefix(l.text, "[") && strings.HasSuffix(l.text, ")]"):
			return fmt.Errorf("%s is an expression of the template; write its value", placeOf(place, l.path...))
		case strings.TrimSpace(l.text) == "":
			continue
		}
		found, at := r.rows[i], len(l.path)-r.rows[i].depth
		s, key := section(l.path[:at], true), placeOf("", l.path[at:]...)
		if s.whole = s.whole || found.Whole; found.Shared {
			s, key = shared, found.role // from any number of places
		}
		s.add(found.role, key, l.text)
	}
	for _, l := range others {
		for depth := len(l.path) - 1; depth >= 0 && !l.mapping && l.text != ""; depth-- {
			whole := slices.ContainsFunc(r.whole, func(r row) bool { return depth > 0 && r.matches(kind, l.path[:depth]) })
			if s := section(l.path[:depth], whole); s != nil {
				if s.whole = s.whole || whole; s.whole || proxyKey.MatchString(l.path[depth]) {
					s.others = append(s.others, placeOf("", l.path[depth:]...))
				}
				break
			}
		}
	}
	own := slices.DeleteFunc(slices.Clone(order), (*settings).empty)
	if len(own) == 0 && !shared.empty() {
		own = []*settings{shared}
	}
	if r.found = append(r.found, own...); len(r.found) == before && (kind == "Secret" || kind == "ConfigMap") {
		return nil // it is about something else
	}
	for _, s := range order {
		for _, key := range s.others {
			if !s.empty() || len(s.values) == 0 {
				r.result.note("%s: key %s has no place in a proxy Secret", s.place, key)
			}
		}
	}
	for role, keys := range shared.values {
		for key, text := range keys {
			if role == contract.KeyTrustedCA {
				for _, s := range own {
					s.add(role, key, text)
				}
			} else if m := secretName.FindStringSubmatch(text); role == "secretOfCluster" && m != nil {
				r.cluster.add("cluster", "cluster", m[1])
			} else {
				r.cluster.add(role, role, text)
			}
		}
	}
	return nil
}

func (r *Result) note(format string, args ...any) {
	if note := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, note) {
		r.Notes = append(r.Notes, note)
	}
}

// finish makes one result of everything that was found.
func (r *reader) finish() (Result, error) {
	for i, s := range r.found {
		data, err := s.data(r.bundles)
		switch {
		case err != nil:
			return Result{}, err
		case i > 0 && !maps.Equal(data, r.result.Data):
			return Result{}, fmt.Errorf("found both %s and %s with different settings; keep one", r.found[0].place, s.place)
		}
		r.result.Data = data
	}
	for role, to := range map[string]*string{"cluster": &r.result.Cluster, "namespace": &r.result.Namespace} {
		text, _, err := r.cluster.get(role)
		if err == nil && text != "" && len(validation.IsDNS1123Subdomain(text)) > 0 {
			err = errors.New("the name or namespace of the Cluster is not one that Kubernetes accepts")
		}
		if *to = text; err != nil {
			return Result{}, err
		}
	}
	if len(r.found) == 0 {
		return Result{}, errUnknown
	}
	r.adjust(r.result.Data, r.found[0].place)
	return r.result, nil
}

// data returns the settings as data of a proxy Secret, as they are written.
func (s *settings) data(bundles map[string]string) (map[string]string, error) {
	data := map[string]string{}
	for _, role := range []string{
		contract.KeyHTTPProxy, contract.KeyHTTPSProxy, contract.KeyNoProxy, contract.KeyReadinessEndpoints,
		contract.KeyTrustedCA, "bundle", "enabled",
	} {
		text, key, err := s.get(role)
		switch {
		case err != nil:
			return nil, err
		case text == "" || role == "enabled" && !strings.EqualFold(text, "false"):
		case role == "enabled":
			return nil, fmt.Errorf("%s: the proxy is switched off by %s: false; change that to read the settings", s.place, key)
		case role == "bundle" && bundles[text] == "":
			return nil, fmt.Errorf("%s: the certificates are in key ca-bundle.crt of ConfigMap %s; add it to the input",
				s.place, placeOf("", text))
		case role == "bundle":
			data[contract.KeyTrustedCA] = strings.TrimSpace(bundles[text]) + "\n"
		case role == contract.KeyTrustedCA:
			data[role] = text + "\n"
		case role == contract.KeyNoProxy || role == contract.KeyReadinessEndpoints:
			data[role] = strings.Join(slices.Compact(slices.Collect(noproxy.Items(text))), ",")
		default:
			data[role] = text
		}
	}
	return data, nil
}

// adjust brings data into the form of a proxy Secret: URLs with a scheme, user and password in keys of their own, and
// noProxy without the entries that are composed anyway.
func (r *reader) adjust(data map[string]string, place string) {
	var urls []*url.URL
	same := true
	for _, key := range []string{contract.KeyHTTPProxy, contract.KeyHTTPSProxy} {
		if hostPort.MatchString(data[key]) {
			data[key] = "http://" + data[key]
			r.result.note("%s: %s has no scheme; http:// is added", place, key)
		}
		u, err := url.Parse(data[key])
		if err != nil || data[key] == "" {
			same = same && err == nil
			continue
		}
		if u.Path == "/" {
			data[key] = strings.TrimSuffix(data[key], "/")
		}
		urls = append(urls, u)
		same = same && u.User != nil && u.User.String() == urls[0].User.String() && strings.Count(data[key], "@") == 1
	}
	if same && len(urls) > 0 { // what the keys cannot hold stays in the URLs
		name := urls[0].User.Username()
		password, given := urls[0].User.Password()
		if name != "" && !strings.ContainsAny(name, ":\r\n") && given == (password != "") {
			for _, key := range []string{contract.KeyHTTPProxy, contract.KeyHTTPSProxy} {
				if scheme, rest, found := strings.Cut(data[key], "://"); found {
					data[key] = scheme + "://" + rest[strings.Index(rest, "@")+1:]
				}
			}
			data[contract.KeyUsername], data[contract.KeyPassword] = name, password
		}
	}
	network := func(role string) string { text, _, _ := r.cluster.get(role); return text }
	in := noproxy.Input{
		PodCIDRs: slices.Collect(noproxy.Items(network("pods"))), ServiceDomain: network("domain"),
		ServiceCIDRs: slices.Collect(noproxy.Items(network("services"))), EndpointHost: network("endpoint"),
	}
	if len(in.ServiceCIDRs) == 0 { // the Service network is kubeadm's or another one
		in.OmitGroups = []noproxy.Group{noproxy.GroupServices, noproxy.GroupServiceAddresses}
	}
	composed, composedErr := noproxy.Compose(in)
	var kept []string
	for entry := range noproxy.Items(data[contract.KeyNoProxy]) {
		in.User.Text = entry
		if with, err := noproxy.Compose(in); composedErr == nil && err == nil && with.Value == composed.Value {
			r.result.note("%s: %s is left out, because it is composed anyway", place, entry)
		} else if !slices.Contains(kept, entry) {
			kept = append(kept, entry)
		}
	}
	data[contract.KeyNoProxy] = strings.Join(kept, ",")
	maps.DeleteFunc(data, func(_, text string) bool { return text == "" })
}
