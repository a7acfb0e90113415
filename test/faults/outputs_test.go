package faults

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// publisher is a labelled Cluster that asks for outputs.
type publisher struct{ vocabulary.Publisher }

// newPublisher creates a Cluster that asks for a list of outputs, its control plane, and its proxy Secret.
func newPublisher(t *testing.T, ns, name, list string, data map[string]string) publisher {
	t.Helper()
	p := publisher{vocabulary.Publisher{T: t, Client: shared.client, Namespace: ns, Name: name, Wait: eventually}}
	p.Create(list, data)
	return p
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

// TestOutputs_FollowEvents changes the proxy Secret and the label. The manager needs the event of each change.
func TestOutputs_FollowEvents(t *testing.T) {
	ns := namespace(t)
	t.Parallel()
	p := manager(t, ns, noResync)
	c := newPublisher(t, ns, "prod", "env,annotations", map[string]string{"httpProxy": proxyURL})
	c.Eventually(contract.ReasonPublished, "env, annotations")
	if env := c.Secret("-proxy-outputs"); string(env["HTTPS_PROXY"]) != proxyURL ||
		c.Cluster().Annotations[contract.AnnotationNoProxy] != string(env["NO_PROXY"]) {
		t.Errorf("got %q", env)
	}
	c.UseProxy(map[string]string{"httpProxy": otherProxyURL, "username": "needle", "password": "needle"})
	c.Eventually(contract.ReasonPublished, "only capi-proxy-patcher.io/no-proxy is written")
	if text := fmt.Sprint(c.Cluster()); strings.Contains(text, "needle") ||
		!strings.Contains(string(c.Secret("-proxy-outputs")["HTTPS_PROXY"]), "needle:needle@") {
		t.Errorf("credentials are in the Cluster, or not in the Secret: %s", text)
	}
	c.eventuallyConfigured() // the two conditions do not displace each other
	p.stop()
	staysQuiet(t, ns)
	p = manager(t, ns, noResync)
	c.Edit(func(cluster *clusterv1.Cluster) { delete(cluster.Labels, contract.LabelEnabled) })
	c.Eventually("")
	eventually(t, "removal", func() string {
		if condition := vocabulary.Condition(c.Cluster()); condition.Reason != noCondition {
			return "reason " + condition.Reason
		}
		return ""
	})
	if c.Secret("-proxy-outputs") != nil || c.Cluster().Annotations[contract.AnnotationNoProxy] != "" {
		t.Error("outputs are left")
	}
	p.stop()
	staysQuiet(t, ns)
}

// TestOutputs_TakeTheirNamesBack has somebody else create a Secret with the name of an output, then take the label off that
// of the manager, and delete each.
func TestOutputs_TakeTheirNamesBack(t *testing.T) {
	const foreign = "100% $HOME `{{ . }}"
	ns := namespace(t)
	t.Parallel()
	p := manager(t, ns, noResync)
	taken := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "prod-proxy-outputs"}, Data: map[string][]byte{"NO_PROXY": []byte(foreign)},
	}
	create(t, taken)
	c := newPublisher(t, ns, "prod", "env", map[string]string{"httpProxy": proxyURL})
	for _, take := range []func(*corev1.Secret){
		func(s *corev1.Secret) { // without the label it belongs to somebody else
			delete(s.Labels, contract.LabelGenerated)
			s.Data["NO_PROXY"] = []byte(foreign)
		},
		nil,
	} {
		c.Eventually(contract.ReasonNameTaken, "Secret "+ns+"/prod-proxy-outputs exists")
		if got := string(c.Secret("-proxy-outputs")["NO_PROXY"]); got != foreign {
			t.Errorf("the Secret of another holds %q", got)
		}
		if err := shared.client.Delete(t.Context(), taken); err != nil {
			t.Fatal(err)
		}
		c.Eventually(contract.ReasonPublished)
		taken = vocabulary.Fetch(t, shared.client, ns, taken.Name, &corev1.Secret{})
		if len(taken.OwnerReferences) != 1 || taken.OwnerReferences[0].UID != c.Cluster().UID {
			t.Errorf("the Secret is %v", taken.ObjectMeta)
		}
		if take != nil {
			vocabulary.Change(t, shared.client, taken, take)
		}
	}
	c.eventuallyConfigured()
	p.stop()
	staysQuiet(t, ns)
}
