//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	outputs "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/nodedata"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/realsystemd"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// trusting adds a bundle of certificates to the manifest of a proxy Secret.
func trusting(t *testing.T, secret string) string {
	t.Helper()
	return strings.TrimSuffix(secret, "}}") + fmt.Sprintf(", trustedCA: %q}}", pki.Text(t))
}

// asking edits a manifest to one of a Cluster with more annotations.
func asking(annotations ...string) func(string) string {
	const first = "    example.com/team: "
	return func(manifest string) string {
		return strings.Replace(manifest, first, "    "+strings.Join(annotations, "\n    ")+"\n"+first, 1)
	}
}

// waitPublished waits for the condition about outputs; "" for none.
func (c *cluster) waitPublished(t *testing.T, reason string) {
	t.Helper()
	eventually(t, func() error {
		object := get[clusterv1.Cluster](t, c, c.name)
		condition := meta.FindStatusCondition(object.Status.Conditions, outputs.ConditionProxyPublished)
		if condition == nil && reason == "" || condition != nil && condition.Reason == reason &&
			condition.ObservedGeneration == object.Generation {
			return nil
		}
		return fmt.Errorf("the condition is %+v, want %s", condition, reason)
	})
}

// remote returns a client of the workload cluster, made of the kubeconfig that Cluster API has.
func (c *cluster) remote(t *testing.T) client.Client {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(get[corev1.Secret](t, c, c.name+"-kubeconfig").Data["value"])
	if err != nil {
		t.Fatal(err)
	}
	workload, err := vocabulary.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return workload
}

// delivered returns the certificates that the workload cluster has, and the version of the object; "" without one.
func delivered(t *testing.T, workload client.Client) (bundle, version string) {
	t.Helper()
	object := &corev1.ConfigMap{}
	err := workload.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "http-proxy-ca"}, object)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return object.Data["ca.crt"], object.ResourceVersion
}

// outputs returns what the outputs of the cluster hold in the management cluster, by the names of Secrets and
// annotations, and the versions of the Secrets.
func (c *cluster) outputs(t *testing.T) (content, versions map[string]string) {
	t.Helper()
	content, versions = map[string]string{}, map[string]string{}
	secrets := &corev1.SecretList{}
	if err := c.client.List(t.Context(), secrets, client.InNamespace(c.namespace), client.HasLabels{contract.LabelOutput}); err != nil {
		t.Fatal(err)
	}
	for i := range secrets.Items {
		secret := &secrets.Items[i]
		versions[secret.Name] = secret.ResourceVersion
		for key, value := range secret.Data {
			content[secret.Name+" "+key] = string(value)
		}
	}
	for key, value := range get[clusterv1.Cluster](t, c, c.name).Annotations {
		if strings.HasPrefix(key, contract.Domain+"/") && key != contract.AnnotationMachinesBehind {
			content[key] = value
		}
	}
	return content, versions
}

// checkOwned sees that the outputs, and Secrets with names, belong to the Cluster of a UID.
func (c *cluster) checkOwned(t *testing.T, uid types.UID, names ...string) {
	t.Helper()
	var objects []client.Object
	for _, name := range names {
		objects = append(objects, get[corev1.Secret](t, c, name))
	}
	_, versions := c.outputs(t)
	for name := range versions {
		objects = append(objects, get[corev1.Secret](t, c, name))
	}
	for _, object := range objects {
		owned := false
		for _, owner := range object.GetOwnerReferences() {
			owned = owned || owner.UID == uid
		}
		if !owned {
			t.Errorf("%T %s is owned by %v, want %s", object, object.GetName(), object.GetOwnerReferences(), uid)
		}
	}
}

// move moves all Clusters to a second management cluster, where the manager is away until they have arrived. It writes
// no output again.
func (r *repository) move(t *testing.T, target *repository, f *moved) {
	t.Helper()
	c := f.classic
	specs := c.specs(t)
	content, versions := c.outputs(t)
	workload := c.remote(t)
	bundle, applied := delivered(t, workload)
	if len(versions) != 3 || content["work-proxy-outputs HTTPS_PROXY"] != proxyURL || !strings.Contains(bundle, "BEGIN CERTIFICATE") {
		t.Fatalf("outputs are %q and %q", content, bundle)
	}
	target.scaleManager(t, 0)
	eventually(t, func() error {
		if _, runs := target.pods.Running()[mgmt.SystemNamespace+"/"+manager]; runs {
			return errors.New("the manager runs")
		}
		return nil
	})
	r.run(t, "move", "--namespace", c.namespace, "--to-kubeconfig", target.world.cluster.Kubeconfig)
	for moved := range f.machines {
		moved.world = target.world
	}
	arrived, before := c.outputs(t)
	if diff := cmp.Diff(content, arrived); diff != "" {
		t.Errorf("outputs (-before +after):\n%s", diff)
	}
	get[corev1.Secret](t, c, contract.DefaultSecretName)
	c.checkOwned(t, get[clusterv1.Cluster](t, c, c.name).UID, c.name+contract.GeneratedSecretSuffix)

	target.scaleManager(t, 2)
	c.waitPublished(t, outputs.ReasonPublished)
	for moved, machines := range f.machines {
		now := moved.waitRunning(t, len(machines)) // with other UIDs
		if diff := cmp.Diff(sorted(machines), sorted(now)); diff != "" {
			t.Errorf("Machines of Cluster %s (-before +after the move):\n%s", moved.name, diff)
		}
		f.machines[moved] = now
		moved.waitCondition(t, metav1.ConditionTrue, contract.ReasonConfigured)
	}
	f.staysCalm(t)
	if diff := cmp.Diff(specs, c.specs(t)); diff != "" {
		t.Errorf("specs (-before +after):\n%s", diff)
	}
	if _, after := c.outputs(t); !maps.Equal(before, after) {
		t.Errorf("Secrets had versions %v after the move and have %v", before, after)
	}
	if _, again := delivered(t, workload); again != applied {
		t.Errorf("what was delivered is written again: version %s after %s", again, applied)
	}
}

