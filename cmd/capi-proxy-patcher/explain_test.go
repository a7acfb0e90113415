package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
)

const (
	explainCluster = "testdata/explain/cluster.yaml"
	explainSecrets = "testdata/explain/secrets.yaml"
)

func TestExplain_IsGolden(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"cluster.txt":      {"-f", explainCluster, "--secret", explainSecrets, "--cluster", "prod", "--client", "all"},
		"nodes.txt":        {"-f", explainCluster, "--secret", explainSecrets, "--cluster", "prod", "registry.example.com", "10.244.0.17"},
		"nodes-given.txt":  {"--no-proxy", "10.*,10.0.0.0/8:8080,foo.com:8080", "10.1.2.3"},
		"images.txt":       {"-f", explainCluster, "--secret", explainSecrets, "--cluster", "prod", "--profile", "shell", "registry.example.com"},
		"cluster.json":     {"-f", explainCluster, "--secret", explainSecrets, "--cluster", "prod", "--client", "go,curl@7.88.1,wget,busybox", "-o", "json"},
		"dual-stack.txt":   {"-f", explainCluster, "--secret", explainSecrets, "--cluster", "team-a/dual", "--client", "all"},
		"shell.txt":        {"-f", explainCluster, "-f", explainSecrets, "--cluster", "dual", "--profile", "shell", "--client", "httpx,go"},
		"pool.txt":         {"-f", explainCluster, "--secret", explainSecrets, "--cluster", "prod", "--pool", "edge", "--client", "all", "edge.example.net", "db.example.org:5432"},
		"installation.txt": {"-f", explainCluster, "--secret", explainSecrets, "--cluster", "prod", "--default-proxy-secret", "system/default", "--client", "go", "installation.example.net"},
		"given.txt":        {"--no-proxy", "localhost,10.*,*.corp.example.com,[fd00::1],fd00::/8,10.0.0.0/8:8080,foo.com:8080", "--client", "all", "https://u:s3cr@a.corp.example.com:8443/x", "10.1.2.3", "fd00::1"},
		"against.txt":      {"-f", explainCluster, "--cluster", "prod", "--no-proxy", "localhost,cluster.local,10.0.0.0/8", "--client", "go,requests,wget"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, stdout, stderr := run(t, "", append([]string{"explain"}, args...)...)
			if status != 0 {
				t.Fatalf("exit status %d, standard error %s", status, stderr)
			}
			golden.Equal(t, "testdata/explain/"+name, stdout)
			if strings.Contains(stdout+stderr, "s3cr") || strings.Contains(stdout, "\x1b") {
				t.Error("a credential, or an escape sequence")
			}
		})
	}
}

// TestExplain_SaysThatOwnAddressesAreDirect is about addresses that no list has; the golden files have the line, too.
func TestExplain_SaysThatOwnAddressesAreDirect(t *testing.T) {
	t.Parallel()
	for noProxy, want := range map[string]bool{"a.example": true, "a.example,192.0.2.0/24": false} {
		manifests := `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: prod, labels: {capi-proxy-patcher.io/enabled: "true"}}
---
apiVersion: v1
kind: Secret
metadata: {name: http-proxy}
stringData: {httpProxy: "http://p.example:3128", noProxy: "` + noProxy + `"}
`
		status, stdout, stderr := run(t, manifests, "explain", "-f", "-", "--client", "go", "192.0.2.7")
		if got := strings.Contains(stdout, "\nEach node adds its own addresses and names"); status != 0 || got != want {
			t.Errorf("%s: %d %s%s", noProxy, status, stdout, stderr)
		}
	}
}

func TestExplain_PrintsTheSameAsJSONAndYAML(t *testing.T) {
	t.Parallel()
	args := []string{"explain", "-f", explainCluster, "--secret", explainSecrets, "--cluster", "dual", "-o"}
	_, asJSON, _ := run(t, "", append(args, "json")...)
	_, asYAML, _ := run(t, "", append(args, "yaml")...)
	converted, err := yaml.YAMLToJSON([]byte(asYAML))
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := json.Unmarshal([]byte(asJSON), &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(converted, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-json +yaml):\n%s", diff)
	}
}

func TestExplain_ReadsStandardInput(t *testing.T) {
	t.Parallel()
	manifests := clusterManifest + "---\n" + secretManifest
	status, stdout, stderr := run(t, manifests, "explain", "-f", "-", "--client", "go", "cp.example.com:6443")
	if status != 0 || stderr != "" || !strings.Contains(stdout, "cp.example.com (spec.controlPlaneEndpoint.host)") ||
		!strings.Contains(stdout, "Secret http-proxy") {
		t.Errorf("exit status %d, standard error %s, output\n%s", status, stderr, stdout)
	}
	if strings.Contains(stdout, "s3cr") {
		t.Error("a credential in the output")
	}
	template := strings.Replace(manifests, "host: cp.example.com", `host: "${HOST}"`, 1)
	status, stdout, stderr = run(t, template, "explain", "-f", "-", "--client", "go")
	if status != 0 ||
		!strings.Contains(stderr, "spec.controlPlaneEndpoint.host has unresolved variables and is left out") ||
		strings.Contains(stdout, "control plane endpoint\n") {
		t.Errorf("a template: exit status %d, standard error %s, output\n%s", status, stderr, stdout)
	}
}

