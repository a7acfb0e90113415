package match_test

import (
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain/match"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/tables"
)

// TestTables_OfClients compares docs/no-proxy.md with the models of clients.
func TestTables_OfClients(t *testing.T) {
	table := tables.Table{Page: "../../../docs/no-proxy.md", Name: "clients", AnyOrder: true}
	for name, spec := range map[string]string{
		"Go: containerd, kubelet, kubeadm": "go", "curl 7.88, git, PHP": "curl@7.88.1", "curl 7.74 and older": "curl@7.74.0", "curl 8.14": "curl@8.14.1",
		"curl 8.23": "curl@8.23.0", "wget": "wget", "Python urllib": "urllib", "Python requests": "requests", "Python httpx 0.28": "httpx", "aiohttp": "aiohttp",
		"Ruby": "ruby", "Node `fetch` 24 (undici 7)": "node-fetch", "Node `http` 24": "node-http", "axios": "axios",
	} {
		c, err := match.Lookup(spec)
		if err != nil {
			t.Fatal(err)
		}
		covers := func(list string, texts [4]string, urls ...string) string {
			found := 0
			for i, url := range urls {
				a, err := c.MatchResolved(list, url, nil)
				if err != nil {
					t.Fatal(err)
				}
				if a.Verdict == match.Direct {
					found |= 1 << i
				}
			}
			return texts[found]
		}
		names, itself, below := [4]string{"none", "only itself", "names below", "both"}, "https://example.com", "https://a.example.com"
		table.Add(name, covers("example.com", names, itself, below), covers(".example.com", names, itself, below),
			covers("10.0.0.0/8,fd00::/8", [4]string{"none", "IPv4", "IPv6", "IPv4, IPv6"}, "https://10.1.2.3", "https://[fd00::1]"),
			covers("example.com:8443", [4]string{"no", "yes"}, "https://example.com:8443"))
	}
	table.Compare(t)
}
