package hack

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerifyVuln_TellsWhatItKnows runs hack/verify-vuln.sh with databases of its own.
func TestVerifyVuln_TellsWhatItKnows(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	const entry = `{"schema_version":"1.3.1","id":"GO-2000-0001","modified":"2000-01-01T00:00:00Z","published":"2000-01-01T00:00:00Z",
"summary":"a made-up vulnerability","database_specific":{"url":"https://pkg.go.dev/vuln/GO-2000-0001"},"affected":[{"package":{"name":"github.com/coreos/go-systemd/v22","ecosystem":"Go"},
"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],
"ecosystem_specific":{"imports":[{"path":"github.com/coreos/go-systemd/v22/unit"}]}}]}`
	database := func(modules string) string {
		folder := t.TempDir()
		for file, text := range map[string]string{
			"index/db.json": `{"modified":"2000-01-01T00:00:00Z"}`, "index/modules.json": modules, "ID/GO-2000-0001.json": entry,
		} {
			path := filepath.Join(folder, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return "file://" + folder
	}
	for name, test := range map[string]struct {
		database, want string
		fails          bool
	}{
		"a database out of reach":  {away.URL, "SKIPPED, not passed", false},
		"one without a finding":    {database(`[]`), "No vulnerabilities found", false},
		"one with a vulnerability": {database(`[{"path":"github.com/coreos/go-systemd/v22","vulns":[{"id":"GO-2000-0001","modified":"2000-01-01T00:00:00Z"}]}]`), "GO-2000-0001", true},
	} {
		command := exec.CommandContext(t.Context(), "./verify-vuln.sh", "./internal/systemd")
		command.Env = append(os.Environ(), "GOVULNDB="+test.database)
		text, err := command.CombinedOutput()
		if (err != nil) != test.fails || !strings.Contains(string(text), test.want) {
			t.Errorf("%s: %v, want %q in\n%s", name, err, test.want, text)
		}
	}
}
