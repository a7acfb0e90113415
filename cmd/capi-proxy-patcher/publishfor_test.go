package main

import (
	"encoding/base64"
	"strings"
	"testing"
)

// publishedCluster is a labelled Cluster that asks for outputs, with a proxy Secret of its own.
func publishedCluster(namespace, name, outputs string) string {
	return strings.NewReplacer("NAMESPACE", namespace, "NAME", name, "OUTPUTS", outputs).Replace(`---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata:
  name: NAME
  namespace: NAMESPACE
  labels: {capi-proxy-patcher.io/enabled: "true"}
  annotations: {capi-proxy-patcher.io/publish: "OUTPUTS", capi-proxy-patcher.io/publish-credentials: "true"}
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}, services: {cidrBlocks: [10.96.0.0/12]}, serviceDomain: cluster.local}
  controlPlaneEndpoint: {host: NAME.NAMESPACE.example.com, port: 6443}
  controlPlaneRef: {kind: KubeadmControlPlane, name: NAME}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: NAME, namespace: NAMESPACE}
spec: {version: v1.36.3}
---
apiVersion: v1
kind: Secret
metadata: {name: NAME-http-proxy, namespace: NAMESPACE}
stringData: {httpProxy: "http://of-NAME-NAMESPACE.example.com:3128", username: u, password: s3cr3t}
`)
}

// TestRender_PrintsObjectsForOneWorkloadCluster applies, in a manner of speaking, what is printed to a workload cluster,
// which must not get the values and credentials of another.
func TestRender_PrintsObjectsForOneWorkloadCluster(t *testing.T) {
	t.Parallel()
	prod, stage := publishedCluster("team-a", "prod", "pods,kapp-controller"), publishedCluster("team-a", "stage", "pods,env")
	elsewhere := publishedCluster("team-b", "prod", "pods")
	unlabelled := strings.Replace(stage, `"true"`, `"false"`, 1)
	without := strings.Replace(stage, "labels:", "x-labels:", 1)
	for name, tc := range map[string]struct {
		input, args string
		status      int
		// of are the Clusters whose values are printed; each says in standard error why there are none.
		of, says string
	}{
		"a single one":                     {input: prod, args: "--publish=pods --publish-only", of: "prod-team-a"},
		"two":                              {input: prod + stage, args: "--publish=pods --publish-only", status: 1, says: "several Clusters; choose one with --cluster: team-a/prod, team-a/stage"},
		"two, one of which has no label":   {input: without + prod, args: "--publish=pods --publish-only", status: 1, says: "several Clusters"},
		"two with --all":                   {input: prod + unlabelled, args: "--publish=pods --publish-only --all", status: 1, says: "several Clusters"},
		"the meshes of two":                {input: prod + stage, args: "--publish=istio --publish-only", status: 1, says: "several Clusters"},
		"the meshes of two with the rest":  {input: prod + stage, args: "--publish=istio", status: 1, says: "several Clusters"},
		"a chosen one":                     {input: prod + stage, args: "--publish=pods --publish-only --cluster stage", of: "stage-team-a"},
		"the mesh of a chosen one":         {input: prod + stage, args: "--publish=istio --publish-only --cluster prod", of: "prod-team-a"},
		"one of a name in two namespaces":  {input: prod + elsewhere, args: "--publish=pods --publish-only --cluster prod", status: 1, says: "several Clusters; choose one with --cluster: team-a/prod, team-b/prod"},
		"one chosen with its namespace":    {input: prod + elsewhere, args: "--publish=pods --publish-only --cluster team-b/prod", of: "prod-team-b"},
		"one that is not there":            {input: prod + stage, args: "--publish=pods --publish-only --cluster x", status: 1, says: "Cluster x not found; found: team-a/prod, team-a/stage"},
		"none":                             {input: secretManifest, args: "--publish=pods --publish-only", status: 1, says: "no Cluster in the input"},
		"one without the label":            {input: unlabelled, args: "--publish=pods --publish-only", says: "nothing is printed: standard input: document 1: Cluster team-a/stage: it has no label capi-proxy-patcher.io/enabled: \"true\""},
		"one without outputs":              {input: strings.Replace(stage, "pods,env", "", 1), args: "--publish-only", says: "nothing is printed: standard input: document 1: Cluster team-a/stage: it asks for no output; set annotation capi-proxy-patcher.io/publish, or give a list with --publish"},
		"one without an endpoint":          {input: strings.Replace(stage, "controlPlaneEndpoint", "x-endpoint", 1), args: "--publish=pods --publish-only", says: "spec.controlPlaneEndpoint is not set\nnothing is printed\n"},
		"one whose annotation has others":  {input: publishedCluster("team-a", "prod", "pods"), args: "--publish-only", says: "nothing is printed: standard input: document 1: Cluster team-a/prod: its outputs are for its workload cluster; name them with --publish=LIST"},
		"all that ask for nothing":         {input: unlabelled + strings.Replace(prod, "pods,kapp-controller", "", 1), args: "--publish-only", says: "nothing is printed: 2 Clusters have no label capi-proxy-patcher.io/enabled: \"true\", or ask for no output"},
		"all of an input without any":      {input: secretManifest, args: "--publish-only", says: "nothing is printed: the input has no Cluster"},
		"what is for the management alone": {input: prod + stage, args: "--publish=env --publish-only", of: "prod-team-a stage-team-a"},
		"that of one for the management":   {input: prod + stage, args: "--publish=env --publish-only --cluster team-a/prod", of: "prod-team-a"},
		"a Cluster without --publish":      {input: prod, args: "--cluster prod", status: 2, says: "--cluster needs --publish or --publish-only"},
		"both places":                      {input: prod, args: "--publish=env,pods --publish-only", status: 2, says: "print them one after the other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, stdout, stderr := run(t, tc.input, append([]string{"render", "-f", "-"}, strings.Fields(tc.args)...)...)
			if status != tc.status || !strings.Contains(stderr, tc.says) || status != 0 && stdout != "" ||
				strings.Contains(stderr, "s3cr3t") {
				t.Errorf("exit status %d, output\n%s\nstandard error\n%s", status, stdout, stderr)
			}
			if quiet := strings.Contains(stderr, "nothing is printed"); quiet != (tc.of == "" && status == 0) {
				t.Errorf("output\n%s\nstandard error\n%s", stdout, stderr)
			}
			for _, cluster := range []string{"prod-team-a", "stage-team-a", "prod-team-b"} {
				if got := strings.Contains(decoded(t, stdout), "of-"+cluster); got != strings.Contains(tc.of, cluster) {
					t.Errorf("values of %s: %t, in\n%s", cluster, got, stdout)
				}
			}
		})
	}
}

// decoded returns a text with the decoded form of all of its words that are base64.
func decoded(t *testing.T, text string) string {
	t.Helper()
	all := text
	for word := range strings.FieldsSeq(text) {
		if plain, err := base64.StdEncoding.DecodeString(word); err == nil {
			all += "\n" + string(plain)
		}
	}
	return all
}
