package main

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/golden"
)

// api is an API server for a few reads. It records what was asked for, and answers everything else with 405 or 404.
type api struct {
	*httptest.Server

	objects map[string]string // JSON by path
	mutex   sync.Mutex
	asked   []string
}

const (
	clustersPath = "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/clusters"
	secretsPath  = "/api/v1/namespaces/team-a/secrets"
)

func newAPI(t *testing.T, objects map[string]string) *api {
	t.Helper()
	a := &api{objects: map[string]string{}}
	for path, text := range objects {
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		a.objects[path] = string(data)
	}
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mutex.Lock()
		a.asked = append(a.asked, r.Method+" "+r.URL.Path)
		a.mutex.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch object, found := a.objects[r.URL.Path]; {
		case r.Header.Get("Authorization") != "Bearer s3cr-token":
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w,
				`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"clusters is forbidden"}`)
		case r.Method != http.MethodGet:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case found:
			_, _ = fmt.Fprint(w, object)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		}
	}))
	t.Cleanup(a.Close)
	return a
}

// kubeconfig has two contexts: mgmt, and nobody, who may do nothing.
func (a *api) kubeconfig(t *testing.T) string {
	t.Helper()
	config := map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "mgmt",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{
			"server":                     a.URL,
			"certificate-authority-data": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw}),
		}}},
		"users": []any{map[string]any{"name": "u", "user": map[string]any{"token": "s3cr-token"}}},
		"contexts": []any{
			map[string]any{"name": "mgmt", "context": map[string]any{"cluster": "c", "user": "u", "namespace": "team-a"}},
			map[string]any{"name": "nobody", "context": map[string]any{"cluster": "c", "user": "", "namespace": "team-a"}},
		},
	}
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(folder(t, map[string]string{"kubeconfig": string(data)}), "kubeconfig")
}

const liveCluster = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: prod, namespace: team-a, labels: {capi-proxy-patcher.io/enabled: "true"}, annotations: {capi-proxy-patcher.io/no-proxy-groups: -metadata}}
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}, services: {cidrBlocks: [172.20.0.0/16]}, serviceDomain: corp.internal}
  controlPlaneEndpoint: {host: cp.example.org, port: 443}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AWSCluster, name: prod}
`

// liveSecret has the values of a proxy Secret in base64: http://proxy.example.com:3128, node, s3cr, .corp.example.org.
const liveSecret = `
apiVersion: v1
kind: Secret
metadata: {name: http-proxy, namespace: team-a}
data:
  httpProxy: aHR0cDovL3Byb3h5LmV4YW1wbGUuY29tOjMxMjg=
  username: bm9kZQ==
  password: czNjcg==
  noProxy: LmNvcnAuZXhhbXBsZS5vcmc=
