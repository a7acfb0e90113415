package foreign_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/foreign"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/tables"
)

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func TestRead_TakesEveryForm(t *testing.T) {
	t.Parallel()
	ca, other := pki.Text(t), pki.Text(t)
	type data = map[string]string
	plain := data{"httpProxy": "http://p.example.com:1", "httpsProxy": "https://p.example.com:2", "noProxy": "a.example.com,10.0.0.0/8"}
	withCA := data{"trustedCA": ca}
	maps.Copy(withCA, plain)
	const dropIn = "[Service]\nEnvironment=\"HTTP_PROXY=http://p.example.com:1\" 'https_proxy=https://p.example.com:2'\n" +
		"Environment=NO_PROXY=a.example.com,10.0.0.0/8\n"
	caText, err := json.Marshal(encoded(ca))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		text               string
		want               data // plain, if nil
		cluster, namespace string
	}{
		"AKS, with the spelling of the schema": {
			text: `{"httpProxy":"http://p.example.com:1/","httpsProxy":"https://p.example.com:2/","noProxy":["a.example.com","10.0.0.0/8"],"trustedCa":` + string(caText) + `}`,
			want: withCA,
		},
		"AKS, with the spelling of the example and tabs": {
			text: "{\n\t\"httpProxy\": \"http://p.example.com:1\",\n\t\"httpsProxy\": \"https://p.example.com:2\",\n\t\"noProxy\":\t[\"a.example.com,10.0.0.0/8\"],\n\t\"trustedCA\": " + string(caText) + "}",
			want: withCA,
		},
		"AKS, as az aks show prints it": {text: `{"kind":"Base","httpProxyConfig":{"enabled":true,"httpProxy":"http://p.example.com:1","httpsProxy":"https://p.example.com:2","noProxy":["a.example.com","10.0.0.0/8"],"trustedCa":null}}`},
		"TKG": {
			text: "CLUSTER_NAME: c\nNAMESPACE: ns\nTKG_HTTP_PROXY: http://p.example.com:1\nTKG_HTTPS_PROXY: https://p.example.com:2\n" +
				"TKG_NO_PROXY: a.example.com,10.0.0.0/8\nTKG_HTTP_PROXY_ENABLED: \"true\"\nTKG_PROXY_CA_CERT: " + encoded(ca) + "\n",
			want: withCA, cluster: "c", namespace: "ns",
		},
		"Helm values": {text: "# a comment\nproxy: {http: http://p.example.com:1, https: https://p.example.com:2, noProxy: \"a.example.com, 10.0.0.0/8\", enabled: true}\n"},
		"Helm values of Giant Swarm today, in a Secret": {
			text: "apiVersion: v1\nkind: Secret\nmetadata: {name: prod-cluster-values, namespace: org}\ndata:\n  values: " +
				encoded("global: {connectivity: {proxy: {httpProxy: http://p.example.com:1, httpsProxy: https://p.example.com:2, noProxy: [a.example.com, 10.0.0.0/8]}}}"),
			cluster: "prod", namespace: "org",
		},
		"topology variable proxy": {
			text:    "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: c, namespace: ns}\nspec: {clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}}, topology: {variables: [{name: other, value: 1}, {name: proxy, value: {httpProxy: http://p.example.com:1, httpsProxy: https://p.example.com:2, noProxy: [a.example.com, 10.0.0.0/8]}}]}}",
			cluster: "c", namespace: "ns",
		},
		"a list that kubectl prints": {
			text: "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Secret, metadata: {name: c-config-values, namespace: ns}, data: {value: " +
				encoded("TKG_HTTP_PROXY: http://p.example.com:1\nTKG_HTTPS_PROXY: https://p.example.com:2\nTKG_NO_PROXY: a.example.com,10.0.0.0/8") + "}}]",
			cluster: "c", namespace: "ns",
		},
		"topology variable clusterConfig": {
			text:    "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: c}\nspec: {topology: {variables: [{name: clusterConfig, value: {proxy: {http: http://p.example.com:1, https: https://p.example.com:2, additionalNo: [a.example.com, 10.0.0.0/8]}}}]}}",
			cluster: "c",
		},
		"EKS Anywhere": {
			text: "apiVersion: anywhere.eks.amazonaws.com/v1alpha1\nkind: Cluster\nmetadata: {name: c}\nspec: {proxyConfiguration: {httpProxy: p.example.com:1, httpsProxy: p.example.com:2, noProxy: [a.example.com]}}\n---\napiVersion: anywhere.eks.amazonaws.com/v1alpha1\nkind: VSphereDatacenterConfig\n",
			want: data{"httpProxy": "http://p.example.com:1", "httpsProxy": "http://p.example.com:2", "noProxy": "a.example.com"}, cluster: "c",
		},
		"a drop-in":                      {text: "# ours\n" + dropIn},
		"files of a KubeadmControlPlane": {text: "apiVersion: controlplane.cluster.x-k8s.io/v1beta2\nkind: KubeadmControlPlane\nspec: {kubeadmConfigSpec: {files: [{path: /etc/x, content: y}, {path: /etc/systemd/system/containerd.service.d/http-proxy.conf, encoding: base64, content: " + encoded(dropIn) + "}]}}"},
		"CAREN with no": {
			text:    "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: c}\nspec: {topology: {variables: [{name: clusterConfig, value: {proxy: {http: http://p.example.com:1, https: https://p.example.com:2, no: [a.example.com, 10.0.0.0/8]}}}]}}",
			cluster: "c",
		},
		"variables proxy and trust of TKG": {
			text: "apiVersion: cluster.x-k8s.io/v1beta1\nkind: Cluster\nmetadata: {name: c}\nspec: {topology: {variables: [{name: trust, value: {additionalTrustedCAs: [{name: proxy, data: " + encoded(ca) + "}]}}, {name: proxy, value: {httpProxy: http://p.example.com:1, httpsProxy: https://p.example.com:2, noProxy: [a.example.com, 10.0.0.0/8]}}]}}",
			want: withCA, cluster: "c",
		},
		"variables of TKG with two certificates": {
			text: "apiVersion: cluster.x-k8s.io/v1beta1\nkind: Cluster\nmetadata: {name: c}\nspec: {topology: {variables: [{name: trust, value: [{name: proxy, data: " + encoded(ca) + "}, {name: imageRepository, data: " + encoded(other) + "}]}, {name: proxy, value: {httpProxy: http://p.example.com:1}}]}}",
			want: data{"httpProxy": "http://p.example.com:1", "trustedCA": ca + other}, cluster: "c",
		},
		"TanzuKubernetesCluster": {
			text: "apiVersion: run.tanzu.vmware.com/v1alpha3\nkind: TanzuKubernetesCluster\nmetadata: {name: c, namespace: ns}\nspec: {settings: {network: {pods: {cidrBlocks: [100.96.0.0/11]}, services: {cidrBlocks: [100.64.0.0/13]}, proxy: {httpProxy: http://p.example.com:1, httpsProxy: https://p.example.com:2, noProxy: [a.example.com, 10.0.0.0/8]}, trust: {additionalTrustedCAs: [{name: first, data: " + encoded(ca) + "}]}}}}",
			want: withCA, cluster: "c", namespace: "ns",
		},
		"install-config": {
			text: "apiVersion: v1\nbaseDomain: example.com\nmetadata: {name: c}\nnetworking: {clusterNetwork: [{cidr: 10.128.0.0/14, hostPrefix: 23}], serviceNetwork: [172.30.0.0/16]}\nproxy: {httpProxy: http://p.example.com:1, httpsProxy: https://p.example.com:2, noProxy: 'a.example.com,10.0.0.0/8'}\nadditionalTrustBundle: |\n  " + strings.ReplaceAll(strings.TrimSpace(ca), "\n", "\n  ") + "\nadditionalTrustBundlePolicy: Always\n",
			want: withCA, cluster: "c",
		},
		"Proxy of OpenShift": {
			text: proxyOfOpenShift,
			want: map[string]string{"httpProxy": "http://p.example.com:1", "httpsProxy": "https://p.example.com:2", "noProxy": "a.example.com,10.0.0.0/8", "readinessEndpoints": "https://a.example.com/,https://b.example.com/"},
		},
		"a ConfigMap with variables": {
			text:      "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: proxy-env, namespace: ns}\ndata: {HTTP_PROXY: http://p.example.com:1, https_proxy: https://p.example.com:2, NO_PROXY: 'a.example.com,10.0.0.0/8', TZ: UTC}",
			namespace: "ns",
		},
		"a Secret with variables":                       {text: "apiVersion: v1\nkind: Secret\nmetadata: {name: proxy-env}\ndata: {http_proxy: " + encoded("http://p.example.com:1") + ", HTTPS_PROXY: " + encoded("https://p.example.com:2\n") + ", no_proxy: " + encoded("a.example.com,10.0.0.0/8") + "}"},
		"a shell file":                                  {text: "#!/bin/sh\n# proxy\nexport http_proxy=http://p.example.com:1; HTTP_PROXY='http://p.example.com:1'\nexport HTTP_PROXY https_proxy=\"https://p.example.com:2\" # the other\ndeclare -x NO_PROXY=\"a.example.com,\\\n10.0.0.0/8\"\r\n"},
		"/etc/environment":                              {text: "PATH=\"/usr/local/sbin:/usr/local/bin\"\nLANG=C.UTF-8\nhttp_proxy=http://p.example.com:1/\nhttps_proxy=\"https://p.example.com:2/\"\nno_proxy=a.example.com,10.0.0.0/8\n"},
		"a shell file in a ConfigMap":                   {text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  proxy.sh: |\n    export http_proxy=http://p.example.com:1\n    export https_proxy=https://p.example.com:2 no_proxy=a.example.com,10.0.0.0/8\n"},
		"variables as a mapping, URLs without a scheme": {text: "a: {env: {HTTP_PROXY: 'p.example.com:1', HTTPS_PROXY: 'https://p.example.com:2', NO_PROXY: 'a.example.com,10.0.0.0/8', OTHER: x}}"},
		"a shell file with a quoted password": {
			text: "export https_proxy='http://u:$x%22@p.example.com:2'\n",
			want: data{"httpsProxy": "http://p.example.com:2", "username": "u", "password": "$x\""},
		},
		"a chart for readers of several generations": {
			text: "cluster: {proxy: {http: 'http://p:1'}}\nglobal: {connectivity: {proxy: {enabled: true, httpProxy: 'http://p:1'}}}\nenv: [{name: HTTP_PROXY, value: 'http://p:1'}]",
			want: data{"httpProxy": "http://p:1"},
		},
		"lists that are keys of a mapping, as in Sylva": {
			text: "proxies: {http_proxy: 'http://p.example.com:1', https_proxy: 'https://p.example.com:2'}\nno_proxy: {a.example.com: 'True', b.example.com: false}\nno_proxy_additional: {10.0.0.0/8: true}\n",
		},
		"such a list in a mapping proxy":     {text: "proxy: {http: 'http://p.example.com:1', https: 'https://p.example.com:2', noProxy: {a.example.com: true, 10.0.0.0/8: true, b: false}, additionalNo: {}}"},
		"variables and a list of Kubespray":  {text: "http_proxy: http://p.example.com:1\nhttps_proxy: https://p.example.com:2\nno_proxy: ''\nadditional_no_proxy: a.example.com,10.0.0.0/8\n"},
		"names twice, as in Google's":        {text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {HTTP_PROXY: 'HTTP_PROXY=http://p.example.com:1', https_proxy: 'https_proxy=\"https://p.example.com:2\"', NO_PROXY: 'NO_PROXY=a.example.com,10.0.0.0/8'}"},
		"names twice in a list and a Secret": {text: "env: [{name: HTTP_PROXY, value: 'http_proxy=http://p.example.com:1'}]\n---\napiVersion: v1\nkind: Secret\ndata: {HTTPS_PROXY: " + encoded("HTTPS_PROXY='https://p.example.com:2'\n") + ", no_proxy: " + encoded("no_proxy=a.example.com,10.0.0.0/8") + "}"},
		"the manager of systemd":             {text: "[Manager]\n#LogLevel=info\nDefaultEnvironment=\"http_proxy=http://p.example.com:1\" https_proxy=https://p.example.com:2\nPassEnvironment=FOO\nManagerEnvironment=no_proxy=a.example.com,10.0.0.0/8\n"},
		"RKE2":                               {text: "RKE2_TOKEN=x\nCONTAINERD_HTTP_PROXY=http://p.example.com:1\nCONTAINERD_https_proxy=https://p.example.com:2\nCONTAINERD_NO_PROXY=\"a.example.com,10.0.0.0/8\"\n"},
		"k3s, in a ConfigMap":                {text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  k3s: |\n    CONTAINERD_HTTP_PROXY=http://p.example.com:1\n    HTTPS_PROXY=https://p.example.com:2\n    NO_PROXY=a.example.com\n    CONTAINERD_NO_PROXY=10.0.0.0/8\n"},
		"daemon.json of Docker":              {text: `{"proxies": {"http-proxy": "http://p.example.com:1", "https-proxy": "https://p.example.com:2", "no-proxy": "a.example.com,10.0.0.0/8"}}`},
		"a list of variables":                {text: "a: {b: [{env: [{name: HTTP_PROXY, value: http://p.example.com:1}, {name: https_proxy, value: https://p.example.com:2}, {name: NO_PROXY, value: 'a.example.com,10.0.0.0/8'}, {name: X}]}]}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := foreign.Read([]byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == nil {
				tc.want = plain
			}
			if diff := cmp.Diff(tc.want, got.Data); diff != "" {
				t.Error(diff)
			}
			if got.Cluster != tc.cluster || got.Namespace != tc.namespace {
				t.Errorf("Cluster %q in %q", got.Cluster, got.Namespace)
			}
		})
	}
}

