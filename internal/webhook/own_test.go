package webhook_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// template is a KubeadmConfigTemplate with a managed file that comes from a Secret, or none for "".
func template(secret string) string {
	files := ""
	if secret != "" {
		files = fmt.Sprintf(`"files":[{"path":%q,"contentFrom":{"secret":{"name":%q,"key":%q}},"owner":"root:root","permissions":"0600"}]`,
			contract.PathProxyEnv, secret, contract.KeyProxyEnv)
	}
	return `{"metadata":{"namespace":"ns","name":"md","uid":"uid-of-md"},"spec":{"template":{"spec":{` + files + `}}}}`
}

func generatedSecret(name, cluster string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{contract.LabelGenerated: cluster}}}
}

func TestEntriesOfAnotherCluster_AreKept(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		secret  string
		label   string
		removed bool
	}{
		"of a Cluster whose name begins alike":            {secret: "prod-eu-proxy-files"},
		"of a pool of a Cluster whose name begins alike":  {secret: "prod-eu.md.md.proxy-files", label: "prod-eu"},
		"of a Cluster whose name the own one begins with": {secret: "pro-proxy-files"},
		"of the Cluster":                                    {secret: "prod-proxy-files", label: "prod", removed: true},
		"of the Cluster, whose Secret is gone":              {secret: "prod-proxy-files", removed: true},
		"of a pool of the Cluster":                          {secret: "prod.md.md.proxy-files", removed: true},
		"of a pool of the Cluster by its name of yesterday": {secret: "prod-md-proxy-files", label: "prod", removed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cached := newWorld(t, clusterNamed("prod", false, nil), deployment("md", "prod", "md", nil))
			if test.label != "" {
				cached.objects = append(cached.objects, generatedSecret(test.secret, test.label))
			}
			got := ask(t, cached, newWorld(t), noSecrets{t}, plan.KindTemplate, "md", template(test.secret), template(test.secret))
			if removed := strings.Contains(string(got.Patch), `"remove"`); removed != test.removed {
				t.Errorf("patch %s, want removal %t", got.Patch, test.removed)
			}
		})
	}
}
