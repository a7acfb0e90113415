package program_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
	outputs "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

// outputOf is the output that the system of an example reads.
func outputOf(example string) string {
	system, _, _ := strings.Cut(filepath.Base(example), "-")
	return map[string]string{
		"aks": "env", "tkg": "env", "giantswarm": "giantswarm", "cloudzero": "values=defaults.env",
	}[system]
}

// TestSecret_OfEveryExample reads the examples of the pages by which people configure four systems today, and makes the
// output that they would publish instead. What differs from the example is listed with the reason.
func TestSecret_OfEveryExample(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/secret/*-*.*")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d examples: %v", len(files), err)
	}
	for _, file := range files {
		if filepath.Ext(file) == ".want" {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			status, stdout, stderr := run(t, "", "secret", "--from", file)
			got := fmt.Sprintf("exit status %d\n%s", status, stderr)
			if status == 0 {
				got += "\n--- secret ---\n" + readable(stdout) + published(t, outputOf(file), stdout, stderr)
			} else if stdout != "" {
				t.Errorf("something is printed:\n%s", stdout)
			}
			golden.Equal(t, file+".want", got)
		})
	}
}

// dataOf returns the decoded data of a Secret manifest.
func dataOf(t *testing.T, text string) map[string][]byte {
	t.Helper()
	var secret struct{ StringData map[string]string }
	if err := yaml.Unmarshal([]byte(text), &secret); err != nil {
		t.Fatal(err)
	}
	data := map[string][]byte{}
	for key, value := range secret.StringData {
		data[key] = []byte(value)
	}
	return data
}

// run runs the program and returns its exit status and outputs.
func run(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = cli.Main(t.Context(), args, kit.Streams{In: strings.NewReader(stdin), Out: &out, Err: &errs}, offline.New(), publish.New())
	return status, out.String(), errs.String()
}

// readable returns a Secret manifest with the first line of its certificates.
func readable(text string) string {
	return regexp.MustCompile(`(?s)(-----BEGIN CERTIFICATE-----\n).*-----END CERTIFICATE-----\n`).ReplaceAllString(text, "$1")
}

// published returns an output of the proxy Secret, and how the values in it differ from those of the example.
func published(t *testing.T, output, secret, stderr string) string {
	t.Helper()
	data := dataOf(t, secret)
	proxy, err := settings.ParseSecret(data)
	if err != nil {
		t.Fatal(err)
	}
	composed, err := noproxy.Compose(noproxy.Input{
		PodCIDRs: []string{"100.96.0.0/11"}, ServiceCIDRs: []string{"100.64.0.0/13"}, ServiceDomain: "cluster.local",
		EndpointHost: "cp.example.com", Profile: noproxy.ProfileShell,
		User: noproxy.Layer{Text: proxy.NoProxy},
	})
	if err != nil {
		t.Fatal(err)
	}
	asks, err := outputs.ParseList(output)
	if err != nil {
		t.Fatal(err)
	}
	result, err := outputs.Of(asks, outputs.Input{Cluster: "c", Settings: proxy, NoProxy: composed.Value})
	if err != nil || len(result.Findings) > 0 {
		t.Fatal(err, result.Findings)
	}
	var text strings.Builder
	for _, made := range result.Secrets {
		fmt.Fprintf(&text, "\n--- output %s, Secret %s ---\n", output, made.Name)
		for _, key := range slices.Sorted(maps.Keys(made.Data)) {
			fmt.Fprintf(&text, "%s: %s\n", key, strings.TrimSpace(string(made.Data[key])))
		}
	}
	return text.String() + "\n--- differences of noProxy ---\n" + differences(composed.Entries, data, stderr)
}

// differences lists what is in the published list and not in the example, with its origin, and what is in the example
// and not in the list.
func differences(entries []noproxy.Entry, data map[string][]byte, stderr string) string {
	example := strings.FieldsFunc(string(data[contract.KeyNoProxy]), func(c rune) bool { return c == ',' })
	for line := range strings.Lines(stderr) {
		if before, _, found := strings.Cut(line, " is left out"); found {
			example = append(example, before[strings.LastIndex(before, " ")+1:])
		}
	}
	var text strings.Builder
	var values []string
	for _, e := range entries {
		values = append(values, e.Value)
		if !slices.Contains(example, e.Value) {
			fmt.Fprintf(&text, "+ %s: %s, %s\n", e.Value, e.Group, e.Origin())
		}
	}
	for _, e := range example {
		if !slices.Contains(values, e) {
			fmt.Fprintf(&text, "- %s\n", e)
		}
	}
	return text.String()
}

func TestSecret_TakesNameAndNamespace(t *testing.T) {
	t.Parallel()
	const input = "CLUSTER_NAME: prod\nNAMESPACE: team-a\nTKG_HTTP_PROXY: http://p.example.com:1\n"
	for want, args := range map[string][]string{
		"name: prod-http-proxy\n  namespace: team-a\n": nil,
		"name: http-proxy\n  namespace: team-b\n":      {"--name", "http-proxy", "--namespace", "team-b"},
	} {
		status, stdout, stderr := run(t, input, append([]string{"secret", "--from", "-"}, args...)...)
		if status != 0 || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("%v: exit status %d, standard error %s, output\n%s", args, status, stderr, stdout)
		}
	}
	for _, args := range [][]string{
		{"secret"}, {"secret", "--from", "-", "--name", "A B"}, {"secret", "--from", "-", "--namespace", "-"}, {"secret", "file"},
	} {
		if status, stdout, _ := run(t, input, args...); status != 2 || stdout != "" {
			t.Errorf("%v: exit status %d, output %s", args, status, stdout)
		}
	}
}

// TestSecret_TakesFlags has passwords in files only: a command line is seen by every user of a machine.
func TestSecret_TakesFlags(t *testing.T) {
	t.Parallel()
	const proxy = "--http-proxy http://p.example.com:1 "
	folder := t.TempDir()
	certificate, empty := filepath.Join(folder, "ca.pem"), filepath.Join(folder, "empty")
	latin, marked := filepath.Join(folder, "latin"), filepath.Join(folder, "marked")
	authority := pki.Text(t)
	for name, text := range map[string]string{certificate: authority, empty: "\n", latin: "s3cr\xe9t", marked: "\ufeffs3cr\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		proxy: "map[httpProxy:http://p.example.com:1]",
		proxy + "--https-proxy http://q.example.com:2 --no-proxy a.example,10.0.0.0/8": "map[httpProxy:http://p.example.com:1 " +
			"httpsProxy:http://q.example.com:2 noProxy:a.example,10.0.0.0/8]",
		proxy + "--username u --password-file " + marked: "map[httpProxy:http://p.example.com:1 password:s3cr username:u]",
		proxy + "--username u --password-file -":         "map[httpProxy:http://p.example.com:1 password:s3cr username:u]",
		"--trusted-ca " + certificate:                    fmt.Sprintf("map[trustedCA:%s]", strings.TrimSpace(authority)),
	} {
		status, stdout, stderr := run(t, "s3cr\r\n", append([]string{"secret", "-n", "team-a"}, strings.Fields(args)...)...)
		if got := fmt.Sprintf("%s", dataOf(t, stdout)); status != 0 || stderr != "" || got != want {
			t.Errorf("%s: exit status %d, standard error %s, got %s, want %s", args, status, stderr, got, want)
		}
		for _, part := range []string{"capi-proxy-patcher.io/proxy: \"\"\n", "name: http-proxy\n", "namespace: team-a\n"} {
			if !strings.Contains(stdout, part) {
				t.Errorf("%s: no %q in\n%s", args, part, stdout)
			}
		}
	}
	for args, want := range map[string]string{
		proxy + "--password-file - --trusted-ca -": "1 capi-proxy-patcher: the file for key password is empty\n",
		proxy + "--from -":                         "2 capi-proxy-patcher: use either --http-proxy URL, or --from FILE, - or env\n",
		"":                                         "2 capi-proxy-patcher: use either",
		"http://u:s3cr@p.example.com:1":            "2 capi-proxy-patcher: secret takes no arguments, got 1\n",
		proxy + "--username u --password-file s3cr/t":   "1 capi-proxy-patcher: reading the file for key password: no such file or directory\n",
		proxy + "--username u --password-file " + latin: "1 capi-proxy-patcher: the file for key password is not UTF-8",
		"--http-proxy http://u:s3cr@p.example.com:1":    "2 capi-proxy-patcher: the URL has a user; use --username and --password-file\n",
		proxy + "--password s3cr":                       "2 capi-proxy-patcher: unknown flag: --password\n",
		proxy + "--password-file " + empty:              "1 capi-proxy-patcher: the file for key password is empty\n",
		proxy + "--trusted-ca " + empty + "x":           "1 capi-proxy-patcher: reading input: open ",
		"--http-proxy p.example.com:1":                  "1 rejection: Secret http-proxy, key httpProxy: the scheme is missing",
	} {
		status, stdout, stderr := run(t, "", append([]string{"secret"}, strings.Fields(args)...)...)
		if got := fmt.Sprint(status, " ", stderr); !strings.HasPrefix(got, want) || stdout != "" || strings.Contains(got, "s3cr") {
			t.Errorf("%s: got %s, want %s; output %s", args, got, want, stdout)
		}
	}
}

func TestSecret_ReadsTheShell(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY"} {
		t.Setenv(name, "")
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	if status, stdout, _ := run(t, "", "secret", "--from", "env"); status != 1 || stdout != "" {
		t.Errorf("without variables: exit status %d, output %s", status, stdout)
	}
	t.Setenv("https_proxy", "http://u:p%40ss@proxy.example.com:3128/")
	t.Setenv("NO_PROXY", "localhost, .corp.example.com")
	status, stdout, stderr := run(t, "", "secret", "--from", "env")
	if status != 0 || !strings.Contains(stderr, "localhost is left out") {
		t.Errorf("exit status %d, standard error %s", status, stderr)
	}
	got := fmt.Sprintf("%s", dataOf(t, stdout))
	want := "map[httpsProxy:http://proxy.example.com:3128 noProxy:.corp.example.com password:p@ss username:u]"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestSecret_FindsWhatLintFinds holds that the findings are those of lint about the same Secret, and that a rejected one
// is not printed. No finding holds a value.
func TestSecret_FindsWhatLintFinds(t *testing.T) {
	t.Parallel()
	const u = "http://u:s3cr3t@p.example.com:1"
	for input, want := range map[string]string{
		"httpProxy: http://p.example.com\nnoProxy: [corp, 10.0.0.1/8]":             "(proxy-port) (single-label) (cidr-host-bits)",
		"httpProxy: http://u:s3cr3t@x@p:1":                                         "rejection: (bad-proxy-url)",
		"httpProxy: " + u + "\nnoProxy: [a, 'http://u:s3cr3t@x']":                  "rejection: noProxy entry 2",
		"httpProxy: " + u + "\ntrustedCa: LS0t...s3cr3t":                           "rejection: trustedCA: (bad-ca)",
		"proxy: {noProxy: a}":                                                      "rejection: (no-proxy-url)",
		"http_proxy=http://p:1\nno_proxy=a.example.com:0":                          "rejection: (bad-port)",
		"HTTP_PROXY: http://u:s3cr3t@p:1\nHTTPS_PROXY: 'http://u:s3\\x1bcr3t@p:1'": "rejection: httpsProxy: (bad-proxy-url)",
	} {
		status, stdout, stderr := run(t, input, "secret", "--from", "-")
		rejected := strings.HasPrefix(want, "rejection: ")
		if rejected != (status == 1) || rejected != (stdout == "") || strings.Contains(stderr, "s3") {
			t.Errorf("%s: exit status %d, %s\n%s", input, status, stderr, stdout)
		}
		for word := range strings.FieldsSeq(want) {
			if !strings.Contains(stderr, word) {
				t.Errorf("%s: no %s in %s", input, word, stderr)
			}
		}
		if stdout == "" {
			continue
		}
		_, linted, _ := run(t, stdout, "lint", "-f", "-")
		for line := range strings.Lines(linted) {
			_, finding, isFinding := strings.Cut(line, ": warning: ")
			if isFinding && !strings.Contains(stderr, "warning: "+finding) {
				t.Errorf("%s: lint says %s, secret says %s", input, finding, stderr)
			}
		}
	}
}
