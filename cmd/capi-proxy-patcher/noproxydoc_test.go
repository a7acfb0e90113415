package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/tables"
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

// TestTables_OfGroups compares docs/no-proxy.md.
func TestTables_OfGroups(t *testing.T) {
	groups := tables.Table{Page: "../../docs/no-proxy.md", Name: "groups"}
	for _, group := range noproxy.Groups() {
		groups.Add("`" + string(group) + "`")
	}
	groups.Compare(t)
}

// TestTroubleshooting_SaysWhichKindACodeIs: whether a finding is a rejection, a warning or a note is in its section.
func TestTroubleshooting_SaysWhichKindACodeIs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[finding.Code]string{
		settings.CodeBadAnnotation: "rejection", settings.CodeBadEncoding: "rejection", settings.CodeBadLabel: "rejection",
		settings.CodeBadMetadata: "rejection", settings.CodeSecretNotFound: "note",
		patch.CodeOverridden: "warning", patch.CodeUnread: "note", plan.CodeHostProxied: "note", plan.CodeBootCommands: "note", plan.CodeSudo: "note",
		plan.CodeEarlyFetch: "note", plan.CodeAPIServerDirect: "note", settings.CodeUnlabelledSecret: "warning",
		settings.CodeUnknownName: "warning", patch.CodeUserData: "warning",
	}
	last := slices.Index(noproxy.Codes(), noproxy.CodeBadName) // of the rejections
	for i, code := range noproxy.Codes() {
		kinds[code] = map[bool]string{true: "rejection", false: "warning"}[i <= last]
	}
	for _, part := range section.FindAllStringSubmatch(string(text), -1) {
		kind := kinds[finding.Code(part[1])]
		delete(kinds, finding.Code(part[1]))
		if seen, _, _ := strings.Cut(part[2], "- Why:"); !strings.Contains(seen, kind) {
			t.Errorf("the section of %s does not say that it is a %s", part[1], kind)
		}
	}
	if len(kinds) > 0 {
		t.Errorf("no section for %v", kinds)
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
