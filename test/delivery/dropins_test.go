package delivery

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
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

// byHand is a Cluster whose running Machines, one of the control plane and two workers, have drop-ins by hand, as their
// specs have. It records what its user does, and what the condition says then.
type byHand struct {
	followed

	transcript strings.Builder
}

func newByHand(t *testing.T) *byHand {
	t.Helper()
	c := &byHand{}
	now := timeOfDay()
	in, _ := newInPlace(t, func(in inPlace) {
		c.inPlace = in
		c.kubelets = kubelets{t: t, remote: in.remote, says: func(*corev1.Pod, string) *corev1.PodStatus { return podStatus(true, now) }}
		controllers(t, in.workload)
		c.annotate(contract.AnnotationPublish, "")
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
		for _, node := range []string{"cp-1", "md-1", "md-2", "md-3"} {
			newNode(t, in.remote, node)
		}
		c.types("kubectl label cluster prod capi-proxy-patcher.io/enabled=true", "False", contract.ReasonConflictingFile,
			"KubeadmControlPlane", "KubeadmConfigTemplate")
		eventually(t, "no generated Secret, which no spec refers to", func() string {
			if _, files := in.version("prod-proxy-files", nodeImage); len(files) > 0 {
				return "it is there"
			}
			return ""
		})
	})
	c.inPlace = in
	return c
}

// types records a command of the user, and the condition when it has a status, a reason, and a message with parts.
func (c *byHand) types(command, status, reason string, parts ...string) {
	c.T.Helper()
	c.reports(status, reason, parts...)
	message := ""
	eventually(c.T, "condition without Machines behind", func() string {
		if message = vocabulary.Condition(c.Cluster()).Message; strings.Contains(message, "outdated") {
			return message
		}
		return ""
	})
	message = strings.ReplaceAll(message, c.Namespace+"/", "team-a/")
	fmt.Fprintf(&c.transcript, "    $ %s\n    %s %s\n", command, status, reason)
	for line := range strings.SplitSeq(message, "\n") {
		fmt.Fprintf(&c.transcript, "    %s\n", line)
	}
}

// nodes waits until these nodes have the same version, and no other has one.
func (c *byHand) nodes(want ...string) {
	c.T.Helper()
	eventually(c.T, "nodes with the files", func() string {
		c.work()
		var names, versions []string
		for _, label := range c.labels() {
			name, version, _ := strings.Cut(label, " ")
			names, versions = append(names, name), append(versions, version)
		}
		if slices.Sort(versions); len(slices.Compact(versions)) != min(1, len(want)) {
			return fmt.Sprint(versions)
		}
		return cmp.Diff(want, names)
	})
}

// TestInPlace_ReplacesDropInsOfRunningNodes changes a Cluster with drop-ins by hand over without replacing a Machine, and
// compares what its user sees with docs/migration.md.
func TestInPlace_ReplacesDropInsOfRunningNodes(t *testing.T) {
	t.Parallel()
	c := newByHand(t)
	specs := func() (specs []bootstrapv1.KubeadmConfigSpec) {
		t.Helper()
		controlPlane := vocabulary.Fetch(t, shared.Client, c.Namespace, c.Name, &controlplanev1.KubeadmControlPlane{})
		template := vocabulary.Fetch(t, shared.Client, c.Namespace, c.Name+"-md", &bootstrapv1.KubeadmConfigTemplate{})
		return []bootstrapv1.KubeadmConfigSpec{controlPlane.Spec.KubeadmConfigSpec, template.Spec.Template.Spec}
	}
	before := specs()
	c.annotate(contract.AnnotationInPlaceReplace, "true")
	c.types("kubectl annotate cluster prod capi-proxy-patcher.io/rollout=InPlace capi-proxy-patcher.io/in-place-replace=true",
		"True", contract.ReasonConfigured, "KubeadmControlPlane", "KubeadmConfigTemplate")
	c.nodes("cp-1", "md-1", "md-2")
	c.behind(0)
	if diff := cmp.Diff(before, specs()); diff != "" {
		t.Errorf("specs change (-before +after):\n%s", diff)
	}

	c.joins("md-3", dropIns()) // a Machine that boots meanwhile
	c.nodes("cp-1", "md-1", "md-2", "md-3")
	c.behind(0)
	c.reports("True", contract.ReasonConfigured)

	template := &bootstrapv1.KubeadmConfigTemplate{}
	template.Namespace, template.Name = c.Namespace, c.Name+"-md"
	vocabulary.Change(t, shared.Client, template, func(o *bootstrapv1.KubeadmConfigTemplate) {
		o.Spec.Template.Spec = bootstrapv1.KubeadmConfigSpec{}
	})
	eventually(t, "the template patched", func() string {
		if spec := specs()[1]; len(spec.Files) < 2 { //nolint:mnd // more than the user's
			return fmt.Sprint(spec.Files)
		}
		return ""
	})
	c.reports("True", contract.ReasonConfigured)
	c.behind(0)
	c.nodes("cp-1", "md-1", "md-2", "md-3")

	c.annotate(contract.AnnotationInPlaceReplace, "")
	c.reports("False", contract.ReasonConflictingFile, "KubeadmControlPlane")
	c.annotate(contract.AnnotationRollout, "")
	c.isGone()
	page, err := os.ReadFile("../../docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.transcript.String(); !strings.Contains(string(page), got) {
		t.Errorf("docs/migration.md has not\n%s", got)
	}
}