`

func live(t *testing.T) *api {
	t.Helper()
	second := strings.Replace(liveCluster, "name: prod, namespace", "name: stage, namespace", 1)
	list := "apiVersion: cluster.x-k8s.io/v1beta2\nkind: ClusterList\nitems: [" + flow(t, liveCluster) + ", " +
		flow(t, second) + "]\n"
	pool := func(kind, name, cluster, secret string) string {
		return fmt.Sprintf(
			"apiVersion: cluster.x-k8s.io/v1beta2\nkind: %s\nmetadata: {name: %s, namespace: team-a, annotations: {capi-proxy-patcher.io/secret: %s}}\nspec: {clusterName: %s}\n", kind, name, secret, cluster)
	}
	deployments, pools := strings.Replace(clustersPath, "/clusters", "/machinedeployments", 1),
		strings.Replace(clustersPath, "/clusters", "/machinepools", 1)
	return newAPI(t, map[string]string{
		clustersPath:                list,
		clustersPath + "/prod":      liveCluster,
		secretsPath + "/http-proxy": liveSecret,
		secretsPath + "/edge-proxy": strings.NewReplacer("name: http-proxy", "name: edge-proxy",
			"LmNvcnAuZXhhbXBsZS5vcmc=", "ZWRnZS5leGFtcGxlLm9yZw==").Replace(liveSecret),
		"/api/v1/namespaces/system/secrets/default": strings.Replace(liveSecret, "LmNvcnAuZXhhbXBsZS5vcmc=", "aW5zdGFsbGF0aW9uLmV4YW1wbGUub3Jn", 1),
		deployments:            "kind: MachineDeploymentList\napiVersion: cluster.x-k8s.io/v1beta2\nitems: []\n",
		pools:                  "kind: MachinePoolList\napiVersion: cluster.x-k8s.io/v1beta2\nitems: []\n",
		deployments + "/edge":  pool("MachineDeployment", "edge", "prod", "edge-proxy"),
		deployments + "/other": pool("MachineDeployment", "other", "stage", "edge-proxy"),
		pools + "/big":         pool("MachinePool", "big", "prod", "edge-proxy"),
		pools + "/direct":      pool("MachinePool", "direct", "prod", "none"),
	})
}

func flow(t *testing.T, text string) string {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestExplain_ReadsAManagementCluster(t *testing.T) {
	t.Parallel()
	a := live(t)
	status, stdout, stderr := run(t, "", "explain", "--kubeconfig", a.kubeconfig(t), "--context", "mgmt", "--cluster",
		"prod", "--client", "go,curl@7.88.1,wget")
	if status != 0 || stderr != "" {
		t.Fatalf("exit status %d, standard error %s", status, stderr)
	}
	golden.Equal(t, "testdata/explain/live.txt", stdout)
	want := []string{
		"GET " + clustersPath + "/prod", "GET " + secretsPath + "/prod-proxy-files",
		"GET " + strings.Replace(clustersPath, "/clusters", "/machinedeployments", 1),
		"GET " + strings.Replace(clustersPath, "/clusters", "/machinepools", 1), "GET " + secretsPath + "/prod-http-proxy", "GET " +
			secretsPath + "/http-proxy",
	}
	asked := slices.Compact(a.asked)
	if !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	if strings.Contains(stdout, "s3cr") || strings.Contains(stdout, "node@") {
		t.Error("a credential in the output")
	}
}

// TestExplain_AgreesLiveAndOnManifests resolves the same objects from files and from the API.
func TestExplain_AgreesLiveAndOnManifests(t *testing.T) {
	t.Parallel()
	a := live(t)
	file := folder(t, map[string]string{"all.yaml": liveCluster + "---" + liveSecret}) + "/all.yaml"
	_, fromAPI, _ := run(t, "", "explain", "--kubeconfig", a.kubeconfig(t), "--cluster", "prod", "-o", "json")
	_, fromFile, _ := run(t, "", "explain", "-f", file, "-o", "json")
	if fromAPI == "" || fromAPI != fromFile {
		t.Errorf("from the API\n%s\nfrom the file\n%s", fromAPI, fromFile)
	}
}

// TestExplain_ShowsMirrorsOfAManagementCluster has a control plane, two pools with one template, one with a KubeadmConfig
// and one with a proxy Secret of its own.
func TestExplain_ShowsMirrorsOfAManagementCluster(t *testing.T) {
	t.Parallel()
	a := live(t)
	objects := map[string]string{
		clustersPath + "/prod": liveCluster + "  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: cp}\n",
	}
	hosts := func(mirror string) string {
		return `{files: [{path: /etc/containerd/certs.d/docker.io/hosts.toml, content: '[host."https://` + mirror + `"]'}]}`
	}
	object := func(group, resource, kind, name, spec string) {
		text := fmt.Sprintf("apiVersion: %s/v1beta2\nkind: %s\nmetadata: {name: %s, namespace: team-a}\nspec: %s\n", group, kind, name, spec)
		objects["/apis/"+group+"/v1beta2/namespaces/team-a/"+resource+"/"+name] = text
	}
	object("controlplane.cluster.x-k8s.io", "kubeadmcontrolplanes", "KubeadmControlPlane", "cp", "{kubeadmConfigSpec: "+hosts("one.corp.example.org")+"}")
	const bootstrap = "bootstrap.cluster.x-k8s.io"
	object(bootstrap, "kubeadmconfigtemplates", "KubeadmConfigTemplate", "shared", "{template: {spec: "+hosts("two.example.net")+"}}")
	object(bootstrap, "kubeadmconfigtemplates", "KubeadmConfigTemplate", "own", "{template: {spec: "+hosts("three.edge.example.org")+"}}")
	object(bootstrap, "kubeadmconfigs", "KubeadmConfig", "big", hosts("four.corp.example.org"))
	pool := func(kind, name, annotations, reference string) string {
		return fmt.Sprintf("apiVersion: cluster.x-k8s.io/v1beta2\nkind: %s\nmetadata: {name: %s, namespace: team-a, annotations: {%s}}\n"+
			"spec: {clusterName: prod, template: {spec: {clusterName: prod, bootstrap: {configRef: {apiGroup: %s, kind: %s}}}}}\n",
			kind, name, annotations, bootstrap, reference)
	}
	deployments := []string{
		pool("MachineDeployment", "a", "", "KubeadmConfigTemplate, name: shared"), pool("MachineDeployment", "b", "", "KubeadmConfigTemplate, name: shared"),
		pool("MachineDeployment", "c", "", "RKE2ConfigTemplate, name: foreign"), pool("MachineDeployment", "gone", "", "KubeadmConfigTemplate, name: gone"),
		pool("MachineDeployment", "edge", "capi-proxy-patcher.io/secret: edge-proxy", "KubeadmConfigTemplate, name: own"),
	}
	big := pool("MachinePool", "big", "", "KubeadmConfig, name: big")
	manifests := liveSecret + "---\n" + strings.NewReplacer("name: http-proxy", "name: edge-proxy", "LmNvcnAuZXhhbXBsZS5vcmc=", "ZWRnZS5leGFtcGxlLm9yZw==").Replace(liveSecret) +
		"---\n" + strings.Join(append(deployments, big), "---\n")
	for path, text := range objects {
		manifests += "---\n" + text
		a.objects[path] = flow(t, text)
	}
	list := func(resource, kind string, items ...string) {
		text := "apiVersion: cluster.x-k8s.io/v1beta2\nkind: " + kind + "List\nitems: ["
		for _, item := range items {
			text += flow(t, item) + ", "
		}
		a.objects[strings.Replace(clustersPath, "/clusters", "/"+resource, 1)] = flow(t, text+"]")
	}
	list("machinedeployments", "MachineDeployment", deployments...)
	list("machinepools", "MachinePool", big)
	kubeconfig, file := a.kubeconfig(t), folder(t, map[string]string{"all.yaml": manifests})+"/all.yaml"
	for args, mirrors := range map[string]int{"--cluster prod": 3, "--cluster prod --pool edge": 1, "--cluster prod 10.96.0.1": 0} {
		run := func(from ...string) string {
			status, stdout, stderr := run(t, "", append(append([]string{"explain", "-o", "json"}, from...), strings.Fields(args)...)...)
			if status != 0 || strings.Contains(stderr, "mirror") || strings.Count(stdout, `"mirror of docker.io in `) != mirrors {
				t.Errorf("%s %q: exit status %d, %s%s", args, from, status, stderr, stdout)
			}
			return stdout
		}
		if diff := cmp.Diff(run("-f", file), run("--kubeconfig", kubeconfig)); diff != "" {
			t.Errorf("%s (-manifests +API server):\n%s", args, diff)
		}
	}
	delete(a.objects, strings.Replace(clustersPath, "/clusters", "/machinepools", 1))
	status, stdout, stderr := run(t, "", "explain", "--kubeconfig", kubeconfig, "--cluster", "prod")
	if status != 0 || !strings.HasPrefix(stderr, "registry mirrors are not shown: listing MachinePools: ") || !strings.Contains(stdout, "cp.example.org") {
		t.Errorf("exit status %d, %s%s", status, stderr, stdout)
	}
}