// TestExplain_FailsAPipeline is the contract of --fail-on.
func TestExplain_FailsAPipeline(t *testing.T) {
	t.Parallel()
	files := []string{"explain", "-f", explainCluster, "--secret", explainSecrets, "--cluster", "prod"}
	for name, test := range map[string]struct {
		args   []string
		status int
		stderr string
	}{
		"a client that reaches the Cluster":           {append(files, "--fail-on", "go,requests"), 0, ""},
		"one that does not read networks":             {append(files, "--fail-on", "go,wget"), 3, "10.244.0.17: proxied by wget@1.25.0, but it belongs to the Cluster"},
		"one that reads no list":                      {append(files, "--fail-on", "busybox"), 3, "kubernetes.default.svc: proxied by busybox-wget@1.37.0"},
		"the counter-check does not count":            {[]string{"explain", "--no-proxy", "localhost", "--fail-on", "go", "https://registry.example.com"}, 0, ""},
		"a given destination of the Cluster":          {append(files, "--fail-on", "wget", "10.244.7.7"), 3, "10.244.7.7: proxied by wget@1.25.0"},
		"a given destination that is not":             {append(files, "--fail-on", "wget", "203.0.113.7", "example.net"), 0, ""},
		"a given list that lacks the Service network": {[]string{"explain", "-f", explainCluster, "--cluster", "prod", "--no-proxy", ".svc", "--fail-on", "go", "10.96.4.4"}, 3, "10.96.4.4: proxied by go-httpproxy@x/net-0.62.0"},
		"a list that a client refuses":                {[]string{"explain", "--no-proxy", "fd00::/8,10.96.0.1", "--fail-on", "httpx", "10.96.0.1"}, 3, "10.96.0.1: refused by python-httpx@0.28.1"},
		"metadata without a Cluster":                  {[]string{"explain", "--no-proxy", "localhost", "--fail-on", "go", "http://169.254.169.254/latest"}, 3, "http://169.254.169.254: proxied"},
		"only clients that are not named fail":        {append(files, "--client", "wget,busybox", "--fail-on", "go"), 0, ""},
		"a pool with a list of its own":               {append(files, "--pool", "edge", "--fail-on", "go"), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, output := range []string{"text", "json", "yaml"} {
				status, stdout, stderr := run(t, "", append(test.args, "-o", output)...)
				if status != test.status || !strings.Contains(stderr, test.stderr) || test.status == 0 && stderr != "" {
					t.Errorf("%s: exit status %d, want %d; standard error %s, want %q in it", output, status, test.status,
						stderr, test.stderr)
				}
				if stdout == "" {
					t.Errorf("%s: no report", output)
				}
			}
		})
	}
}

