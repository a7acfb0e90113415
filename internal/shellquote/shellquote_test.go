package shellquote_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/shellquote"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/shells"
)

func goodValues() map[string]string {
	return map[string]string{
		"a polite value":                        "http://asdf",
		"nothing":                               "",
		"a blank at either end":                 " a ",
		"a single quote":                        "it's",
		"only single quotes":                    "'''",
		"a double quote and a backslash":        `"\`,
		"a command substitution":                "$(id) `id` ${HOME} $HOME",
		"percent-encoded characters":            "http://p%40s%22s%25@proxy.corp:3128",
		"characters with a meaning unquoted":    "a;b|c&d>e<f*g?h[i]j~k#l!m(n)o{p,q}r=s",
		"the start of a Jinja expression":       "{{ ds.meta_data }}",
		"the start of a Jinja statement":        "{% if %}",
		"the start of a Jinja comment":          "{# x #}",
		"many braces":                           "{{{{%{#{{",
		"a brace before a single quote":         "{'{'{",
		"a Bash history expansion":              "!!",
		"a leading dash":                        "-n",
		"a leading tilde":                       "~root",
		"IPv6 in brackets":                      "http://[fd00::1]:3128",
		"an international name":                 "http://прокси.рф",
		"a line separator, which is no control": "a\u2028b",
	}
}

// longValue is a NO_PROXY of 4,000 entries.
func longValue() string {
	return strings.TrimSuffix(strings.Repeat("n.example.com,10.0.0.0/8,", 2000), ",")
}

func TestWord_IsTheSameWordForEveryShell(t *testing.T) {
	t.Parallel()
	values := goodValues()
	values["4,000 entries"] = longValue()
	for name, value := range values {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			word, err := shellquote.Word(value)
			if err != nil {
				t.Fatal(err)
			}
			checkNoTemplate(t, word)
			for _, shell := range shells.Installed(t) {
				got := run(t, shell.Argv, `eval "set -- $1"; printf '%s|%s' "$#" "$1"`, word)
				if diff := cmp.Diff("1|"+value, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", shell.Name, diff)
				}
			}
		})
	}
}

func TestExport_ReachesTheEnvironmentOfACommand(t *testing.T) {
	t.Parallel()
	values := goodValues()
	values["4,000 entries"] = longValue()
	for name, value := range values {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command, err := shellquote.Export("https_proxy", value)
			if err != nil {
				t.Fatal(err)
			}
			for _, shell := range shells.Installed(t) {
				got := run(t, shell.Argv, `eval "$1"; /usr/bin/printenv -0 https_proxy`, command)
				if diff := cmp.Diff(value+"\x00", got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", shell.Name, diff)
				}
			}
		})
	}
}

func TestExport_WritesWhatAPersonWouldWrite(t *testing.T) {
	t.Parallel()
	tests := map[string][3]string{
		"a polite value":        {"HTTP_PROXY", "http://asdf", `export HTTP_PROXY='http://asdf'`},
		"an empty value":        {"no_proxy", "", `export no_proxy=''`},
		"a single quote":        {"A", "it's", `export A='it'\''s'`},
		"a Jinja expression":    {"A", "{{x}}", `export A='{''{x}}'`},
		"digits after a letter": {"_a1", "b", `export _a1='b'`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := shellquote.Export(test[0], test[1])
			if err != nil || got != test[2] {
				t.Errorf("got %s, %v; want %s", got, err, test[2])
			}
		})
	}
}

func TestWord_RefusesWhatCannotBeOneLine(t *testing.T) {
	t.Parallel()
	tests := map[string][2]string{
		"NUL":                            {"secret\x00", "quoting shell word: control character at byte 6"},
		"a newline that starts a line":   {"\nreboot", "quoting shell word: control character at byte 0"},
		"a final newline":                {"secret\n", "quoting shell word: control character at byte 6"},
		"a carriage return":              {"a\r", "quoting shell word: control character at byte 1"},
		"a tab":                          {"a\tb", "quoting shell word: control character at byte 1"},
		"an escape sequence":             {"\x1b[2J", "quoting shell word: control character at byte 0"},
		"DEL":                            {"\x7f", "quoting shell word: control character at byte 0"},
		"a control character of Latin-1": {"é\u0085", "quoting shell word: control character at byte 2"},
		"invalid UTF-8":                  {"secret\xff", "quoting shell word: invalid UTF-8"},
		"half a surrogate pair":          {"\xed\xa0\x80", "quoting shell word: invalid UTF-8"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := shellquote.Word(test[0])
			if got != "" || err == nil || err.Error() != test[1] {
				t.Errorf("got %q, %v; want error %s", got, err, test[1])
			}
		})
	}
}

