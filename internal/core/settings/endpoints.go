package settings

import (
	"fmt"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

// CodeBadEndpoint rejects an entry of readinessEndpoints.
const CodeBadEndpoint finding.Code = "bad-readiness-endpoint"

// Limits of readinessEndpoints.
const (
	maxEndpoints = 16
	// maxEndpoint is the longest URL in bytes.
	maxEndpoint = 2048
)

// parseEndpoints reads the URLs of readinessEndpoints, with scheme and host in lower case. Findings quote none: a path
// or a query may hold a token.
func parseEndpoints(text string) ([]string, finding.Errors) {
	var (
		endpoints []string
		found     finding.Errors
	)
	reject := func(place finding.Place, message, advice string) {
		found = append(found, finding.Rejection(CodeBadEndpoint, place, message, advice))
	}
	number := 0
	for entry := range noproxy.Items(text) {
		if number++; number > maxEndpoints {
			reject(finding.Key(contract.KeyReadinessEndpoints), fmt.Sprintf("more than %d URLs", maxEndpoints),
				"every node asks all of them twice; keep the most important ones")
			break
		}
		endpoint, message, advice := parseEndpoint(entry)
		if message != "" {
			reject(finding.Key(contract.KeyReadinessEndpoints).At(number), message, advice)
			continue
		}
		endpoints = append(endpoints, endpoint)
	}
	return endpoints, found
}

// parseEndpoint reads one URL, and returns the problem with it, or "".
func parseEndpoint(text string) (endpoint, message, advice string) {
	if len(text) > maxEndpoint {
		return "", fmt.Sprintf("a URL of %d bytes; at most %d are allowed", len(text), maxEndpoint), "write a shorter one"
	}
	scheme, rest, found := strings.Cut(text, "://")
	if scheme = strings.ToLower(scheme); !found || scheme != "http" && scheme != "https" {
		return "", "not an http or https URL", "write http:// or https:// in front"
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, path := rest[:end], rest[end:]
	if strings.Contains(authority, "@") {
		return "", "a user or password in the URL", "name a URL that answers without"
	}
	host, port, why := splitHostPort(authority)
	if why == "" {
		host, why = canonicalHost(host)
	}
	if why != "" {
		return "", why, "write a host name or an address, for example https://registry.example.com/v2/"
	}
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case isUnreserved(c) || strings.IndexByte("!$&'()*+;=:@/?", c) >= 0:
		case c == '%' && i+2 < len(path) && isHex(path[i+1]) && isHex(path[i+2]):
			i += 2
		case c == '#':
			return "", "a fragment, which no server sees", "end the URL before the #"
		default:
			return "", "a character in the path or query that a URL cannot hold", "percent-encode it"
		}
	}
	if port != "" {
		host += ":" + port
	}
	return scheme + "://" + host + path, "", ""
}
