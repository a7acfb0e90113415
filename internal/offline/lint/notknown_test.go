package lint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/lint"
)

// TestRun_NotesThatValuesAreNotKnown has proxy Secrets without their values, which are not checked.
func TestRun_NotesThatValuesAreNotKnown(t *testing.T) {
	t.Parallel()
	const (
		sops = "---\nkind: Secret\napiVersion: v1\nmetadata: {name: http-proxy, namespace: team, labels: {capi-proxy-patcher.io/proxy: \"\"}}\n" +
			"stringData: {httpProxy: \"ENC[AES256_GCM,data:zlGN,type:str]\", nproxy: b}\nsops: {version: 3.9.0}\n"
		sealed = "---\nkind: SealedSecret\napiVersion: bitnami.com/v1alpha1\nmetadata: {name: http-proxy, namespace: team}\nspec: {encryptedData: {httpProxy: AgB}}\n"
		pool   = "---\nkind: MachineDeployment\napiVersion: cluster.x-k8s.io/v1beta2\nmetadata: {name: md, namespace: team, annotations: {capi-proxy-patcher.io/secret: edge}}\n" +
			"spec: {clusterName: c}\n"
		plain     = "---\nkind: Secret\napiVersion: v1\nmetadata: {name: http-proxy, namespace: team, labels: {capi-proxy-patcher.io/proxy: \"\"}}\nstringData: {httpProxy: 'http://p:1'}\n"
		encrypted = "note Secret team/http-proxy secret-not-found"
		missing   = "note Cluster team/c secret-not-found"
	)
	unlabelled := strings.Replace(sops, "labels", "annotations", 1)
	for name, test := range map[string]struct {
		text, file string
		want       []string
	}{
		"encrypted by SOPS":                 {goodCluster + sops, "", []string{encrypted}},
		"without a Cluster":                 {sops, "", []string{encrypted}},
		"the same without the label":        {goodCluster + unlabelled, "", []string{encrypted, "warning Secret team/http-proxy unlabelled-secret"}},
		"missing":                           {goodCluster, "", []string{missing}},
		"made by another object":            {goodCluster + sealed, "", []string{missing}},
		"of a pool":                         {goodCluster + plain + pool, "", []string{"note MachineDeployment team/md secret-not-found"}},
		"encrypted, and in another file":    {goodCluster + strings.ReplaceAll(sops, ", nproxy: b", ""), plain, []string{encrypted}},
		"made by another, and in a file":    {goodCluster + sealed, plain, nil},
		"known, with a key that nobody has": {goodCluster + strings.Replace(plain, "1'", "1', nproxy: b", 1), "", []string{"rejection Secret team/http-proxy unknown-key"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(test.text)
			if test.file != "" {
				o.Secrets = []clusters.Input{{Name: "secret.yaml", Data: []byte(test.file)}}
			}
			report, err := lint.Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range report.Findings {
				got = append(got, fmt.Sprintf("%s %s %s", f.Level, f.Object, f.Code))
				if strings.Contains(f.Message+f.Fix+f.Where, "ENC[") {
					t.Errorf("it shows a value: %s", f.Message)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
