package webhook_test

import (
	"fmt"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
)

// template is a KubeadmConfigTemplate with a managed file that comes from a Secret, or none for "".
func template(secret string) string {
	files := ""
	if secret != "" {
		files = fmt.Sprintf(
			`"files":[{"path":%q,"contentFrom":{"secret":{"name":%q,"key":%q}},"owner":"root:root","permissions":"0600"}]`,
			contract.PathProxyEnv, secret, contract.KeyProxyEnv)
	}
	return `{"metadata":{"namespace":"ns","name":"md","uid":"uid-of-md"},"spec":{"template":{"spec":{` + files + `}}}}`
}

func generatedSecret(name, cluster string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name,
		Labels: map[string]string{contract.LabelGenerated: cluster, contract.LabelProxySecret: ""},
	}}
}

func TestAdmission_KeepsEntriesOfAnotherCluster(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		secret  string
		label   string
		removed bool
	}{
		"of a Cluster whose name begins alike":            {secret: "prod-eu-proxy-files"},
		"of a pool of a Cluster whose name begins alike":  {secret: "prod-eu.md.md.proxy-files", label: "prod-eu"},
		"of a Cluster whose name the own one begins with": {secret: "pro-proxy-files"},
		"of the Cluster":                                  {secret: "prod-proxy-files", label: "prod", removed: true},
		"of the Cluster, whose Secret is gone":            {secret: "prod-proxy-files", removed: true},
		"of a pool of the Cluster":                        {secret: "prod.md.md.proxy-files", removed: true},
		"of a name that is not generated, with the label": {secret: "prod-md-proxy-files", label: "prod"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cached := newWorld(t, clusterNamed("prod", false), deployment("prod"))
			if test.label != "" {
				cached.Add(generatedSecret(test.secret, test.label))
			}
			got := ask(t, cached, newWorld(t), plan.KindTemplate, "md", template(test.secret),
				template(test.secret))
			if removed := strings.Contains(string(got.Patch), `"remove"`); removed != test.removed {
				t.Errorf("patch %s, want removal %t", got.Patch, test.removed)
			}
		})
	}
}

// after returns object as a response makes it.
func after(t *testing.T, object string, response *admissionv1.AdmissionResponse) string {
	t.Helper()
	if response.Patch != nil {
		decoded, err := jsonpatch.DecodePatch(response.Patch)
		if err != nil {
			t.Fatal(err)
		}
		patched, err := decoded.Apply([]byte(object))
		if err != nil {
			t.Fatalf("%v: %s", err, response.Patch)
		}
		object = string(patched)
	}
	return object
}

func TestAdmission_DoesNotReferToForeignSecrets(t *testing.T) {
	t.Parallel()
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one-proxy-files"}}
	const warning = "capi-proxy-patcher: Secret ns/one-proxy-files "
	for name, test := range map[string]struct {
		cached, live      []client.Object
		stored, requested string
		want              bool // the proxy is in the object afterwards
		warning           string
		liveSecretGets    int
	}{
		"nobody has the name":              {requested: template(""), want: true, liveSecretGets: 1},
		"the cache has the Secret":         {cached: []client.Object{generatedSecret("one-proxy-files", "one")}, requested: template(""), want: true},
		"the cache is behind":              {live: []client.Object{generatedSecret("one-proxy-files", "one")}, requested: template(""), want: true, liveSecretGets: 1},
		"it is the user's":                 {live: []client.Object{foreign}, requested: template(""), warning: warning + "exists", liveSecretGets: 1},
		"it is another Cluster's":          {cached: []client.Object{generatedSecret("one-proxy-files", "two")}, requested: template(""), warning: warning + "was generated"},
		"a manifest refers to it":          {live: []client.Object{foreign}, requested: template("one-proxy-files"), warning: warning + "exists", liveSecretGets: 1},
		"the stored object refers to it":   {live: []client.Object{foreign}, stored: template("one-proxy-files"), requested: template(""), warning: warning + "exists", liveSecretGets: 1},
		"both refer to it":                 {live: []client.Object{foreign}, stored: template("one-proxy-files"), requested: template("one-proxy-files"), warning: warning + "exists", liveSecretGets: 1},
		"the object has another reference": {live: []client.Object{foreign}, stored: template("one-old-proxy-files"), requested: template(""), want: true, warning: warning + "exists", liveSecretGets: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cached := newWorld(t, append(test.cached, clusterNamed("one", true), deployment("one"))...)
			live := newWorld(t, test.live...)
			got := ask(t, cached, live, plan.KindTemplate, "md", test.stored, test.requested)
			if patched := strings.Contains(after(t, test.requested, got), contract.PathProxyEnv); patched != test.want {
				t.Errorf("patched %t, want %t: %s", patched, test.want, got.Patch)
			}
			if warnings := strings.Join(got.Warnings, "\n"); !strings.HasPrefix(warnings, test.warning) ||
				(test.warning == "") != (warnings == "") {
				t.Errorf("warnings %q, want %q", warnings, test.warning)
			}
			if len(live.gets) != test.liveSecretGets {
				t.Errorf("requested the API server for Secrets %v", live.gets)
			}
		})
	}
}

