package render_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
)

func TestRender_SaysWhatIsUsualInOneLine(t *testing.T) {
	t.Parallel()
	many := func(n int) string {
		text := ""
		for i := range n {
			text += strings.NewReplacer(
				"metadata: {name: http-proxy}", fmt.Sprintf("metadata: {name: http-proxy, namespace: n%d}", i),
				"namespace: team", fmt.Sprintf("namespace: n%d", i), "kind: DemoCluster", "kind: DockerCluster",
			).Replace(scene("team/c", "KubeadmControlPlane team/cp")) + "---\n"
		}
		return strings.TrimSuffix(text, "---\n")
	}
	const (
		defaults  = "Clusters with kubeadm's defaults for empty fields of spec.clusterNetwork: "
		endpoint  = "without a control-plane endpoint yet: "
		variables = "with variables of clusterctl in the network: "
		secrets   = "Secrets that the controller generates, or --include-secrets prints: "
	)
	full := strings.Replace(strings.ReplaceAll(scene("c", "KubeadmControlPlane cp"), "DemoCluster", "DockerCluster"), "spec: {controlPlaneRef",
		"spec: {clusterNetwork: {services: {cidrBlocks: [10.96.0.0/12]}, serviceDomain: cluster.local}, controlPlaneEndpoint: {host: cp.example.com}, controlPlaneRef", 1)
	for name, test := range map[string]struct {
		manifests string
		secrets   bool
		want      string
	}{
		"one Cluster":       {many(1), false, "summary: " + defaults + "1; " + endpoint + "1; " + secrets + "1 (n0/c-proxy-files)"},
		"three":             {many(3), false, "summary: " + defaults + "3; " + endpoint + "3; " + secrets + "3 (n0/c-proxy-files, n1/c-proxy-files, n2/c-proxy-files)"},
		"more than it says": {many(40), false, "summary: " + defaults + "40; " + endpoint + "40; " + secrets + "40 (n0/c-proxy-files, n1/c-proxy-files, n2/c-proxy-files and 37 more)"},
		"a template": {
			strings.Replace(full, "cp.example.com", `"${HOST}"`, 1), false, "summary: Clusters " + variables + "1; " + secrets +
				"1 (c-proxy-files)",
		},
		"nothing but the Secret":      {full, false, "summary: " + secrets + "1 (c-proxy-files)"},
		"nothing at all":              {full, true, ""},
		"an unknown kind":             {strings.ReplaceAll(full, "DockerCluster", "DemoCluster"), true, "summary: Clusters whose kind of infrastructure is not known: 1"},
		"a Cluster without the label": {strings.ReplaceAll(full, "enabled:", "other:"), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := run(t, render.Options{
				Inputs:         []clusters.Input{{Name: "in.yaml", Data: []byte(test.manifests)}},
				IncludeSecrets: test.secrets,
			})
			if diff := cmp.Diff(test.want, result.Summary); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			usual := func(note string) bool {
				return slices.ContainsFunc([]string{"defaults-used", "endpoint-unset", "unresolved"},
					func(s string) bool { return strings.Contains(note, s) })
			}
			if slices.ContainsFunc(result.Notes, usual) {
				t.Errorf("the notes repeat it:\n%s", strings.Join(result.Notes, "\n"))
			}
		})
	}
}
