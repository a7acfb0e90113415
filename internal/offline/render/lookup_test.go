package render_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
)

// scene writes manifests; each object is a kind, an optional namespace with a slash, and a name.
func scene(cluster string, objects ...string) string {
	text := "apiVersion: v1\nkind: Secret\nmetadata: {name: http-proxy}\nstringData: {httpProxy: \"http://p.example.com:1\"}\n"
	metadata := func(name string) string {
		if namespace, name, found := strings.Cut(name, "/"); found {
			return "{namespace: " + namespace + ", name: " + name + "}"
		}
		return "{name: " + name + "}"
	}
	labelled := func(name string) string {
		return strings.TrimSuffix(metadata(name), "}") + `, labels: {capi-proxy-patcher.io/enabled: "true"}}`
	}
	for _, object := range append([]string{"Cluster " + cluster}, objects...) {
		kind, name, _ := strings.Cut(object, " ")
		text += "---\n"
		switch kind {
		case "Cluster":
			text += "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: " + labelled(name) +
				"\nspec: {controlPlaneRef: {kind: KubeadmControlPlane, name: cp}, infrastructureRef: {kind: DemoCluster, name: infra}}\n"
		case "KubeadmControlPlane":
			text += "apiVersion: controlplane.cluster.x-k8s.io/v1beta2\nkind: KubeadmControlPlane\nmetadata: " + metadata(name) +
				"\nspec: {version: v1.36.3}\n"
		case "DemoCluster":
			text += "apiVersion: infrastructure.cluster.x-k8s.io/v1\nkind: DemoCluster\nmetadata: " + metadata(name) +
				"\nspec: {controlPlaneEndpoint: {host: of-" + strings.ReplaceAll(name, "/", "-") + ".example.com, port: 6443}}\n"
		case "MachineDeployment":
			text += "apiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineDeployment\nmetadata: " + metadata(name) +
				"\nspec: {clusterName: c, template: {spec: {bootstrap: {configRef: {kind: KubeadmConfigTemplate, name: md}}}}}\n"
		case "KubeadmConfigTemplate":
			text += "apiVersion: bootstrap.cluster.x-k8s.io/v1beta2\nkind: KubeadmConfigTemplate\nmetadata: " + metadata(name) +
				"\nspec: {template: {spec: {}}}\n"
		}
	}
	return text
}

func TestRender_FindsObjectsWhoseNamespaceIsLeftOut(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		manifests string
		// patched are the objects that carry the proxy, problem and note a part of what is said of them.
		patched       []string
		note, problem string
	}{
		"everywhere": {scene("c", "KubeadmControlPlane cp", "MachineDeployment md", "KubeadmConfigTemplate md"), []string{"cp", "md"}, "", ""},
		"but for the Cluster": {
			scene("team/c", "KubeadmControlPlane cp", "MachineDeployment md", "KubeadmConfigTemplate md"),
			[]string{"cp", "md"},
			"", "",
		},
		"of the Cluster": {
			scene("c", "KubeadmControlPlane team/cp", "MachineDeployment team/md", "KubeadmConfigTemplate team/md"),
			[]string{"team/cp", "team/md"},
			"", "",
		},
		"of the templates": {
			scene("team/c", "KubeadmControlPlane cp", "MachineDeployment team/md", "KubeadmConfigTemplate md"),
			[]string{"cp", "md"},
			"", "",
		},
		"and the very namespace comes first": {
			scene("team/c", "KubeadmControlPlane cp", "KubeadmControlPlane team/cp", "MachineDeployment md",
				"KubeadmConfigTemplate md"),
			[]string{"team/cp", "md"},
			"", "",
		},
		"and another namespace does not fit": {
			scene("team/c", "KubeadmControlPlane other/cp"), nil,
			"Cluster team/c: warning: KubeadmControlPlane cp is not in the input", "",
		},
		"and a pool of another namespace is named": {
			scene("team/c", "KubeadmControlPlane cp", "MachineDeployment other/md", "KubeadmConfigTemplate other/md"),
			[]string{"cp"},
			"MachineDeployment other/md: warning: names Cluster team/c, which is in another namespace, and is not patched", "",
		},
		"and a pool without one is of one Cluster": {
			scene("team/c", "Cluster other/c", "KubeadmControlPlane team/cp", "KubeadmControlPlane other/cp",
				"MachineDeployment md", "KubeadmConfigTemplate md"), nil, "",
			"MachineDeployment md: has no namespace and may belong to Cluster team/c or to Cluster other/c; write its namespace",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := render.Render(t.Context(), of(test.manifests))
			if test.problem != "" {
				if err == nil || !strings.Contains(err.Error(), test.problem) {
					t.Errorf("got error %v, want %q in it", err, test.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var patched []string
			for _, o := range manifests(t, string(result.Output)).Objects() {
				if o.Annotations()["capi-proxy-patcher.io/output-version"] != "" {
					_, name, _ := strings.Cut(o.String(), " ")
					patched = append(patched, name)
				}
			}
			if diff := cmp.Diff(test.patched, patched); diff != "" {
				t.Errorf("patched (-want +got):\n%s", diff)
			}
			if notes := strings.Join(result.Notes, "\n"); !strings.Contains(notes, test.note) {
				t.Errorf("notes lack %q:\n%s", test.note, notes)
			}
		})
	}
}

func TestManifests_FindTheEndpointAndThePoolsWhoseNamespaceIsLeftOut(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ manifests, host, pool string }{
		"everywhere":          {scene("c", "DemoCluster infra", "MachineDeployment md"), "of-infra.example.com", "md"},
		"but for the Cluster": {scene("team/c", "DemoCluster infra", "MachineDeployment md"), "of-infra.example.com", "md"},
		"of the Cluster":      {scene("c", "DemoCluster team/infra", "MachineDeployment team/md"), "of-team-infra.example.com", "md"},
		"and the very namespace comes first": {
			scene("team/c", "DemoCluster infra", "DemoCluster team/infra", "MachineDeployment team/md"),
			"of-team-infra.example.com", "md",
		},
		"and another namespace does not fit": {scene("team/c", "DemoCluster other/infra", "MachineDeployment other/md"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := manifests(t, test.manifests).Clusters()[0]
			pool := ""
			for _, p := range cluster.Pools {
				pool += p.Name()
			}
			if cluster.View.EndpointHost != test.host || pool != test.pool {
				t.Errorf("got endpoint %q and pool %q, want %q and %q", cluster.View.EndpointHost, pool, test.host, test.pool)
			}
		})
	}
}

