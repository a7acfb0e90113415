package faults

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// separate starts a manager that is another user with the same rights, so that the audit log tells them apart. It
// returns the name of that user.
func separate(t *testing.T, ns, name string, flags ...string) (user string) {
	t.Helper()
	account(t, ns, name)
	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + name + "-manager"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "capi-proxy-patcher-manager-role"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}},
	})
	manager(t, ns, append([]string{"--kubeconfig", kubeconfigOf(t, ns, name)}, flags...)...)
	return "system:serviceaccount:" + ns + ":" + name
}

// wrote fails if a user wrote nothing, or an object of another Cluster than these.
func wrote(t *testing.T, user, ns string, clusters ...string) {
	t.Helper()
	writes := by(t, user)
	for _, r := range writes {
		to := r.ObjectRef
		own := func(cluster string) bool { return strings.HasPrefix(to.Name, cluster) }
		// The name of an event that is refused is not in the log.
		if to.Namespace != ns || to.Name != "" && !slices.ContainsFunc(clusters, own) {
			t.Errorf("%s, which serves %s in %s: %s %s %s/%s", user, clusters, ns, r.Verb, to.Resource, to.Namespace, to.Name)
		}
	}
	if len(writes) == 0 {
		t.Errorf("%s wrote nothing", user)
	}
}

// TestManagers_WithFiltersServeTheirClustersOnly runs two managers of all namespaces, where other tests have Clusters,
// too.
func TestManagers_WithFiltersServeTheirClustersOnly(t *testing.T) {
	f := newFleet(t, 4)
	t.Parallel()
	filter := func(cluster *clusterv1.Cluster) {
		cluster.Labels[clusterv1.WatchLabel] = f.ns + map[bool]string{true: "-blue", false: "-green"}[cluster.Name < "c002"]
	}
	_, first := f.serveWebhooks("../../config/default")
	_, second := f.serveWebhooks("../../config/default")
	blue := separate(t, f.ns, "blue", append(first, noResync, "--namespace=", "--watch-filter="+f.ns+"-blue")...)
	green := separate(t, f.ns, "green", append(second, noResync, "--namespace=", "--watch-filter="+f.ns+"-green")...)
	f.create(enabled, filter)
	f.eventuallyHasProxy()
	f.useProxy(otherProxyURL)
	f.eventuallyHasProxy()
	wrote(t, blue, f.ns, "c000", "c001")
	wrote(t, green, f.ns, "c002", "c003")

	// The other manager takes over.
	for _, name := range []string{"c000", "c001"} {
		f.merge(&clusterv1.Cluster{ObjectMeta: f.meta(name)},
			`{"metadata":{"labels":{"`+clusterv1.WatchLabel+`":"`+f.ns+`-green"}}}`)
	}
	f.useProxy(proxyURL)
	f.eventuallyHasProxy()
	before := len(by(t, blue))
	f.label("null")
	f.eventuallyAsBefore()
	if later := by(t, blue)[before:]; len(later) > 0 {
		t.Errorf("the manager that no longer serves them writes: %+v", later)
	}
}
