package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnifiedDiff(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		old, new string
		want     string
	}{
		{name: "equal texts have no difference", old: "a\n", new: "a\n"},
		{name: "two empty texts have no difference"},
		{
			name: "three lines of context stand around a change",
			old:  "1\n2\n3\n4\n5\n6\n7\n8\n9\n", new: "1\n2\n3\n4\nx\n6\n7\n8\n9\n",
			want: "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n",
		},
		{
			name: "changes six lines apart share a hunk",
			old:  "a\n1\n2\n3\n4\n5\n6\nb\n", new: "1\n2\n3\n4\n5\n6\n",
			want: "@@ -1,8 +1,6 @@\n-a\n 1\n 2\n 3\n 4\n 5\n 6\n-b\n",
		},
		{
			name: "changes seven lines apart do not",
			old:  "a\n1\n2\n3\n4\n5\n6\n7\nb\n", new: "1\n2\n3\n4\n5\n6\n7\n",
			want: "@@ -1,4 +1,3 @@\n-a\n 1\n 2\n 3\n@@ -6,4 +5,3 @@\n 5\n 6\n 7\n-b\n",
		},
		{
			name: "the first line of an empty range is the line before",
			old:  "", new: "a\nb\n",
			want: "@@ -0,0 +1,2 @@\n+a\n+b\n",
		},
		{
			name: "a text that is emptied",
			old:  "a\n", new: "",
			want: "@@ -1 +0,0 @@\n-a\n",
		},
		{
			name: "a line break added at the end",
			old:  "a\nb", new: "a\nb\n",
			want: "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n",
		},
		{
			name: "a missing line break on both sides",
			old:  "a\nb", new: "c\nb",
			want: "@@ -1,2 +1,2 @@\n-a\n+c\n b\n\\ No newline at end of file\n",
		},
		{
			name: "carriage returns count",
			old:  "a\r\n", new: "a\n",
			want: "@@ -1 +1 @@\n-a\r\n+a\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			want := tc.want
			if want != "" {
				want = "--- old.yaml\n+++ new.yaml\n" + want
			}
			got := string(UnifiedDiff("old.yaml", "new.yaml", DiffPart{tc.old, tc.new}))
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestUnifiedDiff_ComparesPartByPart has what moves from one part to the next go and come, and counts lines over all parts.
func TestUnifiedDiff_ComparesPartByPart(t *testing.T) {
	t.Parallel()
	got := string(UnifiedDiff("a", "b", DiffPart{"1\n2\n", "1\n"}, DiffPart{}, DiffPart{"3\n4\n", "2\n3\nx"}))
	want := "--- a\n+++ b\n@@ -1,4 +1,4 @@\n 1\n-2\n+2\n 3\n-4\n+x\n\\ No newline at end of file\n"
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := UnifiedDiff("a", "b", DiffPart{"1\n", "1\n"}, DiffPart{"2", "2"}); got != nil {
		t.Errorf("got %q", got)
	}
}

// FuzzDiff checks that a diff converts one text to the other, forward and backward, cut into parts or not.
func FuzzDiff(f *testing.F) {
	f.Add("a\nb\nc\n", "a\nx\nc", uint8(1))
	f.Add("", "a", uint8(0))
	f.Add("a\na\nb\nb\na\n", "b\na\na\nb\n", uint8(2))
	f.Add("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\nx\n3\n4\n5\n6\n7\n8\n9", uint8(6))
	f.Fuzz(func(t *testing.T, a, b string, cut uint8) {
		a, b = strings.ReplaceAll(a, "\x00", "0"), strings.ReplaceAll(b, "\x00", "0") // see applied
		before, after := splitLines(a), splitLines(b)
		i, j := min(int(cut), len(before)), min(int(cut)/2, len(after))
		text := string(UnifiedDiff("a", "b",
			DiffPart{strings.Join(before[:i], ""), strings.Join(after[:j], "")},
			DiffPart{strings.Join(before[i:], ""), strings.Join(after[j:], "")}))
		if a == b && i == j && text != "" {
			t.Fatalf("equal texts differ: %q", text)
		}
		if got := applied(t, text, before, '-', '+'); got != b {
			t.Fatalf("%q applied to %q gives %q, want %q", text, a, got, b)
		}
		if got := applied(t, text, after, '+', '-'); got != a {
			t.Fatalf("%q taken back from %q gives %q, want %q", text, b, got, a)
		}
	})
}

// applied returns lines after the hunks of a difference: those marked with one character go, those with the other come.
func applied(t *testing.T, text string, lines []string, gone, come byte) string {
	t.Helper()
	text = strings.ReplaceAll(text, "\n\\ No newline at end of file\n", "\x00")
	var result strings.Builder
	next := 0
	for _, hunk := range strings.Split(text, "\n@@ ")[1:] {
		head, body, _ := strings.Cut(hunk+"\n", " @@\n")
		body = strings.TrimSuffix(body, "\n")
		start, count := hunkRange(t, head, gone)
		if count > 0 {
			start--
		}
		for ; next < start; next++ {
			result.WriteString(lines[next])
		}
		for _, line := range strings.SplitAfter(strings.ReplaceAll(body, "\x00", "\x00\n"), "\n") {
			if line == "" {
				continue
			}
			content := strings.TrimSuffix(strings.TrimSuffix(line[1:], "\n"), "\x00")
			if !strings.HasSuffix(line, "\x00\n") {
				content += "\n"
			}
			if line[0] != come {
				if next >= len(lines) || lines[next] != content {
					t.Fatalf("%q: line %d is not %q", text, next+1, content)
				}
				next++
				count--
			}
			if line[0] != gone {
				result.WriteString(content)
			}
		}
		if count != 0 {
			t.Fatalf("%q: the count is wrong by %d in %q", text, count, head)
		}
	}
	return result.String() + strings.Join(lines[next:], "")
}

// hunkRange returns first line and number of lines of the side of a hunk that has a sign.
func hunkRange(t *testing.T, head string, sign byte) (start, count int) {
	t.Helper()
	_, side, _ := strings.Cut(" "+head, " "+string(sign))
	switch n, err := fmt.Sscanf(side, "%d,%d", &start, &count); n {
	case 0:
		t.Fatalf("%q: %v", head, err)
	case 1:
		count = 1
	}
	return start, count
}
