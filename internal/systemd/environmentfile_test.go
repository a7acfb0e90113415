package systemd_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/systemd"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/shells"
)

// rudeVars have values that some reader would treat specially.
func rudeVars() []systemd.Var {
	values := []string{
		"", " ", " leading and trailing ", "http://u:p%40ss@proxy.corp:3128", "%C3%A9", "%%", "%", "100%", "%%40", "%n%N%H", `"`, `'`, `'"'"`, `\`, `\\`,
		`a\`, `\"`, `\$`, `\q`, "$HOME", "${HOME}", "$(id)", "$$", "$", "`id`", "`", "!!", "#", "a #b", ";", "~", "~/x", "*", "[a]", "[Service]", "a=b", "=",
		"{ {", "}}", "%}", "{", "{ %", `{\{`, `B" "C=D`, "http://[fd00::1]:3128", "прокси.рф", "日本", "\U0001F600", "\u00a0", "\ufeff",
		"a,b,.c,10.0.0.0/8,::1", "export A=b", `\n\t\x41\101`, `\n\t\x41\101\s`,
		strings.TrimSuffix(strings.Repeat("n.example.com,10.0.0.0/8,", 2000), ","),
	}
	vars := make([]systemd.Var, 0, len(values))
	for i, value := range values {
		vars = append(vars, systemd.Var{Name: "V" + strings.Repeat("_", i), Value: value})
	}
	return vars
}

func TestEnvironmentFile_Golden(t *testing.T) {
	t.Parallel()
	tests := map[string][]systemd.Var{
		"rude.env": {
			{Name: "HTTPS_PROXY", Value: `http://us$er:p%40"\` + "`" + `'@[fd00::1]:3128`},
			{Name: "NO_PROXY", Value: " прокси.рф,*.example.com "},
			{Name: "EMPTY", Value: ""},
		},
		"none.env": nil,
	}
	for name, vars := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := slices.Clone(vars)
			got := render(t, vars)
			golden.Equal(t, filepath.Join("testdata", name), got)
			if diff := cmp.Diff(before, vars); diff != "" {
				t.Errorf("Render modified its argument (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEnvironmentFile_IsReadAlikeByEveryShell(t *testing.T) {
	t.Parallel()
	vars := append(rudeVars(), randomVars(700)...)
	content := render(t, vars)
	file := filepath.Join(t.TempDir(), "proxy.env")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	parsed, err := systemd.ParseEnvironmentFile(content)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(vars, parsed); diff != "" {
		t.Errorf("by ParseEnvironmentFile (-want +got):\n%s", diff)
	}
	for _, shell := range shells.Installed(t) {
		t.Run(shell.Name, func(t *testing.T) {
			t.Parallel()
			got := source(t, shell.Argv, file)
			if diff := cmp.Diff(asMap(vars), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// EnvironmentFile and EnvironmentDropIn refuse the same.
func TestEnvironmentFile_RefusesWhatDoesNotReachEveryReader(t *testing.T) {
	t.Parallel()
	const notAName = ": not a name of ASCII letters, digits and underscores"
	const atByte0 = "variable 1 (A): control character or line separator at byte 0"
	tests := map[string]struct {
		vars []systemd.Var
		want string
	}{
		"a newline":                    {one("\nExecStartPre=/x"), atByte0},
		"a carriage return":            {one("\r"), atByte0},
		"a tab":                        {one("\t"), atByte0},
		"NUL":                          {one("\x00"), atByte0},
		"an escape sequence":           {one("\x1b["), atByte0},
		"DEL":                          {one("\x7f"), atByte0},
		"next line, a newline of YAML": {one("\u0085"), atByte0},
		"a line separator":             {one("\u2028"), atByte0},
		"a paragraph separator":        {one("\u2029"), atByte0},
		"a noncharacter":               {one("\uffff"), atByte0},
		"invalid UTF-8":                {one("secret\xff"), "variable 1 (A): invalid UTF-8"},
		"a Jinja expression":           {one("secret{{x"), `variable 1 (A): "{{" at byte 6, which cloud-init reads as a template`},
		"a Jinja statement":            {one("secret{%"), `variable 1 (A): "{%" at byte 6, which cloud-init reads as a template`},
		"a Jinja comment":              {one("secret{#"), `variable 1 (A): "{#" at byte 6, which cloud-init reads as a template`},
		"a value too long for Linux":   {one(strings.Repeat("a", 126_975)), "variable 1 (A): longer than 126976 bytes"},
		"an empty name":                {[]systemd.Var{{}}, `variable 1 ("")` + notAName},
		"a name with a digit first":    {[]systemd.Var{{Name: "1A"}}, `variable 1 ("1A")` + notAName},
		"a name with a newline":        {[]systemd.Var{{Name: "A\nB"}}, `variable 1 ("A\nB")` + notAName},
		"a name with a blank":          {[]systemd.Var{{Name: "A "}}, `variable 1 ("A ")` + notAName},
		"a name that is an assignment": {[]systemd.Var{{Name: "A=B"}}, `variable 1 ("A=B")` + notAName},
		"a name with export":           {[]systemd.Var{{Name: "export A"}}, `variable 1 ("export A")` + notAName},
		"a name that is not ASCII":     {[]systemd.Var{{Name: "É"}}, `variable 1 ("É")` + notAName},
		"a name that occurs twice":     {[]systemd.Var{{Name: "A", Value: "x"}, {Name: "A", Value: "x"}}, "variable 2 (A): occurs twice"},
		"several, in input order": {
			[]systemd.Var{{Name: "B", Value: "\n"}, {Name: "-"}, {Name: "B", Value: "{{"}},
			"variable 1 (B): control character or line separator at byte 0; variable 2 (\"-\")" + notAName +
				"; variable 3 (B): occurs twice; variable 3 (B): \"{{\" at byte 0, which cloud-init reads as a template",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for says, render := range map[string]func([]systemd.Var) ([]byte, error){
				"rendering environment file: ": systemd.EnvironmentFile, "rendering drop-in with variables: ": systemd.EnvironmentDropIn,
			} {
				if got, err := render(test.vars); got != nil || err == nil || err.Error() != says+test.want {
					t.Errorf("got %q, %v; want error %s", got, err, says+test.want)
				}
			}
		})
	}
	if got, err := systemd.EnvironmentDropIn(nil); got != nil || err == nil ||
		err.Error() != "rendering drop-in with variables: no variables" {
		t.Errorf("without variables: got %q, %v", got, err)
	}
}

func TestEnvironmentFile_AcceptsTheLongestValueThatLinuxPassesOn(t *testing.T) {
	t.Parallel()
	vars := one(strings.Repeat("a", 126_974))
	file := filepath.Join(t.TempDir(), "proxy.env")
	if err := os.WriteFile(file, render(t, vars), 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(asMap(vars), source(t, []string{"sh"}, file)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzEnvironmentFile(f *testing.F) {
	for _, v := range rudeVars() {
		if len(v.Value) < 1000 { // the fuzzer is slow on long ones
			f.Add("HTTP_PROXY", v.Value)
		}
	}
	f.Add("A\nB", "x\ny")
	f.Add("A=1", "{{")
	f.Fuzz(func(t *testing.T, name, value string) {
		content, err := systemd.EnvironmentFile([]systemd.Var{
			{Name: "FIRST"},
			{Name: "X_" + name, Value: value},
			{Name: "LAST", Value: `\`},
		})
		if err != nil {
			if isEnvName("X_"+name) && "X_"+name != "LAST" && isPlain(value) {
				t.Fatalf("Render(%q, %q): %v", name, value, err)
			}
			return
		}
		want := map[string]string{"FIRST": "", "X_" + name: value, "LAST": `\`}
		text := string(content)
		if strings.Count(text, "\n") != 4 || !strings.HasSuffix(text, "\n") || strings.Contains(text, "{{") {
			t.Errorf("not four lines free of templates: %q", text)
		}
		if diff := cmp.Diff(want, readFileLikeSystemd(text)); diff != "" {
			t.Errorf("systemd (-want +got):\n%s", diff)
		}
		if vars, err := systemd.ParseEnvironmentFile(content); err != nil || !maps.Equal(want, asMap(vars)) {
			t.Errorf("Parse: %v, %q", err, vars)
		}
		if diff := cmp.Diff(want, source(t, []string{"sh"}, "/dev/stdin", content...)); diff != "" {
			t.Errorf("sh (-want +got):\n%s", diff)
		}
	})
}

// isPlain is a second way to say what Render accepts: printable ASCII.
func isPlain(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) &&
		!strings.Contains(value, "{{") && !strings.Contains(value, "{%") && !strings.Contains(value, "{#") &&
		len(value) < 100_000
}

// source returns the variables that a shell has after it read the file and
// did not have before.
func source(t *testing.T, shell []string, file string, stdin ...byte) map[string]string {
	t.Helper()
	argv := slices.Concat(shell, []string{"-c", `set -a; . "$1" || exit 1; set +a; exec /usr/bin/env -0`, "sh", file})
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = t.TempDir(), []string{} // what a broken encoder lets the shell write stays there
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%v: %v %s", shell, err, stderr.String())
	}
	environ := map[string]string{}
	for entry := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		key, value, _ := strings.Cut(entry, "=")
		environ[key] = value
	}
	maps.DeleteFunc(environ,
		func(key, _ string) bool { return slices.Contains([]string{"PATH", "PWD", "OLDPWD", "SHLVL", "_"}, key) })
	return environ
}

func render(t *testing.T, vars []systemd.Var) []byte {
	t.Helper()
	content, err := systemd.EnvironmentFile(vars)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func one(value string) []systemd.Var {
	return []systemd.Var{{Name: "A", Value: value}}
}

func asMap(vars []systemd.Var) map[string]string {
	environ := make(map[string]string, len(vars))
	for _, v := range vars {
		environ[v.Name] = v.Value
	}
	return environ
}

func TestParseEnvironmentFile_RefusesWhatWasNotRendered(t *testing.T) {
	t.Parallel()
	const header = systemd.EnvironmentFileHeader + "\n"
	for text, want := range map[string]string{
		"":                            `line 1 is not "# Managed by capi-proxy-patcher"`,
		"A=\"secret\"\n":              `line 1 is not "# Managed by capi-proxy-patcher"`,
		header + "A=\"secret\"":       `line 2 is not NAME="VALUE"`,
		header + "\n":                 `line 2 is not NAME="VALUE"`,
		header + "A=secret\n":         `line 2 is not NAME="VALUE"`,
		header + "A='secret'\n":       `line 2 is not NAME="VALUE"`,
		header + "A=\"\nB=\"\n":       `line 2 is not NAME="VALUE"`,
		header + "A=\"se\"cret\"\n":   `line 2 is not NAME="VALUE"`,
		header + "A=\"secret\\\"\n":   `line 2 is not NAME="VALUE"`,
		header + "A=\"$secret\"\n":    `line 2 is not NAME="VALUE"`,
		header + "A=\"sec\\ret\"\n":   `line 2 is not NAME="VALUE"`,
		header + "A=\"1\"\n1=\"2\"\n": `line 3 is not NAME="VALUE"`,
	} {
		if vars, err := systemd.ParseEnvironmentFile([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, %v, want %s", text, vars, err, want)
		}
	}
}
