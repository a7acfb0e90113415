package settings_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// TestResolve_WarnsOfWhatHasNoEffect has a Cluster with Pods in 10.244.0.0/16, Services in 10.96.0.0/12 and fd00:96::/112.
func TestResolve_WarnsOfWhatHasNoEffect(t *testing.T) {
	t.Parallel()
	static := settings.Options{Targets: []contract.Target{contract.TargetContainerd, contract.TargetStaticPods}}
	key := func(name string) string { return "proxy-in-cluster Secret team/http-proxy, key " + name }
	for name, test := range map[string]struct {
		data    map[string]string
		options settings.Options
		want    []string
	}{
		"a proxy outside":           {data: map[string]string{"httpProxy": "http://p.example.com:1"}},
		"an address outside":        {data: map[string]string{"httpProxy": "http://10.20.0.1:1"}},
		"in the Pod network":        {data: map[string]string{"httpProxy": "http://10.244.3.4:1"}, want: []string{key("httpProxy")}},
		"in the Service network":    {data: map[string]string{"httpProxy": "http://p:1", "httpsProxy": "http://10.100.3.4:1"}, want: []string{key("httpsProxy")}},
		"an IPv6 Service":           {data: map[string]string{"httpProxy": "http://[fd00:96::7]:1"}, want: []string{key("httpProxy")}},
		"the name of a Service":     {data: map[string]string{"httpProxy": "http://squid.proxy.svc:1", "httpsProxy": "http://SQUID.proxy.svc.corp.local.:1"}, want: []string{key("httpProxy"), key("httpsProxy")}},
		"a name that looks like it": {data: map[string]string{"httpProxy": "http://proxy.svc.example.com:1"}},
		"the domain itself":         {data: map[string]string{"httpProxy": "http://corp.local:1"}},
		"static Pods":               {data: map[string]string{"httpProxy": "http://p:1"}, options: static},
		"credentials":               {data: map[string]string{"httpProxy": "http://p:1", "username": "u", "password": "s3cret"}},
		"credentials, static Pods":  {data: map[string]string{"httpProxy": "http://p:1", "httpsProxy": "http://u:s3cret@p:1"}, options: static, want: []string{"static-pods-credentials annotation capi-proxy-patcher.io/targets"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reader := &secrets{data: map[string]map[string]string{"team/http-proxy": test.data}}
			cluster := settings.Cluster{
				Namespace: "team", Name: "one", PodCIDRs: []string{"10.244.0.0/16"}, ServiceCIDRs: []string{"10.96.0.0/12", "fd00:96::/112"},
				ServiceDomain: "corp.local",
			}
			got, err := settings.Resolver{Secrets: reader}.Resolve(t.Context(), cluster, test.options, "")
			if err != nil {
				t.Fatal(err)
			}
			var warned []string
			for _, w := range got.Warnings {
				if slices.Contains([]finding.Code{noproxy.CodeStaticPodsCredentials, noproxy.CodeProxyInCluster}, w.Code) {
					warned = append(warned, string(w.Code)+" "+w.Place.String())
				}
				if strings.Contains(w.String(), "s3cret") {
					t.Errorf("%s shows a password", w)
				}
			}
			if !slices.Equal(warned, test.want) {
				t.Errorf("got %q, want %q", warned, test.want)
			}
		})
	}
}
