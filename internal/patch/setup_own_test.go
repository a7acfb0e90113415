package patch_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

const (
	header  = "# Managed by capi-proxy-patcher\n"
	proxy   = `HTTP_PROXY="http://u:p%40\"\$\` + "`" + `@proxy:3128"` + "\n"
	nodeEnv = "etc/capi-proxy-patcher/node.env"
	added   = "capi-proxy-patcher: NO_PROXY of this node has its own addresses and names: "
	refused = "capi-proxy-patcher: left out of NO_PROXY: an address or name of this node that clients would misread\n"
	nothing = "capi-proxy-patcher: cannot add the addresses of this node to NO_PROXY: its requests to them may go to the proxy\n"
)

// both is a list in both spellings.
func both(list string) string { return "NO_PROXY=\"" + list + "\"\nno_proxy=\"" + list + "\"\n" }

// withAddresses gives a node addresses in the words of ip, and names.
func (n *tree) withAddresses(shown, host, full string) {
	n.t.Helper()
	for _, tool := range []string{"tr", "wc", "sed"} {
		n.tool(tool)
	}
	n.write("ip.txt", shown)
	n.stub("ip", "cat "+filepath.Join(n.root, "ip.txt"))
	n.write("proc/sys/kernel/hostname", host+"\n")
	n.write("full.txt", full)
	n.stub("hostname", "cat "+filepath.Join(n.root, "full.txt"))
}

func TestOwnAddresses(t *testing.T) {
	t.Parallel()
	const (
		two = "1: lo    inet 10.77.0.60/32 scope global lo\n" +
			"2: eth0    inet 10.77.0.10/24 brd 10.77.0.255 scope global dynamic eth0\\       valid_lft 86027sec\n" +
			"2: eth0    inet6 2001:db8::10/64 scope global temporary dynamic \\       valid_lft 2sec\n"
		own = "10.77.0.60,10.77.0.10,2001:db8::10,prod-md-0.example.com"
	)
	log := func(list string) string { return added + strings.ReplaceAll(list, ",", " ") + "\n" }
	tests := map[string]struct {
		env              string // proxy.env without its first line
		ip, host, full   string
		want, said, errs string
	}{
		"addresses of all interfaces and both names": {
			proxy + both("localhost,10.244.0.0/16"), two, "prod-md-0", "prod-md-0.example.com\n",
			both("localhost,10.244.0.0/16,10.77.0.60,10.77.0.10,2001:db8::10,prod-md-0,prod-md-0.example.com"),
			log("10.77.0.60,10.77.0.10,2001:db8::10,prod-md-0,prod-md-0.example.com"), "",
		},
		"an address that the list has": {
			proxy + both("10.77.0.10,a"), two, "prod-md-0.example.com", "prod-md-0.example.com",
			both("10.77.0.10,a,10.77.0.60,2001:db8::10,prod-md-0.example.com"), log(own), "",
		},
		"an address that another entry of the list begins with": {
			proxy + both("10.77.0.100,110.77.0.10,10.77.0.60/32"), two, "prod-md-0.example.com", "",
			both("10.77.0.100,110.77.0.10,10.77.0.60/32," + own), log(own), "",
		},
		"different lists": {
			proxy + "NO_PROXY=\"a\"\nno_proxy=\"b\"\n", two, "prod-md-0.example.com", "",
			"NO_PROXY=\"a," + own + "\"\nno_proxy=\"b," + own + "\"\n", log(own), "",
		},
		"a star, beside which clients read no entry": {
			proxy + both("*"), two, "prod-md-0.example.com", "", both("*"), log(own), "",
		},
		"a proxy without a list": {proxy, two, "prod-md-0.example.com", "", both(own), log(own), ""},
		"certificates alone":     {"", two, "prod-md-0.example.com", "", "", log(own), ""},
		"letters of a host name": {proxy + both("a"), two, "Prod-MD-0.Example.COM", "PROD-MD-0.example.com", both("a," + own), log(own), ""},
		"addresses of a tunnel":  {proxy + both("a"), "7: tun0    inet 10.8.0.1 peer 10.8.0.2/32 scope global tun0\n", "", "", both("a,10.8.0.1"), log("10.8.0.1"), ""},
		"the addresses of a node of IPVS": {
			proxy + both("a"), "9: kube-ipvs0    inet 10.96.0.1/32 scope global kube-ipvs0\n" + two, "prod-md-0.example.com", "",
			both("a," + own), log(own), "",
		},
		"ip of busybox, which shows interfaces, too": {
			proxy + both("a"), "2: eth0@if5: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500\\    link/ether 02:42:ac:11:00:02 brd ff:ff:ff:ff:ff:ff\n" + two,
			"prod-md-0.example.com", "", both("a," + own), log(own), "",
		},
		"no address":          {proxy + both("a"), "", "prod-md-0", "", both("a,prod-md-0"), "", nothing},
		"no address, no name": {proxy + both("a"), "", "", "", "", "", nothing},
		"a word of letters, which is the domain of half the internet": {proxy + both("a"), two, "io", "prod-md-0.example.com", both("a," + own), log(own), refused},
		"names that are none": {
			proxy + both("a"), two, "*\" .x x. -x x- a..b a.-b 10 10.1 1.2.3.4.5 $(touch${IFS}ran) x\";HTTP_PROXY=\"y \xff\xfe a_b ../.. /etc/*", "prod-md-0.example.com",
			both("a," + own), log(own), strings.Repeat(refused, 16),
		},
		"addresses that are none": {
			proxy + both("a"), two + "2: eth0    inet 0.0.0.0.0/0 x\n2: eth0    inet \";x/1 y\n2: eth0    inet6 */64 x\n2: eth0    inet6 :::/0 x\n" +
				"2: eth0    inet6 1:2/64\n2: eth0    inet6 fd00::10::1/64\n2: eth0    inet 10.0.0.1234/24\n2: eth0    inet6 12345::1/64\n2: eth0    inet6 1:2:3:4:5:6:7:8:9/64\n",
			"prod-md-0.example.com", "", both("a," + own), log(own), strings.Repeat(refused, 9),
		},
		"a list that is not as the product writes it": {
			proxy + "NO_PROXY=\"a\\\"b\"\nno_proxy=a\n", two, "prod-md-0.example.com", "", "", "", nothing,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			oneTree(t, func(n *tree) {
				t := n.t
				n.withAddresses(test.ip, test.host, test.full)
				n.write("etc/capi-proxy-patcher/proxy.env", header+test.env)
				n.write(nodeEnv, "HTTP_PROXY=old\n")
				got := n.run("own-addresses")
				got.Calls = ""
				if diff := cmp.Diff(treeOutcome{Stdout: test.said, Stderr: test.errs}, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(header+test.want, n.read(nodeEnv)); diff != "" {
					t.Errorf("node.env (-want +got):\n%s", diff)
				}
				info, err := os.Stat(filepath.Join(n.root, nodeEnv))
				if err != nil || info.Mode() != 0o600 {
					t.Errorf("node.env: %v, %v", info.Mode(), err)
				}
				if left := n.files("etc/capi-proxy-patcher"); len(left) != 3 {
					t.Errorf("left in the folder: %v", left)
				}
				before := n.read(nodeEnv)
				if n.run("own-addresses"); n.read(nodeEnv) != before {
					t.Errorf("a second run writes %s", n.read(nodeEnv))
				}
			})
		})
	}
}

func TestOwnAddresses_AreFoundWithoutTheProgramIP(t *testing.T) {
	t.Parallel()
	eachTree(t, func(n *tree) {
		t := n.t
		n.withAddresses("", "prod-md-0", "")
		n.remove("stubs/ip")
		n.remove("stubs/hostname")
		n.env = append(n.env, "PATH="+filepath.Join(n.root, "stubs")) // and not those of this machine
		n.write("etc/capi-proxy-patcher/proxy.env", header+proxy+both("a"))
		n.write("proc/net/fib_trie", "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n"+
			"     +-- 10.77.0.0/24 2 0 2\n        |-- 10.77.0.0\n           /24 link UNICAST\n        |-- 10.77.0.10\n           /32 host LOCAL\n"+
			"        |-- 10.77.0.255\n           /32 link BROADCAST\n     +-- 127.0.0.0/8 2 0 2\n           |-- 127.0.0.0\n              /8 host LOCAL\n"+
			"           |-- 127.0.0.1\n              /32 host LOCAL\nLocal:\n        |-- 10.77.0.10\n           /32 host LOCAL\n        |-- 10.77.0.60\n           /32 host LOCAL\n")
		n.write("proc/net/if_inet6", "00000000000000000000000000000001 01 80 10 80       lo\n"+
			"fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n20010db8000000000000000000000010 04 40 00 82     eth0\n")
		got := n.run("own-addresses")
		list := "10.77.0.10,10.77.0.60,2001:0db8:0000:0000:0000:0000:0000:0010,prod-md-0"
		if want := (treeOutcome{Stdout: added + strings.ReplaceAll(list, ",", " ") + "\n"}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if diff := cmp.Diff(header+both("a,"+list), n.read(nodeEnv)); diff != "" {
			t.Errorf("node.env (-want +got):\n%s", diff)
		}
	})
}

func TestOwnAddresses_AreBounded(t *testing.T) {
	t.Parallel()
	var shown, list strings.Builder
	for i := range 70 {
		fmt.Fprintf(&shown, "2: eth0    inet6 2001:db8::%x/64 scope global\n", i+1)
		if i < 64 {
			fmt.Fprintf(&list, ",2001:db8::%x", i+1)
		}
	}
	eachTree(t, func(n *tree) {
		t := n.t
		n.withAddresses(shown.String(), "prod-md-0", "")
		n.stub("hostname", "exec sleep 100") // the DNS does not answer
		n.env = append(n.env, "CAPI_PROXY_PATCHER_WAIT=1")
		n.write("etc/capi-proxy-patcher/proxy.env", header+proxy+both("a"))
		began := time.Now() //nolint:forbidigo // the script waits in real time
		got := n.run("own-addresses")
		if took := time.Since(began); got.Exit != 0 || took > 20*time.Second {
			t.Errorf("%+v after %s", got, took)
		}
		if diff := cmp.Diff("capi-proxy-patcher: left out of NO_PROXY: addresses of this node beyond the first 64\n", got.Stderr); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(header+both("a"+list.String()), n.read(nodeEnv)); diff != "" {
			t.Errorf("node.env (-want +got):\n%s", diff)
		}
		// The longest list that a program starts with has no room left.
		longest := strings.Repeat("a,", (131_071-len("NO_PROXY="))/2)
		n.write("etc/capi-proxy-patcher/proxy.env", header+both(longest))
		got = n.run("own-addresses")
		if n.read(nodeEnv) != header || !strings.HasSuffix(got.Stderr, nothing) || got.Exit != 0 {
			t.Errorf("%d bytes, %+v", len(n.read(nodeEnv)), got)
		}
	})
}

func TestOwnAddresses_FailsIfItCannotWrite(t *testing.T) {
	t.Parallel()
	eachTree(t, func(n *tree) {
		t := n.t
		n.withAddresses("2: eth0    inet 10.77.0.10/24\n", "", "")
		n.write("etc/capi-proxy-patcher/proxy.env", header+proxy)
		n.write(nodeEnv+".new/in/the/way", "")
		got := n.run("own-addresses")
		const want = "capi-proxy-patcher: cannot write ROOT/etc/capi-proxy-patcher/node.env: requests of this node to its own addresses may go to the proxy\n"
		if got.Exit != 1 || got.Stdout != "" || got.Stderr != want {
			t.Errorf("%+v", got)
		}
		n.remove("etc/capi-proxy-patcher/proxy.env")
		if got := n.run("own-addresses"); got.Exit != 1 || got.Stderr != "capi-proxy-patcher: cannot read ROOT/etc/capi-proxy-patcher/proxy.env\n" {
			t.Errorf("%+v", got)
		}
	})
}

// What is printed is for a shell of the caller's, so that the helper for runs of other verbs does not serve.
func TestExport_PrintsWhatReadsTheFilesThatThereAre(t *testing.T) {
	t.Parallel()
	eachTree(t, func(n *tree) {
		t := n.t
		script := strings.Join(n.shell, " ") + " " + filepath.Join(n.root, contract.PathSetup) + " export"
		for _, test := range []struct{ file, content, want string }{
			{"x", "", "left\n"},
			{"etc/capi-proxy-patcher/proxy.env", header + `NO_PROXY="a"` + "\n", "a as a\n"},
			{nodeEnv, header + `NO_PROXY="b"` + "\n", "b as b\n"},
		} {
			n.write(test.file, test.content)
			cmd := exec.CommandContext(t.Context(), n.shell[0], slices.Concat(n.shell[1:], []string{
				"-c", `eval "false; $(` + script + `)" || { echo left; exit; }; printf '%s as ' "$NO_PROXY"; printenv NO_PROXY`,
			})...)
			cmd.Env = slices.Concat(n.env, []string{"PATH=" + os.Getenv("PATH")})
			if out, err := cmd.Output(); string(out) != test.want || err != nil {
				t.Errorf("with %s: %q, want %q, %v", test.file, out, test.want, err)
			}
		}
	})
}
