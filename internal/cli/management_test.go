package cli_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// managed are the Clusters and the proxy Secret of a management cluster that manages itself.
const managed = `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: mgmt, namespace: ns}
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.1.0.0/16]}, services: {cidrBlocks: [10.2.0.0/16]}, serviceDomain: mgmt.local}
  controlPlaneEndpoint: {host: mgmt.example.com, port: 6443}
---
apiVersion: cluster.x-k8s.io/v1beta1
kind: Cluster
metadata: {name: a, namespace: ns}
spec: {controlPlaneEndpoint: {host: 203.0.113.7, port: 6443}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: b, namespace: other}
---
apiVersion: v1
kind: Secret
metadata: {name: http-proxy, namespace: ns}
stringData: {httpProxy: "http://proxy.example.com:3128"}
`

// otherProviders are Deployments like those of the providers for Metal3 (envFrom), KubeVirt (its own NO_PROXY) and one
// with a reference of its own. That of Linode has no label.
const otherProviders = `apiVersion: apps/v1
kind: Deployment
metadata: {name: capm3, namespace: capm3-system, labels: {cluster.x-k8s.io/provider: infrastructure-metal3}}
spec:
  template: {spec: {containers: [{name: kube-rbac-proxy, image: p}, {name: manager, image: m, envFrom: [{configMapRef: {name: capm3fasttrack-configmap}}]}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: capk, namespace: capk-system, labels: {cluster.x-k8s.io/provider: infrastructure-kubevirt}}
spec:
  template: {spec: {containers: [{name: manager, image: m, env: [{name: NO_PROXY, value: "127.0.0.1,localhost"}, {name: MINE, value: x}]}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: capx, namespace: capx-system, labels: {cluster.x-k8s.io/provider: infrastructure-x}}
spec:
  template: {spec: {containers: [{name: manager, image: m, env: [{name: HTTP_PROXY, valueFrom: {configMapKeyRef: {name: c, key: k, optional: true}}}]}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: capl, namespace: capl-system, labels: {control-plane: controller-manager}}
spec:
  template: {spec: {containers: [{name: manager, image: m}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: unrelated, namespace: default}
spec:
  template: {spec: {containers: [{name: web, image: m}]}}
`