func TestExplain_SaysWhatIsWrongAndWhatThereIs(t *testing.T) {
	t.Parallel()
	broken := folder(t, map[string]string{
		"network.yaml":    strings.Replace(clusterManifest, "10.244.0.0/16", "s3cr=/99", 1),
		"annotation.yaml": strings.Replace(clusterManifest, "metadata: {", `metadata: {annotations: {capi-proxy-patcher.io/no-proxy-groups: metadata}, `, 1),
		"unquoted.yaml":   strings.Replace(clusterManifest, "metadata: {", `metadata: {annotations: {capi-proxy-patcher.io/secret: 7}, `, 1),
		"secret.yaml":     strings.Replace(secretManifest, "proxy.example.com:3128", "u:s3cr/et@proxy.example.com", 1),
		"only.yaml":       clusterManifest,
		"none.yaml":       controlPlaneManifest,
	})
	for name, test := range map[string]struct {
		args   []string
		status int
		stderr string
	}{
		"nothing":               {nil, 2, "no NO_PROXY to explain; use -f FILE for manifests, --cluster NAME for a management cluster, or --no-proxy VALUE"},
		"only a destination":    {[]string{"example.com"}, 2, "no NO_PROXY to explain"},
		"a Cluster by position": {[]string{"-f", explainCluster, "10.96.0.1", "team-a/prod"}, 2, "destination 2 looks like a Cluster, which is --cluster team-a/prod; a host without a dot is https://team-a/prod"},
		"no destination":        {[]string{"--no-proxy", "a"}, 2, "no destination; give a URL, a host, host:port or an address, or a Cluster"},
		"a bad destination":     {[]string{"--no-proxy", "a", "b.c", "ftp://user:s3cr@b"}, 2, "destination 2: the scheme is neither http nor https"},
		"an unknown client":     {[]string{"--no-proxy", "a", "--client", "curl,powersh", "b.c"}, 2, `looking up client "powersh": unknown, know axios, busybox-wget, curl`},
		"an unknown failing":    {[]string{"--no-proxy", "a", "--fail-on", "powersh", "b.c"}, 2, `looking up client "powersh": unknown`},
		"a version too old":     {[]string{"--no-proxy", "a", "--client", "curl@7.1", "b.c"}, 2, `version "7.1" is older than every known one`},
		"no client":             {[]string{"--no-proxy", "a", "--client=", "b.c"}, 2, "client"},
		"an unknown output":     {[]string{"--no-proxy", "a", "-o", "xml", "b.c"}, 2, `unknown output "xml"; use text, json or yaml`},
		"an unknown profile":    {[]string{"--no-proxy", "a", "--profile", "pods", "b.c"}, 2, `unknown profile "pods"; use service or shell`},
		"two places":            {[]string{"-f", explainCluster, "--context", "mgmt"}, 2, "-f reads manifests, --context and --kubeconfig a management cluster; use one of them"},
		"a Secret alone":        {[]string{"--no-proxy", "a", "--secret", explainSecrets, "b.c"}, 2, "--secret needs -f"},
		"a pool and a list":     {[]string{"-f", explainCluster, "--cluster", "prod", "--pool", "edge", "--no-proxy", "a"}, 2, "--pool chooses a Secret and --no-proxy replaces it"},
		"a bad Secret name":     {[]string{"-f", broken + "/only.yaml", "--default-proxy-secret", "x"}, 2, `--default-proxy-secret "x": write namespace/name`},
		"several Clusters":      {[]string{"-f", explainCluster}, 1, "several Clusters; choose one with --cluster: team-a/prod, team-a/dual"},
		"an unknown Cluster":    {[]string{"-f", explainCluster, "--cluster", "prd"}, 1, "Cluster prd not found; found: team-a/prod, team-a/dual"},
		"another namespace":     {[]string{"-f", explainCluster, "-n", "team-b"}, 1, "no Cluster found in namespace team-b; found: team-a/prod, team-a/dual"},
		"no Cluster":            {[]string{"-f", broken + "/none.yaml"}, 1, "no Cluster in the input"},
		"an unknown pool":       {[]string{"-f", explainCluster, "--secret", explainSecrets, "--cluster", "prod", "--pool", "x"}, 1, "Cluster team-a/prod has no pool x in the input; found: edge, direct"},
		"a pool without proxy":  {[]string{"-f", explainCluster, "--secret", explainSecrets, "--cluster", "prod", "--pool", "direct"}, 1, "pool direct uses no proxy (its Secret is \"none\"); there is nothing to explain"},
		"no Secret":             {[]string{"-f", explainCluster, "--cluster", "prod"}, 1, "neither Secret team-a/prod-http-proxy nor team-a/http-proxy exists; create one of them or name another in annotation capi-proxy-patcher.io/secret; it must be in the input or in a file given with --secret"},
		"no Secret of a pool":   {[]string{"-f", explainCluster, "--cluster", "prod", "--pool", "edge"}, 1, "Secret team-a/edge-proxy does not exist; create it or change annotation capi-proxy-patcher.io/secret of pool edge"},
		"a broken network":      {[]string{"-f", broken + "/network.yaml", "--no-proxy", "a"}, 1, "Cluster c: spec.clusterNetwork.pods.cidrBlocks[0]: the text before the slash is not an address (bad-cidr)"},
		"a broken annotation":   {[]string{"-f", broken + "/annotation.yaml"}, 1, "Cluster c: annotation capi-proxy-patcher.io/no-proxy-groups: "},
		"an unquoted one":       {[]string{"-f", broken + "/unquoted.yaml"}, 1, "Cluster c: annotation capi-proxy-patcher.io/secret: the value is not a string (bad-metadata); put it in quotes"},
		"a broken Secret":       {[]string{"-f", broken + "/only.yaml", "--secret", broken + "/secret.yaml"}, 1, "key httpProxy: unescaped /, ? or # in user or password"},
		"a file that is not":    {[]string{"-f", broken + "/x.yaml"}, 1, "x.yaml: no such file or directory"},
		"no kubeconfig":         {[]string{"--kubeconfig", broken + "/x", "--cluster", "c"}, 1, "reading kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, stdout, stderr := run(t, "", append([]string{"explain"}, test.args...)...)
			if status != test.status || !strings.Contains(stderr, test.stderr) || stdout != "" {
				t.Errorf("exit status %d, want %d; output %q; standard error\n%s\nwant in it\n%s", status, test.status, stdout,
					stderr, test.stderr)
			}
			if strings.Contains(stderr, "s3cr") {
				t.Errorf("a value in %s", stderr)
			}
		})
	}
}

