package envtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/preview"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/logbuffer"
)

// command runs the command line against the API server, as its administrator.
func command(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if args[0] == "plan" || slices.Contains(args, "--machines") {
		args = append(args, "--default-proxy-secret", defaultSecretNamespace+"/"+defaultSecretName)
	}
	if status := cli.Main(t.Context(), append(args, "--kubeconfig", shared.kubeconfig),
		cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}); status != 0 {
		t.Fatalf("%q: exit status %d: %s%s", args, status, out.String(), errs.String())
	}
	return out.String()
}

// plan runs command plan with changed objects, once more if the manager has written something meanwhile.
func (c classic) plan(t *testing.T, changed ...string) preview.Data {
	t.Helper()
	args := []string{"plan", "--namespace", c.ns, "--cluster", c.name, "-o", "json"}
	for i, text := range changed {
		file := filepath.Join(t.TempDir(), fmt.Sprintf("%d.yaml", i))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "-f", file)
	}
	isWrite := func(request string) bool { return !strings.HasPrefix(request, http.MethodGet) }
	for {
		known := len(shared.requests.in(c.ns))
		before := c.versions(t)
		var data preview.Data
		if err := json.Unmarshal([]byte(command(t, args...)), &data); err != nil {
			t.Fatal(err)
		}
		diff := cmp.Diff(before, c.versions(t))
		if diff != "" && slices.ContainsFunc(shared.requests.in(c.ns)[known:], isWrite) {
			continue
		}
		if diff != "" {
			t.Errorf("the plan has written (-before +after):\n%s", diff)
		}
		return data
	}
}

// versions are the resource versions of all objects in the namespace that the product may write.
func (c classic) versions(t *testing.T) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, kind := range []string{"Cluster", "MachineDeployment", "MachinePool", "Machine"} {
		c.addVersions(t, versions, clusterv1.GroupVersion.String(), kind)
	}
	c.addVersions(t, versions, "controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane")
	c.addVersions(t, versions, "bootstrap.cluster.x-k8s.io/v1beta2", "KubeadmConfigTemplate")
	c.addVersions(t, versions, "bootstrap.cluster.x-k8s.io/v1beta2", "KubeadmConfig")
	c.addVersions(t, versions, "v1", "Secret")
	return versions
}

func (c classic) addVersions(t *testing.T, versions map[string]string, apiVersion, kind string) {
	t.Helper()
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind + "List"}}
	if err := shared.client.List(t.Context(), list, client.InNamespace(c.ns)); err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		versions[kind+" "+item.Name] = item.ResourceVersion
	}
}

// changedCluster is a manifest of the Cluster with other metadata.
func (c classic) changedCluster(metadata string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: Cluster\nmetadata: {name: %s, %s}\n", clusterv1.GroupVersion, c.name, metadata)
}

func written(data preview.Data) (writes []string) {
	for _, w := range data.Writes {
		if w.Spec {
			writes = append(writes, w.Verb+" "+w.Kind+" "+w.Name)
		}
	}
	slices.Sort(writes)
	return writes
}

func machinesOf(data preview.Data) (replaced, behind []string) {
	for _, roll := range data.Replaced {
		replaced = append(replaced, roll.Machines...)
	}
	for _, group := range data.Behind {
		for _, machine := range group.Machines {
			behind = append(behind, machine.Name)
		}
	}
	return replaced, behind
}

