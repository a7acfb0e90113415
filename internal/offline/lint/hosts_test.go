package lint_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMirrors_AreNotedIfContainerdAsksTheProxyForThem begins with the example of docs/scope.md, which is right.
func TestMirrors_AreNotedIfContainerdAsksTheProxyForThem(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/scope.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Registry mirrors")
	_, example, _ := strings.Cut(section, "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	const noProxy, host = "  noProxy: mirror.corp.example.com\n", `[host."https://mirror.corp.example.com"]`
	proxied := strings.Replace(example, noProxy, "", 1)
	const where = "KubeadmControlPlane team-a/prod spec.kubeadmConfigSpec.files[0] host-proxied"
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"the example":           {example, nil},
		"no entry":              {proxied, []string{where}},
		"single quotes, a path": {strings.Replace(proxied, host, ` [ host.'https://mirror.corp.example.com:5000/v2' ]`, 1), []string{where}},
		"a table of a mirror":   {strings.Replace(proxied, host, `[host."https://mirror.corp.example.com".header]`, 1), []string{where}},
		"without a scheme":      {strings.Replace(proxied, host, `[host."mirror.corp.example.com:5000"]`, 1), []string{where}},
		"a comment":             {strings.Replace(proxied, host, "# "+host, 1), nil},
		"two mirrors":           {strings.Replace(proxied, host, host+"\n        [host.\"http://10.9.9.9:5000\"]", 1), []string{where, where}},
		"no proxy for http": {
			strings.NewReplacer("httpProxy", "httpsProxy", "https://mirror", "http://mirror").Replace(proxied), nil,
		},
		"a public mirror": {strings.ReplaceAll(proxied, "mirror.corp.example.com", "mirror.gcr.io"), nil},
		"another file":    {strings.Replace(proxied, "hosts.toml", "hosts.txt", 1), nil},
		"encoded content": {strings.Replace(proxied, "      content: |", "      encoding: base64\n      content: |", 1), nil},
		"target kubelet": {
			strings.Replace(proxied, "  labels: {capi-proxy-patcher.io/enabled", "  annotations: {capi-proxy-patcher.io/targets: kubelet}\n  labels: {capi-proxy-patcher.io/enabled", 1), nil,
		},
		"no label":       {strings.Replace(proxied, `enabled: "true"`, `enabled: "false"`, 1), nil},
		"a rejected URL": {strings.Replace(proxied, "http://proxy.example.com:3128", "x y", 1), nil},
	} {
		if test.text == example && name != "the example" {
			t.Errorf("%s: nothing of the example is replaced", name)
		}
		var got []string
		for _, place := range places(t, options(test.text), " host-proxied") {
			_, place, _ = strings.Cut(place, " ")
			got = append(got, place)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := places(t, options(example), ""); len(got) != 0 {
		t.Errorf("the example has findings %q", got)
	}
}
