package world_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// named is the metadata of an object of a namespace.
func named(namespace, name string, labels ...string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}}
	for pair := range slices.Chunk(labels, 2) {
		meta.Labels[pair[0]] = pair[1]
	}
	return meta
}

// partial says of each list that there is more, as a cache of controller-runtime does.
type partial struct{ *world.Reader }

func (p partial) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	list.SetContinue("continue-not-supported")
	return p.Reader.List(ctx, list, options...)
}

// TestClusters_AreThoseThatAChangeConcerns has Clusters a and b of a namespace, and c of another one, with the label. The
// MachineDeployment of a and the MachinePool of b name Secret other.
func TestClusters_AreThoseThatAChangeConcerns(t *testing.T) {
	t.Parallel()
	cluster := func(namespace, name string) *clusterv1.Cluster {
		c := &clusterv1.Cluster{ObjectMeta: named(namespace, name, contract.LabelEnabled, contract.LabelEnabledValue)}
		c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{Kind: plan.KindControlPlane, Name: name + "-cp"}
		return c
	}
	b := cluster("team", "b")
	b.Annotations = map[string]string{contract.AnnotationSecret: "own"}
	deployment := &clusterv1.MachineDeployment{ObjectMeta: named("team", "md")}
	deployment.Annotations = map[string]string{contract.AnnotationSecret: "other"}
	deployment.Spec.ClusterName = "a"
	deployment.Spec.Template.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{Kind: plan.KindTemplate, Name: "t"}
	foreign := deployment.DeepCopy()
	foreign.Name, foreign.Annotations, foreign.Spec.ClusterName = "rke2", nil, "b"
	foreign.Spec.Template.Spec.Bootstrap.ConfigRef.Kind = "RKE2ConfigTemplate"
	pool := &clusterv1.MachinePool{ObjectMeta: named("team", "mp")}
	pool.Annotations = deployment.Annotations
	pool.Spec.ClusterName = "b"
	pool.Spec.Template.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{Kind: plan.KindConfig, Name: "k"}
	read := func(text string) *bootstrapv1.KubeadmConfigTemplate {
		template := &bootstrapv1.KubeadmConfigTemplate{}
		if err := yaml.UnmarshalStrict([]byte(text), template); err != nil {
			t.Fatal(err)
		}
		return template
	}
	patched := read(`{metadata: {namespace: team, name: t}, spec: {template: {spec: {files: [{path: ` + contract.PathProxyEnv +
		`, contentFrom: {secret: {name: z-proxy-files, key: ` + contract.KeyProxyEnv + `}}}]}}}}`)
	old := read(`{metadata: {namespace: far, labels: {topology.cluster.x-k8s.io/owned: "", cluster.x-k8s.io/cluster-name: one}}}`)
	reader, err := world.Of(t.Context(), cluster("team", "a"), b, cluster("far", "c"),
		&clusterv1.Cluster{ObjectMeta: named("team", "off")}, deployment, foreign, pool, patched)
	if err != nil {
		t.Fatal(err)
	}
	c := world.Clusters{Client: partial{reader}, Installation: types.NamespacedName{Namespace: "operators", Name: "proxy"}}
	secret := func(namespace, name string) []ctrl.Request {
		return c.OfProxySecret(t.Context(), &corev1.Secret{ObjectMeta: named(namespace, name)})
	}
	ofOutput := named("team", "a-proxy-outputs", contract.LabelGenerated, "a", contract.LabelOutput, "proxy-outputs")
	generated := named("team", "a-proxy-files", contract.LabelGenerated, "a")
	object := func(meta metav1.ObjectMeta) client.Object { return &corev1.Secret{ObjectMeta: meta} }
	for name, test := range map[string]struct {
		got  []ctrl.Request
		want string
	}{
		"a label of Cluster API":          {world.ClusterOfLabel(t.Context(), object(named("team", "x", clusterv1.ClusterNameLabel, "a"))), "team/a"},
		"no label":                        {world.ClusterOfLabel(t.Context(), object(named("team", "x"))), ""},
		"a generated Secret":              {world.ClusterOfGeneratedSecret(t.Context(), object(generated)), "team/a"},
		"a Secret of an output":           {world.ClusterOfGeneratedSecret(t.Context(), object(ofOutput)), ""},
		"a control plane":                 {c.OfControlPlane(t.Context(), object(named("team", "a-cp"))), "team/a"},
		"one of another namespace":        {c.OfControlPlane(t.Context(), object(named("far", "a-cp"))), ""},
		"a template of a pool":            {c.OfTemplate(t.Context(), &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: named("team", "t")}), "team/a"},
		"a config of a MachinePool":       {c.OfConfig(t.Context(), object(named("team", "k"))), "team/b"},
		"a config with a label":           {c.OfConfig(t.Context(), object(named("team", "x", clusterv1.ClusterNameLabel, "a"))), "team/a"},
		"one that was patched for z":      {c.OfTemplate(t.Context(), patched), "team/a team/z"},
		"one that a topology has left":    {c.OfTemplate(t.Context(), old), "far/one"},
		"a pool with this template":       {c.OfPool(t.Context(), deployment), "team/a team/z"},
		"a MachinePool":                   {c.OfPool(t.Context(), pool), "team/b"},
		"a Namespace":                     {c.OfNamespace(t.Context(), object(named("", "team"))), "team/a team/b"},
		"the Secret that a Cluster names": {secret("team", "own"), "team/b"},
		"the Secret that pools name":      {secret("team", "other"), "team/a team/b"},
		"a Secret with a Cluster's name":  {secret("team", "a"+contract.ClusterSecretSuffix), "team/a"},
		"the installation's Secret":       {secret("operators", "proxy"), "far/c team/a team/b"},
		"the same name elsewhere":         {secret("team", "proxy"), ""},
	} {
		var got []string
		for _, request := range test.got {
			got = append(got, request.String())
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s: got %q, want %q", name, text, test.want)
		}
	}
}
