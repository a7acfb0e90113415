//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	outputs "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// usersPart is what the templates of a class have of their user, with the indentation of templates/clusterclass-*.yaml.
const usersPart = `files:
{{indent}}- path: /etc/motd
{{indent}}  owner: root:root
{{indent}}  permissions: "0644"
{{indent}}  content: |
{{indent}}    50% of this "node" is $HOME.
{{indent}}preKubeadmCommands:
{{indent}}- echo before kubeadm
{{indent}}postKubeadmCommands:
{{indent}}- echo after kubeadm`

// externalEtcd is what a control plane needs here.
const externalEtcd = `clusterConfiguration:
{{indent}}  etcd:
{{indent}}    external:
{{indent}}      endpoints:
{{indent}}      - https://etcd.example.com:2379
{{indent}}      caFile: /etc/kubernetes/pki/etcd/ca.crt
{{indent}}      certFile: /etc/kubernetes/pki/apiserver-etcd-client.crt
{{indent}}      keyFile: /etc/kubernetes/pki/apiserver-etcd-client.key
{{indent}}`

// classy are the options of a Cluster of a ClusterClass, with the template that users copy.
func classy(o options) options {
	o.from = cmp.Or(o.from, "../../templates/cluster-template-clusterclass.yaml")
	variables := map[string]string{
		"INFRASTRUCTURE_PREFIX": "Local", "POD_CIDR": `["10.244.0.0/16"]`, "SERVICE_CIDR": `["10.128.0.0/16"]`,
	}
	maps.Copy(variables, o.variables)
	o.variables = variables
	return o
}

// applyClass applies the ClusterClass that users copy, with files and commands of its user. edit may be nil.
func (c *cluster) applyClass(t *testing.T, name string, edit func(string) string) {
	t.Helper()
	c.applyClassOf(t, "../../templates/clusterclass-proxied.yaml", name, edit)
}

// applyClassOf is applyClass with another file.
func (c *cluster) applyClassOf(t *testing.T, path, name string, edit func(string) string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	manifest := string(text)
	for _, part := range []struct{ kind, indent, prefix string }{
		{"a control-plane node", "        ", externalEtcd}, {"a worker", "      ", ""},
	} {
		command := "preKubeadmCommands:\n" + part.indent + `- echo "bootstrapping ` + part.kind + `"`
		if !strings.Contains(manifest, command) {
			t.Fatalf("the class has no %q", command)
		}
		manifest = strings.Replace(manifest, command, strings.ReplaceAll(part.prefix+usersPart, "{{indent}}", part.indent), 1)
	}
	if edit != nil {
		manifest = edit(manifest)
	}
	file := t.TempDir() + "/class.yaml"
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := []string{"NAMESPACE=" + c.namespace, "CLUSTER_CLASS=" + name, "INFRASTRUCTURE_PREFIX=Local"}
	c.kubectl(t, c.clusterctl(t, environment, "generate", "yaml", "--from", file), "apply", "-f", "-")
}

// ofTopologyControlPlane identifies the Machines of the control plane; names of a topology have a random part.
func ofTopologyControlPlane(name string) bool { return !strings.HasPrefix(name, "work-md-") }

// owned returns the control plane and the bootstrap templates that pools of the Cluster use.
func (c *cluster) owned(t *testing.T) []client.Object {
	t.Helper()
	cluster := get[clusterv1.Cluster](t, c, c.name)
	objects := []client.Object{get[controlplanev1.KubeadmControlPlane](t, c, cluster.Spec.ControlPlaneRef.Name)}
	var deployments clusterv1.MachineDeploymentList
	if err := c.client.List(t.Context(), &deployments, client.InNamespace(c.namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: c.name}); err != nil {
		t.Fatal(err)
	}
	for _, deployment := range deployments.Items {
		objects = append(objects,
			get[bootstrapv1.KubeadmConfigTemplate](t, c, deployment.Spec.Template.Spec.Bootstrap.ConfigRef.Name))
	}
	return objects
}

// waitOwned waits until all objects of the topology carry the proxy, or none does.
func (c *cluster) waitOwned(t *testing.T, patched bool) {
	t.Helper()
	eventually(t, func() error {
		for _, o := range c.owned(t) {
			spec := &bootstrapv1.KubeadmConfigSpec{}
			switch object := o.(type) {
			case *controlplanev1.KubeadmControlPlane:
				spec = &object.Spec.KubeadmConfigSpec
			case *bootstrapv1.KubeadmConfigTemplate:
				spec = &object.Spec.Template.Spec
			}
			if patch.IsPatched(api.Spec(spec)) != patched {
				return fmt.Errorf("%s: carries the proxy: %v", o.GetName(), !patched)
			}
		}
		return nil
	})
}

