package envtest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// awsCluster is the infrastructure cluster object of a Cluster, which has no network yet.
func awsCluster(ns, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"region": "eu-west-1"}}}
	object.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
	object.SetKind("AWSCluster")
	object.SetNamespace(ns)
	object.SetName(name)
	return object
}

// onAWS makes a Cluster refer to an AWSCluster of its own name.
func onAWS(object client.Object) {
	if cluster, ok := object.(*clusterv1.Cluster); ok {
		cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "AWSCluster", Name: cluster.Name,
		}
	}
}

// hasNetwork has the provider fill in a network, and Cluster API say that the infrastructure is provisioned.
func (c classic) hasNetwork(cidr string) {
	c.t.Helper()
	change(c.t, fetch(c.t, c.ns, c.name, awsCluster(c.ns, c.name)), func(o *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(o.Object, cidr, "spec", "network", "vpc", "cidrBlock"); err != nil {
			c.t.Fatal(err)
		}
	})
	cluster := c.cluster()
	before := cluster.DeepCopy()
	cluster.Status.Initialization.InfrastructureProvisioned = new(true)
	if err := shared.client.Status().Patch(c.t.Context(), cluster, client.MergeFrom(before)); err != nil {
		c.t.Fatal(err)
	}
}

func TestInfrastructure_IsReadOnceAndWhenProvisioned(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	create(t, awsCluster(ns, "one"))
	c := newCluster(t, ns, "one", onAWS)
	c.eventuallyConfigured()
	if env := string(c.generated()[contract.KeyProxyEnv]); !strings.Contains(env, ",169.254.169.254,169.254.170.2,169.254.170.23,169.254.0.0/16,.eu-west-1.compute.internal,") {
		t.Errorf("NO_PROXY lacks what follows from the kind and the region: %s", env)
	}
	before := c.generations()
	c.hasNetwork("10.50.0.0/16")
	eventually(t, "the network in the generated Secret", func() string {
		if origins := string(c.generated()[contract.KeyNoProxyOrigins]); !strings.Contains(origins, "10.50.0.0/16\tinfrastructure\tAWSCluster one, spec.network.vpc.cidrBlock\n") {
			return origins
		}
		return ""
	})
	c.eventuallyReports(contract.ReasonConfigured)
	if diff := cmp.Diff(before, c.generations()); diff != "" {
		t.Errorf("the network changed specs (-before +after):\n%s", diff)
	}
	reads := func() (n int) {
		for _, request := range shared.requests.in(ns) {
			if strings.Contains(request, "/awsclusters/") {
				n++
			}
		}
		return n
	}
	if n := reads(); n != 2 {
		t.Errorf("the AWSCluster was read %d times, want twice", n)
	}
	staysQuiet(t, ns)
	c.edit(func(cluster *clusterv1.Cluster) {
		cluster.Annotations = map[string]string{contract.AnnotationNoProxyGroups: "-infrastructure"}
	})
	eventually(t, "the group to be left out", func() string {
		if env := string(c.generated()[contract.KeyProxyEnv]); strings.Contains(env, "10.50.0.0/16") || !strings.Contains(env, "169.254.169.254") {
			return env
		}
		return ""
	})
	if n := reads(); n != 2 {
		t.Errorf("the AWSCluster was read %d times, want twice", n)
	}
}
