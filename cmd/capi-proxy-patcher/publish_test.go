package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// TestRender_PrintsTheAddonsOfTKGAsItsPageHasThem compares output tkg with the Secrets of the page, for a Cluster with
// the networks of TKG. Only the list has more entries, and the Secret of kapp-controller has only what is about the
// proxy, and the name, labels and annotations that the page leaves out.
func TestRender_PrintsTheAddonsOfTKGAsItsPageHasThem(t *testing.T) {
	t.Parallel()
	const input = `apiVersion: cluster.x-k8s.io/v1beta1
kind: Cluster
metadata: {name: cluster, namespace: default, labels: {capi-proxy-patcher.io/enabled: "true"}}
spec:
  clusterNetwork: {pods: {cidrBlocks: [100.96.0.0/11]}, services: {cidrBlocks: [100.64.0.0/13]}, serviceDomain: cluster.local}
  controlPlaneEndpoint: {host: cp.example.com, port: 6443}
---
`
	status, secret, stderr := run(t, "", "secret", "--from", "../../test/program/testdata/secret/tkg-config-values.yaml")
	if status != 0 {
		t.Fatal(stderr)
	}
	status, printed, stderr := run(t, input+secret, "render", "-f", "-", "--publish=tkg", "--publish-only")
	if status != 0 {
		t.Fatal(stderr)
	}
	const onPage = ".svc.cluster.local,.svc,localhost,127.0.0.1,100.64.0.0/13,100.96.0.0/11"
	const composed = "localhost,127.0.0.1,100.96.0.0/11,100.64.0.0/13,100.64.0.1,100.64.0.10,kubernetes,kubernetes.default," +
		".svc,.cluster.local,.cluster.local.,cp.example.com,169.254.169.254,169.254.0.0/16,.svc.cluster.local"
	got := vocabulary.Decode(t, strings.ReplaceAll(printed, composed, onPage))
	if len(got) != 3 {
		t.Fatalf("got\n%s", printed)
	}
	for i, page := range []string{"tkg-cpi-addon.yaml", "tkg-csi-addon.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../test/program/testdata/secret", page))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(vocabulary.Decode(t, string(text))[0], got[i]); diff != "" {
			t.Error(diff)
		}
	}
	want := vocabulary.Decode(t, `apiVersion: v1
kind: Secret
metadata:
  name: cluster-kapp-controller-addon
  namespace: default
  labels: {tkg.tanzu.vmware.com/addon-name: kapp-controller, tkg.tanzu.vmware.com/cluster-name: cluster}
  annotations: {tkg.tanzu.vmware.com/addon-type: addons-management/kapp-controller, tkg.tanzu.vmware.com/remote-app: "true"}
type: tkg.tanzu.vmware.com/addon
stringData:
  values.yaml: |
    kappController:
      config:
        httpProxy: http://asdf
        httpsProxy: https://asdf2
        noProxy: `+onPage+"\n")[0]
	if diff := cmp.Diff(want, got[2]); diff != "" {
		t.Error(diff)
	}
}

// TestPublishPage_CommandsWork runs what docs/publish.md shows of this program, on an example of each of the four
// systems, and on one Cluster that is made of the first one's Secret.
func TestPublishPage_CommandsWork(t *testing.T) {
	page, err := os.ReadFile("../../docs/publish.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Abs("../../test/program/testdata/secret")
	if err != nil {
		t.Fatal(err)
	}
	example := func(name string) string {
		text, err := os.ReadFile(filepath.Join(examples, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	cluster := `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: %s, labels: {capi-proxy-patcher.io/enabled: "true"}, annotations: {capi-proxy-patcher.io/publish: pods}}
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}, services: {cidrBlocks: [10.96.0.0/12]}, serviceDomain: cluster.local}
  controlPlaneEndpoint: {host: cp.example.com, port: 6443}
  controlPlaneRef: {kind: KubeadmControlPlane, name: c}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: c}
spec: {version: v1.36.3}
---
`
	_, secret, _ := run(t, example("aks-example-complete.json"), "secret", "--from", "-")
	dir := folder(t, map[string]string{
		"aks-proxy-config.json": example("aks-example-complete.json"), "proxy-secret.yaml": secret,
		"cluster-config.yaml": example("tkg-config.yaml"), "values.yaml": example("cloudzero-gke.yaml"),
	})
	if err := os.Mkdir(filepath.Join(dir, "clusters"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"prod": secret, "mgmt": ""} {
		text = strings.ReplaceAll(strings.Replace(cluster, "%s", name, 1), "name: c}", "name: "+name+"}") + text
		if err := os.WriteFile(filepath.Join(dir, "clusters", name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	ran := 0
	for line := range strings.Lines(strings.ReplaceAll(string(page), "`", "\n")) {
		_, command, found := strings.Cut(line, "capi-proxy-patcher ")
		words := strings.Fields(strings.FieldsFunc(command+" ", func(r rune) bool { return r == '>' || r == '|' })[0])
		if !found || len(words) < 2 || strings.HasPrefix(strings.TrimSpace(line), "capi-proxy-patcher.io") {
			continue
		}
		ran++
		if status, stdout, stderr := run(t, example("tkg-config-values.yaml"), words...); status != 0 || stdout == "" {
			t.Errorf("%q: exit status %d, standard error %s", words, status, stderr)
		}
	}
	if ran < 10 {
		t.Errorf("only %d commands", ran)
	}
}

func TestPublish_SaysHowAListIsGiven(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--publish env":   `got 1; did you mean --publish=env?`,
		"--publish=a env": "got 1\n",
		"env":             "got 1\n",
		"--publish=istoi": `--publish: "istoi" is not an output; did you mean istio?` + "\n",
		"--publish=pods=": `--publish: `,
	} {
		status, stdout, stderr := run(t, clusterManifest, append([]string{"render", "-f", "-"}, strings.Fields(args)...)...)
		if status != 2 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit status %d, standard error %s", args, status, stderr)
		}
	}
}
