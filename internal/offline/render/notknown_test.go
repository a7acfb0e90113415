package render_test

import (
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
)

// TestRender_NeedsNoValueOfASecret renders the same Cluster with proxy Secrets whose values are not in the manifests.
func TestRender_NeedsNoValueOfASecret(t *testing.T) {
	t.Parallel()
	const (
		enc    = "ENC[AES256_GCM,data:zlGNmhTYX5xol4ZZFsiaoGkD73nn,iv:ql9m=,tag:SqVS==,type:str]"
		sealed = "kind: SealedSecret\napiVersion: bitnami.com/v1alpha1\nmetadata: {name: http-proxy, namespace: ns}\n"
	)
	plain := strings.Join([]string{clusterA, poolA, sharedTemplate}, "---\n")
	specs := func(output string) string { return strings.Join(strings.Split(output, "---\n")[:3], "---\n") }
	want := specs(string(run(t, of(plain+"---\n"+sharedSecret)).Output))
	for name, test := range map[string]struct{ secret, note, fails string }{
		"SOPS":                  {strings.Replace(sharedSecret, `"http://proxy.example.com:3128"`, `"`+enc+`"`, 1) + "sops: {version: 3.9.0}\n", "encrypted by SOPS", ""},
		"SOPS in data":          {strings.NewReplacer(`"http://proxy.example.com:3128"`, `"`+enc+`"`, "stringData", "data").Replace(sharedSecret), "encrypted by SOPS", ""},
		"SOPS for the password": {strings.Replace(sharedSecret, "3128\"", "3128\", username: u, password: \""+enc+`"`, 1), "encrypted by SOPS", ""},
		"another object":        {sealed, "nor ns/http-proxy exists", ""},
		"another namespace":     {strings.Replace(sharedSecret, "namespace: ns", "namespace: x", 1), "nor ns/http-proxy exists", ""},
		"a broken value":        {strings.Replace(sharedSecret, "stringData", "data", 1), "", "is not base64"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inputs := []clusters.Input{{Name: "-", Data: []byte(plain + "---\n" + test.secret)}}
			result, err := render.Render(t.Context(), render.Options{Inputs: inputs})
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			notes := strings.Join(result.Notes, "\n")
			if got := string(result.Output); specs(got) != want || !strings.HasSuffix(got, test.secret) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if !strings.Contains(notes, test.note) || strings.Contains(notes, "ENC[") {
				t.Errorf("notes are\n%s", notes)
			}
			if result, err := render.Render(t.Context(), render.Options{Inputs: inputs, IncludeSecrets: true}); err == nil ||
				!strings.Contains(err.Error(), test.note) || strings.Contains(err.Error(), "ENC[") {
				t.Errorf("with Secrets: %v\n%s", err, result.Output)
			}
			result, err = render.Render(t.Context(), render.Options{
				Inputs: inputs, IncludeSecrets: true, Secrets: []clusters.Input{{Name: "clear", Data: []byte(sharedSecret)}},
			})
			if err != nil || !strings.Contains(string(result.Output), "proxy.env: ") {
				t.Errorf("with a file that has the values: %v\n%s", err, result.Output)
			}
			published := render.Publish{Publisher: oneOutput{}, Wanted: true, List: "env"}
			if result, err := render.Render(t.Context(), render.Options{Inputs: inputs, Publish: published}); err == nil ||
				!strings.Contains(err.Error(), "values of the proxy Secret are not known") {
				t.Errorf("published: %v\n%s", err, result.Output)
			}
		})
	}
}

// oneOutput is asked for by every Cluster.
type oneOutput struct{ kit.Publisher }

func (oneOutput) Asked(map[string]string, string) (kit.Outputs, error) {
	return kit.Outputs{Count: 1, ForManagement: true}, nil
}
