package foreign_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/envfile"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/foreign"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/cabundle"
)

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func TestRead_TakesEveryForm(t *testing.T) {
	t.Parallel()
	ca := cabundle.Small(t)
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
		want               data
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
		"AKS, as az aks show prints it": {
			text: `{"kind":"Base","httpProxyConfig":{"enabled":true,"httpProxy":"http://p.example.com:1","httpsProxy":"https://p.example.com:2","noProxy":["a.example.com","10.0.0.0/8"],"trustedCa":null}}`,
			want: plain,
		},
		"TKG": {
			text: "CLUSTER_NAME: c\nNAMESPACE: ns\nTKG_HTTP_PROXY: http://p.example.com:1\nTKG_HTTPS_PROXY: https://p.example.com:2\n" +
				"TKG_NO_PROXY: a.example.com,10.0.0.0/8\nTKG_HTTP_PROXY_ENABLED: \"true\"\nTKG_PROXY_CA_CERT: " + encoded(ca) + "\n",
			want: withCA, cluster: "c", namespace: "ns",
		},
		"TKG knows the networks": {
			text: "CLUSTER_CIDR: 100.96.0.0/11\nSERVICE_CIDR: 100.64.0.0/13\nTKG_HTTP_PROXY: http://p.example.com:1\n" +
				"TKG_NO_PROXY: 100.64.0.0/13,100.96.0.0/11,100.64.0.1\n",
			want: data{"httpProxy": "http://p.example.com:1"},
		},
		"Helm values": {
			text: "# a comment\nproxy: {http: http://p.example.com:1, https: https://p.example.com:2, noProxy: \"a.example.com, 10.0.0.0/8\", enabled: true}\n",
			want: plain,
		},
		"Helm values of Giant Swarm today, in a Secret": {
			text: "apiVersion: v1\nkind: Secret\nmetadata: {name: prod-cluster-values, namespace: org}\ndata:\n  values: " +
				encoded("global: {connectivity: {proxy: {httpProxy: http://p.example.com:1, httpsProxy: https://p.example.com:2, noProxy: [a.example.com, 10.0.0.0/8]}}}"),
			want: plain, cluster: "prod", namespace: "org",
		},
		"topology variable proxy": {
			text: "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: c, namespace: ns}\nspec: {clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}}, topology: {variables: [{name: other, value: 1}, {name: proxy, value: {httpProxy: http://p.example.com:1, httpsProxy: https://p.example.com:2, noProxy: [a.example.com, 10.0.0.0/8, 10.244.0.0/16]}}]}}",
			want: plain, cluster: "c", namespace: "ns",
		},
		"a list that kubectl prints": {
			text: "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Secret, metadata: {name: c-config-values, namespace: ns}, data: {value: " +
				encoded("TKG_HTTP_PROXY: http://p.example.com:1\nTKG_HTTPS_PROXY: https://p.example.com:2\nTKG_NO_PROXY: a.example.com,10.0.0.0/8") + "}}]",
			want: plain, cluster: "c", namespace: "ns",
		},
		"topology variable clusterConfig": {
			text: "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: c}\nspec: {topology: {variables: [{name: clusterConfig, value: {proxy: {http: http://p.example.com:1, https: https://p.example.com:2, additionalNo: [a.example.com, 10.0.0.0/8]}}}]}}",
			want: plain, cluster: "c",
		},
		"EKS Anywhere": {
			text: "apiVersion: anywhere.eks.amazonaws.com/v1alpha1\nkind: Cluster\nmetadata: {name: c}\nspec: {proxyConfiguration: {httpProxy: p.example.com:1, httpsProxy: p.example.com:2, noProxy: [a.example.com]}}\n---\napiVersion: anywhere.eks.amazonaws.com/v1alpha1\nkind: VSphereDatacenterConfig\n",
			want: data{"httpProxy": "http://p.example.com:1", "httpsProxy": "http://p.example.com:2", "noProxy": "a.example.com"}, cluster: "c",
		},
		"a drop-in": {text: "# ours\n" + dropIn, want: plain},
		"files of a KubeadmControlPlane": {
			text: "apiVersion: controlplane.cluster.x-k8s.io/v1beta2\nkind: KubeadmControlPlane\nspec: {kubeadmConfigSpec: {files: [{path: /etc/x, content: y}, {path: /etc/systemd/system/containerd.service.d/http-proxy.conf, encoding: base64, content: " + encoded(dropIn) + "}]}}",
			want: plain,
		},
		"a list of variables": {
			text: "a: {b: [{env: [{name: HTTP_PROXY, value: http://p.example.com:1}, {name: https_proxy, value: https://p.example.com:2}, {name: NO_PROXY, value: 'a.example.com,10.0.0.0/8'}, {name: X}]}]}",
			want: plain,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := foreign.Read([]byte(tc.text))
			if err != nil {
				t.Fatal(err)
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
		got, err := foreign.ReadVariables([]envfile.Var{{Name: "HTTP_PROXY", Value: tc.http}, {Name: "https_proxy", Value: tc.https}})
		if err != nil {
			t.Errorf("%s %s: %v", tc.http, tc.https, err)
		} else if text := fmt.Sprint(got.Data); text != tc.want {
			t.Errorf("%s %s: %s, want %s", tc.http, tc.https, text, tc.want)
		}
	}
}

// needle stands for a password in every input that is refused.
const needle = "s3cr3t"

func TestRead_RefusesWhatItCannotReadWhole(t *testing.T) {
	t.Parallel()
	const u = "http://u:" + needle + "@p.example.com:1"
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":                   {"", "no proxy settings of a known form"},
		"something else":            {"a: " + needle, "no proxy settings of a known form"},
		"no YAML":                   {"a: [" + needle + "\nb: }", "neither YAML nor JSON"},
		"a key twice":               {"proxy:\n  http: " + u + "\n  http: http://p:2\n", "the key at line 3 occurs twice in its mapping"},
		"two forms":                 {"proxy: {http: '" + u + "'}\nTKG_HTTP_PROXY: " + u, "TKG variables (the configuration) and Helm values (proxy) are both in it"},
		"two places":                {"proxy: {http: '" + u + "'}\ncluster: {proxy: {http: '" + u + "2'}}", "proxy and cluster.proxy have different settings"},
		"two spellings":             {"httpProxy: " + u + "\ntrustedCa: a\ntrustedCA: b", "trustedCa and trustedCA have different values"},
		"switched off":              {"TKG_HTTP_PROXY: " + u + "\nTKG_HTTP_PROXY_ENABLED: false", "switched off by TKG_HTTP_PROXY_ENABLED: false"},
		"AKS switched off":          {"httpProxy: " + u + "\nenabled: False", "switched off by enabled: False"},
		"a template":                {`{"httpProxyConfig": {"httpProxy": "[parameters('` + needle + `')]"}}`, "httpProxyConfig.httpProxy is an expression of the template"},
		"a password that is raw":    {"httpProxy: http://u:" + needle + "@x@p:1", "a raw @ in the user or password"},
		"a bad entry":               {"httpProxy: http://p:1\nnoProxy: [a, 'http://u:" + needle + "@x']", "noProxy entry 2"},
		"a bad CA":                  {"httpProxy: http://p:1\ntrustedCa: " + encoded("-----BEGIN CERTIFICATE-----\n"+needle), "trustedCA: block 1 is cut or damaged PEM"},
		"a CA that is cut":          {"httpProxy: http://p:1\ntrustedCa: LS0t..." + needle, "trustedCa is neither PEM nor base64"},
		"only exceptions":           {"proxy: {noProxy: a}", "no proxy URL"},
		"a list as a URL":           {"proxy: {http: [a]}", "proxy.http is not a text"},
		"a value from elsewhere":    {"env: [{name: HTTP_PROXY, valueFrom: {}}]", "the value of HTTP_PROXY is somewhere else"},
		"a file from elsewhere":     {"files: [{path: /a/http-proxy.conf, contentFrom: {secret: {name: s, key: k}}}]", "in key k of Secret s"},
		"a file that is compressed": {"files: [{path: /a/http-proxy.conf, encoding: gzip+base64, content: x}]", "encoded as gzip+base64"},
		"a drop-in with a file":     {"[Service]\nEnvironmentFile=/etc/x", "from the file /etc/x"},
		"a specifier":               {"[Service]\nEnvironment=\"HTTP_PROXY=http://u:" + needle + "%40@p:1\"", "a single %"},
		"an open quote":             {"[Service]\nEnvironment=\"HTTP_PROXY=" + u, "a quote that is not closed"},
		"a bad name":                {"CLUSTER_NAME: A_B\nTKG_HTTP_PROXY: http://p:1", "not one that Kubernetes accepts"},
		"aliases without end":       {"a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]", "more than 200000 values"},
		"a broken Secret":           {"apiVersion: v1\nkind: Secret\ndata: {values: '" + needle + "!'}", "data.values is not base64"},
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
	got, err := foreign.Read([]byte("httpProxy: http://u:" + needle + "@p.example.com\nnoProxy: [LOCALHOST, .svc, a.example.com]\n" +
		"effectiveNoProxy: [" + needle + "]\nother: 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"the configuration: LOCALHOST is left out, because it is composed anyway",
		"the configuration: .svc is left out, because it is composed anyway",
		"proxy-port: key httpProxy: the proxy has no port; curl takes 1080, Go and most others 80 or 443; write the port",
		"the configuration: key effectiveNoProxy has no place in a proxy Secret",
		"the configuration: key other has no place in a proxy Secret",
	}
	if diff := cmp.Diff(want, got.Notes); diff != "" {
		t.Error(diff)
	}
	if got.Data["noProxy"] != "a.example.com" {
		t.Errorf("noProxy is %q", got.Data["noProxy"])
	}
}

// TestRead_TakesTheSamePlaceTwice reads what has the settings in several places: a chart for readers of several
// generations, and a bootstrap spec with a drop-in for each service.
func TestRead_TakesTheSamePlaceTwice(t *testing.T) {
	t.Parallel()
	got, err := foreign.Read([]byte("cluster: {proxy: {http: 'http://p:1'}}\nglobal: {connectivity: {proxy: {enabled: true, httpProxy: 'http://p:1'}}}\n" +
		"env: [{name: HTTP_PROXY, value: 'http://p:1'}]"))
	if err != nil || got.Data["httpProxy"] != "http://p:1" {
		t.Errorf("%v, %v", got.Data, err)
	}
}
