package workload

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
)

func TestIsConnected_OnlyForWhatAsks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit func(*clusterv1.Cluster)
		want bool
	}{
		"asks":            {func(*clusterv1.Cluster) {}, true},
		"has no label":    {func(c *clusterv1.Cluster) { delete(c.Labels, contract.LabelEnabled) }, false},
		"another rollout": {func(c *clusterv1.Cluster) { c.Annotations[contract.AnnotationRollout] = contract.RolloutImmediate }, false},
		"no rollout":      {func(c *clusterv1.Cluster) { c.Annotations = nil }, false},
		"may have something left": {func(c *clusterv1.Cluster) {
			c.Labels, c.Annotations = nil, map[string]string{contract.AnnotationInPlace: "true"}
		}, true},
		"is being deleted":            {func(c *clusterv1.Cluster) { c.DeletionTimestamp = &metav1.Time{} }, true},
		"is of another namespace":     {func(c *clusterv1.Cluster) { c.Namespace = "other" }, false},
		"and may have something left": {func(c *clusterv1.Cluster) { c.Namespace, c.Annotations[contract.AnnotationInPlace] = "other", "true" }, false},
	} {
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "prod", Labels: map[string]string{contract.LabelEnabled: contract.LabelEnabledValue},
			Annotations: map[string]string{contract.AnnotationRollout: contract.RolloutInPlace},
		}}
		test.edit(cluster)
		if cluster.DeletionTimestamp != nil {
			*cluster.DeletionTimestamp, test.want = metav1.Now(), false
		}
		if got := isConnected(cluster, intent.Scope{Namespace: "team"}); got != test.want {
			t.Errorf("%s: connected %v", name, got)
		}
	}
}

// secrets reads one Secret.
type secrets struct {
	client.Reader

	value string
}

func (s secrets) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	into.(*corev1.Secret).Data = map[string][]byte{"value": []byte(s.value)} //nolint:forcetypeassert // it is one
	return nil
}

// TestKubeconfigs_ReachNoFileOfTheManager refuses what would send the manager's own files, such as its token, to the
// server that the kubeconfig names.
func TestKubeconfigs_ReachNoFileOfTheManager(t *testing.T) {
	t.Parallel()
	text := func(cluster, user string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster: {server: 'https://evil.example.com', %s}\n"+
			"users:\n- name: u\n  user: {%s}\n", cluster, user)
	}
	for name, test := range map[string]struct{ text, want string }{
		"data":         {text("certificate-authority-data: YQ==", "client-certificate-data: YQ==, client-key-data: YQ=="), ""},
		"a token":      {text("", "token: hunter2"), ""},
		"a CA file":    {text("certificate-authority: /etc/passwd", "token: hunter2"), "certificate-authority"},
		"a token file": {text("", "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token"), "tokenFile"},
		"a cert file":  {text("", "client-certificate: /tls.crt"), "client-certificate"},
		"a key file":   {text("", "client-key: /tls.key"), "client-key"},
		"a program":    {text("", "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}"), "exec"},
		"a plugin":     {text("", "auth-provider: {name: oidc}"), "auth-provider"},
		"not YAML":     {"password: hunter2\n\t{{", "cannot be parsed"},
	} {
		err := kubeconfigs{Reader: secrets{value: test.text}}.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "prod-kubeconfig"},
			&corev1.Secret{})
		if test.want == "" && err == nil {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "Secret team/prod-kubeconfig") ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v, want one with %q", name, err, test.want)
		}
	}
}