func TestExplain_NotesAClusterWithoutTheLabel(t *testing.T) {
	t.Parallel()
	_, _, stderr := run(t, "", "explain", "-f", explainCluster, "--secret", explainSecrets, "--cluster", "dual",
		"--client", "go")
	if want := "Cluster team-a/dual: it has no label capi-proxy-patcher.io/enabled=true; this is what it would get\n"; stderr != want {
		t.Errorf("standard error %q, want %q", stderr, want)
	}
}

// TestExplain_ShowsMirrors begins with the example of docs/scope.md, which is right.
func TestExplain_ShowsMirrors(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/scope.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Registry mirrors")
	_, example, _ := strings.Cut(section, "```yaml\n")
	example, after, _ := strings.Cut(example, "```")
	_, answer, _ := strings.Cut(after, "```\n")
	answer, _, _ = strings.Cut(answer, "```")
	const (
		noProxy = "  noProxy: mirror.corp.example.com\n"
		address = "https://mirror.corp.example.com"
		shown   = address + ", mirror of registry.example.com in KubeadmControlPlane prod\n  "
		direct  = shown + "direct    go"
		proxied = shown + "proxied   go"
		pool    = `---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: edge, namespace: team-a, annotations: {capi-proxy-patcher.io/secret: prod-http-proxy}}
spec: {clusterName: prod, template: {spec: {clusterName: prod, bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: edge}}}}}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: edge, namespace: team-a}
spec: {template: {spec: {files: [{path: /etc/containerd/certs.d/docker.io/hosts.toml, content: '[host."http://10.96.0.99:5000"]'}]}}}
`
	)
	for name, test := range map[string]struct {
		text, args, want string
	}{
		"the example":               {example, "", answer},
		"no entry":                  {strings.Replace(example, noProxy, "", 1), "", proxied},
		"a path is dropped":         {strings.Replace(example, address+`"]`, address+`/v2"]`, 1), "", direct},
		"a password is dropped":     {strings.Replace(example, address+`"]`, `https://u:s3cr@mirror.corp.example.com"]`, 1), "", direct},
		"a host that is none":       {strings.Replace(example, address+`"]`, `https://a\u001b[2J"]`, 1), "", ""},
		"a variable":                {strings.Replace(example, address+`"]`, `https://${MIRROR}"]`, 1), "", ""},
		"a name with a control":     {strings.Replace(example, "certs.d/registry.example.com", `certs.d/a b`, 1), "", address + ", mirror of a b in"},
		"a given destination":       {example, "10.96.0.1", ""},
		"containerd has no proxy":   {strings.Replace(example, "  labels: {capi-proxy-patcher.io/enabled", "  annotations: {capi-proxy-patcher.io/targets: kubelet}\n  labels: {capi-proxy-patcher.io/enabled", 1), "", ""},
		"a pool with its Secret":    {example + pool, "--pool edge", "http://10.96.0.99:5000, mirror of docker.io in KubeadmConfigTemplate edge\n  direct    go"},
		"a Cluster without it":      {example + pool, "", direct},
		"two objects, one mirror":   {example + strings.NewReplacer(", annotations: {capi-proxy-patcher.io/secret: prod-http-proxy}", "", "docker.io", "registry.example.com", "http://10.96.0.99:5000", address).Replace(pool), "", direct},
		"a value that is given":     {example, "--no-proxy a.example", proxied},
		"the Cluster's own address": {strings.Replace(example, address+`"]`, `https://10.96.0.99"]`, 1), "--no-proxy a.example", "https://10.96.0.99, mirror of registry.example.com in KubeadmControlPlane prod\n  proxied!  go"},
	} {
		if !strings.HasPrefix(answer, direct) {
			t.Errorf("the page has the answer %q", answer)
		}
		if test.text == example && test.args == "" && name != "the example" {
			t.Errorf("%s: nothing of the example is replaced", name)
		}
		status, stdout, stderr := run(t, test.text, append([]string{"explain", "-f", "-"}, strings.Fields(test.args)...)...)
		count := 1
		if test.want == "" {
			count = 0
		}
		if status != 0 || !strings.Contains(stdout, test.want) || strings.Count(stdout, ", mirror of ") != count {
			t.Errorf("%s: exit status %d, %s%s", name, status, stdout, stderr)
		}
		if strings.Contains(stdout+stderr, "s3cr") || strings.Contains(stdout+stderr, "\x1b") {
			t.Errorf("%s: a credential, or an escape sequence", name)
		}
	}
}
