package lint_test

import (
	"strings"
	"testing"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/lint"
)

// TestRun_ChecksWhatIsInClearText has Secrets some of whose values are not in the manifests.
func TestRun_ChecksWhatIsInClearText(t *testing.T) {
	t.Parallel()
	const enc = `"ENC[AES256_GCM,data:zlGN,iv:ql9m=,tag:SqVS==,type:str]"`
	const cluster = `kind: Cluster
apiVersion: cluster.x-k8s.io/v1beta2
metadata: {name: c, labels: {capi-proxy-patcher.io/enabled: "true"}}
spec: {controlPlaneEndpoint: {host: cp.example.com, port: 6443}, clusterNetwork: {pods: {cidrBlocks: [10.0.0.0/16]}}}
---
`
	secret := func(data string) string {
		return "kind: Secret\napiVersion: v1\nmetadata: {name: http-proxy, labels: {capi-proxy-patcher.io/proxy: \"\"}}\nstringData: {" +
			strings.ReplaceAll(data, "X", enc) + "}\nsops: {version: 3.9.0}\n"
	}
	sealed := func(keys string) string {
		return "kind: SealedSecret\napiVersion: bitnami.com/v1alpha1\nmetadata: {name: http-proxy}\nspec: {encryptedData: {" + keys +
			"}, template: {metadata: {labels: {capi-proxy-patcher.io/proxy: \"\"}}}}\n"
	}
	external := func(spec string) string {
		return "kind: ExternalSecret\napiVersion: external-secrets.io/v1\nmetadata: {name: http-proxy, labels: {capi-proxy-patcher.io/proxy: \"\"}}\nspec: {" + spec + "}\n"
	}
	for name, tc := range map[string]struct{ secret, want string }{
		"all encrypted":                           {secret("httpProxy: X, noProxy: X, username: X, password: X, trustedCA: X"), "secret-encrypted"},
		"certificates alone":                      {secret("trustedCA: X"), "secret-encrypted"},
		"an unknown key":                          {secret("httpProxy: X, nproxy: X"), "secret-encrypted unknown-key"},
		"a bad entry in clear text":               {secret("httpProxy: X, noProxy: 'a:b:c:x'"), "secret-encrypted bad-"},
		"a bad URL in clear text":                 {secret("httpProxy: 'p:1', password: X, username: X"), "secret-encrypted bad-proxy-url"},
		"a password without a user":               {secret("httpProxy: 'http://p:1', username: '', password: X"), "secret-encrypted"},
		"no URL":                                  {secret("noProxy: X"), "secret-encrypted no-proxy-url"},
		"sealed":                                  {sealed("httpProxy: AgB, noProxy: AgB"), "secret-encrypted"},
		"sealed with an unknown key":              {sealed("httpProxy: AgB, httpsproxi: AgB"), "secret-encrypted unknown-key"},
		"external":                                {external("data: [{secretKey: httpProxy}]"), "secret-encrypted"},
		"external with unknown keys":              {external("dataFrom: [{extract: {key: k}}]"), "secret-encrypted"},
		"external with a wrong key":               {external("data: [{secretKey: httpProxy}, {secretKey: url}]"), "secret-encrypted unknown-key"},
		"external without a URL":                  {external("data: [{secretKey: noProxy}]"), "secret-encrypted no-proxy-url"},
		"external whose template lacks the label": {external("data: [{secretKey: httpProxy}], target: {template: {data: {httpProxy: x}}}"), "secret-encrypted unlabelled-secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report, err := lint.Run(t.Context(), lint.Options{
				Inputs: []clusters.Input{{Name: "-", Data: []byte(cluster + tc.secret)}}, Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
			})
			if err != nil {
				t.Fatal(err)
			}
			wanted := strings.Fields(tc.want)
			var of []string
			for _, f := range report.Findings {
				if strings.HasPrefix(f.Object, "Cluster") {
					continue
				}
				of = append(of, string(f.Code))
				if strings.Contains(f.Message+f.Fix+f.Where, "ENC[") || strings.Contains(f.Message, "encrypted.invalid") {
					t.Errorf("it shows a value: %s", f.Message)
				}
			}
			if len(of) != len(wanted) {
				t.Fatalf("findings %q, want %q", of, wanted)
			}
			for i := range of {
				if !strings.HasPrefix(of[i], wanted[i]) {
					t.Errorf("findings %q, want %q", of, wanted)
				}
			}
			if rejected := len(wanted) > 1 && wanted[1] != "unlabelled-secret"; rejected != (report.Summary.Rejections > 0) {
				t.Errorf("%d rejections of %q", report.Summary.Rejections, of)
			}
		})
	}
}
