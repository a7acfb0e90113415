package patch_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// endpoints are as a proxy Secret may have them: with a token, and with characters of a shell.
var endpoints = []string{
	"https://registry.corp/v2/?token=s3cr", "https://registry.corp/$(reboot)';reboot", "http://[fd00::1]:5000/v2/",
}

func TestEndpoints_AreAskedWhenANodeBoots(t *testing.T) {
	t.Parallel()
	const (
		first  = "readiness endpoint https://registry.corp does not answer: "
		second = "readiness endpoint http://[fd00::1]:5000 does not answer: "
		silent = "no answer in 5 s"
		failed = "curl failed"
	)
	ends := func(one, other string) string {
		return "printf '000 000 '; case $* in *https*) exit " + one + "; esac; exit " + other
	}
	for name, test := range map[string]struct {
		curl string
		says []string
	}{
		"all answer":                     {"printf '401 200 '", nil},
		"without a proxy":                {"printf '200 000 '", nil},
		"the proxy wants a password":     {"case $* in *https*) printf '000 407 '; exit 56; esac; printf '407 000 '", []string{first + "status 407 of the proxy", second + "status 407"}},
		"the proxy finds nothing":        {"case $* in *https*) printf '000 503 '; exit 56; esac; printf '504 000 '", []string{first + "status 503 of the proxy", second + "status 504"}},
		"no name of proxy or host":       {ends("5", "6"), []string{first + "no address for its name, or that of the proxy", second + "no address for its name, or that of the proxy"}},
		"no connection, no answer":       {ends("7", "28"), []string{first + "no connection", second + silent}},
		"a certificate, another cause":   {ends("60", "99"), []string{first + "certificate not trusted", second + failed}},
		"curl is killed":                 {"kill -9 $$", []string{first + failed, second + failed}},
		"curl does not know an option":   {"echo s3cr >/dev/null; exit 2", []string{first + failed, second + failed}},
		"curl is not there":              {"", []string{first + failed, second + failed}},
		"an answer, and one that is not": {"case $* in *https*) printf '200 200 '; exit; esac; printf '000 000 '; exit 7", []string{second + "no connection"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			oneNode(t, func(t *testing.T, n *node) {
				t.Helper()
				n.script = patch.SetupWithEndpoints(endpoints)
				n.remove(ourFolder + "trusted-ca.pem")
				if test.curl != "" {
					n.stub("curl", `env >>`+n.path("seen")+"\n"+test.curl)
				}
				if diff := cmp.Diff(test.says, n.run(), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if want := len(test.says) == 0; (n.stdout == "capi-proxy-patcher: readiness endpoints answer\n") != want {
					t.Errorf("stdout %q", n.stdout)
				}
				calls := strings.SplitAfter(strings.TrimPrefix(n.calls, asked+restarted), "\n")
				if test.curl == "" {
					return
				}
				if len(calls) != 3 || !strings.HasSuffix(calls[0], " https://registry.corp/\n") ||
					!strings.HasSuffix(calls[1], " http://[fd00::1]:5000/\n") || strings.Contains(n.calls, "s3cr") {
					t.Errorf("calls %q", calls)
				}
				seen := n.read("seen")
				if !strings.Contains(seen, "\nHTTP_PROXY=http://u:s3cr%25t%40@p:3128\n") || !strings.Contains(seen, "NO_PROXY="+ownAddresses) {
					t.Errorf("curl has %q", seen)
				}
			})
		})
	}
}

// An endpoint that hangs takes 5 s; after three no more are asked. A verb asks none.
func TestEndpoints_TakeAQuarterOfAMinuteAtMost(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, n *node) {
		t.Helper()
		n.script = patch.SetupWithEndpoints([]string{"https://a", "https://b", "https://c", "https://d", "https://e"})
		n.stub("curl", "exit 28")
		if says := n.run(); len(says) != 3 || strings.Count(n.calls, "curl -qgs -m 5 ") != 3 {
			t.Errorf("says %q, calls %q", says, n.calls)
		}
		for _, verb := range []string{"own-addresses", "certificates"} {
			if says := n.run(verb); len(says) > 0 || strings.Contains(n.calls, "curl") {
				t.Errorf("%s says %q, calls %q", verb, says, n.calls)
			}
		}
	})
}

func TestSetupAsking_LeavesOutWhatIsNoURL(t *testing.T) {
	t.Parallel()
	for _, none := range [][]string{nil, {"registry.corp"}, {"https:///"}, {"ftp://a"}, {"https://a'b"}, {"https://$a"}} {
		if patch.SetupWithEndpoints(none) != patch.Setup() {
			t.Errorf("%q changes the script", none)
		}
	}
}