// upgrade has the user upgrade Kubernetes.
func (c *cluster) upgrade(t *testing.T) {
	t.Helper()
	c.kubectl(t, "", "patch", "cluster", c.name, "--type", "merge", "-p", `{"spec":{"topology":{"version":"`+
		nextVersion+`"}}}`)
}

// waitTopology waits until the topology controller has nothing left to do.
func (c *cluster) waitTopology(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		conditions := get[clusterv1.Cluster](t, c, c.name).Status.Conditions
		if !meta.IsStatusConditionTrue(conditions, clusterv1.ClusterTopologyReconciledCondition) {
			return fmt.Errorf("the topology is not reconciled: %+v", conditions)
		}
		return nil
	})
}

func TestClusterClass(t *testing.T) {
	t.Parallel()
	c := newCluster(t, start(t), classy(options{controlPlanes: 1, workers: 1}))
	c.applyClass(t, "proxied", nil)
	c.apply(t)
	c.kubectl(t, "", "annotate", "cluster", c.name, outputs.AnnotationPublish+"=env,annotations")
	machines := c.waitRunning(t, 2)
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	c.waitPublished(t, outputs.ReasonPublished)
	c.waitTopology(t)
	c.staysCalm(t, machines)
	c.checkBoots(t, 2, want{proxy: proxyURL}, everyBoot)
	c.checkGenerated(t)
	if owned := c.owned(t); len(owned) != 2 || len(c.rewritten(t, owned...)) > 0 {
		t.Errorf("generations are %v: the topology controller writes what is there already", vocabulary.Generations(owned...))
	}

	// A changed Secret, and an entry more in the variable, change no template.
	changedURL := strings.ReplaceAll(proxyURL, "proxy.corp.example:3128", "other.corp.example:3129")
	c.kubectl(t, strings.ReplaceAll(proxySecret, "proxy.corp.example:3128", "other.corp.example:3129"), "apply", "-f", "-")
	c.kubectl(t, "", "patch", "cluster", c.name, "--type", "merge", "-p",
		`{"spec":{"topology":{"variables":[{"name":"capiProxyPatcher","value":{"noProxy":["extra.corp.example"]}}]}}}`)
	c.waitBehind(t, 2)
	eventually(t, func() error {
		now, _ := c.outputs(t)
		if noProxy := now["work-proxy-outputs NO_PROXY"]; !strings.Contains(noProxy, "extra.corp.example") ||
			now[outputs.AnnotationNoProxy] != noProxy || now["work-proxy-outputs HTTPS_PROXY"] != changedURL {
			return fmt.Errorf("outputs are %q", now)
		}
		return nil
	})
	c.staysCalm(t, machines)
	if owned := c.owned(t); len(owned) != 2 || len(c.rewritten(t, owned...)) > 0 {
		t.Errorf("generations are %v after a change of values", vocabulary.Generations(owned...))
	}

	// Immediate replaces both, through the topology.
	c.kubectl(t, "", "annotate", "cluster", c.name, contract.AnnotationRollout+"="+contract.RolloutImmediate)
	replaced := c.waitReplaced(t, machines, 2, anyMachine)
	c.waitBehind(t, 0)
	c.staysCalm(t, replaced)
	c.checkBoots(t, 2, want{proxy: changedURL, entries: []string{"extra.corp.example"}}, since(machines))

	// Without the label, at once as well.
	c.unlabel(t)
	c.waitOwned(t, false)
	last := c.waitReplaced(t, replaced, 2, anyMachine)
	c.checkBoots(t, 2, want{}, since(machines, replaced))
	c.staysCalm(t, last)
}

func TestClusterClass_IsFrozenUntilTheUpgrade(t *testing.T) {
	t.Parallel()
	c := newCluster(t, start(t), classy(options{controlPlanes: 1, workers: 1, edit: unlabelled}))
	c.applyClass(t, "proxied", nil)
	c.apply(t)
	machines := c.waitRunning(t, 2)
	c.waitTopology(t)
	c.checkBoots(t, 2, want{}, everyBoot)

	c.label(t)
	c.waitCondition(t, metav1.ConditionFalse, contract.ReasonWaitingForRollout)
	c.staysCalm(t, machines)
	c.waitOwned(t, false)
	c.upgrade(t)
	c.waitOwned(t, true)
	upgraded := c.waitReplaced(t, machines, 2, anyMachine)
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	c.staysCalm(t, upgraded)
	// Each was replaced once, for the upgrade, and has the proxy.
	c.checkBoots(t, 2, want{proxy: proxyURL}, since(machines))
	if hold := get[clusterv1.Cluster](t, c, c.name).Annotations[contract.AnnotationTopologyHold]; hold != "" {
		t.Errorf("the Cluster is still held: %s", hold)
	}

	// The way back waits as well.
	c.unlabel(t)
	c.waitCondition(t, metav1.ConditionFalse, contract.ReasonRemovalWaiting)
	c.staysCalm(t, upgraded)
	c.waitOwned(t, true)
}

