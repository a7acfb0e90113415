package lint_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/lint"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

func options(texts ...string) lint.Options {
	o := lint.Options{Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for i, text := range texts {
		o.Inputs = append(o.Inputs, clusters.Input{Name: fmt.Sprintf("%d.yaml", i+1), Data: []byte(text)})
	}
	return o
}

// shown is the value that a place shows, after its position.
var shown = regexp.MustCompile(`(entry \d+|\[\d+\]) ".*"`)

// places returns file, line, object, place without its value, and code of each finding; where of is not empty, only of
// those that have it.
func places(t *testing.T, o lint.Options, of string) []string {
	t.Helper()
	report, err := lint.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range report.Findings {
		place := fmt.Sprintf("%s:%d %s %s %s", f.File, f.Line, f.Object, shown.ReplaceAllString(f.Where, "$1"), f.Code)
		if strings.Contains(place, of) {
			out = append(out, place)
		}
	}
	return out
}

const goodCluster = `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: c, namespace: team, labels: {capi-proxy-patcher.io/enabled: "true"}}
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}, services: {cidrBlocks: [10.96.0.0/12]}, serviceDomain: cluster.local}
  controlPlaneEndpoint: {host: cp.example.com, port: 6443}
`

func TestFindings_PointAtTheEntryHoweverTheListIsWritten(t *testing.T) {
	t.Parallel()
	secret := func(list string) string {
		return "# comment\napiVersion: v1\nkind: Secret\nmetadata: {name: http-proxy, namespace: team, labels: {capi-proxy-patcher.io/proxy: ''}}\nstringData:\n  httpProxy: http://p:1\n  noProxy: " + list + "\n"
	}
	for name, test := range map[string]struct {
		list string
		want []string
	}{
		"a literal block":            {"|\n    a.b, c.d\n\n    - e.f x:0\n    10.0.0.0/99", []string{"1.yaml:10 bad-port", "1.yaml:11 bad-cidr"}},
		"a literal block, stripped":  {"|-\n    a:0\n    b:0", []string{"1.yaml:8 bad-port", "1.yaml:9 bad-port"}},
		"a literal block, commented": {"| # hosts\n    a:0", []string{"1.yaml:8 bad-port"}},
		"a folded block":             {">\n    a.b\n    x:0", []string{"1.yaml:7 bad-port"}},
		"one line":                   {"a.b,x:0", []string{"1.yaml:7 bad-port"}},
		"quotes":                     {`"a.b\nx:0"`, []string{"1.yaml:7 bad-port"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want []string
			for i, w := range test.want {
				line, code, _ := strings.Cut(w, " ")
				entry := map[string][]int{
					"a literal block": {4, 5}, "a literal block, stripped": {1, 2}, "a literal block, commented": {1}, "a folded block": {2}, "one line": {2}, "quotes": {2},
				}[name][i]
				want = append(want, fmt.Sprintf("%s Secret team/http-proxy key noProxy entry %d %s", line, entry, code))
			}
			if diff := cmp.Diff(want, places(t, options(secret(test.list)), "")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			// The same for a Cluster that uses the Secret, each finding once.
			if diff := cmp.Diff(want, places(t, options(secret(test.list), goodCluster), "")); diff != "" {
				t.Errorf("with a Cluster (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzRun proves that no input makes it fail otherwise than by an error, that lines are lines of the input, and that
// the outcome is the same each time.
func FuzzRun(f *testing.F) {
	seed, err := os.ReadFile("../../../cmd/capi-proxy-patcher/testdata/lint/in.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(seed))
	f.Add(goodCluster)
	f.Add("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {httpProxy: eA==, noProxy: 7}}]\n")
	f.Add("apiVersion: v1\nkind: Secret\nmetadata: &a {name: x}\nstringData: {<<: *a, noProxy: \"a:0\"}\n")
	f.Fuzz(func(t *testing.T, text string) {
		report, err := lint.Run(t.Context(), options(text))
		again, errAgain := lint.Run(t.Context(), options(text))
		if (err == nil) != (errAgain == nil) || err != nil && err.Error() != errAgain.Error() {
			t.Fatalf("errors %v and %v", err, errAgain)
		}
		if diff := cmp.Diff(report, again, cmpopts.IgnoreUnexported(lint.Row{})); diff != "" {
			t.Errorf("two outcomes (-first +second):\n%s", diff)
		}
		lines := strings.Count(text, "\n") + strings.Count(text, "\r") + 1
		for _, finding := range report.Findings {
			if finding.Line < 1 || finding.Line > lines {
				t.Errorf("line %d of %d: %+v", finding.Line, lines, finding)
			}
		}
	})
}

// FuzzFindingsHoldNoValue puts a mark into every value of a proxy Secret, in noProxy as a password, and looks for it in
// every output.
func FuzzFindingsHoldNoValue(f *testing.F) {
	for _, seed := range []string{
		"", "http://", "http://u:", "@", ",", "a.b:", "\n- ", "%", "{{", "10.0.0.0/8 ", "*.",
		"[", "://x/", "\x00", "-----BEGIN CERTIFICATE-----\n",
	} {
		f.Add(seed, seed)
	}
	const mark = "zq9mark"
	f.Fuzz(func(t *testing.T, before, after string) {
		value := base64.StdEncoding.EncodeToString([]byte(before + mark + after))
		var b strings.Builder
		b.WriteString("apiVersion: v1\nkind: Secret\nmetadata: {name: http-proxy, namespace: team, labels: {capi-proxy-patcher.io/proxy: ''}}\ndata:\n")
		for _, key := range []string{"httpProxy", "httpsProxy", "username", "password", "trustedCA"} {
			b.WriteString("  " + key + ": " + value + "\n")
		}
		list := "a.example.com,http://user:" + before + mark + after + "@proxy.example.com"
		b.WriteString("  noProxy: " + base64.StdEncoding.EncodeToString([]byte(list)) + "\n")
		report, err := lint.Run(t.Context(), options(goodCluster, b.String()))
		if err != nil {
			t.Fatal(err)
		}
		asJSON, err := json.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		if out := strings.ToLower(report.Text() + string(asJSON)); strings.Contains(out, mark) {
			t.Errorf("a value in\n%s", out)
		}
	})
}

// badSecrets returns a list of n Secrets, each with a finding about an entry.
func badSecrets(n int) string {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: List\nitems:\n")
	for i := range n {
		fmt.Fprintf(&b,
			"- apiVersion: v1\n  kind: Secret\n  metadata: {name: s%d}\n  stringData:\n    httpProxy: http://proxy.example.com\n    noProxy: |\n      a.example.com\n      10.0.0.0/33\n", i)
	}
	return b.String()
}

// TestRun_SplitsAListOnce counts allocations: 40 items cost four times as much as 10.
func TestRun_SplitsAListOnce(t *testing.T) {
	cost := func(n int) float64 {
		o := options(badSecrets(n))
		return testing.AllocsPerRun(3, func() {
			if report, err := lint.Run(t.Context(), o); err != nil || report.Summary.Rejections != n {
				t.Fatal(err, report.Summary)
			}
		})
	}
	if ten, forty := cost(10), cost(40); forty > 4.4*ten {
		t.Errorf("%.0f allocations for 10 items, %.0f for 40", ten, forty)
	}
}

func TestFindings_HavePlaces(t *testing.T) {
	t.Parallel()
	secret := func(namespace, name, data string) string {
		return "---\napiVersion: v1\nkind: Secret\nmetadata: {name: " + name + ", namespace: " + namespace +
			", labels: {capi-proxy-patcher.io/proxy: ''}}\nstringData: {" + data + "}\n"
	}
	const noPort, good = "httpProxy: 'http://p'", "httpProxy: 'http://p:1'"
	network := func(cidr string) string {
		return strings.Replace(goodCluster, "10.96.0.0/12", cidr, 1) + secret("team", "http-proxy", good) + secret("team", "edge", good) +
			"---\napiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineDeployment\n" +
			"metadata: {name: md, namespace: team, annotations: {capi-proxy-patcher.io/secret: edge}}\nspec: {clusterName: c}\n"
	}
	for name, test := range map[string]struct {
		texts []string
		of    string
		want  []string
	}{
		"of Secrets of the same name": {
			[]string{secret("team", "http-proxy", noPort) + secret("other", "http-proxy", noPort), secret("third", "http-proxy", noPort), goodCluster},
			"",
			[]string{
				"1.yaml:5 Secret team/http-proxy key httpProxy proxy-port",
				"1.yaml:10 Secret other/http-proxy key httpProxy proxy-port",
				"2.yaml:5 Secret third/http-proxy key httpProxy proxy-port",
			},
		},
		"beside variables": {
			[]string{badSecrets(2) + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: v}\nextra: [${X:=\"y\"}]\nstringData:\n  \"noProxy\": |\n    10.0.0.0/33\n"},
			"entry",
			[]string{
				"1.yaml:11 Secret s0 key noProxy entry 2 bad-cidr", "1.yaml:19 Secret s1 key noProxy entry 2 bad-cidr",
				"1.yaml:27 Secret v key noProxy entry 1 bad-cidr",
			},
		},
		"of the Cluster, once, for bits of hosts": {
			[]string{network("10.96.0.1/12")}, "", []string{"1.yaml:5 Cluster team/c spec.clusterNetwork.services.cidrBlocks[0] cidr-host-bits"},
		},
		"of the Cluster, once, for a length": {
			[]string{network("10.96.0.0/99")}, "", []string{"1.yaml:5 Cluster team/c spec.clusterNetwork.services.cidrBlocks[0] bad-cidr"},
		},
		"of metadata that is no text": {
			[]string{goodCluster, strings.Replace(secret("team", "http-proxy", good), "''}", "'', tier: 1, capi-proxy-patcher.io/x: 1}", 1)},
			"",
			[]string{"2.yaml:4 Secret team/http-proxy label capi-proxy-patcher.io/x bad-metadata"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, places(t, options(test.texts...), test.of)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("of a file that is called like a place", func(t *testing.T) {
		t.Parallel()
		o := options(goodCluster, secret("team", "http-proxy", good+", noProxy: 'a:0'"))
		o.Inputs[1].Name = "x: document 1: Secret team: Secret .yaml"
		want := []string{o.Inputs[1].Name + ":5 Secret team/http-proxy key noProxy entry 1 bad-port"}
		if diff := cmp.Diff(want, places(t, o, "")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestFindings_SayOfAnUnlabelledSecretThatItsChangesTakeTime has one line for each Secret, whatever else is wrong with
// it, and whether its keys or only a Cluster show that it is one.
func TestFindings_SayOfAnUnlabelledSecretThatItsChangesTakeTime(t *testing.T) {
	t.Parallel()
	secret := func(name, data string) string {
		return "---\napiVersion: v1\nkind: Secret\nmetadata: {name: " + name + ", namespace: team}\nstringData: {" + data + "}\n"
	}
	const url = "httpProxy: 'http://p:1'"
	for name, test := range map[string]struct {
		input string
		want  []string
	}{
		"without a Cluster":          {secret("x", url), []string{"Secret team/x"}},
		"of a Cluster":               {goodCluster + secret("http-proxy", url), []string{"Secret team/http-proxy"}},
		"with a key that is unknown": {goodCluster + secret("http-proxy", url+", proxy: x"), []string{"Secret team/http-proxy"}},
		"with only certificates":     {goodCluster + secret("http-proxy", "trustedCA: x"), []string{"Secret team/http-proxy"}},
		"the installation-wide":      {goodCluster + secret("http-proxy", url) + secret("system", url), []string{"Secret team/http-proxy", "Secret team/system"}},
		"of another program":         {secret("x", "password: x"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(test.input)
			if strings.Contains(test.input, "system") {
				o.DefaultSecret = types.NamespacedName{Namespace: "team", Name: "system"}
			}
			report, err := lint.Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range report.Findings {
				if f.Code == "unlabelled-secret" && f.Level == lint.Warning && strings.HasSuffix(f.Fix, " capi-proxy-patcher.io/proxy= -n team") {
					got = append(got, f.Object)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFindings_NameNodesThatOthersAskThroughTheProxy has Machines among the manifests, as kubectl prints them.
func TestFindings_NameNodesThatOthersAskThroughTheProxy(t *testing.T) {
	t.Parallel()
	const machine = "- apiVersion: cluster.x-k8s.io/v1beta2\n  kind: Machine\n  metadata: {name: %s, namespace: team, labels: {%s}}\n" +
		"  spec: {clusterName: c}\n  status: {addresses: [{type: InternalIP, address: %s}]}\n"
	static := strings.Replace(goodCluster, `enabled: "true"}`, `enabled: "true"}, annotations: {capi-proxy-patcher.io/targets: 'kubelet,static-pods'}`, 1)
	rest := "---\napiVersion: v1\nkind: Secret\nmetadata: {name: http-proxy, namespace: team, labels: {capi-proxy-patcher.io/proxy: ''}}\n" +
		"stringData: {httpProxy: 'http://p:1', noProxy: 10.1.0.0/16}\n---\napiVersion: v1\nkind: List\nitems:\n" +
		fmt.Sprintf(machine, "far", "cluster.x-k8s.io/control-plane: ''", "10.2.0.1") +
		fmt.Sprintf(machine, "near", "cluster.x-k8s.io/control-plane: ''", "10.1.0.1") + fmt.Sprintf(machine, "worker", "", "10.2.0.2")
	for cluster, want := range map[string][]string{goodCluster: nil, static: {"far at 10.2.0.1"}} {
		report, err := lint.Run(t.Context(), options(cluster+rest))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range report.Findings {
			if f.Code == "proxied-node" && f.Level == lint.Warning {
				_, text, _ := strings.Cut(f.Message, "Machine ")
				text, _, _ = strings.Cut(text, ",")
				got = append(got, text)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestFindings_NameWhatOverridesTheVariables has the warnings of render and of the condition, with their lines.
func TestFindings_NameWhatOverridesTheVariables(t *testing.T) {
	t.Parallel()
	cluster := goodCluster + "  controlPlaneRef: {kind: KubeadmControlPlane, name: c}\n"
	const dropIn = "{path: /etc/systemd/system/containerd.service.d/zz.conf, content: \"[Service]\\nUnsetEnvironment=HTTP_PROXY\\n\"}"
	const controlPlane = "---\napiVersion: controlplane.cluster.x-k8s.io/v1beta2\nkind: KubeadmControlPlane\nmetadata: {name: c, namespace: team}\n" +
		"spec:\n  kubeadmConfigSpec:\n    files:\n    - " + dropIn + "\n    preKubeadmCommands:\n    - export NO_PROXY=x\n"
	const pool = "---\napiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineDeployment\nmetadata: {name: md, namespace: team%s}\n" +
		"spec: {clusterName: c, template: {spec: {bootstrap: {configRef: {kind: KubeadmConfigTemplate, name: md}}}}}\n" +
		"---\napiVersion: bootstrap.cluster.x-k8s.io/v1beta2\nkind: KubeadmConfigTemplate\nmetadata: {name: md, namespace: team}\n" +
		"spec:\n  template:\n    spec:\n      files:\n      - " + dropIn + "\n"
	const secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: http-proxy, namespace: team, labels: {capi-proxy-patcher.io/proxy: ''}}\n"
	plain := secret + "stringData: {httpProxy: 'http://p:1'}\n"
	inControlPlane := []string{
		"1.yaml:17 KubeadmControlPlane team/c spec.kubeadmConfigSpec.preKubeadmCommands[0] overridden",
		"1.yaml:15 KubeadmControlPlane team/c spec.kubeadmConfigSpec.files[0] overridden",
	}
	inPool := "1.yaml:20 KubeadmConfigTemplate team/md spec.template.spec.files[0] overridden"
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"a control plane":        {cluster + controlPlane + plain, inControlPlane},
		"a pool":                 {goodCluster + fmt.Sprintf(pool, "") + plain, []string{inPool}},
		"a pool of its own":      {goodCluster + fmt.Sprintf(pool, ", annotations: {capi-proxy-patcher.io/secret: http-proxy}") + plain, []string{inPool}},
		"a pool without a proxy": {goodCluster + fmt.Sprintf(pool, ", annotations: {capi-proxy-patcher.io/secret: none}") + plain, nil},
		"a Cluster without the label": {
			strings.Replace(cluster, "labels", "annotations", 1) + controlPlane + plain, nil,
		},
		"other targets": {strings.Replace(goodCluster, `enabled: "true"}`, `enabled: "true"}, annotations: {capi-proxy-patcher.io/targets: kubelet}`, 1) + fmt.Sprintf(pool, "") + plain, nil},
		"an encrypted Secret": {
			goodCluster + fmt.Sprintf(pool, "") + secret + "stringData: {httpProxy: 'ENC[AES256_GCM,data:x]'}\nsops: {mac: x}\n", []string{inPool},
		},
	} {
		if diff := cmp.Diff(test.want, places(t, options(test.text), " overridden")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestText_PrintsOnceWhatIsTrueForManyClusters(t *testing.T) {
	t.Parallel()
	text := strings.Replace(goodCluster, "10.244.0.0/16", "bad", 1)
	for i := range 1000 {
		text += "---\n" + strings.Replace(strings.Replace(goodCluster, "10.244.0.0/16", "bad", 1), "name: c,", fmt.Sprintf("name: c%d,", i), 1)
	}
	report, err := lint.Run(t.Context(), options(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := len(report.Findings); got < 1001 {
		t.Errorf("%d findings, want one for each Cluster", got)
	}
	const also = "    also: Cluster team/c0, Cluster team/c1, Cluster team/c2 and 997 more\n"
	if got := report.Text(); strings.Count(got, "(bad-cidr)") != 1 || !strings.Contains(got, also) {
		t.Errorf("want one line with bad-cidr and %q:\n%.2000s", also, got)
	}
}

func TestFindings_HaveWarningsBesideRejections(t *testing.T) {
	t.Parallel()
	const secret = `---
apiVersion: v1
kind: Secret
metadata: {name: http-proxy, namespace: team, labels: {capi-proxy-patcher.io/proxy: ''}}
stringData: {httpProxy: "http://p", noProxy: "10.0.0.0/33, *.a.example.com", typo: x}
`
	got := strings.Join(places(t, options(goodCluster+secret), ""), "\n")
	for _, code := range []string{"bad-cidr", "unknown-key", "star-dot-rewritten", "proxy-port"} {
		if strings.Count(got, " "+code) != 1 {
			t.Errorf("want one %s:\n%s", code, got)
		}
	}
}

// TestFindings_AreThoseOfTheDecision has bootstrap objects that the controller does not patch.
func TestFindings_AreThoseOfTheDecision(t *testing.T) {
	t.Parallel()
	const pool = "---\napiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineDeployment\nmetadata: {name: %s, namespace: team}\n" +
		"spec: {clusterName: %s, template: {spec: {bootstrap: {configRef: {kind: KubeadmConfigTemplate, name: t}}, " +
		"infrastructureRef: {kind: XTemplate, name: x}}}}\n"
	const template = "---\napiVersion: bootstrap.cluster.x-k8s.io/v1beta2\nkind: KubeadmConfigTemplate\nmetadata: {name: t, namespace: team}\n" +
		"spec:\n  template:\n    spec:\n      format: cloud-config\n      files:\n      - path: %s\n        content: x\n"
	secret := func(data string) string {
		return "---\napiVersion: v1\nkind: Secret\nmetadata: {name: http-proxy, namespace: team, labels: {capi-proxy-patcher.io/proxy: ''}}\n" + data
	}
	url := secret("stringData: {httpProxy: 'http://p:1'}\n")
	plain := fmt.Sprintf(pool, "md", "c") + fmt.Sprintf(template, "/etc/motd") + url
	inTheWay := fmt.Sprintf(pool, "md", "c") + fmt.Sprintf(template, "/etc/capi-proxy-patcher/proxy.env")
	windows := "---\napiVersion: infrastructure.cluster.x-k8s.io/v1\nkind: XTemplate\nmetadata: {name: x, namespace: team}\n" +
		"spec: {template: {spec: {osDisk: {osType: Windows}}}}\n"
	const conflict = "rejection 1.yaml:21 KubeadmConfigTemplate team/t spec.template.spec.files[0] ConflictingFile"
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"nothing is in the way":                {goodCluster + plain, nil},
		"a file at a path of the product":      {goodCluster + inTheWay + url, []string{conflict}},
		"the same, and an encrypted Secret":    {goodCluster + inTheWay + secret("stringData: {httpProxy: 'ENC[AES256_GCM,data:x]'}\nsops: {mac: x}\n"), []string{conflict}},
		"the same, and no Secret":              {goodCluster + inTheWay, []string{conflict}},
		"the same without the label":           {strings.Replace(goodCluster, "labels", "annotations", 1) + inTheWay + url, nil},
		"a template that another Cluster uses": {goodCluster + plain + fmt.Sprintf(pool, "other", "d"), []string{"rejection 1.yaml:13 KubeadmConfigTemplate team/t  SharedTemplate"}},
		"nodes with Windows":                   {goodCluster + plain + windows, nil},
		"a template that is paused": {
			goodCluster + strings.Replace(plain, "{name: t, ", "{name: t, annotations: {cluster.x-k8s.io/paused: ''}, ", 1),
			[]string{"note 1.yaml:13 KubeadmConfigTemplate team/t  Paused"},
		},
		"certificates alone, and no target for them": {
			strings.Replace(goodCluster, `enabled: "true"}`, `enabled: "true"}, annotations: {capi-proxy-patcher.io/targets: kubelet}`, 1) +
				fmt.Sprintf(pool, "md", "c") + fmt.Sprintf(template, "/etc/motd") + secret(fmt.Sprintf("stringData: {trustedCA: %q}\n", pki.Text(t))),
			[]string{"rejection 1.yaml:13 KubeadmConfigTemplate team/t  InvalidSettings"},
		},
	} {
		report, err := lint.Run(t.Context(), options(test.text))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range report.Findings {
			if strings.HasPrefix(f.Object, "KubeadmConfigTemplate") {
				got = append(got, fmt.Sprintf("%s %s:%d %s %s %s", f.Level, f.File, f.Line, f.Object, f.Where, f.Code))
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
