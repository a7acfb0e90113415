package match

import (
	"fmt"
	"strconv"
	"strings"
)

// Clients returns all known clients, ordered by name and, within a name, from the oldest to the newest version.
func Clients() []Client {
	old, v4cidr := curlRules{legacy: true}, curlRules{}
	stop, v6cidr := curlRules{stopBlank: true}, curlRules{stopBlank: true, v6: true}
	oldHTTPX, newHTTPX := httpxRules{legacy: true}, httpxRules{}
	oldRequests, newRequests := requestsRules{}, requestsRules{boundary: true}
	oldRuby, newRuby := rubyRules{mapped: true}, rubyRules{}
	u6, u7 := undiciRules{major: 6}, undiciRules{major: 7}
	u8early, u8 := undiciRules{major: 8, early: true}, undiciRules{major: 8}
	return []Client{
		{"axios", "1.21.1", "axios", matchAxios, jsFields},
		{"busybox-wget", "1.35.0", "none", matchNone, commaTrimSplit},
		{"busybox-wget", "1.37.0", "none", matchNone, commaTrimSplit},
		{"curl", "7.74.0", "curl-legacy", old.match, old.split},
		{"curl", "7.88.1", "curl-v4cidr", v4cidr.match, v4cidr.split},
		{"curl", "8.14.1", "curl-v4cidr-stop", stop.match, stop.split},
		{"curl", "8.23.0", "curl-v6cidr", v6cidr.match, v6cidr.split},
		{"git", "2.39.5+libcurl-7.88.1", "curl-v4cidr", v4cidr.match, v4cidr.split},
		{"go-httpproxy", "x/net-0.34.0", "go-legacy", matchGoLegacy, goSplit},
		{"go-httpproxy", "x/net-0.36.0", "go", matchGo, goSplit},
		{"go-httpproxy", "x/net-0.62.0", "go", matchGo, goSplit},
		{"go-nethttp", "go1.26.8", "go", matchGo, goSplit},
		{"java", "17.0.0", "no-environment", matchNoEnvironment, commaTrimSplit},
		{"node", "20.20.2", "no-environment", matchNoEnvironment, commaTrimSplit},
		{"node-fetch+NODE_USE_ENV_PROXY", "20.20.2", "no-environment", matchNoEnvironment, commaTrimSplit},
		{"node-fetch+NODE_USE_ENV_PROXY", "22.23.3", "undici6", u6.match, jsFields},
		{"node-fetch+NODE_USE_ENV_PROXY", "24.21.0", "undici7", u7.match, jsFields},
		{"node-fetch+NODE_USE_ENV_PROXY", "26.10.0", "undici8-early", u8early.match, jsFields},
		{"node-http+NODE_USE_ENV_PROXY", "22.23.3", "node-http", matchNodeHTTP, nodeHTTPSplit},
		{"node-http+NODE_USE_ENV_PROXY", "24.21.0", "node-http", matchNodeHTTP, nodeHTTPSplit},
		{"node-http+NODE_USE_ENV_PROXY", "26.10.0", "node-http", matchNodeHTTP, nodeHTTPSplit},
		{"perl-lwp", "6.68", "lwp", matchLWP, lwpSplit},
		{"python-aiohttp", "3.8.4", "aiohttp", matchAIOHTTP, commaTrimSplit},
		{"python-httpx", "0.23.3", "httpx-legacy", oldHTTPX.match, commaTrimSplit},
		{"python-httpx", "0.28.1", "httpx", newHTTPX.match, commaTrimSplit},
		{"python-requests", "2.28.1", "requests", oldRequests.match, requestsSplit},
		{"python-requests", "2.32.0", "requests", oldRequests.match, requestsSplit},
		{"python-requests", "2.34.2", "requests-boundary", newRequests.match, requestsSplit},
		{"python-urllib", "3.11.7", "urllib", matchURLLib, commaTrimSplit},
		{"python-urllib", "3.13.0", "urllib", matchURLLib, commaTrimSplit},
		{"ruby-nethttp", "2.7.4", "ruby-legacy", oldRuby.match, rubySplit},
		{"ruby-nethttp", "3.1.2", "ruby", newRuby.match, rubySplit},
		{"ruby-nethttp", "3.3.0", "ruby", newRuby.match, rubySplit},
		{"undici", "6.29.1", "undici6", u6.match, jsFields},
		{"undici", "7.30.2", "undici7", u7.match, jsFields},
		{"undici", "8.12.4", "undici8", u8.match, jsFields},
		{"wget", "1.21.3", "wget", matchWget, wgetSplit},
		{"wget", "1.25.0", "wget", matchWget, wgetSplit},
		{"wget2", "2.2.0", "wget2", matchWget2, wget2Split},
	}
}

