package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// events writes "action test [output]" lines of one package as go test -json does; "-" is the package itself.
func events(t *testing.T, lines ...string) string {
	t.Helper()
	var b strings.Builder
	for _, line := range lines {
		action, rest, _ := strings.Cut(line, " ")
		name, output, _ := strings.Cut(rest, " ")
		e := map[string]string{"Action": action, "Package": "example.com/p", "Test": name, "Output": output}
		if name == "-" {
			delete(e, "Test")
		}
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(text, '\n'))
	}
	return b.String()
}

// summary is what is counted and printed of events.
type summary struct {
	name   string
	events []string
	want   counts
	output string
}

func TestSummarize_CountsTests(t *testing.T) {
	t.Parallel()
	summarizes(t, []summary{
		{
			name: "a passing test counts and says nothing",
			events: []string{
				"run TestA", "output TestA === RUN   TestA\n", "output TestA chatter\n", "pass TestA",
				"output - PASS\n", "output - ok  \tp\t0.1s\n", "pass -",
			},
			want:   counts{passed: 1},
			output: "ok  \tp\t0.1s\n",
		},
		{
			name:   "subtests count instead of their parent",
			events: []string{"run TestA", "run TestA/x", "run TestA/y", "pass TestA/x", "pass TestA/y", "pass TestA", "pass -"},
			want:   counts{passed: 2},
		},
		{
			name:   "a slash in the name of a subtest makes no third level",
			events: []string{"run TestA", "run TestA/10.0.0.0/8", "pass TestA/10.0.0.0/8", "pass TestA", "pass -"},
			want:   counts{passed: 1},
		},
		{
			name: "a failing subtest counts once and its output is printed",
			events: []string{
				"run TestA", "run TestA/x", "run TestA/y", "output TestA/x     a_test.go:1: wrong\n", "fail TestA/x",
				"output TestA/y unseen\n", "pass TestA/y", "output TestA --- FAIL: TestA\n", "fail TestA",
				"output - FAIL\n", "output - FAIL\tp\t0.1s\n", "fail -",
			},
			want:   counts{passed: 1, failed: 1},
			output: "--- FAIL: TestA\n    a_test.go:1: wrong\nFAIL\tp\t0.1s\n",
		},
		{
			name:   "a parent that fails by itself counts beside its passing subtest",
			events: []string{"run TestA", "run TestA/x", "pass TestA/x", "fail TestA", "fail -"},
			want:   counts{passed: 1, failed: 1},
		},
		{
			name: "a skipped test is listed with its reason",
			events: []string{
				"run TestA", "output TestA     a_test.go:1: needs\n", "output TestA         root\n",
				"output TestA --- SKIP: TestA (0.00s)\n", "skip TestA", "pass -",
			},
			want:   counts{skipped: 1},
			output: "SKIP\texample.com/p TestA: a_test.go:1: needs root\n",
		},
		{
			name:   "a test that is skipped without a word is listed as such",
			events: []string{"run TestA", "output TestA --- SKIP: TestA (0.00s)\n", "skip TestA", "pass -"},
			want:   counts{skipped: 1},
			output: "SKIP\texample.com/p TestA: no reason given\n",
		},
	})
}

func TestSummarize_CountsPackagesAndWhatNeverEnds(t *testing.T) {
	t.Parallel()
	summarizes(t, []summary{
		{
			name:   "a package without tests counts for nothing",
			events: []string{"output - ?   \tp\t[no test files]\n", "skip -"},
			output: "?   \tp\t[no test files]\n",
		},
		{
			name:   "a package that fails outside of its tests counts as one failure",
			events: []string{"run TestA", "pass TestA", "output - panic: boom\n", "fail -"},
			want:   counts{passed: 1, failed: 1},
			output: "panic: boom\n",
		},
		{
			name:   "a test that never ends has failed",
			events: []string{"run TestA", "output TestA deadline\n", "fail -"},
			want:   counts{failed: 1},
			output: "deadline\n",
		},
		{
			name:   "a package that never ends has failed",
			events: []string{"run TestA", "pass TestA"},
			want:   counts{passed: 1, failed: 1},
			output: "FAIL\texample.com/p [no result]\n",
		},
	})
}

func summarizes(t *testing.T, tests []summary) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			got, err := summarize(strings.NewReader(events(t, tt.events...)), &out)
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("counts %+v, want %+v", got, tt.want)
			}
			if diff := cmp.Diff(tt.output, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSummarize_PrintsOtherLines(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	got, err := summarize(strings.NewReader("go: downloading\n{}\n"+`{"Action":"start"}`+"\nlast"), &out)
	if err != nil || got != (counts{}) {
		t.Fatalf("%+v, %v", got, err)
	}
	if diff := cmp.Diff("go: downloading\n{}\nlast", out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// TestSummarize_ReadsTheEventsOfGo runs the real go test on a module with every outcome, one of its packages not even
// building.
func TestSummarize_ReadsTheEventsOfGo(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "./...")
	cmd.Dir = filepath.Join("testdata", "module")
	events, err := cmd.Output()
	if err == nil {
		t.Fatal("go test passed")
	}
	var out strings.Builder
	got, err := summarize(strings.NewReader(string(events)), &out)
	if err != nil {
		t.Fatal(err)
	}
	// good: 2 subtests and a skipped one. bad: a failing subtest, a passing one, a panic. broken: the package.
	if want := (counts{passed: 3, failed: 3, skipped: 1}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
	for _, want := range []string{
		"\nok  \texample.com/module/good", "SKIP\texample.com/module/good TestSkipped: good_test.go:14: needs a reason\n",
		"bad_test.go:8: wrong\n", "panic: boom", "undefined: missing", "FAIL\texample.com/module/broken [build failed]\n",
	} {
		if !strings.Contains("\n"+out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "chatter") {
		t.Errorf("output of a passing test was printed:\n%s", out.String())
	}
}
