package main

import (
	"strings"
	"testing"
)

// topologyCluster has a proxy Secret, an entry and two pools with Secrets of their own, all through its topology.
const topologyCluster = `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: prod, namespace: team-a, labels: {capi-proxy-patcher.io/enabled: "true"}}
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}, services: {cidrBlocks: [10.96.0.0/12]}, serviceDomain: cluster.local}
  controlPlaneEndpoint: {host: cp.example.org, port: 6443}
  topology:
    classRef: {name: proxied}
    version: v1.36.3
    variables:
    - name: capiProxyPatcher
      value: {secretName: corp, noProxy: [from.the.variable.example.org]}
    workers:
      machineDeployments:
      - {class: default-worker, name: edge, variables: {overrides: [{name: capiProxyPatcher, value: {secretName: edge-proxy}}]}}
      - {class: default-worker, name: direct, metadata: {annotations: {capi-proxy-patcher.io/secret: none}}}
`

const (
	corpSecret = `apiVersion: v1
kind: Secret
metadata: {name: corp, namespace: team-a, labels: {capi-proxy-patcher.io/proxy: ""}}
data:
  httpProxy: aHR0cDovL3Byb3h5LmV4YW1wbGUuY29tOjMxMjg=
  noProxy: Y29ycC5leGFtcGxlLm9yZw==
`
	edgeSecret = `apiVersion: v1
kind: Secret
metadata: {name: edge-proxy, namespace: team-a, labels: {capi-proxy-patcher.io/proxy: ""}}
data:
  httpProxy: aHR0cDovL3Byb3h5LmV4YW1wbGUuY29tOjMxMjg=
  noProxy: ZWRnZS5leGFtcGxlLm9yZw==
`
)

func TestExplain_ReadsTheTopology(t *testing.T) {
	t.Parallel()
	files := folder(t, map[string]string{
		"all.yaml":     topologyCluster + "---\n" + corpSecret + "---\n" + edgeSecret,
		"invalid.yaml": strings.Replace(topologyCluster, "from.the.variable.example.org", "10.0.0.0/99", 1),
	})
	a := newAPI(t, map[string]string{
		clustersPath + "/prod":      topologyCluster,
		secretsPath + "/corp":       corpSecret,
		secretsPath + "/edge-proxy": edgeSecret,
	})
	broken := newAPI(t,
		map[string]string{clustersPath + "/prod": strings.Replace(topologyCluster, "from.the.variable.example.org",
			"10.0.0.0/99", 1)})
	for name, test := range map[string]struct {
		args   string
		status int
		want   string // on standard error if the status is not 0
	}{
		"the Secret that the variable names": {"corp.example.org", 0, "corp.example.org (Secret team-a/corp, key noProxy entry 1)"},
		"an entry of the variable":           {"from.the.variable.example.org", 0, "from.the.variable.example.org (variable capiProxyPatcher.noProxy entry 1)"},
		"the Secret of a pool":               {"--pool edge edge.example.org", 0, "edge.example.org (Secret team-a/edge-proxy, key noProxy entry 1)"},
		"the variable counts for a pool":     {"--pool edge from.the.variable.example.org", 0, "variable capiProxyPatcher.noProxy entry 1"},
		"a pool without proxy":               {"--pool direct x.example.org", 1, `pool direct uses no proxy (its Secret is "none")`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for from, source := range map[string][]string{
				"manifests": {"-f", files + "/all.yaml"}, "a management cluster": {"--kubeconfig", a.kubeconfig(t), "--cluster", "prod"},
			} {
				status, stdout, stderr := run(t, "",
					append(append([]string{"explain"}, source...), strings.Fields(test.args)...)...)
				where := stderr
				if test.status == 0 {
					where = stdout
				}
				if status != test.status || !strings.Contains(where, test.want) {
					t.Errorf("from %s: exit status %d, want %d; standard error %s; output\n%s\nwant %s", from, status, test.status,
						stderr, stdout, test.want)
				}
			}
		})
	}

	const wrong = "spec.topology.variables[capiProxyPatcher].noProxy[0]"
	for from, source := range map[string][]string{
		"manifests": {"-f", files + "/invalid.yaml"}, "a management cluster": {"--kubeconfig", broken.kubeconfig(t), "--cluster", "prod"},
	} {
		status, _, stderr := run(t, "", append([]string{"explain"}, append(source, "x.example.org")...)...)
		if status != 1 || !strings.Contains(stderr, wrong) {
			t.Errorf("an entry that is none, from %s: exit status %d, standard error %s, want %s", from, status, stderr, wrong)
		}
	}
	status, _, stderr := run(t, "", "explain", "-f", files+"/all.yaml", "--pool", "x", "x.example.org")
	if status != 1 || !strings.Contains(stderr, "Cluster team-a/prod has no pool x in the input; found: edge, direct") {
		t.Errorf("an unknown pool: exit status %d, standard error %s", status, stderr)
	}
}

func TestLint_ReadsTheTopology(t *testing.T) {
	t.Parallel()
	bad := strings.Replace(edgeSecret, "aHR0cDovL3Byb3h5LmV4YW1wbGUuY29tOjMxMjg=", "eA==", 1)
	for name, test := range map[string]struct{ input, want string }{
		"nothing to say":                {topologyCluster + "---\n" + corpSecret + "---\n" + edgeSecret, "0 rejections, 0 warnings, 1 note in 1 labelled Cluster and 2 proxy Secrets"},
		"the Secret of a pool":          {topologyCluster + "---\n" + corpSecret + "---\n" + bad, "Secret team-a/edge-proxy, key httpProxy"},
		"a value of the variable":       {strings.Replace(topologyCluster, "from.the.variable.example.org", "10.0.0.0/99", 1) + "---\n" + corpSecret + "---\n" + edgeSecret, "spec.topology.variables[capiProxyPatcher].noProxy[0]"},
		"an entry that covers too much": {strings.Replace(topologyCluster, "from.the.variable.example.org", "0.0.0.0/0", 1) + "---\n" + corpSecret + "---\n" + edgeSecret, "variable capiProxyPatcher.noProxy entry 1"},
	} {
		_, stdout, stderr := run(t, test.input, "lint", "-f", "-")
		if !strings.Contains(stdout, test.want) || stderr != "" {
			t.Errorf("%s: output\n%s\nstandard error %s\nwant %s", name, stdout, stderr, test.want)
		}
	}
}
