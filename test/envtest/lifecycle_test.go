package envtest

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// It runs alone, before the tests that run in parallel: they share the installation-wide Secret.
func TestInstallationWideSecret_ReachesTheClustersThatUseIt(t *testing.T) {
	if shared == nil {
		t.Skip(mgmt.ErrNoAssets)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	create(t, ns)
	mayUseDefault(t, ns.Name, true)
	proxySecret(t, ns.Name, "own-http-proxy", map[string]string{"httpProxy": proxyURL})
	served := newCluster(t, ns.Name, "served")
	own := newCluster(t, ns.Name, "own")
	served.eventuallyHas(`HTTP_PROXY="http://installation.example.com:3128"`)
	own.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`)

	secret := fetch(t, defaultSecretNamespace, defaultSecretName, &corev1.Secret{})
	before := secret.DeepCopy().Data
	change(t, secret, func(s *corev1.Secret) {
		s.Data = map[string][]byte{
			"httpProxy": []byte("http://moved.example.com:3128"),
			"noProxy":   []byte("moved.example.com"),
		}
	})
	served.eventuallyHas(`HTTP_PROXY="http://moved.example.com:3128"`)
	// Its entries are a layer of everybody's NO_PROXY.
	eventually(t, "NO_PROXY of a Cluster with a Secret of its own", func() string {
		if env := string(own.generated()[contract.KeyProxyEnv]); !strings.Contains(env, "moved.example.com") ||
			strings.Contains(env, "installation.example.com") {
			return env
		}
		return ""
	})
	change(t, secret, func(s *corev1.Secret) { s.Data = before })
	served.eventuallyHas(`HTTP_PROXY="http://installation.example.com:3128"`)
}

func TestGeneratedSecret_RepairLeavesNoMachineBehind(t *testing.T) {
	c := oneCluster(t, func(o client.Object) {
		if cluster, ok := o.(*clusterv1.Cluster); ok {
			cluster.Annotations = map[string]string{contract.AnnotationRollout: contract.RolloutImmediate}
		}
	})
	ns := c.ns
	c.eventuallyConfigured()
	c.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`)
	c.joined("one-md-a", c.template().Spec.Template.Spec, c.worker())
	time.Sleep(pause)
	change(t, fetch(t, ns, "one-proxy-files", &corev1.Secret{}),
		func(s *corev1.Secret) { s.Data[contract.KeyProxyEnv] = []byte("edited") })
	c.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`)
	if err := shared.client.Delete(t.Context(), fetch(t, ns, "one-proxy-files", &corev1.Secret{})); err != nil {
		t.Fatal(err)
	}
	c.eventuallyHas(`HTTP_PROXY="` + proxyURL + `"`)
	c.eventuallyReports(contract.ReasonConfigured)
	staysQuiet(t, ns)
	if !c.controlPlane().Spec.Rollout.After.IsZero() || !c.deployment().Spec.Rollout.After.IsZero() {
		t.Error("Machines that have the current content are replaced")
	}
	if message := c.condition().Message; strings.Contains(message, "outdated") {
		t.Error(message)
	}
}

func TestTemplate_FollowsItsPoolToAnotherCluster(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	proxySecret(t, ns, "two-http-proxy", map[string]string{"httpProxy": "http://two.example.com:3128"})
	one := newCluster(t, ns, "one")
	two := newCluster(t, ns, "two")
	one.eventuallyConfigured()
	two.eventuallyConfigured()
	user := func() string { return one.template().Spec.Template.Spec.Files[0].ContentFrom.Secret.Name }
	if user() != "one-proxy-files" {
		t.Fatalf("the template refers to %s", user())
	}
	if err := shared.client.Delete(t.Context(), one.deployment()); err != nil {
		t.Fatal(err)
	}
	change(t, two.deployment(),
		func(o *clusterv1.MachineDeployment) { o.Spec.Template.Spec.Bootstrap.ConfigRef.Name = "one-md" })
	eventually(t, "the template", func() string {
		if user() != "two-proxy-files" {
			return "it refers to Secret " + user()
		}
		return ""
	})
	one.eventuallyReports(contract.ReasonConfigured, "2 of 2 pools and control planes have the proxy")

	// To a Cluster without the label: its entries go.
	three := newCluster(t, ns, "three", func(o client.Object) { delete(o.GetLabels(), contract.LabelEnabled) })
	if err := shared.client.Delete(t.Context(), two.deployment()); err != nil {
		t.Fatal(err)
	}
	change(t, three.deployment(),
		func(o *clusterv1.MachineDeployment) { o.Spec.Template.Spec.Bootstrap.ConfigRef.Name = "one-md" })
	eventually(t, "the template", func() string {
		if one.isPatched("template") {
			return "it still has the proxy of Cluster two"
		}
		return ""
	})
}

func TestCluster_DeletionIsNotBlocked(t *testing.T) {
	c := oneCluster(t)
	ns := c.ns
	c.eventuallyReports(contract.ReasonConfigured)
	owner := c.cluster()
	secret := fetch(t, ns, "one-proxy-files", &corev1.Secret{})
	if len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].UID != owner.UID ||
		secret.OwnerReferences[0].BlockOwnerDeletion != nil {
		t.Errorf("owner references %v", secret.OwnerReferences)
	}
	for _, object := range []client.Object{owner, secret, c.controlPlane(), c.template(), c.config(), c.deployment()} {
		if len(object.GetFinalizers()) > 0 {
			t.Errorf("%T has finalizers %v", object, object.GetFinalizers())
		}
	}
	if err := shared.client.Delete(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(owner), owner); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want the Cluster to be gone at once", err)
	}
	staysQuiet(t, ns)
}

// TestTemplate_PatchedBeforeTheFirstPassIsGivenBack has a template with the entries of a Cluster that no pass has seen
// with the label, and that no pool of it uses any more.
func TestTemplate_PatchedBeforeTheFirstPassIsGivenBack(t *testing.T) {
	ns := namespace(t)
	proxySecret(t, ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL})
	one := newCluster(t, ns, "one")
	two := newCluster(t, ns, "two", func(o client.Object) { delete(o.GetLabels(), contract.LabelEnabled) })
	one.eventuallyConfigured()
	moved := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: two.meta("moved"), Spec: one.template().Spec}
	moved.Annotations = map[string]string{contract.AnnotationOutputVersion: "1"}
	for i := range moved.Spec.Template.Spec.Files {
		if secret := &moved.Spec.Template.Spec.Files[i].ContentFrom.Secret; secret.Name == "one-proxy-files" {
			secret.Name = "two-proxy-files"
		}
	}
	create(t, moved)
	eventually(t, "the template as before", func() string {
		now := fetch(t, ns, "moved", &bootstrapv1.KubeadmConfigTemplate{})
		if patch.IsPatched(api.Spec(&now.Spec.Template.Spec)) || now.Annotations[contract.AnnotationOutputVersion] != "" {
			return "it has the entries, or the record of their version"
		}
		return ""
	})
	if reason := two.condition().Reason; reason != noCondition {
		t.Errorf("a Cluster without the label has a condition with reason %s", reason)
	}
	staysQuiet(t, ns)
}
