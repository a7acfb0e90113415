package outputs_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/outputs"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
)

func TestSplit_SeparatesWhatNoControllerWrites(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ list, printed, rest string }{
		{"", "", ""},
		{"env, values=a.b", "", "env, values=a.b"},
		{" istio ,env,tkg,istio", "istio tkg", "env"},
		{"istio=x,tkg", "tkg", "istio=x"},
	} {
		printed, rest := outputs.Split(tc.list)
		if strings.Join(printed, " ") != tc.printed || rest != tc.rest {
			t.Errorf("%q: %q and %q", tc.list, printed, rest)
		}
	}
}

func TestServiceEntries_NameEachProxyOnce(t *testing.T) {
	t.Parallel()
	const named = `"hosts":["proxy.example.com"],"location":"MESH_EXTERNAL","ports":[{"name":"tcp","number":`
	for name, tc := range map[string]struct {
		http, https string
		want        []string
	}{
		"one proxy for both": {http: "http://proxy.example.com:3128", want: []string{named + "3128,"}},
		"the same host at two ports": {
			http: "http://proxy.example.com:3128", https: "http://proxy.example.com:3129",
			want: []string{named + "3128,", named + "3129,"},
		},
		"no ports":      {http: "http://proxy.example.com", https: "https://proxy.example.com", want: []string{named + "80,", named + "443,"}},
		"https only":    {https: "http://proxy.example.com:3128", want: []string{named + "3128,"}},
		"an IPv4 proxy": {http: "http://192.0.2.1:1", want: []string{`"addresses":["192.0.2.1/32"],"hosts":["192-0-2-1.http-proxy.`}},
		"an IPv6 proxy": {http: "http://[2001:db8::1]:1", want: []string{
			`"addresses":["2001:db8::1/128"],"hosts":["2001-0db8-0000-0000-0000-0000-0000-0001.http-proxy.`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings, err := proxyconfig.Parse(map[string][]byte{
				"httpProxy": []byte(tc.http), "httpsProxy": []byte(tc.https), "username": []byte("needle"), "password": []byte("needle"),
			})
			if err != nil {
				t.Fatal(err)
			}
			entries := outputs.Values{Cluster: intent.Cluster{Name: "c"}, Input: publish.Input{Settings: settings}}.ServiceEntries()
			if len(entries) != len(tc.want) {
				t.Fatalf("got %v", entries)
			}
			for i, entry := range entries {
				text, err := json.Marshal(entry)
				if err != nil {
					t.Fatal(err)
				}
				resolved := strings.Contains(string(text), `"resolution":"DNS"`)
				if !strings.Contains(string(text), tc.want[i]) || resolved == strings.Contains(string(text), "addresses") ||
					strings.Contains(string(text), "needle") {
					t.Errorf("got %s, want %s", text, tc.want[i])
				}
			}
		})
	}
}

func TestWorkload_HasWhatIsDeliveredOnly(t *testing.T) {
	t.Parallel()
	result := publish.Result{Secrets: []publish.Secret{
		{Name: "beside", Data: map[string][]byte{"k": []byte("beside")}},
		{Name: "kept", Delivered: &publish.Output{Name: publish.Pods}, Kept: true},
		{Name: "out", Delivered: &publish.Output{Name: publish.Trust}, Data: map[string][]byte{"trust.yaml": []byte("a: b\n")}},
	}}
	got := outputs.Workload(result)
	if !slices.EqualFunc(got, []string{"a: b\n"}, func(g []byte, w string) bool { return string(g) == w }) {
		t.Errorf("got %q", got)
	}
	if !outputs.IsDelivered(result) || outputs.IsDelivered(publish.Result{Secrets: result.Secrets[:2]}) {
		t.Error("what is delivered is wrong")
	}
	objects := outputs.Values{Cluster: intent.Cluster{Name: "c"}}.Secrets(result)
	if len(objects) != 3 { // two Secrets with content, and the ClusterResourceSet
		t.Errorf("got %v", objects)
	}
}
