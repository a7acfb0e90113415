package delivery

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// dropIns is the spec of somebody who has written a drop-in by hand.
func dropIns() bootstrapv1.KubeadmConfigSpec {
	return bootstrapv1.KubeadmConfigSpec{
		Files: []bootstrapv1.File{{
			Path:    "/etc/systemd/system/containerd.service.d/http-proxy.conf",
			Content: "[Service]\nEnvironment=\"HTTP_PROXY=http://old.example.com:3128\"\n",
		}},
		PreKubeadmCommands: []string{"systemctl daemon-reload", "systemctl restart containerd"},
	}
}

// TestInPlace_ChangesWorkersWithoutDropInsByHand has a control plane and workers with drop-ins by hand. Workers whose
// template and nodes have them no more get the files; the control plane stays as it is until its user's next rollout. What
// the user sees is in docs/migration.md.
func TestInPlace_ChangesWorkersWithoutDropInsByHand(t *testing.T) {
	t.Parallel()
	var c followed
	c.inPlace, _ = newInPlace(t, func(in inPlace) {
		c.inPlace = in
		c.agents = newAgents(t, in.remote)
		controllers(t, in.workload)
		c.annotate(output.AnnotationPublish, "")
		c.Edit(func(cluster *clusterv1.Cluster) { // without a note about defaults
			cluster.Spec.ClusterNetwork.Services.CIDRBlocks = []string{"10.128.0.0/12"}
			cluster.Spec.ClusterNetwork.ServiceDomain = "cluster.local"
		})
		o := vocabulary.NewClassic(in.Namespace, in.Name, in.Name)
		o.ControlPlane.Spec.KubeadmConfigSpec, o.Template.Spec.Template.Spec = dropIns(), dropIns()
		if err := shared.Client.Delete(t.Context(), o.ControlPlane.DeepCopy()); err != nil { // it has no files of its own
			t.Fatal(err)
		}
		in.joinsAs("cp-1", dropIns(), clusterv1.MachineControlPlaneLabel, "")
		vocabulary.Create(t, shared.Client, vocabulary.MachineTemplate(in.Namespace, in.Name), o.ControlPlane, o.Template,
			o.Deployment)
		in.joins("md-1", dropIns())
		in.joins("md-2", dropIns())
		for _, node := range []string{"cp-1", "md-1", "md-2"} {
			newNode(t, in.remote, node)
		}
		c.reports("False", contract.ReasonConflictingFile, "KubeadmControlPlane", "KubeadmConfigTemplate")
		vocabulary.Change(t, shared.Client, o.Template, func(o *bootstrapv1.KubeadmConfigTemplate) {
			o.Spec.Template.Spec = bootstrapv1.KubeadmConfigSpec{}
		})
	})
	eventually(t, "workers with the files", func() string {
		c.round()
		return cmp.Diff([]string{"md-1 prod-proxy-files", "md-2 prod-proxy-files"}, c.labels())
	})
	c.behind(0)
	c.reports("False", contract.ReasonConflictingFile, "KubeadmControlPlane")
	transcript := "    False ConflictingFile\n"
	for line := range strings.SplitSeq(vocabulary.Condition(c.Cluster()).Message, "\n") {
		transcript += "    " + strings.ReplaceAll(line, c.Namespace+"/", "team-a/") + "\n"
	}
	controlPlane := vocabulary.Fetch(t, shared.Client, c.Namespace, c.Name, &controlplanev1.KubeadmControlPlane{})
	if diff := cmp.Diff(dropIns(), controlPlane.Spec.KubeadmConfigSpec); diff != "" {
		t.Errorf("the control plane changes (-before +after):\n%s", diff)
	}
	page, err := os.ReadFile("../../docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), transcript) {
		t.Errorf("docs/migration.md has not\n%s", transcript)
	}
}
