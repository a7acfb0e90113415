package envtest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline"
)

// TestCredentials_StayInSecrets runs the product through every state that knows a password, good and bad, and looks for
// it, in every form that it may take, in everything that is not the data of a Secret.
func TestCredentials_StayInSecrets(t *testing.T) {
	ns := namespace(t)
	const core = "zq7LEAKxk" // in every password, so that parts of it are found too
	password := core + `%@"'$\&#{{` + core
	good := map[string]string{"httpProxy": proxyURL, "username": "leaky" + core, "password": password}
	secret := proxySecret(t, ns, "one-http-proxy", good)
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonConfigured)
	if !strings.Contains(string(c.generated()[contract.KeyProxyEnv]), url.QueryEscape(core)) {
		t.Fatal("the password did not reach the node")
	}

	// Every way to be wrong, with the password where it hurts.
	for _, bad := range []map[string]string{
		{"httpProxy": "http://leaky:" + password + "@proxy:1"},
		{"httpProxy": "http://leaky:" + core + "@proxy:1", "username": core},
		{"httpProxy": "leaky:" + core + "@proxy:1"},
		{"httpProxy": proxyURL, "password": core},
		{"httpProxy": proxyURL, "username": core + ":" + core},
		{"httpProxy": proxyURL, "noProxy": "http://leaky:" + core + "@proxy:1/"},
		{"httpProxy": proxyURL, "noProxy": core + "\x01"},
		{"httpProxy": proxyURL, "trustedCA": core},
		{"httpProxy": "http://leaky:" + core + "@proxy:1#" + core},
	} {
		change(t, secret, func(s *corev1.Secret) { s.Data, s.StringData = nil, bad })
		c.eventuallyReports(contract.ReasonInvalidSettings)
		change(t, secret, func(s *corev1.Secret) { s.Data, s.StringData = nil, good })
		c.eventuallyReports(contract.ReasonConfigured)
	}

	stream := everythingIn(t, ns)
	texts := map[string]string{"objects and events": stream, "the log": shared.logs.String()}
	whole := stream + "---\n" + manifestOf(t, secret, good)
	bad := strings.Replace(whole, proxyURL, "leaky:"+core+"@proxy:1", 1)
	for name, run := range map[string]struct {
		input  string
		args   []string
		status int
	}{
		"render": {whole, []string{"render", "-f", "-"}, 0}, "render -o diff": {whole, []string{"render", "-f", "-", "-o", "diff"}, 0},
		"render of bad input": {bad, []string{"render", "-f", "-"}, 1},
	} {
		var out bytes.Buffer
		status := cli.Main(t.Context(), run.args, kit.Streams{In: strings.NewReader(run.input), Out: &out, Err: &out}, offline.New())
		text := out.String()
		if status != run.status {
			t.Errorf("%s: exit status %d: %.2000s", name, status, text)
		}
		if name == "render" { // the Secret of the input is in the output, as it was
			text = strings.ReplaceAll(text, manifestOf(t, secret, good), "")
		}
		texts[name] = text
	}
	for name, text := range texts {
		for _, form := range forms(core) {
			if i := strings.Index(text, form); i >= 0 {
				t.Errorf("%s holds %q: …%s…", name, form, text[max(0, i-80):min(len(text), i+80)])
			}
		}
	}
}

// forms returns text unchanged, and its base64 forms at every offset in an encoded value.
func forms(text string) []string {
	all := []string{text}
	for offset := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + text))
		all = append(all, encoded[4:len(encoded)-4])
	}
	return all
}

// everythingIn returns every object of a namespace that has to do with the product, Secrets without their data.
func everythingIn(t *testing.T, ns string) string {
	t.Helper()
	var b strings.Builder
	for _, list := range []client.ObjectList{
		&clusterv1.ClusterList{}, &controlplanev1.KubeadmControlPlaneList{}, &bootstrapv1.KubeadmConfigTemplateList{},
		&bootstrapv1.KubeadmConfigList{},
		&clusterv1.MachineDeploymentList{}, &clusterv1.MachinePoolList{}, &eventsv1.EventList{}, &corev1.SecretList{},
	} {
		if err := shared.client.List(t.Context(), list, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		encoded, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		var object struct {
			Items []map[string]any `json:"items"`
		}
		if err := json.Unmarshal(encoded, &object); err != nil {
			t.Fatal(err)
		}
		for _, item := range object.Items {
			if _, secret := list.(*corev1.SecretList); secret {
				delete(item, "data")
			} else if gvk, err := shared.client.GroupVersionKindFor(list); err == nil {
				item["apiVersion"], item["kind"] = gvk.GroupVersion().String(), strings.TrimSuffix(gvk.Kind, "List")
			}
			text, err := yaml.Marshal(item)
			if err != nil {
				t.Fatal(err)
			}
			b.WriteString("---\n" + string(text))
		}
	}
	if !strings.Contains(b.String(), "InvalidProxySettings") {
		t.Error("no event of the bad settings was among what was searched")
	}
	return b.String()
}

func manifestOf(t *testing.T, secret *corev1.Secret, data map[string]string) string {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": secret.Name, "namespace": secret.Namespace}, "stringData": data,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