func TestPlan_SaysWhatALabelWouldDo(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", func(o client.Object) { delete(o.GetLabels(), contract.LabelEnabled) })
	c.joined("one-md-a", c.template().Spec.Template.Spec, c.worker())
	c.joined("one-cp-a", c.controlPlane().Spec.KubeadmConfigSpec, controlPlaneNode())
	const label = "labels: {" + contract.LabelEnabled + ": \"true\"}"
	for name, test := range map[string]struct {
		metadata                string
		writes, replaced, stays []string
		reason                  string
	}{
		"nothing": {metadata: "labels: {x: z}"},
		"the label": {
			metadata: label, reason: contract.ReasonWaitingForRollout, stays: []string{"one-cp-a", "one-md-a"},
			writes: []string{"create Secret one-proxy-files", "patch KubeadmConfig one-mp", "patch KubeadmConfigTemplate one-md"},
		},
		"the label, at once": {
			metadata: label + ", annotations: {" + contract.AnnotationRollout + ": Immediate}",
			reason:   contract.ReasonConfigured, replaced: []string{"one-cp-a", "one-md-a"},
			writes: []string{
				"create Secret one-proxy-files", "patch KubeadmConfig one-mp", "patch KubeadmConfigTemplate one-md",
				"patch KubeadmControlPlane one", "patch MachineDeployment one-md",
			},
		},
	} {
		data := c.plan(t, c.changedCluster(test.metadata))
		if diff := cmp.Diff(test.writes, written(data)); diff != "" {
			t.Errorf("%s: writes (-want +got):\n%s", name, diff)
		}
		replaced, behind := machinesOf(data)
		if !slices.Equal(replaced, test.replaced) || !slices.Equal(behind, test.stays) {
			t.Errorf("%s: replaced are %q, behind %q; want %q, %q", name, replaced, behind, test.replaced, test.stays)
		}
		if (data.After == nil) != (test.reason == "") || data.After != nil && data.After.Reason != test.reason {
			t.Errorf("%s: the condition is %s, want reason %s", name, data.After, test.reason)
		}
	}

	// What was said comes true.
	said := c.plan(t, c.changedCluster(label))
	c.edit(func(cluster *clusterv1.Cluster) {
		cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	})
	c.eventuallyReports(said.After.Reason, said.After.Message)
	if again := c.plan(t); len(again.Writes) > 0 || again.Before.Message != again.After.Message {
		t.Errorf("there is still something to do: %+v", again)
	}
	if removed := c.plan(t, c.changedCluster("labels: {x: z}")); !slices.Equal(written(removed),
		[]string{"delete Secret one-proxy-files", "patch KubeadmConfig one-mp", "patch KubeadmConfigTemplate one-md"}) {
		t.Errorf("without the label: %q", written(removed))
	} else if !strings.Contains(removed.Note, "it has no label "+contract.LabelEnabled) {
		t.Errorf("without the label it says %q", removed.Note)
	}
}