// checkOutputsFollow removes annotation rollout, changes the proxy Secret, and removes annotation publish. Outputs follow,
// and no Machine is replaced.
func (c *cluster) checkOutputsFollow(t *testing.T, count int) {
	t.Helper()
	workload := c.remote(t)
	bundle, _ := delivered(t, workload)
	c.kubectl(t, "", "annotate", "cluster", c.name, contract.AnnotationRollout+"-")
	machines := c.waitRunning(t, count)
	other := strings.NewReplacer("proxy.corp.example", "other.corp.example")
	c.kubectl(t, other.Replace(trusting(t, proxySecret)), "apply", "-f", "-")
	eventually(t, func() error {
		now, _ := c.outputs(t)
		got, _ := delivered(t, workload)
		if now["work-proxy-outputs HTTPS_PROXY"] != other.Replace(proxyURL) || got == bundle || got == "" {
			return fmt.Errorf("outputs are %q and %q", now, got)
		}
		return nil
	})
	c.waitPublished(t, outputs.ReasonPublished)
	c.kubectl(t, "", "annotate", "cluster", c.name, outputs.AnnotationPublish+"-")
	c.waitPublished(t, "")
	if left, versions := c.outputs(t); len(versions) > 0 || left[outputs.AnnotationNoProxy] != "" {
		t.Errorf("left are %q", left)
	}
	if _, version := delivered(t, workload); version != "" {
		t.Errorf("the certificates are in the workload cluster, with version %s", version)
	}
	c.staysCalm(t, machines)
}

// TestGiantSwarm_DropInReachesTheNode has files of a control plane refer to the drop-in of output giantswarm, as charts
// of Giant Swarm do, and reads what the bootstrap provider makes of it with systemd.
func TestGiantSwarm_DropInReachesTheNode(t *testing.T) {
	t.Parallel()
	const path = "/etc/systemd/system/containerd.service.d/http-proxy.conf"
	ask := asking(outputs.AnnotationPublish+": giantswarm", contract.AnnotationTargets+": commands,trust")
	c := newCluster(t, start(t), options{controlPlanes: 1, workers: 1, edit: func(manifest string) string {
		const first = "    files:\n"
		return strings.Replace(ask(manifest), first, first+"    - path: "+path+
			"\n      permissions: \"0600\"\n      contentFrom: {secret: {name: work-systemd-proxy, key: containerdProxy}}\n", 1)
	}})
	c.apply(t)
	machines := c.waitRunning(t, 3)
	c.waitPublished(t, outputs.ReasonPublished)
	checked := 0
	for _, boot := range c.boots() {
		node, err := nodedata.Decode(boot.Format, boot.Data)
		if err != nil {
			t.Fatal(err)
		}
		file, found := node.File(path)
		if found != c.ofControlPlane(boot.Machine) {
			t.Errorf("%s has the file: %t", boot.Machine, found)
		}
		if !found {
			continue
		}
		secret := get[corev1.Secret](t, c, c.name+"-systemd-proxy")
		if diff := cmp.Diff(string(secret.Data["containerdProxy"]), file.Content); diff != "" || file.Mode != 0o600 {
			t.Errorf("mode %o, and content (-secret +node):\n%s", file.Mode, diff)
		}
		options, err := unit.DeserializeOptions(strings.NewReader(file.Content))
		if err != nil || len(options) == 0 || slices.ContainsFunc(options, func(o *unit.UnitOption) bool {
			return o.Section != "Service" || o.Name != "Environment"
		}) {
			t.Errorf("%v, %v in\n%s", options, err, file.Content)
		}
		checked++
		t.Run("in systemd", func(t *testing.T) {
			t.Parallel()
			result := realsystemd.Start(t, "containerd", map[string][]byte{path: []byte(file.Content)})
			got := vocabulary.ProxyVariables(result.Environ)
			if diff := cmp.Diff(proxyURL, got["HTTPS_PROXY"]); diff != "" || got["https_proxy"] != proxyURL ||
				!strings.Contains(got["NO_PROXY"], c.endpoint(t)) || got["no_proxy"] != got["NO_PROXY"] {
				t.Errorf("containerd has %q, log:\n%s", got, result.Log)
			}
		})
	}
	if checked != 1 {
		t.Errorf("%d control-plane Machines came up", checked)
	}
	c.staysCalm(t, machines)
}