func TestExplain_SaysWhatIsWrongInAManagementCluster(t *testing.T) {
	t.Parallel()
	a := live(t)
	kubeconfig := a.kubeconfig(t)
	t.Cleanup(func() { // when all of them are done
		for _, asked := range a.asked {
			if !strings.HasPrefix(asked, "GET ") {
				t.Errorf("asked %s", asked)
			}
		}
		if len(a.asked) < 20 {
			t.Errorf("asked only %q", a.asked)
		}
	})
	for name, test := range map[string]struct {
		args   string
		status int
		want   string // on standard error if the status is not 0
	}{
		"the pool's own Secret":       {"--cluster prod --pool edge edge.example.org", 0, "edge.example.org (Secret team-a/edge-proxy, key noProxy entry 1)"},
		"that of a MachinePool":       {"--cluster prod --pool big edge.example.org", 0, "Secret team-a/edge-proxy"},
		"the installation's entries":  {"--cluster prod --default-proxy-secret system/default installation.example.org", 0, "Secret system/default, key noProxy entry 1"},
		"a list of one's own":         {"--cluster prod --no-proxy 172.20.0.0/16 --fail-on go 172.20.0.9", 0, "172.20.0.0/16 (entry 1)"},
		"a name with its namespace":   {"--namespace other --cluster team-a/prod cp.example.org", 0, "Cluster team-a/prod"},
		"a gate":                      {"--cluster prod --no-proxy .svc --fail-on go 10.244.0.17", 3, "10.244.0.17: proxied by go-httpproxy@x/net-0.62.0"},
		"a pool without proxy":        {"--cluster prod --pool direct", 1, "pool direct uses no proxy"},
		"a pool of another Cluster":   {"--cluster prod --pool other", 1, "Cluster team-a/prod has neither a MachineDeployment nor a MachinePool other"},
		"an unknown pool":             {"--cluster prod --pool x", 1, "Cluster team-a/prod has neither a MachineDeployment nor a MachinePool x"},
		"an unknown Cluster":          {"--cluster prd", 1, "Cluster team-a/prd not found; found: team-a/prod, team-a/stage"},
		"several Clusters":            {"", 1, "several Clusters; choose one with --cluster: team-a/prod, team-a/stage"},
		"a namespace without any":     {"--namespace team-b", 1, "listing Clusters in namespace team-b"},
		"an unknown context":          {"--context prod", 1, `context "prod" does not exist`},
		"a user who may not":          {"--context nobody --cluster prod", 1, "reading Cluster team-a/prod: clusters is forbidden"},
		"an installation that is not": {"--cluster prod --default-proxy-secret system/none", 1, "the installation-wide Secret system/none does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, stdout, stderr := run(t, "",
				append([]string{"explain", "--kubeconfig", kubeconfig}, strings.Fields(test.args)...)...)
			where := stderr
			if test.status == 0 {
				where = stdout
			}
			if status != test.status || !strings.Contains(where, test.want) {
				t.Errorf("exit status %d, want %d; standard error %s; output\n%s\nwant %s", status, test.status, stderr,
					stdout, test.want)
			}
			if strings.Contains(stdout+stderr, "s3cr") {
				t.Error("a credential in the output")
			}
		})
	}
}