func TestRead_MovesUserinfoIntoKeys(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ http, https, want string }{
		{"http://u:p%40%3A%25s@p:1", "http://u:p%40%3A%25s@p:2", "map[httpProxy:http://p:1 httpsProxy:http://p:2 password:p@:%s username:u]"},
		{"http://u@p:1", "", "map[httpProxy:http://p:1 username:u]"},
		{"", "http://u:p@[2001:db8::1]:3128/", "map[httpsProxy:http://[2001:db8::1]:3128 password:p username:u]"},
		// What the keys cannot say stays in the URLs.
		{"http://u:p@p:1", "http://v:p@p:2", "map[httpProxy:http://u:p@p:1 httpsProxy:http://v:p@p:2]"},
		{"http://u:p@p:1", "http://p:2", "map[httpProxy:http://u:p@p:1 httpsProxy:http://p:2]"},
		{"http://u%3Av:p@p:1", "", "map[httpProxy:http://u%3Av:p@p:1]"},
		{"http://:p@p:1", "", "map[httpProxy:http://:p@p:1]"},
	} {
		got, err := foreign.Read([]byte(fmt.Sprintf("HTTP_PROXY: %q\nhttps_proxy: %q\n", tc.http, tc.https)))
		if err != nil {
			t.Errorf("%s %s: %v", tc.http, tc.https, err)
		} else if text := fmt.Sprint(got.Data); text != tc.want {
			t.Errorf("%s %s: %s, want %s", tc.http, tc.https, text, tc.want)
		}
	}
}