func TestClusterClass_LabelledDuringAnUpgrade(t *testing.T) {
	t.Parallel()
	c := newCluster(t, start(t), classy(options{controlPlanes: 1, workers: 1, edit: func(manifest string) string {
		return unlabelled(annotatedPool(t, manifest, clusterv1.ClusterTopologyDeferUpgradeAnnotation, ""))
	}}))
	c.applyClass(t, "proxied", nil)
	c.apply(t)
	machines := c.waitRunning(t, 2)
	c.waitTopology(t)
	c.upgrade(t)
	halfway := c.waitReplaced(t, machines, 2, ofTopologyControlPlane)

	c.label(t)
	c.waitCondition(t, metav1.ConditionFalse, contract.ReasonWaitingForRollout)
	c.staysCalm(t, halfway)
	c.kubectl(t, "", "patch", "cluster", c.name, "--type", "json", "-p",
		`[{"op": "remove", "path": "/spec/topology/workers/machineDeployments/0/metadata"}]`)
	upgraded := c.waitReplaced(t, halfway, 2, func(name string) bool { return !ofTopologyControlPlane(name) })
	c.waitTopology(t)
	c.staysCalm(t, upgraded)
	c.waitOwned(t, false)
	c.checkBoots(t, 4, want{}, everyBoot)
}

func TestClusterClass_IsRebased(t *testing.T) {
	t.Parallel()
	c := newCluster(t, start(t),
		classy(options{controlPlanes: 1, workers: 1, variables: map[string]string{"CLUSTER_CLASS": "bare"}}))
	c.applyClass(t, "bare", func(manifest string) string {
		begin, end := strings.Index(manifest, "  patches:\n"), strings.Index(manifest, "---\n")
		return manifest[:begin] + manifest[end:]
	})
	c.apply(t)
	machines := c.waitRunning(t, 2)
	c.checkBoots(t, 2, want{}, everyBoot)
	c.waitCondition(t, metav1.ConditionFalse, contract.ReasonTemplateNotSupported)

	c.applyClass(t, "proxied", nil)
	c.kubectl(t, "", "patch", "cluster", c.name, "--type", "merge", "-p",
		`{"spec":{"topology":{"classRef":{"name":"proxied"}}}}`)
	replaced := c.waitReplaced(t, machines, 2, anyMachine)
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	c.staysCalm(t, replaced)
	c.checkBoots(t, 2, want{proxy: proxyURL}, since(machines))
}

// annotatedPool adds an annotation to the pool in the topology of a manifest.
func annotatedPool(t *testing.T, manifest, key, value string) string {
	t.Helper()
	const pool = "        name: md-0\n"
	if !strings.Contains(manifest, pool) {
		t.Fatalf("no line %q in\n%s", pool, manifest)
	}
	return strings.Replace(manifest, pool, pool+
		fmt.Sprintf("        metadata:\n          annotations:\n            %s: %q\n", key, value), 1)
}

func TestClusterClass_WaitsForItsSecret(t *testing.T) {
	t.Parallel()
	c := newCluster(t, start(t), classy(options{controlPlanes: 1, workers: 1}))
	c.kubectl(t, "", "delete", "secret", "http-proxy")
	c.applyClass(t, "proxied", nil)
	c.apply(t)
	c.waitCondition(t, metav1.ConditionFalse, contract.ReasonSettingsNotFound)
	staysTrue(t, func() error {
		if boots := c.boots(); len(boots) > 0 {
			return fmt.Errorf("%d Machines booted while the proxy Secret is missing", len(boots))
		}
		return nil
	})
	c.kubectl(t, proxySecret, "apply", "-f", "-")
	machines := c.waitRunning(t, 2)
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	c.staysCalm(t, machines)
	c.checkBoots(t, 2, want{proxy: proxyURL}, everyBoot)
}

func TestClusterClass_WithAMachinePool(t *testing.T) {
	t.Parallel()
	c := newCluster(t, start(t), classy(options{
		controlPlanes: 1, workers: 2, from: "../../templates/cluster-template-clusterclass-machinepool.yaml",
	}))
	c.applyClassOf(t, "../../templates/clusterclass-proxied-machinepool.yaml", "proxied-machinepool", nil)
	c.apply(t)
	machines := c.waitRunning(t, 1)
	eventually(t, func() error {
		var pools clusterv1.MachinePoolList
		if err := c.client.List(t.Context(), &pools, client.InNamespace(c.namespace)); err != nil {
			return err
		}
		if len(pools.Items) != 1 || len(pools.Items[0].Status.NodeRefs) != 2 {
			return fmt.Errorf("the pool has no two Nodes: %+v", pools.Items)
		}
		return nil
	})
	c.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	c.staysCalm(t, machines)
	c.checkBoots(t, 2, want{proxy: proxyURL}, everyBoot) // the machines of a pool come up with the same data
}