func TestCompletion_OffersClustersAndTheirNamespaces(t *testing.T) {
	t.Parallel()
	list := func(names ...string) string {
		text := "apiVersion: meta.k8s.io/v1\nkind: PartialObjectMetadataList\nitems:\n"
		for _, name := range names {
			namespace, name, _ := strings.Cut(name, "/")
			text += fmt.Sprintf("- {apiVersion: meta.k8s.io/v1, kind: PartialObjectMetadata, metadata: {namespace: %s, name: %s}}\n", namespace, name)
		}
		return text
	}
	server := newAPI(t, map[string]string{
		clustersPath: list("team-a/stage", "team-a/prod"),
		strings.Replace(clustersPath, "/team-a/", "/team-b/", 1): list("team-b/edge"),
		"/apis/cluster.x-k8s.io/v1beta2/clusters":                list("team-a/stage", "team-b/edge", "team-a/prod"),
	})
	config := server.kubeconfig(t)
	for line, want := range map[string]string{
		"status --cluster ":                "prod\nstage\n:4\n",
		"status ":                          "prod\nstage\n:4\n",
		"status -A ":                       "edge\nprod\nstage\n:4\n",
		"status --namespace ":              "team-a\nteam-b\n:4\n",
		"plan --namespace ":                "team-a\nteam-b\n:4\n",
		"plan -n team-b --cluster ":        "edge\n:4\n",
		"explain --cluster ":               "prod\nstage\n:4\n",
		"explain -n ":                      "team-a\nteam-b\n:4\n",
		"plan --context nobody --cluster ": ":1\n",
	} {
		args := strings.Split(line, " ")
		args = slices.Insert(args, 1, "--kubeconfig", config)
		if _, stdout, stderr := run(t, "", append([]string{"__complete"}, args...)...); stdout != want {
			t.Errorf("%s: %q, want %q; standard error %q", line, stdout, want, stderr)
		}
	}
}
