package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/resolve"
)

// bootstrapMeta are the names of stored objects, whose UID nobody guesses.
func bootstrapMeta(name, uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}
}

// innerProxy is a reader of one proxy Secret.
type innerProxy struct{}

func (innerProxy) ReadSecret(_ context.Context, name types.NamespacedName) (*resolve.Secret, error) {
	return &resolve.Secret{
		Name: name,
		Data: map[string][]byte{contract.KeyHTTPProxy: []byte("http://inner.example.com:3128")},
	}, nil
}

func TestInlineValues_AreAnsweredOnlyForTheStoredObject(t *testing.T) {
	t.Parallel()
	cluster := clusterNamed("one", true, map[string]string{contract.AnnotationDelivery: contract.DeliveryInline})
	pool := &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mp"}}
	pool.Spec.ClusterName = "one"
	pool.Spec.Template.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{
		Kind: plan.KindConfig,
		Name: "mp",
	}
	controlPlane := &controlplanev1.KubeadmControlPlane{ObjectMeta: bootstrapMeta("cp", "u")}
	template := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: bootstrapMeta("md", "u")}
	config := &bootstrapv1.KubeadmConfig{ObjectMeta: bootstrapMeta("mp", "u")}
	object := func(name, uid, more string) string {
		return fmt.Sprintf(
			`{"metadata":{"namespace":"ns","name":%q,"uid":%q%s},"spec":{},"status":{"conditions":[{"type":"Paused","status":"True"}]}}`, name, uid, more)
	}
	ofMachine := `,"labels":{"cluster.x-k8s.io/cluster-name":"one","cluster.x-k8s.io/deployment-name":"md"},"ownerReferences":[{"kind":"MachineSet","name":"x","controller":true}]`
	for name, test := range map[string]struct {
		kind          string
		cached        client.Object
		stored, asked string
		want, hold    bool
	}{
		"a control plane is created":            {kind: plan.KindControlPlane, asked: object("cp", "", ""), want: true},
		"one that exists is created":            {kind: plan.KindControlPlane, cached: controlPlane, asked: object("cp", "", "")},
		"the stored control plane is written":   {kind: plan.KindControlPlane, cached: controlPlane, stored: object("cp", "u", ""), asked: object("cp", "u", ""), want: true},
		"another control plane is written":      {kind: plan.KindControlPlane, cached: controlPlane, stored: object("cp", "v", ""), asked: object("cp", "v", "")},
		"one that does not exist is written":    {kind: plan.KindControlPlane, stored: object("cp", "u", ""), asked: object("cp", "u", "")},
		"a template is created":                 {kind: plan.KindTemplate, asked: object("md", "", ""), want: true},
		"a template that exists is created":     {kind: plan.KindTemplate, cached: template, asked: object("md", "", "")},
		"the KubeadmConfig of a MachinePool":    {kind: plan.KindConfig, asked: object("mp", "", ""), want: true},
		"that exists":                           {kind: plan.KindConfig, cached: config, asked: object("mp", "", ""), hold: true},
		"the KubeadmConfig of a Machine":        {kind: plan.KindConfig, asked: object("md-x", "", ofMachine), hold: true},
		"a KubeadmConfig that names a Cluster":  {kind: plan.KindConfig, asked: object("x", "", `,"labels":{"cluster.x-k8s.io/cluster-name":"one"}`), hold: true},
		"the KubeadmConfig of a pool, labelled": {kind: plan.KindConfig, asked: object("mp", "", `,"labels":{"cluster.x-k8s.io/deployment-name":"md","cluster.x-k8s.io/cluster-name":"one"}`), hold: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cached := newWorld(t, cluster, pool, deployment("one"))
			if test.cached != nil {
				cached.objects = append(cached.objects, test.cached)
			}
			got := ask(t, cached, newWorld(t), innerProxy{}, test.kind, nameIn(t, test.asked), test.stored, test.asked)
			if given := strings.Contains(string(got.Patch), "inner.example.com"); given != test.want {
				t.Errorf("values in the answer %t, want %t: %s", given, test.want, got.Patch)
			}
			if held := strings.Contains(string(got.Patch), contract.PausedForEndpoint); held != test.hold {
				t.Errorf("held back %t, want %t: %s", held, test.hold, got.Patch)
			}
		})
	}
}

func nameIn(t *testing.T, object string) string {
	t.Helper()
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(object), &o); err != nil {
		t.Fatal(err)
	}
	return o.Name
}