func TestAdmission_LeavesAControlPlaneThatHasBegun(t *testing.T) {
	t.Parallel()
	const requested = `{"metadata":{"namespace":"ns","name":"cp","uid":"u"},"spec":{"version":"v1.36.3"}}`
	labels := map[string]string{clusterv1.ClusterNameLabel: "one", clusterv1.MachineControlPlaneLabel: ""}
	first := metav1.ObjectMeta{Namespace: "ns", Name: "first", Labels: labels}
	worker := metav1.ObjectMeta{
		Namespace: "ns", Name: "worker",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "one"},
	}
	other := metav1.ObjectMeta{Namespace: "ns", Name: "other", Labels: map[string]string{
		clusterv1.ClusterNameLabel:         "two",
		clusterv1.MachineControlPlaneLabel: "",
	}}
	paused := clusterNamed("one", true)
	paused.Spec.Paused = new(true)
	for name, test := range map[string]struct {
		cached, live client.Object
		cluster      *clusterv1.Cluster
		want         bool // it is patched
		asks         int  // the API server for the KubeadmConfigs
	}{
		"nothing of it exists":                      {want: true, asks: 1},
		"the cache has its first Machine, to adopt": {cached: &clusterv1.Machine{ObjectMeta: first}},
		"the cache has the KubeadmConfig before it": {cached: &bootstrapv1.KubeadmConfig{ObjectMeta: first}},
		"a KubeadmConfig was restored a moment ago": {live: &bootstrapv1.KubeadmConfig{ObjectMeta: first}, asks: 1},
		"it is moved here before its Machines":      {cluster: paused},
		"a worker begins":                           {cached: &bootstrapv1.KubeadmConfig{ObjectMeta: worker}, live: &bootstrapv1.KubeadmConfig{ObjectMeta: worker}, want: true, asks: 1},
		"another control plane begins":              {cached: &clusterv1.Machine{ObjectMeta: other}, live: &bootstrapv1.KubeadmConfig{ObjectMeta: other}, want: true, asks: 1},
	} {
		for write, stored := range map[string]string{"create": "", "update": requested} {
			t.Run(name+", "+write, func(t *testing.T) {
				t.Parallel()
				cluster := test.cluster
				if cluster == nil {
					cluster = clusterNamed("one", true)
				}
				cached, live := newWorld(t, cluster), newWorld(t)
				if test.cached != nil {
					cached.Add(test.cached)
				}
				if test.live != nil {
					live.Add(test.live)
				}
				got := ask(t, cached, live, plan.KindControlPlane, "cp", stored, requested)
				if patched := strings.Contains(after(t, requested, got), contract.PathProxyEnv); patched != test.want {
					t.Errorf("patched %t, want %t", patched, test.want)
				}
				if len(live.lists) != test.asks {
					t.Errorf("the API server is asked for %v, want %d lists", live.lists, test.asks)
				}
			})
		}
	}
}

func TestAdmission_AddsOnlyCertificatesForASecretWithoutAProxy(t *testing.T) {
	t.Parallel()
	for env, want := range map[string]bool{
		"# Managed by capi-proxy-patcher\n":                            false,
		"# Managed by capi-proxy-patcher\nHTTP_PROXY=\"http://p:1\"\n": true,
	} {
		generated := generatedSecret("one-proxy-files", "one")
		generated.Data = map[string][]byte{contract.KeyProxyEnv: []byte(env)}
		cached := newWorld(t, generated, clusterNamed("one", true), deployment("one"))
		got := after(t, template(""), ask(t, cached, newWorld(t), plan.KindTemplate, "md", "", template("")))
		if strings.Contains(got, contract.PathProxyEnv) != want || !strings.Contains(got, contract.PathTrustedCA) {
			t.Errorf("%q: admitted %s", env, got)
		}
	}
}
