package main

import (
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
)

// TestTexts_LinkTheSections has manifests with findings of each sort. Texts end with the same links as check; what is
// for programs has none.
func TestTexts_LinkTheSections(t *testing.T) {
	t.Parallel()
	invalid := strings.Replace(secretManifest, "username: u", "noProxy: 10.0.0.1/33", 1)
	warned := strings.Replace(secretManifest, "username: u, password: s3cr", "noProxy: mirror", 1)
	taken := strings.Replace(controlPlaneManifest, "{version: v1.36.3}", "{kubeadmConfigSpec: {files: "+
		"[{path: /etc/systemd/system/containerd.service.d/http-proxy.conf, content: a}]}}", 1)
	input := func(documents ...string) string { return strings.Join(documents, "---\n") }
	for name, test := range map[string]struct {
		input    string
		args     []string
		sections string
		stdout   bool
		summary  string // how what follows the links begins
	}{
		"lint, a rejection": {input(clusterManifest, controlPlaneManifest, invalid), []string{"lint"}, "defaults-used,bad-credentials,bad-cidr", true, "2 rejections"},
		"lint, programs":    {input(clusterManifest, controlPlaneManifest, invalid), []string{"lint", "-o", "json"}, "", true, ""},
		"explain, warnings": {input(clusterManifest, controlPlaneManifest, warned), []string{"explain"}, "defaults-used,single-label", true, ""},
		"explain, an error": {input(clusterManifest, controlPlaneManifest), []string{"explain"}, "secret-not-found", false, ""},
		"render, a warning": {input(clusterManifest, controlPlaneManifest, warned), []string{"render"}, "single-label", false, ""},
		"render, an error":  {input(clusterManifest, controlPlaneManifest, invalid), []string{"render"}, "bad-credentials,bad-cidr", false, ""},
		"render, a file":    {input(clusterManifest, taken, warned), []string{"render"}, "ConflictingFile", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, stdout, stderr := run(t, test.input, append(test.args, "-f", "-")...)
			got := stderr
			if test.stdout {
				got = stdout
			}
			want := ""
			if test.sections != "" {
				want = kit.Links(strings.Split(test.sections, ",")...)
			}
			at := strings.Index(got, "see https://")
			switch {
			case want == "" && at >= 0 || want != "" && at < 0:
				t.Errorf("got\n%s\nwant the links\n%s", got, want)
			case want != "" && (!strings.HasPrefix(got[at:], want+test.summary) || test.summary == "" && got[at:] != want):
				t.Errorf("got\n%s\nwant at the end\n%s", got, want+test.summary)
			}
		})
	}
}
