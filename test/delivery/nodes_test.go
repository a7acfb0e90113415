package delivery

import (
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const (
	nodeImage      = "registry.example.com/capi-proxy-patcher:v1"
	otherNodeImage = "registry.example.com/capi-proxy-patcher:v2"
	password       = "s3cr%t\"$'\\`{{"
)

// inPlace is a Cluster that asks for updates in place, with its workload cluster.
type inPlace struct {
	publisher

	workload *mgmt.Cluster
	remote   client.Client
	// leave ends the API server of the workload cluster.
	leave func()
}

// newInPlace makes one, with a manager for its namespace that the returned function ends.
func newInPlace(t *testing.T, before func(inPlace)) (inPlace, func()) {
	t.Helper()
	if shared == nil {
		t.Skipf("%s is not set", mgmt.AssetsVariable)
	}
	ns := vocabulary.Namespace(t, shared.Client, "nodes-")
	stop := manage(t, ns, "--node-image", nodeImage)
	workload := vocabulary.StartCluster(t, mgmt.Options{Workload: true})
	leave := sync.OnceFunc(func() {
		if err := workload.KillServer(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(leave) // it would wait for the watches of Cluster API
	c := inPlace{publisher: newPublisher(t, ns, "prod", "annotations", map[string]string{
		"httpProxy": proxyURL, "username": "u", "password": password, "readinessEndpoints": "https://a.example.com/",
	}), workload: workload, leave: leave}
	c.remote = c.connect(workload)
	if before != nil {
		before(c)
	}
	c.annotate(contract.AnnotationRollout, inplace.RolloutInPlace)
	c.annotate(output.AnnotationPublish, "")
	return c, stop
}

// annotate sets an annotation of the Cluster, or removes it for "".
func (c inPlace) annotate(key, value string) {
	c.T.Helper()
	c.Edit(func(cluster *clusterv1.Cluster) {
		if cluster.Annotations == nil {
			cluster.Annotations = map[string]string{}
		}
		if cluster.Annotations[key] = value; value == "" {
			delete(cluster.Annotations, key)
		}
	})
}

// get reads an object of the workload cluster, and reports whether it exists.
func get[T client.Object](c inPlace, name string, object T) bool {
	c.T.Helper()
	err := c.remote.Get(c.T.Context(), client.ObjectKey{Namespace: inplace.NodesNamespace, Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		c.T.Fatal(err)
	}
	return err == nil
}

// hasWith waits until the workload cluster has the current version of a generated Secret with an image, and returns its
// DaemonSet and the version.
func (c inPlace) hasWith(generated, image string) (*appsv1.DaemonSet, string) {
	c.T.Helper()
	set, version := &appsv1.DaemonSet{}, ""
	eventually(c.T, "files of "+generated+" in the workload cluster", func() string {
		var files map[string][]byte
		version, files = c.version(generated, image)
		if !get(c, contract.Name+"-"+inplace.NodeLabel(generated), set) || versionIn(set) != version {
			return "no DaemonSet with " + version
		}
		secret := &corev1.Secret{}
		if !get(c, contract.Name+"-"+version, secret) {
			return "no Secret " + version
		}
		return cmp.Diff(files, secret.Data)
	})
	return set, version
}

// version returns the current version of a generated Secret, and its files.
func (c inPlace) version(generated, image string) (string, map[string][]byte) {
	c.T.Helper()
	of := &corev1.Secret{}
	err := shared.Client.Get(c.T.Context(), client.ObjectKey{Namespace: c.Namespace, Name: generated}, of)
	if client.IgnoreNotFound(err) != nil {
		c.T.Fatal(err)
	}
	if of.UID == "" {
		return "", nil
	}
	options, err := settings.ParseOptions(c.Cluster().Annotations)
	if err != nil {
		return "", nil
	}
	data, err := inplace.NodeData(options, of.Data)
	if err != nil {
		c.T.Fatal(err)
	}
	slots, _ := strconv.Atoi(c.Cluster().Annotations[inplace.AnnotationInPlaceMaxUnavailable])
	in := inplace.NodeFiles{
		NodePods: inplace.NodePods{Image: image, PullPolicy: "Always"}, Secret: generated, Data: data, Key: []byte(of.UID),
		Slots: max(1, slots),
	}
	for _, key := range []string{contract.KeyNoProxyOrigins, contract.KeyContentHash, contract.KeyInfrastructure} {
		delete(data, key) // no node gets it
	}
	return in.Version(), data
}

// versionIn returns the version that a DaemonSet brings.
func versionIn(set *appsv1.DaemonSet) string {
	return set.Spec.Template.Labels[inplace.LabelFilesVersion]
}

// isGone waits until nothing of ours is in the workload cluster.
func (c inPlace) isGone() {
	c.T.Helper()
	eventually(c.T, "nothing in the workload cluster", func() string {
		if value, applied := c.Cluster().Annotations[inplace.AnnotationInPlaceApplied]; applied {
			return value
		}
		return ""
	})
	for _, list := range []client.ObjectList{
		&appsv1.DaemonSetList{}, &corev1.SecretList{}, &corev1.ServiceAccountList{}, &coordinationv1.LeaseList{}, &rbacv1.RoleList{},
		&rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{},
	} {
		err := c.remote.List(c.T.Context(), list, client.HasLabels{contract.LabelGenerated})
		if left := meta.LenList(list); err != nil || left > 0 {
			c.T.Errorf("left are %d of %T, %v", left, list, err)
		}
	}
	var labelled corev1.NodeList
	if err := c.remote.List(c.T.Context(), &labelled, client.HasLabels{inplace.LabelNodeFiles}); err != nil ||
		len(labelled.Items) > 0 {
		c.T.Errorf("labelled Nodes are %v, %v", labelled.Items, err)
	}
}

// fence waits until the manager has published another Cluster, so that it has seen everything of before.
func (c inPlace) fence(name string) {
	c.T.Helper()
	newPublisher(c.T, c.Namespace, name, "annotations", map[string]string{"httpProxy": proxyURL}).
		Eventually(output.ReasonPublished)
}
