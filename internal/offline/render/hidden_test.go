package render_test

import (
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
)

const enc = "ENC[AES256_GCM,data:zlGNmhTYX5xol4ZZFsiaoGkD73nn,iv:ql9m=,tag:SqVS==,type:str]"

// TestRender_NeedsNoValueOfASecret renders the same Cluster with Secrets whose values are not in the manifests.
func TestRender_NeedsNoValueOfASecret(t *testing.T) {
	t.Parallel()
	const sealed = "kind: SealedSecret\napiVersion: bitnami.com/v1alpha1\nmetadata: {name: http-proxy, namespace: ns}\n"
	const external = "kind: ExternalSecret\napiVersion: external-secrets.io/v1\nmetadata: {name: NAME, namespace: ns}\n"
	const trust = "kind: Secret\napiVersion: v1\nmetadata: {name: http-proxy, namespace: ns}\nstringData: {trustedCA: X}\n"
	plain := strings.Join([]string{clusterA, poolA, sharedTemplate}, "---\n")
	specs := func(output string) string { return strings.Join(strings.Split(output, "---\n")[:3], "---\n") }
	want := specs(string(rendered(t, plain+"---\n"+sharedSecret, render.Publish{}).Output))
	trusted := strings.Replace(trust, "X", `"`+enc+`"`, 1)
	for name, tc := range map[string]struct{ secret, note, fails string }{
		"SOPS":                    {secret: strings.Replace(sharedSecret, `"http://proxy.example.com:3128"`, `"`+enc+`"`, 1) + "sops: {version: 3.9.0}\n", note: "encrypted by SOPS"},
		"SOPS in data":            {secret: strings.NewReplacer(`"http://proxy.example.com:3128"`, `"`+enc+`"`, "stringData", "data").Replace(sharedSecret), note: "encrypted by SOPS"},
		"SOPS for the password":   {secret: strings.Replace(sharedSecret, "3128\"", "3128\", username: u, password: \""+enc+`"`, 1), note: "encrypted by SOPS"},
		"a SealedSecret":          {secret: sealed + "spec: {encryptedData: {httpProxy: AgB}, template: {metadata: {name: other}}}\n", note: "encrypted in a SealedSecret"},
		"an ExternalSecret":       {secret: strings.Replace(external, "NAME", "http-proxy", 1) + "spec: {data: [{secretKey: httpProxy}]}\n", note: "comes from an ExternalSecret"},
		"its target":              {secret: strings.Replace(external, "NAME", "x", 1) + "spec: {target: {name: http-proxy}, dataFrom: [{extract: {key: k}}]}\n", note: "comes from an ExternalSecret"},
		"another target":          {secret: strings.Replace(external, "NAME", "http-proxy", 1) + "spec: {target: {name: x}}\n", fails: "nor ns/http-proxy exists"},
		"one that creates none":   {secret: strings.Replace(external, "NAME", "http-proxy", 1) + "spec: {target: {creationPolicy: Merge}}\n", fails: "nor ns/http-proxy exists"},
		"a ClusterExternalSecret": {secret: strings.NewReplacer("NAME", "http-proxy", "kind: E", "kind: ClusterE").Replace(external), fails: "nor ns/http-proxy exists"},
		"a PushSecret":            {secret: strings.NewReplacer("NAME", "http-proxy", "kind: ExternalS", "kind: PushS").Replace(external), fails: "nor ns/http-proxy exists"},
		"another group":           {secret: strings.Replace(sealed, "bitnami.com", "example.com", 1), fails: "nor ns/http-proxy exists"},
		"another namespace":       {secret: strings.Replace(sealed, "namespace: ns", "namespace: x", 1), fails: "nor ns/http-proxy exists"},
		"a broken value":          {secret: strings.Replace(sharedSecret, "stringData", "data", 1), fails: "is not base64"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, include := range []bool{false, true} {
				result, err := render.Render(t.Context(), render.Options{
					Inputs: []clusters.Input{{Name: "-", Data: []byte(plain + "---\n" + tc.secret)}}, IncludeSecrets: include,
				})
				if tc.fails != "" {
					if err == nil || !strings.Contains(err.Error(), tc.fails) {
						t.Errorf("error %v", err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				notes := strings.Join(result.Notes, "\n")
				if got := string(result.Output); specs(got) != want || !strings.HasSuffix(got, tc.secret) || strings.Contains(got, "encrypted.invalid") {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
				if !strings.Contains(notes, tc.note) || strings.Contains(notes, "ENC[") ||
					include != strings.Contains(notes, "warning: Secret a-proxy-files is not printed") {
					t.Errorf("notes are\n%s", notes)
				}
			}
			if tc.fails == "" { // a file with the values has precedence
				result, err := render.Render(t.Context(), render.Options{
					Inputs: []clusters.Input{{Name: "-", Data: []byte(plain + "---\n" + tc.secret)}}, IncludeSecrets: true,
					Secrets: []clusters.Input{{Name: "clear", Data: []byte(sharedSecret)}},
				})
				if err != nil || !strings.Contains(string(result.Output), "proxy.env: ") {
					t.Errorf("with the values: %v\n%s", err, result.Output)
				}
			}
		})
	}
	t.Run("certificates alone", func(t *testing.T) {
		t.Parallel()
		got := specs(string(rendered(t, plain+"---\n"+trusted, render.Publish{}).Output))
		if strings.Contains(got, "proxy.env") || !strings.Contains(got, "trusted-ca.pem") {
			t.Errorf("got\n%s", got)
		}
	})
	t.Run("publishing", func(t *testing.T) {
		t.Parallel()
		labelled := strings.Replace(plain, "labels:", "annotations: {capi-proxy-patcher.io/publish: env}, labels:", 1)
		result := rendered(t, labelled+"---\n"+trusted, render.Publish{Wanted: true})
		if strings.Contains(string(result.Output), "proxy-outputs") || !strings.Contains(strings.Join(result.Notes, "\n"), "nothing is published") {
			t.Errorf("notes %q, output\n%s", result.Notes, result.Output)
		}
	})
}
