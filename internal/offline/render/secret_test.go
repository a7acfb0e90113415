package render_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
)

// withEndpoint is a Cluster with a control-plane endpoint and more fields, and with a control plane.
func withEndpoint(endpoint, more string) string {
	text := strings.Replace(scene("team/c", "KubeadmControlPlane cp"), "spec: {controlPlaneRef",
		"spec: {controlPlaneEndpoint: "+endpoint+more+", controlPlaneRef", 1)
	return strings.ReplaceAll(text, "controlPlaneEndpoint: , ", "")
}

func TestRender_PrintsOnlySecretsThatAreComplete(t *testing.T) {
	t.Parallel()
	const (
		known = "{host: cp.example.com, port: 6443}"
		old   = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: c-proxy-files, labels: {capi-proxy-patcher.io/generated-for: c}}\ndata: {proxy.env: b2xk}\n"
	)
	topology := string(topologyInput("", "{name: capiProxyPatcher, value: {noProxy: ['${X}']}}", "", "[]",
		"httpProxy: 'http://p.example.com:1'").Inputs[0].Data)
	for name, test := range map[string]struct {
		manifests string
		insist    bool
		// note is a part of what is said, entry one of NO_PROXY in the Secret; without entry the Secret is not printed.
		note, entry string
	}{
		"with an endpoint":                                 {withEndpoint(known, ""), false, "", "cp.example.com"},
		"without an endpoint":                              {withEndpoint("", ""), false, "because spec.controlPlaneEndpoint is not set", ""},
		"with a variable for it":                           {withEndpoint(`{host: "${HOST}", port: 6443}`, ""), false, "because spec.controlPlaneEndpoint.host has unresolved variables", ""},
		"with a variable for another":                      {withEndpoint(known, `, clusterNetwork: {serviceDomain: "${DOMAIN}"}`), false, "because spec.clusterNetwork.serviceDomain has unresolved variables", ""},
		"with a variable in a topology":                    {topology, false, "because spec.topology.variables[capiProxyPatcher] has unresolved variables", ""},
		"without an endpoint, against the user's order":    {withEndpoint("", ""), true, "is printed although spec.controlPlaneEndpoint", ".cluster.local"},
		"with a variable for it, against the user's order": {withEndpoint(`{host: "${HOST}", port: 6443}`, ""), true, "is printed although spec.controlPlaneEndpoint", ".cluster.local"},
		"without an endpoint that is left out anyway": {
			strings.Replace(withEndpoint("", ""), "labels: {",
				"annotations: {capi-proxy-patcher.io/no-proxy-groups: -endpoint}, labels: {", 1),
			false, "", ".cluster.local",
		},
		"without an endpoint, and there is an earlier one": {withEndpoint("", "") + old, false, "Secret c-proxy-files stays as it is, because spec.controlPlaneEndpoint is not set", "old"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := run(t, render.Options{
				Inputs: []clusters.Input{{Name: "in.yaml", Data: []byte(test.manifests)}}, IncludeSecrets: true,
				IncompleteSecrets: test.insist,
			})
			notes := strings.Join(result.Notes, "\n")
			if !strings.Contains(notes, test.note) || test.note == "" && strings.Contains(notes, "Secret") {
				t.Errorf("want %q in the notes:\n%s", test.note, notes)
			}
			content := ""
			for _, o := range manifests(t, string(result.Output)).Objects() {
				if o.Name() == "c-proxy-files" {
					data, _ := o.Value()["data"].(map[string]any)
					encoded, _ := data["proxy.env"].(string)
					decoded, err := base64.StdEncoding.DecodeString(encoded)
					if err != nil {
						t.Fatal(err)
					}
					content += string(decoded)
				}
			}
			if (content == "") != (test.entry == "") || !strings.Contains(content, test.entry) {
				t.Errorf("want %q in the Secret:\n%s", test.entry, content)
			}
		})
	}
}