// fullName expands the short names that Lookup accepts.
func fullName(name string) string {
	switch name {
	case "go":
		return "go-httpproxy"
	case "curl774":
		return "curl@7.74.0"
	case "curl788":
		return "curl@7.88.1"
	case "curl814":
		return "curl@8.14.1"
	case "requests":
		return "python-requests@2.32.0"
	case "urllib", "httpx", "aiohttp":
		return "python-" + name
	case "ruby":
		return "ruby-nethttp"
	case "node-http", "node-fetch":
		return name + "+NODE_USE_ENV_PROXY@24.21.0"
	case "lwp":
		return "perl-lwp"
	case "busybox":
		return "busybox-wget"
	}
	return name
}

// Lookup returns the client of a spec such as "curl", "curl@7.88.1" or "python-requests@2.31". Short names such as
// "go", "requests" or "curl788" work too. Without a version it returns the newest one; for Node that is 24, the
// long-term release, and "requests" is 2.32, the last one without label boundaries, because a list that is right for it
// is right for later ones. A version that was not measured gets the rules of the newest measured version before it, one
// without its last number those of the newest that begins with it. The error for an unknown client lists the known
// names.
func Lookup(spec string) (Client, error) {
	name, version, _ := strings.Cut(spec, "@")
	expanded, preset, _ := strings.Cut(fullName(name), "@")
	if version == "" {
		version = preset
	}
	var names []string
	var found Client
	for _, c := range Clients() {
		if len(names) == 0 || names[len(names)-1] != c.Name {
			names = append(names, c.Name)
		}
		if c.Name == expanded && (version == "" || compareVersions(c.Version, version) <= 0) {
			found = c
		}
		if c.Name == expanded && c.Version == version {
			return c, nil
		}
	}
	switch {
	case found.Name != "":
		if version != "" {
			found.Version = version
		}
		return found, nil
	case version != "" && strings.Contains(","+strings.Join(names, ",")+",", ","+expanded+","):
		return Client{}, fmt.Errorf("looking up client %q: version %q is older than every known one", name, version)
	}
	return Client{}, fmt.Errorf("looking up client %q: unknown, know %s", name, strings.Join(names, ", "))
}

// compareVersions compares the numbers in two version texts from left to right. A version b of two numbers stands for
// all that begin with them: 7.88.1 is not newer than 7.88. One of a single number does not: rules change within a major
// version.
func compareVersions(a, b string) int {
	as, bs := numbers(a), numbers(b)
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return as[i] - bs[i]
		}
	}
	if len(bs) == 2 && len(as) > 2 {
		return 0
	}
	return len(as) - len(bs)
}

// numbers returns the runs of digits in a version up to a "+".
func numbers(version string) []int {
	version, _, _ = strings.Cut(version, "+")
	var out []int
	for _, f := range strings.FieldsFunc(version, func(r rune) bool { return r < '0' || r > '9' }) {
		if n, err := strconv.Atoi(f); err == nil {
			out = append(out, n)
		}
	}
	return out
}
