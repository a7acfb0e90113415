package cli

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/explain"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/lint"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/match"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
)

// page returns docs/no-proxy.md.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/no-proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rows returns the cells of the rows of all tables with the columns of a header.
func rows(text string, header ...string) [][]string {
	var found [][]string
	inside := false
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			inside = false
		case slices.Equal(cells, header):
			inside = true
		case inside && !strings.HasPrefix(line, "|---"):
			found = append(found, cells)
		}
	}
	return found
}

func TestNoProxyPage_HasEveryCodeOnceWithItsKind(t *testing.T) {
	t.Parallel()
	codes := append(noproxy.Codes(), intent.CodeBadAnnotation, intent.CodeBadEncoding, intent.CodeBadLabel,
		intent.CodeBadMetadata,
		clusters.CodeSecretEncrypted, proxyconfig.CodeSecretNotFound, lint.CodeOverridden, lint.CodeMirrorProxied,
		proxyconfig.CodeUnlabelledSecret, intent.CodeUnknownName)
	lastRejection := slices.Index(codes, noproxy.CodeBadName)
	var listed []string
	for _, cells := range rows(page(t), "code", "kind", "meaning", "write instead") {
		code := strings.Trim(cells[0], "`")
		listed = append(listed, code)
		i := slices.Index(codes, finding.Code(code))
		kind := "warning"
		if i <= lastRejection || i >= len(noproxy.Codes()) && i < len(codes)-4 { // the last four are no rejections
			kind = "rejection"
		}
		if slices.Contains([]finding.Code{clusters.CodeSecretEncrypted, lint.CodeMirrorProxied}, finding.Code(code)) {
			kind = "note"
		}
		if i < 0 || cells[1] != kind || cells[2] == "" || cells[3] == "" {
			t.Errorf("row %q: code %d, kind is %s", cells, i, kind)
		}
	}
	for i, c := range codes {
		if i >= len(listed) || listed[i] != string(c) {
			t.Fatalf("codes are %q, want %q", listed, codes)
		}
	}
	if len(listed) != len(codes) {
		t.Errorf("%d rows for %d codes", len(listed), len(codes))
	}
}

func TestNoProxyPage_HasEveryGroupInOrder(t *testing.T) {
	t.Parallel()
	var groups []noproxy.Group
	for _, cells := range rows(page(t), "group", "entries", "from") {
		groups = append(groups, noproxy.Group(strings.Trim(cells[0], "`")))
	}
	if !slices.Equal(groups, noproxy.Groups()) {
		t.Errorf("groups are %q", groups)
	}
}

// TestNoProxyPage_SaysWhatEntriesBecome runs the examples of the page.
func TestNoProxyPage_SaysWhatEntriesBecome(t *testing.T) {
	t.Parallel()
	omit := slices.DeleteFunc(noproxy.Groups(), func(g noproxy.Group) bool { return g == noproxy.GroupUser })
	examples := rows(page(t), "you write", "nodes get", "because")
	literal := 0
	for _, cells := range examples {
		in, out := strings.Trim(cells[0], "`"), strings.Trim(cells[1], "`")
		got, err := noproxy.Compose(noproxy.Input{OmitGroups: omit, User: noproxy.Layer{Text: in}})
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if strings.Count(cells[1], "`") == 2 && strings.HasPrefix(cells[1], "`") && strings.HasSuffix(cells[1], "`") {
			literal++
			if got.Value != out {
				t.Errorf("%s becomes %s, the page says %s", in, got.Value, out)
			}
		}
	}
	if len(examples) < 9 || literal < 4 {
		t.Errorf("%d examples, %d of them literal", len(examples), literal)
	}
}

// TestNoProxyPage_SaysWhatClientsCover compares the table of clients with their models.
func TestNoProxyPage_SaysWhatClientsCover(t *testing.T) {
	t.Parallel()
	specs := map[string]string{
		"Go: containerd, kubelet, kubeadm": "go", "curl 7.88, git, PHP": "curl@7.88.1", "curl 7.74 and older": "curl@7.74.0", "curl 8.14": "curl@8.14.1",
		"curl 8.23": "curl@8.23.0", "wget": "wget", "Python urllib": "urllib", "Python requests": "requests", "Python httpx 0.28": "httpx", "aiohttp": "aiohttp",
		"Ruby": "ruby", "Node `fetch` 24 (undici 7)": "node-fetch", "Node `http` 24": "node-http", "axios": "axios",
	}
	checked := 0
	for _, cells := range rows(page(t), "client", "name covers", "dot covers", "networks", "ports", "a trap") {
		spec, known := specs[cells[0]]
		if !known {
			continue
		}
		checked++
		c, err := match.Lookup(spec)
		if err != nil {
			t.Fatal(err)
		}
		direct := func(list, url string) bool {
			a, err := c.MatchResolved(list, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			return a.Verdict == match.Direct
		}
		type direction struct{ itself, below bool }
		want := map[string]direction{
			"itself and names below": {itself: true, below: true}, "both": {itself: true, below: true},
			"names below": {below: true}, "only itself": {itself: true},
		}
		for i, list := range []string{"example.com", ".example.com"} {
			text, _, _ := strings.Cut(cells[1+i], ",")
			if got := (direction{
				direct(list, "https://example.com"),
				direct(list, "https://a.example.com"),
			}); got != want[text] {
				t.Errorf("%s, %s: the page says %q, the model %v", cells[0], list, text, got)
			}
		}
		if got := direct("10.0.0.0/8", "https://10.1.2.3"); got != strings.Contains(cells[3], "IPv4") {
			t.Errorf("%s, IPv4 networks: the page says %q, the model %t", cells[0], cells[3], got)
		}
		if got := direct("fd00::/8", "https://[fd00::1]"); got != strings.Contains(cells[3], "IPv6") {
			t.Errorf("%s, IPv6 networks: the page says %q, the model %t", cells[0], cells[3], got)
		}
		if got := direct("example.com:8443", "https://example.com:8443"); got == (cells[4] == "no") {
			t.Errorf("%s, ports: the page says %q, the model %t", cells[0], cells[4], got)
		}
	}
	if checked != len(specs) {
		t.Errorf("%d of %d clients are on the page", checked, len(specs))
	}
}

func TestNoProxyPage_HasEveryFieldOfTheOutputs(t *testing.T) {
	t.Parallel()
	text := page(t)
	var check func(of reflect.Type)
	check = func(of reflect.Type) {
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "" && name != "-" && !strings.Contains(text, "`"+name+"`") && !strings.Contains(text, "`"+name+"[]`") {
				t.Errorf("field %s of %s is not on the page", name, of)
			}
			kind := f.Type
			for kind.Kind() == reflect.Slice {
				kind = kind.Elem()
			}
			if kind.Kind() == reflect.Struct {
				check(kind)
			}
		}
	}
	check(reflect.TypeFor[explain.Report]())
	check(reflect.TypeFor[lint.Report]())
}