func TestExport_RefusesBadNamesAndValues(t *testing.T) {
	t.Parallel()
	const notAName = ": not a name of ASCII letters, digits and underscores"
	tests := map[string][3]string{
		"no name":                    {"", "b", `exporting variable ""` + notAName},
		"a leading digit":            {"1A", "b", `exporting variable "1A"` + notAName},
		"a dash":                     {"A-B", "b", `exporting variable "A-B"` + notAName},
		"a blank":                    {"A B", "b", `exporting variable "A B"` + notAName},
		"an assignment":              {"A=1;reboot;B", "b", `exporting variable "A=1;reboot;B"` + notAName},
		"a newline":                  {"A\nB", "b", `exporting variable "A\nB"` + notAName},
		"a letter that is not ASCII": {"É", "b", `exporting variable "É"` + notAName},
		"an option of export":        {"-p", "b", `exporting variable "-p"` + notAName},
		"a value with a newline":     {"HTTP_PROXY", "secret\nreboot", "exporting variable HTTP_PROXY: control character at byte 6"},
		"a value that is no text":    {"HTTP_PROXY", "secret\xfe", "exporting variable HTTP_PROXY: invalid UTF-8"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := shellquote.Export(test[0], test[1])
			if got != "" || err == nil || err.Error() != test[2] {
				t.Errorf("got %q, %v; want error %s", got, err, test[2])
			}
		})
	}
}

func FuzzWord(f *testing.F) {
	for _, value := range goodValues() {
		f.Add(value)
	}
	f.Add("\x00\n\r\t\x7f\xff")
	sh := startShell(f)
	f.Fuzz(func(t *testing.T, value string) {
		word, err := shellquote.Word(value)
		if (err == nil) != isPlainText(value) {
			t.Fatalf("Word(%q): %v", value, err)
		}
		if err != nil {
			return
		}
		checkNoTemplate(t, word)
		if got := sh.answer(t, "set -- "+word+`; printf '%s|%s\0' "$#" "$1"`); got != "1|"+value {
			t.Errorf("Word(%q) = %s, read back as %q", value, word, got)
		}
	})
}

func FuzzExport(f *testing.F) {
	for _, value := range goodValues() {
		f.Add("HTTP_PROXY", value)
	}
	f.Add("A=1;id;B", "x")
	f.Add("A\nB", "x\ny")
	sh := startShell(f)
	isName := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	f.Fuzz(func(t *testing.T, name, value string) {
		_, err := shellquote.Export(name, value)
		nameIsGood := isName.MatchString(name) && !strings.Contains(name, "\n")
		if (err == nil) != (nameIsGood && isPlainText(value)) {
			t.Fatalf("Export(%q, %q): %v", name, value, err)
		}
		if err != nil {
			return
		}
		// A prefix, because a shell gives PATH, PPID and others a meaning.
		command, err := shellquote.Export("X_"+name, value)
		if err != nil {
			t.Fatal(err)
		}
		checkNoTemplate(t, command)
		if got := sh.answer(t, command+`; printf '%s\0' "$X_`+name+`"; unset X_`+name); got != value {
			t.Errorf("Export(%q, %q) = %s, read back as %q", name, value, command, got)
		}
	})
}

// shell is a shell that reads commands, one a line, for a whole fuzzing run.
type shell struct {
	process *os.Process
	stdin   io.Writer
	stdout  *bufio.Reader
}

func startShell(f *testing.F) *shell {
	f.Helper()
	cmd := exec.CommandContext(f.Context(), "sh")
	cmd.Dir = f.TempDir() // what a broken encoder lets the shell write stays there
	stdin, err := cmd.StdinPipe()
	if err != nil {
		f.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		f.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &shell{cmd.Process, stdin, bufio.NewReader(stdout)}
}

// answer returns what the command printed up to a NUL. A command that leaves
// a quote open would make the shell wait for more; it is killed then.
func (s *shell) answer(t *testing.T, command string) string {
	t.Helper()
	tooLong := time.AfterFunc(5*time.Second, func() { _ = s.process.Kill() })
	defer tooLong.Stop()
	if _, err := io.WriteString(s.stdin, command+"\n"); err != nil {
		t.Fatal(err)
	}
	out, err := s.stdout.ReadString(0)
	if err != nil {
		t.Fatalf("no answer to %q: %v", command, err)
	}
	return strings.TrimSuffix(out, "\x00")
}

func isPlainText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func checkNoTemplate(t *testing.T, s string) {
	t.Helper()
	if strings.Contains(s, "{{") || strings.Contains(s, "{%") || strings.Contains(s, "{#") {
		t.Errorf("cloud-init takes %s for a template", s)
	}
}

func run(t *testing.T, shell []string, script string, args ...string) string {
	t.Helper()
	argv := slices.Concat(shell, []string{"-c", script, "sh"}, args)
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = t.TempDir()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%v: %v %s", shell, err, stderr.String())
	}
	return string(out)
}