func TestPlan_SaysWhatASecretWouldDo(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL, "username": "node", "password": "p1"})
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonConfigured)
	c.joined("one-md-a", c.template().Spec.Template.Spec, c.worker())
	c.joined("one-cp-a", c.controlPlane().Spec.KubeadmConfigSpec, controlPlaneNode())
	c.eventuallyReports(contract.ReasonConfigured)
	secret := func(data string) string {
		return "apiVersion: v1\nkind: Secret\nmetadata: {name: one-http-proxy, labels: {" + contract.LabelProxySecret + ": \"\"}}\n" +
			"stringData: {" + data + "}\n"
	}
	data := c.plan(t, secret("httpProxy: "+proxyURL+", username: node, password: 'p%2 \\ $x'"))
	replaced, behind := machinesOf(data)
	if diff := cmp.Diff([]string{"update Secret one-proxy-files"}, written(data)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if len(replaced) > 0 || !slices.Equal(behind, []string{"one-cp-a", "one-md-a"}) {
		t.Errorf("replaced are %q, behind %q", replaced, behind)
	}
	// In place a Machine with a node gets it there.
	machine := fetch(t, ns, "one-md-a", &clusterv1.Machine{})
	machine.Status.NodeRef.Name = "node-1"
	if err := shared.client.Status().Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	pool := fetch(t, ns, "one-mp", &clusterv1.MachinePool{})
	pool.Status.NodeRefs = []corev1.ObjectReference{{Name: "node-p"}, {Name: "node-q"}}
	if err := shared.client.Status().Update(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	inPlace := c.plan(t, secret("httpProxy: "+proxyURL+", username: node, password: p2")+"---\n"+
		c.changedCluster("labels: {"+contract.LabelEnabled+": \"true\"}, annotations: {"+contract.AnnotationRollout+": "+contract.RolloutInPlace+"}"))
	replaced, behind = machinesOf(inPlace)
	if len(replaced) > 0 || !slices.Equal(behind, []string{"one-cp-a"}) {
		t.Errorf("in place: replaced are %q, behind %q", replaced, behind)
	}
	change := patch.NodeChange{
		Replaces: []string{contract.PathProxyEnv, contract.PathTrustedCA, contract.PathSetup},
		Restarts: []string{"containerd", "kubelet"},
	}
	if diff := cmp.Diff([]preview.Restart{
		{Kind: "MachineDeployment", Name: "one-md", Machines: []string{"one-md-a"}, Nodes: []string{"node-1"}, NodeChange: change},
		{Kind: "MachinePool", Name: "one-mp", Machines: []string{}, Nodes: []string{"node-p", "node-q"}, NodeChange: change},
	}, inPlace.Restarted); diff != "" {
		t.Errorf("changed in place (-want +got):\n%s", diff)
	}
	// A key that the file leaves out is gone, and a Secret that is no good says so.
	if bad := c.plan(t, secret("username: node")); bad.After.Reason != contract.ReasonInvalidSettings || len(bad.Writes) > 0 {
		t.Errorf("%+v, condition %s", bad.Writes, bad.After)
	}
	if listed := command(t, "status", "--namespace", ns, "--cluster", "one", "--machines", "-o", "json"); !strings.Contains(listed, `"behind": []`) {
		t.Errorf("Machines are behind before anything has changed: %s", listed)
	}
	text := command(t, "plan", "--cluster", ns+"/one")
	if !strings.Contains(text, "The controller writes:\n  none\n") || strings.Contains(text, "p1") {
		t.Error(text)
	}
}

func TestStatus_ListsTheMachinesThatAreBehind(t *testing.T) {
	ns := namespace(t)
	secret := proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonConfigured)
	c.joined("one-md-a", c.template().Spec.Template.Spec, c.worker())
	c.joined("one-md-old", c.template().Spec.Template.Spec, map[string]string{clusterv1.MachineDeploymentNameLabel: "another"})
	c.joined("one-cp-a", c.controlPlane().Spec.KubeadmConfigSpec, controlPlaneNode())
	time.Sleep(pause)
	change(t, secret, func(s *corev1.Secret) {
		s.StringData = map[string]string{"httpProxy": "http://proxy-2.example.com:3128"}
	})
	c.eventuallyHas(`HTTP_PROXY="http://proxy-2.example.com:3128"`)
	time.Sleep(pause)
	c.joined("one-md-b", c.template().Spec.Template.Spec, c.worker())
	listed := command(t, "status", "--namespace", ns, "--cluster", "one", "--machines")
	for _, want := range []string{"one-md-a ", "MachineDeployment/one-md ", "one-cp-a ", "KubeadmControlPlane/one ", "older values"} {
		if !strings.Contains(listed, want) {
			t.Errorf("no %q in\n%s", want, listed)
		}
	}
	if strings.Contains(listed, "one-md-b") || strings.Count(listed, "\n") != 3 {
		t.Error(listed)
	}
	c.eventuallyReports(contract.ReasonConfigured, "2 Machines have outdated proxy settings: 1 of KubeadmControlPlane one (one-cp-a), 1 of MachineDeployment one-md (one-md-a)")
	overview := command(t, "status", "--namespace", ns)
	if fields := strings.Join(strings.Fields(overview), " "); !strings.Contains(fields, "one "+ns+"/one-http-proxy 1 behind 1 behind") {
		t.Error(overview)
	}
}

func TestPlan_SaysWhatTheTopologyControllerReplaces(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one", topologyCluster)
	c.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`)
	c.joined("one-md-a", c.template().Spec.Template.Spec, c.worker())
	replaced, behind := machinesOf(c.plan(t))
	if !slices.Equal(replaced, []string{"one-md-a"}) || len(behind) > 0 {
		t.Errorf("before the templates have the proxy, replaced are %q, behind %q", replaced, behind)
	}
	c.carried()
	c.eventuallyReports(contract.ReasonConfigured)
	replaced, behind = machinesOf(c.plan(t))
	if len(replaced) > 0 || !slices.Equal(behind, []string{"one-md-a"}) {
		t.Errorf("with the proxy in the templates, replaced are %q, behind %q", replaced, behind)
	}
}

func TestStatus_WatchesForChanges(t *testing.T) {
	ns := namespace(t)
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonSettingsNotFound)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, ended := &logbuffer.Buffer{}, make(chan struct{})
	go func() {
		defer close(ended)
		cli.Main(ctx, []string{"status", "--watch", "--namespace", ns, "--kubeconfig", shared.kubeconfig},
			cli.Streams{In: strings.NewReader(""), Out: out, Err: out})
	}()
	prints := func(reason string) {
		t.Helper()
		eventually(t, "row with "+reason, func() string {
			if text := out.String(); !strings.Contains(text, reason) {
				return text
			}
			return ""
		})
	}
	prints(contract.ReasonSettingsNotFound)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	prints(contract.ReasonConfigured)
	stop()
	<-ended
}
