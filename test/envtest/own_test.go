package envtest

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// begin creates the KubeadmConfig of the first Machine of the control plane, which Cluster API creates before the Machine.
func (c classic) begin() *bootstrapv1.KubeadmConfig {
	c.t.Helper()
	config := &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{
		Namespace: c.ns, Name: c.name + "-first",
		Labels: map[string]string{clusterv1.ClusterNameLabel: c.name, clusterv1.MachineControlPlaneLabel: ""},
	}}
	create(c.t, config)
	return config
}

func TestEntriesOfAnotherCluster_AreKept(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, contract.DefaultSecretName, map[string]string{"httpProxy": proxyURL})
	prod, eu := newCluster(t, ns, "prod"), newCluster(t, ns, "prod-eu")
	prod.eventuallyReports(contract.ReasonConfigured)
	eu.eventuallyReports(contract.ReasonConfigured)
	prod.begin() // keeps the Cluster at work after its label is gone
	prod.edit(func(cluster *clusterv1.Cluster) { cluster.Labels = nil })
	prod.eventuallyReports(contract.ReasonRemovalWaiting)

	change(t, prod.deployment(), func(o *clusterv1.MachineDeployment) { o.Spec.Template.Spec.Bootstrap.ConfigRef.Name = "prod-eu-md" })
	eu.eventuallyReports(contract.ReasonSharedTemplate, "KubeadmConfigTemplate "+ns+"/prod-eu-md is also used by MachineDeployment prod-md of Cluster prod")
	prod.eventuallyReports(contract.ReasonRemovalWaiting)
	if !patch.IsPatched(eu.specs()[1]) {
		t.Error("the unlabelled Cluster took the proxy out of the other Cluster's template")
	}
	if patch.IsPatched(prod.specs()[1]) {
		t.Error("the Cluster's own template still has the proxy")
	}
}
