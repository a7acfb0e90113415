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

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/fleet"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/fleet/preview"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/logbuffer"
)

// command runs the command line against the API server, as its administrator.
func command(t *testing.T, args ...string) string {
	t.Helper()
	return commandEnds(t, 0, args...)
}

// commandEnds runs the command line, and fails if it does not end with a status.
func commandEnds(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if args[0] == "plan" || slices.Contains(args, "--machines") {
		args = append(args, "--default-proxy-secret", defaultSecretNamespace+"/"+defaultSecretName)
	}
	if status := cli.Main(t.Context(), append(args, "--kubeconfig", shared.kubeconfig),
		kit.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, fleet.New()); status != want {
		t.Fatalf("%q: exit status %d, want %d: %s%s", args, status, want, out.String(), errs.String())
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

func TestPlan_SaysWhatThenHappens(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL, "username": "node", "password": "p1"})
	c := newCluster(t, ns, "one", func(o client.Object) { delete(o.GetLabels(), contract.LabelEnabled) })
	c.joined("one-md-a", c.template().Spec.Template.Spec, c.worker())
	c.joined("one-cp-a", c.controlPlane().Spec.KubeadmConfigSpec, controlPlaneNode())
	labelled := c.cluster() // as kubectl get prints it, some time ago
	labelled.APIVersion, labelled.Kind, labelled.ResourceVersion = clusterv1.GroupVersion.String(), "Cluster", "1"
	labelled.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	manifest, err := json.Marshal(labelled)
	if err != nil || len(labelled.ManagedFields) == 0 {
		t.Fatal(err)
	}
	said := c.plan(t, string(manifest))
	const objects = "create Secret one-proxy-files,patch KubeadmConfig one-mp,patch KubeadmConfigTemplate one-md"
	replaced, behind := machinesOf(said)
	if got := strings.Join(written(said), ","); got != objects || len(replaced) > 0 || !slices.Equal(behind, []string{"one-cp-a", "one-md-a"}) {
		t.Errorf("writes are %s, replaced %q, behind %q", got, replaced, behind)
	}
	c.edit(func(cluster *clusterv1.Cluster) {
		cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	})
	c.eventuallyReports(said.After.Reason, said.After.Message)
	if again := c.plan(t); len(again.Writes) > 0 || again.Before.Message != again.After.Message {
		t.Errorf("there is still something to do: %+v", again)
	}

	var machines struct {
		Version int
		Behind  []outdated.Group
	}
	args := []string{"status", "--namespace", ns, "--cluster", "one", "--machines"}
	text := commandEnds(t, 3, append(args, "-o", "json", "--fail-on", "behind")...)
	if err := json.Unmarshal([]byte(text), &machines); err != nil || machines.Version != 1 || len(machines.Behind) != 2 {
		t.Errorf("%v, status of Machines: %s", err, text)
	}
	if text = command(t, args...); !strings.Contains(text, "one-cp-a") {
		t.Errorf("status of Machines: %s", text)
	}

	secret := func(data string) string {
		return "apiVersion: v1\nkind: Secret\nmetadata: {name: one-http-proxy, labels: {" + contract.LabelProxySecret + ": \"\"}}\n" +
			"stringData: {" + data + "}\n"
	}
	if got := written(c.plan(t, secret("httpProxy: "+proxyURL+", username: node, password: 'p%2 \\ $x'"))); !slices.Equal(got, []string{"update Secret one-proxy-files"}) {
		t.Errorf("with another password: %q", got)
	}
	// A key that the file leaves out stays, and a Secret that is no good says so.
	if bad := c.plan(t, secret("username: ''")); bad.After.Reason != contract.ReasonInvalidSettings || len(bad.Writes) > 0 {
		t.Errorf("%+v, condition %s", bad.Writes, bad.After)
	}
	text = command(t, "plan", "--cluster", ns+"/one")
	if !strings.Contains(text, "The controller writes:\n  none\n") || strings.Contains(text, "p1") {
		t.Error(text)
	}
	if kept := c.plan(t, c.changedCluster("labels: {x: z}")); len(kept.Writes) > 0 {
		t.Errorf("with a file that leaves out the label of another manager: %q", written(kept))
	}
	off := c.changedCluster("labels: {" + contract.LabelEnabled + ": \"false\"}")
	if removed := c.plan(t, off); strings.Join(written(removed), ",") != strings.Replace(objects, "create", "delete", 1) {
		t.Errorf("with label false: %q", written(removed))
	}
}

func TestPlan_SaysWhatTheTopologyControllerReplaces(t *testing.T) {
	c := oneCluster(t, topologyCluster)
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
			kit.Streams{In: strings.NewReader(""), Out: out, Err: out}, fleet.New())
	}()
	prints := func(word string) {
		t.Helper()
		eventually(t, "row with "+word, func() string {
			if text := out.String(); !strings.Contains(text, word) {
				return text
			}
			return ""
		})
	}
	prints(contract.ReasonSettingsNotFound)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	prints("True")
	if err := shared.client.Delete(t.Context(), fetch(t, ns, "one", &clusterv1.Cluster{})); err != nil {
		t.Fatal(err)
	}
	prints("Cluster " + ns + "/one is gone")
	stop()
	<-ended
}
