package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/cabundle"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// publisher is a labelled Cluster that asks for outputs.
type publisher struct{ vocabulary.Publisher }

// newPublisher creates a Cluster that asks for a list of outputs, its control plane, and its proxy Secret.
func newPublisher(t *testing.T, ns, name, list string, data map[string]string) publisher {
	t.Helper()
	p := publisherOf(t, ns, name)
	p.Create(list, data)
	return p
}

func publisherOf(t *testing.T, ns, name string) publisher {
	t.Helper()
	return publisher{vocabulary.Publisher{T: t, Client: shared.client, Namespace: ns, Name: name, Wait: eventually}}
}

// eventuallyConfigured waits for the condition about nodes, whose message may come a second later than all else.
func (p publisher) eventuallyConfigured() {
	p.T.Helper()
	eventually(p.T, "condition about nodes of Cluster "+p.Name, func() string {
		cluster := p.Cluster()
		condition := vocabulary.Condition(cluster)
		if condition.Reason != contract.ReasonConfigured || condition.ObservedGeneration != cluster.Generation {
			return fmt.Sprintf("reason %s of generation %d", condition.Reason, condition.ObservedGeneration)
		}
		return ""
	})
}

// eventuallyUnpatched waits until nothing is left of the label that was removed.
func (p publisher) eventuallyUnpatched() {
	p.T.Helper()
	eventually(p.T, "removal from Cluster "+p.Name, func() string {
		if condition := vocabulary.Condition(p.Cluster()); condition.Reason != noCondition {
			return "reason " + condition.Reason
		}
		return ""
	})
}

// wantNoSecret fails if a Secret of an output is left in the management cluster.
func (p publisher) wantNoSecret() {
	p.T.Helper()
	var secrets corev1.SecretList
	if err := shared.client.List(p.T.Context(), &secrets, client.InNamespace(p.Namespace), client.HasLabels{contract.LabelOutput}); err != nil {
		p.T.Fatal(err)
	}
	for _, secret := range secrets.Items {
		p.T.Errorf("Secret %s is left", secret.Name)
	}
}

// wantGone fails if anything of the outputs is left in the management cluster.
func (p publisher) wantGone() {
	p.T.Helper()
	p.wantNoSecret()
	cluster := p.Cluster()
	for _, key := range []string{
		contract.AnnotationHTTPProxy, contract.AnnotationHTTPSProxy, contract.AnnotationNoProxy, contract.AnnotationApplied,
	} {
		if _, found := cluster.Annotations[key]; found {
			p.T.Errorf("annotation %s is left", key)
		}
	}
}

func TestOutputs_FollowTheCluster(t *testing.T) {
	ns := namespace(t)
	t.Parallel()
	p := manager(t, ns, noResync)
	c := newPublisher(t, ns, "prod", "env,values=defaults.env,annotations,giantswarm", map[string]string{"httpProxy": proxyURL})
	c.Eventually(contract.ReasonPublished, "env, values=defaults.env, annotations, giantswarm")
	env := c.Secret("-proxy-outputs")
	if string(env["HTTPS_PROXY"]) != proxyURL || !strings.Contains(string(env["no_proxy"]), "prod.example.com") ||
		!strings.HasPrefix(string(env["values.yaml"]), "defaults:\n  env:\n  - name: HTTPS_PROXY\n") {
		t.Errorf("got %q", env)
	}
	if got := c.Cluster().Annotations[contract.AnnotationNoProxy]; got != string(env["NO_PROXY"]) {
		t.Errorf("annotation %q", got)
	}
	c.eventuallyConfigured() // the two conditions do not displace each other
	c.Publish("env, nope")
	c.Eventually(contract.ReasonInvalidOutput, `entry 2: "nope" is not an output`)
	c.Publish("env,annotations")
	c.UseProxy(map[string]string{"httpProxy": "%s"})
	c.Eventually(contract.ReasonInvalidSettings, "httpProxy")
	if got := string(c.Secret("-proxy-outputs")["HTTPS_PROXY"]); got != proxyURL || c.Secret("-cluster-values") != nil {
		t.Errorf("with invalid settings HTTPS_PROXY is %q", got)
	}
	c.UseProxy(map[string]string{"httpProxy": otherProxyURL, "username": "needle", "password": "needle"})
	c.Eventually(contract.ReasonPublished, "only capi-proxy-patcher.io/no-proxy is written")
	if text := fmt.Sprint(c.Cluster()); strings.Contains(text, "needle") ||
		!strings.Contains(string(c.Secret("-proxy-outputs")["HTTPS_PROXY"]), "needle:needle@") {
		t.Errorf("credentials are in the Cluster, or not in the Secret: %s", text)
	}
	c.eventuallyConfigured()
	p.stop()
	staysQuiet(t, ns)
	p = manager(t, ns, noResync)
	c.Edit(func(cluster *clusterv1.Cluster) {
		cluster.Spec.Paused = new(true)
		delete(cluster.Annotations, contract.AnnotationPublish)
	})
	d := newPublisher(t, ns, "other", "env", map[string]string{"httpProxy": proxyURL})
	d.Eventually(contract.ReasonPublished)
	d.eventuallyConfigured()
	if c.Secret("-proxy-outputs") == nil {
		t.Error("a paused Cluster was changed")
	}
	c.Edit(func(cluster *clusterv1.Cluster) { cluster.Spec.Paused = nil })
	c.Eventually("")
	d.Edit(func(cluster *clusterv1.Cluster) { delete(cluster.Labels, contract.LabelEnabled) })
	d.Eventually("")
	c.wantGone()
	c.eventuallyConfigured()
	d.eventuallyUnpatched()
	p.stop()
	staysQuiet(t, ns)
}