// needle stands for a password in every input that is refused.
const needle = "s3cr3t"

const (
	proxyOfOpenShift = "apiVersion: config.openshift.io/v1\nkind: Proxy\nmetadata: {name: cluster}\nspec: {httpProxy: 'http://p.example.com:1', httpsProxy: 'https://p.example.com:2', noProxy: 'a.example.com,10.0.0.0/8', readinessEndpoints: ['https://a.example.com/', 'https://b.example.com/'], trustedCA: {name: ''}}\nstatus: {httpProxy: 'http://p.example.com:1', noProxy: '.svc,a.example.com'}\n"
	twoClusters      = "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: a}\nspec: {topology: {variables: [{name: proxy, value: {http: 'http://p:1'}}]}}\n---\napiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: b}\nspec: {topology: {variables: [{name: proxy, value: {http: 'http://p:1'}}]}}\n"
)

func TestRead_RefusesWhatItCannotReadWhole(t *testing.T) {
	t.Parallel()
	const u = "http://u:" + needle + "@p.example.com:1"
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":                        {"", "no proxy settings of a known form"},
		"something else":                 {"a: " + needle, "no proxy settings of a known form"},
		"no YAML":                        {"a: [" + needle + "\nb: }", "neither YAML nor JSON"},
		"a key twice":                    {"proxy:\n  http: " + u + "\n  http: http://p:2\n", "line 2: http (mapping proxy) and line 3: http (mapping proxy) have different values; keep one"},
		"two forms":                      {"proxy: {http: '" + u + "'}\nTKG_HTTP_PROXY: " + u + "2", "line 1: http (mapping proxy) and line 2: TKG_HTTP_PROXY (variables of TKG) have different values; keep one"},
		"two places":                     {"proxy: {http: '" + u + "'}\ncluster: {proxy: {http: '" + u + "2'}}", "line 1: http (mapping proxy) and line 2: http (mapping proxy) have different values; keep one"},
		"switched off":                   {"TKG_HTTP_PROXY: " + u + "\nTKG_HTTP_PROXY_ENABLED: false", "line 2: TKG_HTTP_PROXY_ENABLED (variables of TKG) is false, which switches the proxy off"},
		"AKS switched off":               {"httpProxy: " + u + "\nenabled: False", "line 2: enabled (configuration of AKS) is false"},
		"a list of URLs":                 {"proxy: {http: [a, b]}", "http (mapping proxy) have different values; keep one"},
		"a value from elsewhere":         {"env: [{name: HTTP_PROXY, valueFrom: {}}]", "line 1: HTTP_PROXY (variables) is not here as a text; write its value"},
		"a file from elsewhere":          {"files: [{path: /a/http-proxy.conf, contentFrom: {secret: {name: s, key: k}}}]", "give the Secret or file that has them"},
		"a file that is compressed":      {"files: [{path: /a/http-proxy.conf, encoding: gzip+base64, content: x}]", "give the Secret or file that has them"},
		"a drop-in with a file":          {"[Service]\nEnvironmentFile=/etc/x", "line 2 is not NAME=VALUE"},
		"a specifier":                    {"[Service]\nEnvironment=\"HTTP_PROXY=http://u:" + needle + "%40@p:1\"", "line 2 is not NAME=VALUE with a plain value"},
		"an open quote":                  {"[Service]\nEnvironment=\"HTTP_PROXY=" + u, "line 2 is not NAME=VALUE with a plain value"},
		"a shell file with an expansion": {"export http_proxy=" + u + "\nexport https_proxy=$http_proxy\n", "line 2 is not NAME=VALUE with a plain value"},
		"a shell file with a command":    {"http_proxy=" + u + "\ncurl example.com\n", "line 2 is not NAME=VALUE with a plain value"},
		"a shell file with a condition":  {"if true; then\nexport http_proxy=" + u + "\nfi", "line 1 is not NAME=VALUE with a plain value"},
		"a shell file with a pipe":       {"http_proxy=a|sh", "line 1 is not NAME=VALUE with a plain value"},
		"a shell file with output":       {"no_proxy=a\nhttp_proxy=\"$(touch /tmp/" + needle + ")\"", "line 2 is not NAME=VALUE with a plain value"},
		"a shell file with backticks":    {"http_proxy=`touch /tmp/" + needle + "`", "line 1 is not NAME=VALUE with a plain value"},
		"a shell file that unsets":       {"export http_proxy=" + u + "; unset http_proxy", "line 1 is not NAME=VALUE with a plain value"},
		"a shell file with a quote":      {"http_proxy='" + u, "line 1 is not NAME=VALUE with a plain value"},
		"a shell file with two values":   {"http_proxy=" + u + "\nhttp_proxy=" + u + "2", "line 1: http_proxy (variables) and line 2: http_proxy (variables) have different values"},
		"a list with other values":       {"proxy:\n  http: " + u + "\n  noProxy: {a: true, b: 1}", "line 3: noProxy (mapping proxy) is not here as a text"},
		"a URL as a switch":              {"proxy: {http: {'" + u + "': true}}", "http (mapping proxy) is not here as a text"},
		"other variables of proxies":     {"DOCKER_HTTP_PROXY: " + u, "no proxy settings of a known form"},
		"the configuration of apt":       {"Acquire::http::Proxy \"" + u + "\";\n", "no proxy settings of a known form (docs/reference.md)"},
		"a key with a password":          {"proxy: {http: {'" + u + "': a}}", "http (mapping proxy) is not here as a text"},
		"two Clusters":                   {twoClusters, "line 3: name (Cluster) and line 8: name (Cluster) have different values; keep one"},
		"large texts by aliases":         {"a: &a " + strings.Repeat("x", 1<<20) + "\nb: [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]", "larger than 16 MiB"},
		"a large shell file":             {"http_proxy=" + u + "\n" + strings.Repeat("# comment\n", 2<<20), "larger than 16 MiB"},
		"deep mappings":                  {strings.Repeat("{a: ", 200) + "b" + strings.Repeat("}", 200), "deeper than 100 keys"},
		"an alias of itself":             {"a: &a [*a]", ""},
		"aliases without end":            {"a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]", "larger than 16 MiB"},
		"a drop-in with a command":       {"[Service]\nEnvironment=HTTP_PROXY=" + u + "; id", "line 2 is not NAME=VALUE"},
		"an object in itself":            {"&a {apiVersion: v1, kind: X, b: *a}", "larger than 16 MiB"},
		"a ConfigMap that is named":      {strings.Replace(proxyOfOpenShift, "{name: ''}", "{name: user-ca-bundle}", 1), "line 4: trustedCA.name (Proxy of OpenShift) names another object: remove it and add its value yourself"},
		"a broken Secret":                {"apiVersion: v1\nkind: Secret\ndata: {values: '" + needle + "!'}", "no proxy settings of a known form"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := foreign.Read([]byte(tc.text))
			if err == nil {
				t.Fatalf("it is %v", got)
			}
			if !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), needle) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRead_NamesWhatHasNoPlace(t *testing.T) {
	t.Parallel()
	got, err := foreign.Read([]byte("httpProxy: http://u:" + needle + "@p.example.com\nnoProxy: [LOCALHOST, .svc, a.example.com, LOCALHOST, a.example.com]\n" +
		"effectiveNoProxy: [" + needle + "]\nother: 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"line 3: effectiveNoProxy is not read; add to the Secret what nodes need of it",
		"noProxy: LOCALHOST is left out, because it is composed anyway",
		"noProxy: .svc is left out, because it is composed anyway",
	}
	if diff := cmp.Diff(want, got.Notes); diff != "" {
		t.Error(diff)
	}
	if got.Data["noProxy"] != "a.example.com" {
		t.Errorf("noProxy is %q", got.Data["noProxy"])
	}
}

// TestRead_NotesKeysThatMayMatter holds that no key about a proxy or certificates is lost without a word, that others
// are not noted, and that no key is shown that may be a pasted password.
func TestRead_NotesKeysThatMayMatter(t *testing.T) {
	t.Parallel()
	const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, annotations: {proxy-body-size: 1m}}\ndata:\n"
	for text, want := range map[string]string{
		"proxy: {http: 'http://p:1', pac: 'http://a'}":                                           "1 pac",
		"proxy:\n  http: http://p:1\n  http://u:" + needle + "@p:2: x":                           "3 this key",
		"proxy:\n  " + needle + ": 2\n  http: http://p:1":                                        "2 this key",
		"proxy:\n  u:" + needle + "@x: 1\n  http: http://p:1":                                    "2 this key",
		"proxy: {http: 'http://p:1', auth: {user: u, password: " + needle + "}}":                 "1 this key",
		"env: [{name: HTTP_PROXY, value: 'http://p:1'}, {name: ALL_PROXY, value: 'socks5://x'}]": "1 ALL_PROXY",
		"http_proxy=http://p:1\nftp_proxy=" + needle:                                             "2 ftp_proxy",
		"a: {variables: [{name: proxy, value: {httpProxy: 'http://p:1', systemWide: true}}]}":    "1 this key",
		// Beside the variables, by name.
		"http_proxy: http://p:1\nproxy_bypass:\n  a.example.com: true\n":                                   "2 proxy_bypass",
		"http_proxy: http://p:1\nhttps_proxy_cert_file: /a\nno_proxy_exclude_workers: false":               "2 https_proxy_cert_file, 3 no_proxy_exclude_workers",
		"http_proxy=http://p:1\nSSL_CERT_FILE=/a\nNODE_EXTRA_CA_CERTS=/a\nAWS_CA_BUNDLE=/a\nCURL_CAFILE=a": "2 SSL_CERT_FILE, 3 NODE_EXTRA_CA_CERTS, 4 AWS_CA_BUNDLE, 5 CURL_CAFILE",
		"env: {http_proxy: 'http://p:1'}\nimages:\n  registry: {caBundle: a, sslCert: a}\n  rootCA: a":     "3 caBundle, 3 sslCert, 4 rootCA",
		"http_proxy: http://p:1\ntrustedCAs:\n- {name: a, data: b}\n- {name: c, data: d}\ncacerts: [a, b]": "3 trustedCAs, 5 cacerts",
		"http_proxy: http://p:1\ncustomCa: a\nCA: a\nca: {a: 1, b: 2}\nCApath: a\nAdditionalCACert: x":     "2 customCa, 3 CA, 4 ca, 5 CApath, 6 AdditionalCACert",
		"proxies:\n  http_proxy: http://p:1\n  username: u\n  password: " + needle:                         "3 username, 4 password",
		"http_proxy: http://p:1\nproxyFlags: {a: false}":                                                   "2 proxyFlags",
		"httpProxy: http://p:1\npassword: " + needle:                                                       "2 password",
		"[Service]\nEnvironment=HTTP_PROXY=http://p:1 RSYNC_PROXY=p:2":                                     "2 RSYNC_PROXY",
		configMap + "  HTTP_PROXY: http://p:1\n  ca.crt: |\n    x\n  proxy.sh: echo":                       "6 ca.crt, 8 proxy.sh",
		configMap + "  proxy.yaml: |\n    http_proxy: http://p:1\n  ca.crt: x":                             "7 ca.crt",
		// What is no such word, is read, is empty, or is in an object without settings.
		"http_proxy: http://p:1\ncache: a\nlocation: a\ncaching: a\nLOCATION: a\nCACHE_DIR: a\nlocalCache: a\nconcert: a\nuncertain: a\nscale: a\ncapi: a":                                     "",
		"http_proxy: http://p:1\nkubeProxy: {a: 1}\nkubeProxyReplacement: true\nkube-proxy: a\npacific: a\nvacation: a\nAPACHE: a\nCAPACITY: a":                                                "",
		"proxies: {http_proxy: 'http://p:1', enabled: true, no_proxy: {proxy.example.com: true, cert.example.com: false}}":                                                                     "",
		"http_proxy: http://p:1\nca: ''\ncerts: {}\nno_proxy_more: []\nextraProxy: null":                                                                                                       "",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: proxy}\nspec: {containers: [{name: my-proxy, image: a, env: [{name: HTTP_PROXY, value: 'http://p:1'}]}]}\nstatus: {proxy: a}": "",
		"http_proxy: http://p:1\n---\nkind: KubeadmControlPlane\napiVersion: x/v1\nspec: {certificatesDir: a, certSANs: [a]}":                                                                  "",
		"kind: KubeadmControlPlane\napiVersion: x/v1\nspec: {certificatesDir: a, files: [{content: \"[Service]\\nEnvironment=HTTP_PROXY=http://p:1\"}]}":                                       "",
		configMap + "  proxy.sh: |\n    export http_proxy=http://p:1\n":                                                                                                                        "",
	} {
		got, err := foreign.Read([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		notes := strings.Join(got.Notes, ", ")
		notes = strings.ReplaceAll(strings.ReplaceAll(notes, " is not read; add to the Secret what nodes need of it", ""), "line ", "")
		if strings.ReplaceAll(notes, ":", "") != want {
			t.Errorf("%s: %s, want %s", text, notes, want)
		}
	}
}

// TestRead_ReadsAShellFileAsAShell compares with the shell.
func TestRead_ReadsAShellFileAsAShell(t *testing.T) {
	t.Parallel()
	for _, value := range []string{
		`http://p:1`, `'http://u:a$b@p:1'`, `"http://u:a'b@p:1"`, `"http://u:a;b@p:1"`,
		`"http://u:%22@p:1"`, `http://u:a#b@p:1 # comment`, `http://u:ab@p:1; export X=y`, `'http://u:a|b&c@p:1'`, "http://p:1\\\n2",
	} {
		file := filepath.Join(t.TempDir(), "proxy.sh")
		text := "export http_proxy=" + value + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", `. "$1"; printf %s "$http_proxy"`, "sh", file).Output()
		if err != nil {
			t.Fatal(err)
		}
		got, err := foreign.Read([]byte(text))
		user := ""
		if got.Data["username"] != "" {
			user = got.Data["username"] + ":" + got.Data["password"] + "@"
		}
		decoded := strings.ReplaceAll(string(want), "%22", `"`)
		if all := strings.Replace(got.Data["httpProxy"], "://", "://"+user, 1); err != nil || all != decoded {
			t.Errorf("%s: %q, %v; the shell has %q", value, all, err, decoded)
		}
	}
}

// TestTables_OfForms compares docs/reference.md.
func TestTables_OfForms(t *testing.T) {
	table := tables.Table{Page: "../../../docs/reference.md", Name: "forms", AnyOrder: true}
	for line := range strings.SplitSeq(strings.TrimSpace(foreign.Forms), "\n") {
		form, _, _ := strings.Cut(line, " | ")
		table.Add(form)
	}
	table.Compare(t)
}
