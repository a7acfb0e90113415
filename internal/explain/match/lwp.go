package match

import (
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// lwpSplit follows split(/\s*,\s*/): spaces around commas are removed, spaces at both ends stay, empty items at the end
// are dropped.
func lwpSplit(list string) []token {
	items := strings.Split(list, ",")
	for i := range items {
		if i > 0 {
			items[i] = strings.TrimLeft(items[i], " \t\n\v\f\r")
		}
		if i < len(items)-1 {
			items[i] = strings.TrimRight(items[i], " \t\n\v\f\r")
		}
	}
	for len(items) > 0 && items[len(items)-1] == "" {
		items = items[:len(items)-1]
	}
	return texts(items)
}

// matchLWP follows _need_proxy of LWP::UserAgent: a plain suffix, letter case counts, and an empty item matches
// everything.
func matchLWP(list string, d destination, _ Resolver) Answer {
	host, ok := noproxy.HostASCII(d.host)
	if !ok {
		return refuses("not an international host name")
	}
	return first(lwpSplit(list), func(t string) bool { return strings.HasSuffix(host, t) })
}

// matchNoEnvironment is a client that reads no proxy variable at all, so that nothing of it reaches a proxy.
func matchNoEnvironment(string, destination, Resolver) Answer {
	return direct("the client does not read the environment")
}

// matchNone is a client that reads the proxy variables but not NO_PROXY.
func matchNone(string, destination, Resolver) Answer {
	return Answer{Verdict: Proxied, Entry: -1, Reason: "the client does not read NO_PROXY"}
}