// providers builds the components of Cluster API and otherProviders with a Component.
func providers(t *testing.T, component string) []*unstructured.Unstructured {
	t.Helper()
	module, err := mgmt.ModuleDir(t.Context(), ".", "sigs.k8s.io/cluster-api")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	resources := ""
	for _, provider := range []string{"core", "bootstrap/kubeadm", "controlplane/kubeadm"} {
		path, err := filepath.Rel(dir, filepath.Join(module, provider, "config", "default"))
		if err != nil {
			t.Fatal(err)
		}
		resources += "- " + path + "\n"
	}
	resources += "- others.yaml\n"
	if err := os.Mkdir(filepath.Join(dir, "proxy"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"kustomization.yaml": "resources:\n" + resources + "components:\n- proxy\n", "proxy/kustomization.yaml": component,
		"others.yaml": otherProviders,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	objects, err := mgmt.Kustomize(dir)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// environments returns what the manager of each provider has in its environment, by namespace.
func environments(t *testing.T, objects []*unstructured.Unstructured) map[string]string {
	t.Helper()
	secrets, found := map[string]map[string]any{}, map[string]string{}
	for _, o := range objects {
		if o.GetKind() == "Secret" {
			data, _, _ := unstructured.NestedMap(o.Object, "data")
			secrets[o.GetNamespace()+"/"+o.GetName()] = data
		}
	}
	for _, o := range objects {
		if o.GetKind() != "Deployment" {
			continue
		}
		var deployment appsv1.Deployment
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &deployment); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(deployment.Spec.Template.Spec.Containers,
			func(c corev1.Container) bool { return c.Name == "manager" && c.Image != "" })
		if i < 0 {
			continue
		}
		container := deployment.Spec.Template.Spec.Containers[i]
		var lines []string
		if text := fmt.Sprint(o.Object); strings.Contains(text, "<nil>") {
			t.Errorf("there is a null in %s", text)
		}
		for _, v := range container.Env {
			switch {
			case v.Value != "" && v.ValueFrom != nil:
				t.Errorf("%s of %s has a value and a reference", v.Name, o.GetNamespace())
			case v.Value != "":
				lines = append(lines, v.Name+"="+v.Value)
			case v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil:
				reference := v.ValueFrom.SecretKeyRef
				text, err := base64.StdEncoding.DecodeString(fmt.Sprint(secrets[o.GetNamespace()+"/"+reference.Name][reference.Key]))
				if err != nil {
					t.Fatal(err)
				}
				lines = append(lines, v.Name+"="+string(text))
			}
		}
		for _, from := range container.EnvFrom {
			lines = append(lines, "from "+from.ConfigMapRef.Name)
		}
		slices.Sort(lines)
		found[o.GetNamespace()] = strings.Join(lines, "\n")
	}
	return found
}

func TestRenderForManagement_GivesProvidersTheVariables(t *testing.T) {
	t.Parallel()
	const noProxy = "localhost,127.0.0.1,10.1.0.0/16,10.2.0.0/16,10.2.0.1,10.2.0.10,kubernetes,kubernetes.default,.svc," +
		".mgmt.local,.mgmt.local.,mgmt.example.com,169.254.169.254,169.254.0.0/16,203.0.113.7"
	namespaces := []string{"capi-kubeadm-bootstrap-system", "capi-kubeadm-control-plane-system", "capi-system"}
	withPassword := strings.Replace(managed, `:3128"`, `:3128", username: u, password: "$(HOME)'%"`, 1)
	for name, tc := range map[string]struct {
		input, url string
		args       []string
	}{
		"in the Deployments": {input: managed + "---\n" + otherProviders, url: "http://proxy.example.com:3128"},
		"in a Secret of each namespace": {
			input: withPassword + "---\n" + otherProviders, url: "http://u:%24%28HOME%29%27%25@proxy.example.com:3128",
			args: []string{"--provider-namespace", strings.Join(namespaces, ",") + ",capx-system"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, component, stderr := run(t, tc.input,
				append([]string{"render", "--for", "management", "-f", "-", "--management-cluster", "ns/mgmt"}, tc.args...)...)
			if status != 0 || !strings.Contains(stderr, "Cluster other/b has no control-plane endpoint yet") ||
				!strings.Contains(stderr, "later Clusters") {
				t.Fatalf("exit status %d, standard error %s", status, stderr)
			}
			want := fmt.Sprintf("HTTPS_PROXY=%s\nHTTP_PROXY=%[1]s\nNO_PROXY=%s\nhttp_proxy=%[1]s\nhttps_proxy=%[1]s\nno_proxy=%[2]s", tc.url, noProxy)
			got := environments(t, providers(t, component))
			for _, namespace := range namespaces {
				if got[namespace] != want {
					t.Errorf("%s has\n%s\nwant\n%s", namespace, got[namespace], want)
				}
			}
			for namespace, want := range map[string]string{
				"capm3-system": strings.Replace(want, "http_proxy", "from capm3fasttrack-configmap\nhttp_proxy", 1), "capk-system": strings.Replace(want, "NO_PROXY", "MINE=x\nNO_PROXY", 1),
				"capx-system": want, "capl-system": "",
			} {
				if got[namespace] != want {
					t.Errorf("%s has\n%s\nwant\n%s", namespace, got[namespace], want)
				}
			}
			if len(got) != len(namespaces)+4 {
				t.Errorf("there are %d Deployments", len(got))
			}
			if !strings.Contains(stderr, "Deployment capl-system/capl: it has container manager and no label cluster.x-k8s.io/provider") ||
				strings.Contains(stderr, "unrelated") || strings.Contains(stderr, "capk") {
				t.Errorf("standard error %s", stderr)
			}
		})
	}
}

func TestRenderForManagement_TakesTheNetworkFromFlags(t *testing.T) {
	t.Parallel()
	status, component, stderr := run(t, managed, "render", "--for", "management", "-f", "-", "--pod-cidr", "10.5.0.0/16",
		"--service-cidr", "10.6.0.0/16", "--service-domain", "corp.local")
	if status != 0 || !strings.Contains(component,
		"localhost,127.0.0.1,10.5.0.0/16,10.6.0.0/16,10.6.0.1,10.6.0.10,kubernetes,kubernetes.default,.svc,.corp.local,"+
			".corp.local.,169.254.169.254,169.254.0.0/16,mgmt.example.com,") {
		t.Errorf("exit status %d, standard error %s, output\n%s", status, stderr, component)
	}
}

func TestRenderForManagement_Refuses(t *testing.T) {
	t.Parallel()
	const network = "--pod-cidr=10.5.0.0/16"
	withPassword := strings.Replace(managed, `:3128"`, `:3128", username: u, password: s3cr3t`, 1)
	deployment := managed + `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: capx, labels: {cluster.x-k8s.io/provider: x}}
spec: {template: {spec: {containers: [{name: controller}]}}}
`
	for name, tc := range map[string]struct {
		input, want string
		status      int
		args        []string
	}{
		"flags without --for":         {status: 2, want: "need --for", args: []string{network}},
		"another reader":              {status: 2, want: "unknown --for", args: []string{"--for=x"}},
		"no network":                  {status: 2, want: "give one of the two", args: []string{"--for=management"}},
		"two networks":                {status: 2, want: "give one of the two", args: []string{"--for=management", network, "--management-cluster=mgmt"}},
		"half a network":              {status: 2, want: "give both", args: []string{"--for=management", network}},
		"a Cluster that is not there": {input: managed, status: 1, want: "Cluster x not found; found: ns/mgmt, ns/a, other/b", args: []string{"--for=management", "--management-cluster=x"}},
		"two Clusters of that name":   {input: managed + "---\n" + strings.Replace(strings.SplitAfter(managed, "---\n")[0], "namespace: ns", "namespace: other", 1), status: 1, want: "several Clusters; choose one with --management-cluster", args: []string{"--for=management", "--management-cluster=mgmt"}},
		"no Secret":                   {input: strings.Replace(managed, "kind: Secret", "kind: ConfigMap", 1), status: 1, want: "--secret", args: []string{"--for=management", "--management-cluster=mgmt"}},
		"no namespace":                {input: withPassword, status: 1, want: "--provider-namespace", args: []string{"--for=management", "--management-cluster=mgmt"}},
		"another container":           {input: deployment, status: 1, want: "Deployment capx/d: it has label cluster.x-k8s.io/provider and no container manager", args: []string{"--for=management", "--management-cluster=mgmt", "--strict"}},
		"a warning with --strict":     {input: managed, status: 1, want: "nothing is written", args: []string{"--for=management", "--management-cluster=mgmt", "--strict"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, stdout, stderr := run(t, tc.input, append([]string{"render", "-f", "-"}, tc.args...)...)
			if status != tc.status || !strings.Contains(stderr, tc.want) || stdout != "" || strings.Contains(stderr, "s3cr3t") {
				t.Errorf("exit status %d, standard error %s, output %s", status, stderr, stdout)
			}
		})
	}
}
