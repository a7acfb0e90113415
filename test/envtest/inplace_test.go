package envtest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/logbuffer"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// TestNodeObjects_MeanToAnAPIServerWhatTheySay has a kube-apiserver check the objects for nodes and fill in defaults.
func TestNodeObjects_MeanToAnAPIServerWhatTheySay(t *testing.T) {
	namespace(t) // skips without an API server
	config, err := clientcmd.BuildConfigFromFlags("", shared.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	warnings := &logbuffer.Buffer{}
	config.WarningHandler = rest.NewWarningWriter(warnings, rest.WarningWriterOptions{})
	user, err := vocabulary.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plain", "pool"} {
		text, err := os.ReadFile("../../internal/inplace/testdata/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
				t.Fatal(err)
			}
			want := object.DeepCopy()
			if err := user.Create(t.Context(), object, client.FieldValidation("Strict"), client.DryRunAll); err != nil {
				t.Errorf("%s: %s %s: %v", name, object.GetKind(), object.GetName(), err)
			}
			if at := missing(want.Object, object.Object); at != "" {
				t.Errorf("%s: %s %s comes back without %s", name, object.GetKind(), object.GetName(), at)
			}
			if object.GetKind() != "DaemonSet" {
				continue
			}
			for path, want := range map[string]any{
				"template.spec.serviceAccountName":      contract.Name,
				"template.spec.hostPID":                 nil,
				"template.spec.hostIPC":                 nil,
				"template.spec.restartPolicy":           "Always",
				"template.spec.shareProcessNamespace":   nil,
				"template.spec.securityContext.sysctls": nil,
				"minReadySeconds":                       nil,
				"template.spec.hostUsers":               nil,
			} {
				got, _, err := unstructured.NestedFieldNoCopy(object.Object, append([]string{"spec"}, strings.Split(path, ".")...)...)
				if err != nil || got != want {
					t.Errorf("%s: %s is %v, want %v", name, path, got, want)
				}
			}
		}
	}
	if warnings.String() != "" {
		t.Errorf("the API server warns: %s", warnings)
	}
}

// missing returns where a value that was asked for is not in what the API server makes of it, or "".
func missing(want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		got, _ := got.(map[string]any)
		for key, value := range want {
			if at := missing(value, got[key]); at != "" {
				return key + "." + at
			}
		}
		return ""
	case []any:
		got, _ := got.([]any)
		if len(got) != len(want) {
			return fmt.Sprintf("%v", want)
		}
		for i := range want {
			if at := missing(want[i], got[i]); at != "" {
				return fmt.Sprintf("%d.%s", i, at)
			}
		}
		return ""
	case bool: // an API server leaves false out where it is the default
		if is, _ := got.(bool); is == want {
			return ""
		}
	}
	if fmt.Sprint(want) == fmt.Sprint(got) {
		return ""
	}
	return fmt.Sprintf("%v", want)
}

// TestReadinessEndpoints_LeaveNoMachineBehind changes what nodes ask for in updates in place, which no bootstrap data
// has.
func TestReadinessEndpoints_LeaveNoMachineBehind(t *testing.T) {
	ns := namespace(t)
	secret := proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	c := newCluster(t, ns, "one")
	c.eventuallyReports(contract.ReasonConfigured)
	generated := func() *corev1.Secret { return fetch(t, ns, "one-proxy-files", &corev1.Secret{}) }
	hash := string(generated().Data[contract.KeyContentHash])
	for text, want := range map[string]string{
		"HTTPS://A.example.com, https://b.example.com/": "https://a.example.com\nhttps://b.example.com/\n",
		"https://c.example.com":                         "https://c.example.com\n",
		"":                                              "",
	} {
		change(t, secret, func(s *corev1.Secret) { s.Data["readinessEndpoints"] = []byte(text) })
		eventually(t, "the URLs in the generated Secret", func() string {
			if got := string(generated().Data[contract.KeyReadiness]); got != want {
				return got
			}
			return ""
		})
	}
	if now := generated(); now.Annotations[contract.AnnotationChangedAt] != "" || string(now.Data[contract.KeyContentHash]) != hash {
		t.Errorf("Machines are behind: annotations %v", now.Annotations)
	}
	change(t, secret, func(s *corev1.Secret) { s.Data["readinessEndpoints"] = []byte("https://u:s3cr@c.example.com") })
	c.eventuallyReports(contract.ReasonInvalidSettings, "key readinessEndpoints entry 1: a user or password in the URL")
}

// TestInPlace_WithoutItsImageIsReported has a manager without --node-image.
func TestInPlace_WithoutItsImageIsReported(t *testing.T) {
	c := oneCluster(t)
	c.eventuallyReports(contract.ReasonConfigured)
	c.edit(func(cluster *clusterv1.Cluster) {
		cluster.Annotations = map[string]string{contract.AnnotationRollout: inplace.RolloutInPlace}
	})
	c.eventuallyReports(inplace.ReasonInPlaceNotInstalled, "the manager runs without --node-image")
	if cluster := c.cluster(); cluster.Annotations[inplace.AnnotationInPlaceApplied] != "" {
		t.Errorf("annotations %v", cluster.Annotations)
	}
	c.edit(func(cluster *clusterv1.Cluster) { cluster.Annotations = nil })
	c.eventuallyReports(contract.ReasonConfigured)
}
