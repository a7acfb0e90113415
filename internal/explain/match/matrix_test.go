package match_test

import (
	"encoding/csv"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain/match"
)

// row is one measured request.
type row struct {
	client, version, noProxy, destination string
	bypass                                bool
}

// TestMatrix compares every matcher with measurements on real clients: all rows for Go, 99.5 % for every other client
// and version. NOPROXY_MATRIX names another table of the same columns.
//
// Left out are the destinations of numericOddity: hosts that are an IPv4 address in a spelling other than four decimal
// parts. What a client does with those is a matter of its resolver, not of NO_PROXY.
func TestMatrix(t *testing.T) {
	t.Parallel()
	path := os.Getenv("NOPROXY_MATRIX")
	if path == "" {
		path = "testdata/matrix.csv"
	}
	rows := readMatrix(t, path)
	type tally struct{ total, agree, odd, oddAgree int }
	tallies := map[string]*tally{}
	var order []string
	for _, r := range rows {
		name := r.client + "@" + r.version
		client, err := match.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if tallies[name] == nil {
			tallies[name] = &tally{}
			order = append(order, name)
		}
		n := tallies[name]
		a, err := client.MatchResolved(r.noProxy, r.destination, labResolver(r))
		if err != nil {
			t.Errorf("%s: %v: %q", name, err, r.destination)
			continue
		}
		agree := (a.Verdict == match.Direct) == r.bypass
		if numericOddity(r.destination) {
			n.odd++
			if agree {
				n.oddAgree++
			}
			continue
		}
		n.total++
		if agree {
			n.agree++
			continue
		}
		t.Logf("%s: NO_PROXY=%q %s: measured direct=%t, matcher says %s (%s)", name, r.noProxy, r.destination, r.bypass,
			a.Verdict, a.Reason)
	}
	for _, name := range order {
		n := tallies[name]
		share := 100 * float64(n.agree) / float64(max(n.total, 1))
		t.Logf("%-45s %4d of %4d rows agree (%.2f %%), left out %d numeric hosts of which %d agree", name, n.agree, n.total,
			share, n.odd, n.oddAgree)
		want := 99.5
		if strings.HasPrefix(name, "go-") {
			want = 100
		}
		if share < want {
			t.Errorf("%s: %.2f %% of rows agree, want %.1f %%", name, share, want)
		}
	}
}

// labResolver answers like the name server and hosts files of the network where the matrix was measured. Only Ruby
// asks. Every name had an address in 198.51.100.0/24. The machine with Ruby 2.7.4 had no entry for localhost.
func labResolver(r row) match.Resolver {
	return func(name string) (netip.Addr, bool) {
		if strings.EqualFold(name, "localhost") && r.version != "2.7.4" {
			return netip.MustParseAddr("127.0.0.1"), true
		}
		return netip.MustParseAddr("198.51.100.10"), true
	}
}

// numericOddity reports an IPv4 host in a spelling other than four decimal parts without leading zeros.
func numericOddity(destination string) bool {
	_, rest, _ := strings.Cut(destination, "://")
	host := rest[:strings.IndexAny(rest+"/", "/:")]
	if host == "" || strings.HasPrefix(host, "[") {
		return false
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if hex, ok := strings.CutPrefix(label, "0x"); ok && strings.Trim(hex, "0123456789abcdefABCDEF") == "" {
			continue
		}
		if label == "" || strings.Trim(label, "0123456789") != "" {
			return false
		}
	}
	return true
}

func readMatrix(t *testing.T, path string) []row {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // read only
	r := csv.NewReader(f)
	head, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"client", "version", "no_proxy", "destination", "bypass"}; !slices.Equal(head, want) {
		t.Fatalf("columns of %s: got %q, want %q", path, head, want)
	}
	var rows []row
	for {
		rec, err := r.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if rec[4] != "true" && rec[4] != "false" {
			t.Fatal(fmt.Errorf("bypass is %q", rec[4]))
		}
		rows = append(rows, row{rec[0], rec[1], rec[2], rec[3], rec[4] == "true"})
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no rows", path)
	}
	return rows
}