func TestRender_PrefersTheSecretOfTheSameNamespace(t *testing.T) {
	t.Parallel()
	const secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: http-proxy, namespace: team}\nstringData: {httpProxy: \"http://team.example.com:1\"}\n"
	foreign := strings.NewReplacer("v1", "example.com/v1", "team.example", "foreign.example").Replace(secret)
	m := manifests(t, scene("team/c")+foreign+secret)
	found, err := m.Resolver(nil).Secrets.ReadSecret(t.Context(), types.NamespacedName{Namespace: "team", Name: "http-proxy"})
	if err != nil || found == nil || string(found.Data["httpProxy"]) != "http://team.example.com:1" {
		t.Errorf("found %+v, error %v", found, err)
	}
}

func TestRender_UpdatesAGeneratedSecretWithoutANamespace(t *testing.T) {
	t.Parallel()
	const secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: c-proxy-files, labels: {capi-proxy-patcher.io/generated-for: c}}\n"
	result := run(t, render.Options{
		Inputs: []clusters.Input{{
			Name: "in.yaml",
			Data: []byte(scene("team/c", "DemoCluster infra", "KubeadmControlPlane cp") + secret),
		}},
		IncludeSecrets: true,
	})
	if n := strings.Count(string(result.Output), "name: c-proxy-files, labels"); n != 1 ||
		!strings.Contains(string(result.Output), "  proxy.env: ") ||
		!strings.Contains(string(result.Output), `generated-for: c, "capi-proxy-patcher.io/proxy": ""}`) {
		t.Errorf("the Secret is there %d times:\n%s", n, result.Output)
	}
}

// TestRender_PatchesExportedObjects renders the output of kubectl get.
func TestRender_PatchesExportedObjects(t *testing.T) {
	t.Parallel()
	const exported = "deletionTimestamp: \"2026-01-01T00:00:00Z\", ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, name: m, uid: u}], "
	written := withPods(scene("team/c", "DemoCluster infra", "KubeadmControlPlane cp", "MachineDeployment md", "KubeadmConfigTemplate md"))
	output := func(text string) string {
		result := run(t, of(text))
		return string(result.Output)
	}
	got := output(strings.ReplaceAll(written, "metadata: {", "metadata: {"+exported))
	if diff := cmp.Diff(output(written), strings.ReplaceAll(got, exported, "")); diff != "" || strings.Count(got, "setup.sh || :") != 2 {
		t.Errorf("(-want +got):\n%s\n%s", diff, got)
	}
}

// withPods gives the Cluster of a scene a Pod network, so that nothing is missing from it that somebody has to add.
func withPods(scene string) string {
	return strings.Replace(scene, "spec: {controlPlaneRef",
		"spec: {clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}}, controlPlaneRef", 1)
}

func manifests(t *testing.T, text string) *clusters.Manifests {
	t.Helper()
	m, err := clusters.Read([]clusters.Input{{Name: "in.yaml", Data: []byte(text)}}, nil, types.NamespacedName{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