func TestOutputs_WaitForTheEndpoint(t *testing.T) {
	ns := namespace(t)
	t.Parallel()
	manager(t, ns, noResync)
	c := publisherOf(t, ns, "prod")
	o := vocabulary.NewClassic(ns, c.Name, c.Name)
	o.Cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
	o.Cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	o.Cluster.Annotations = map[string]string{contract.AnnotationPublish: "env"}
	create(t, o.ControlPlane, o.Cluster)
	c.Eventually(contract.ReasonSettingsNotFound, "prod-http-proxy")
	create(t, vocabulary.ProxySecret(ns, "http-proxy", map[string]string{"httpProxy": proxyURL}))
	c.Eventually(contract.ReasonWaitingForEndpoint, "spec.controlPlaneEndpoint of Cluster "+ns+"/prod")
	if c.Secret("-proxy-outputs") != nil {
		t.Error("an incomplete NO_PROXY was published")
	}
	c.Edit(func(cluster *clusterv1.Cluster) {
		cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "api.example.com", Port: 6443}
	})
	c.Eventually(contract.ReasonPublished)
	if got := string(c.Secret("-proxy-outputs")["NO_PROXY"]); !strings.Contains(got, "api.example.com") {
		t.Errorf("NO_PROXY is %s", got)
	}
	for _, immutable := range []*bool{nil, new(true)} {
		secret := vocabulary.Fetch(t, shared.client, ns, "prod-proxy-outputs", &corev1.Secret{})
		vocabulary.Change(t, shared.client, secret, func(s *corev1.Secret) {
			s.Data["NO_PROXY"], s.Immutable = []byte("edited"), immutable
		})
		eventually(t, "Secret that somebody has edited", func() string {
			if got := string(c.Secret("-proxy-outputs")["NO_PROXY"]); !strings.Contains(got, "api.example.com") {
				return "NO_PROXY is " + got
			}
			return ""
		})
	}
}

func TestOutputs_NeverTouchWhatIsNotTheirs(t *testing.T) {
	ns := namespace(t)
	t.Parallel()
	manager(t, ns, noResync)
	foreign := []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "prod-proxy-outputs"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: "prod-cluster-values", Labels: map[string]string{contract.LabelGenerated: "else"},
		}},
	}
	create(t, foreign...)
	versions := make([]string, len(foreign))
	for i := range foreign {
		versions[i] = foreign[i].GetResourceVersion()
	}
	c := newPublisher(t, ns, "prod", "env,giantswarm", map[string]string{"httpProxy": proxyURL})
	c.Eventually(contract.ReasonNameTaken, "Secret "+ns+"/prod-proxy-outputs exists", "Secret "+ns+"/prod-cluster-values exists")
	for i, object := range slices.Backward(foreign) {
		if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || object.GetResourceVersion() != versions[i] {
			t.Errorf("%T %s was touched: %v", object, object.GetName(), err)
		}
		if err := shared.client.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	c.Eventually(contract.ReasonPublished)
	if c.Secret("-proxy-outputs") == nil || c.Secret("-cluster-values") == nil {
		t.Error("a Secret whose name is free again was not written")
	}
	c.Publish("")
	c.Eventually("")
	c.wantGone()
}

func TestOutputs_ForAWorkloadClusterThatIsNotThere(t *testing.T) {
	ns := namespace(t)
	t.Parallel()
	p := manager(t, ns, noResync)
	data := map[string]string{"httpProxy": proxyURL, "username": "needle", "password": "needle", "trustedCA": cabundle.Small(t)}
	c := newPublisher(t, ns, "prod", "kapp-controller", data)
	c.Eventually(contract.ReasonCredentialsWithheld, "output kapp-controller=kapp-controller")
	if applied := c.Cluster().Annotations[contract.AnnotationApplied]; applied != "" {
		t.Errorf("nothing is applied, and the annotation is %q", applied)
	}
	c.Publish("trust=cert-manager")
	c.Eventually(contract.ReasonDelivering, "the workload cluster does not answer with the kubeconfig of Secret "+ns+"/prod-kubeconfig")
	c.eventuallyConfigured()
	p.stop()
	manager(t, ns, noResync)
	c.Publish("")
	c.Eventually(contract.ReasonWithdrawing, "the workload cluster does not answer")
	if c.Cluster().Annotations[contract.AnnotationApplied] == "" {
		t.Error("it is forgotten that something may be in the workload cluster")
	}
	c.wantNoSecret()
}
