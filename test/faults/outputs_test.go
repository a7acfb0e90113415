package faults

import (
	"fmt"
	"strings"
	"testing"

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
