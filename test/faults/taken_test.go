package faults

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// foreignValue is in an object that another has made under the name of one of ours.
const foreignValue = "100% $HOME `{{ . }}"

// foreignSecret is a Secret of another with the name of an output of the Cluster.
func (p publisher) foreignSecret(end string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name + end},
		Data:       map[string][]byte{"NO_PROXY": []byte(foreignValue)},
	}
}

func (p publisher) remove(object client.Object) {
	p.T.Helper()
	if err := shared.client.Delete(p.T.Context(), object); err != nil {
		p.T.Fatal(err)
	}
}

// TestOutputs_TakeTheirNamesBack has another take the names of an output while the manager is away, and give them back
// one after the other. The manager needs the event of each: it does not look again by itself.
func TestOutputs_TakeTheirNamesBack(t *testing.T) {
	ns := namespace(t)
	t.Parallel()
	p := manager(t, ns, noResync)
	c := newPublisher(t, ns, "prod", "env,giantswarm", map[string]string{"httpProxy": proxyURL})
	c.Eventually(contract.ReasonPublished)
	p.stop()
	env, set := c.foreignSecret("-proxy-outputs"), c.foreignSecret("-cluster-values")
	c.remove(vocabulary.Fetch(t, shared.client, ns, env.Name, &corev1.Secret{}))
	c.remove(vocabulary.Fetch(t, shared.client, ns, set.Name, &corev1.Secret{}))
	create(t, env, set)

	p = manager(t, ns, noResync)
	c.Eventually(contract.ReasonNameTaken, "Secret "+ns+"/prod-proxy-outputs exists", "Secret "+ns+"/prod-cluster-values exists")
	c.remove(set)
	eventually(t, "Secret whose name is free again", func() string {
		var ours corev1.Secret
		if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(set), &ours); err != nil {
			return err.Error()
		}
		return ""
	})
	c.Eventually(contract.ReasonNameTaken, "Secret "+ns+"/prod-proxy-outputs exists")
	c.remove(env)
	c.Eventually(contract.ReasonPublished)
	if got := string(c.Secret("-proxy-outputs")["HTTPS_PROXY"]); got != proxyURL {
		t.Errorf("HTTPS_PROXY is %s", got)
	}
	again := vocabulary.Fetch(t, shared.client, ns, set.Name, &corev1.Secret{})
	if again.UID == set.UID || len(again.OwnerReferences) != 1 || again.OwnerReferences[0].UID != c.Cluster().UID {
		t.Errorf("the Secret is %v", again.ObjectMeta)
	}

	// One of ours that somebody has made theirs by taking off its label.
	mine := vocabulary.Fetch(t, shared.client, ns, env.Name, &corev1.Secret{})
	vocabulary.Change(t, shared.client, mine, func(s *corev1.Secret) {
		delete(s.Labels, contract.LabelGenerated)
		s.Data["NO_PROXY"] = []byte(foreignValue)
	})
	c.Eventually(contract.ReasonNameTaken, "Secret "+ns+"/prod-proxy-outputs exists")
	if got := string(c.Secret("-proxy-outputs")["NO_PROXY"]); got != foreignValue {
		t.Errorf("the Secret of another holds %q", got)
	}
	c.remove(mine)
	c.Eventually(contract.ReasonPublished)
	if got := string(c.Secret("-proxy-outputs")["NO_PROXY"]); !strings.Contains(got, "prod.example.com") {
		t.Errorf("NO_PROXY is %q", got)
	}
	c.eventuallyConfigured()
	p.stop()
	staysQuiet(t, ns)
}

// TestOutputs_LeaveADeletedClusterAlone deletes a Cluster whose names are taken, as one that waits for its Machines to
// go. It waits for no output, and nothing of another is touched.
func TestOutputs_LeaveADeletedClusterAlone(t *testing.T) {
	const waits = "example.com/waits"
	ns := namespace(t)
	t.Parallel()
	manager(t, ns, noResync)
	c := publisherOf(t, ns, "prod")
	env, values := c.foreignSecret("-proxy-outputs"), c.foreignSecret("-cluster-values")
	create(t, env, values)
	c.Create("env,giantswarm", map[string]string{"httpProxy": proxyURL})
	c.Eventually(contract.ReasonNameTaken, "Secret "+ns+"/prod-proxy-outputs exists", "Secret "+ns+"/prod-cluster-values exists")
	c.Edit(func(cluster *clusterv1.Cluster) { cluster.Finalizers = append(cluster.Finalizers, waits) })
	c.remove(c.Cluster())
	// What the manager says of a Cluster that was created later shows that it knows of the deletion.
	other := publisherOf(t, ns, "other")
	taken := other.foreignSecret("-proxy-outputs")
	create(t, taken)
	other.Create("env", map[string]string{"httpProxy": proxyURL})
	other.Eventually(contract.ReasonNameTaken)
	c.remove(env) // what is free now is not taken for a Cluster that goes
	other.remove(taken)
	other.Eventually(contract.ReasonPublished)
	if c.Secret("-proxy-outputs") != nil {
		t.Error("an output was written for a Cluster that is being deleted")
	}
	version := values.ResourceVersion
	if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(values), values); err != nil || values.ResourceVersion != version {
		t.Errorf("Secret %s was touched: %v", values.Name, err)
	}
	c.Edit(func(cluster *clusterv1.Cluster) {
		cluster.Finalizers = nil // ours is none of them
	})
	eventually(t, "the end of the Cluster", func() string {
		err := shared.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: c.Name}, &clusterv1.Cluster{})
		if !apierrors.IsNotFound(err) {
			return "it is there"
		}
		return ""
	})
}

// TestOutputs_OfATopologyFollowItsVariable has a Cluster name its proxy Secret and entries of NO_PROXY in the
// variable of its topology.
func TestOutputs_OfATopologyFollowItsVariable(t *testing.T) {
	ns := namespace(t)
	t.Parallel()
	p := manager(t, ns, noResync)
	c := publisherOf(t, ns, "prod")
	variable := func(value string) func(*clusterv1.Cluster) {
		return func(cluster *clusterv1.Cluster) {
			cluster.Spec.Topology.Variables = []clusterv1.ClusterVariable{{Name: contract.VariableName}}
			cluster.Spec.Topology.Variables[0].Value.Raw = []byte(value)
		}
	}
	o := vocabulary.NewClassic(ns, c.Name, c.Name)
	o.Cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	o.Cluster.Annotations = map[string]string{contract.AnnotationPublish: "env,annotations"}
	o.Cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "class"}, Version: "v1.36.3"}
	variable(`{"noProxy":["extra.example.com"]}`)(o.Cluster)
	create(t, vocabulary.ProxySecret(ns, contract.DefaultSecretName, map[string]string{"httpProxy": proxyURL}),
		vocabulary.ProxySecret(ns, "mine", map[string]string{"httpProxy": otherProxyURL}), o.ControlPlane, o.Cluster)
	c.Eventually(contract.ReasonPublished)
	wantEnv := func(proxy, entry string) {
		t.Helper()
		eventually(t, "outputs of the topology", func() string {
			env := c.Secret("-proxy-outputs")
			switch no := string(env["NO_PROXY"]); {
			case string(env["HTTPS_PROXY"]) != proxy:
				return "HTTPS_PROXY is " + string(env["HTTPS_PROXY"])
			case !strings.Contains(no, "prod.example.com") || strings.Contains(no, "extra.example.com") != (entry == "extra.example.com") ||
				!strings.Contains(no, entry) || c.Cluster().Annotations[contract.AnnotationNoProxy] != no:
				return "NO_PROXY is " + no
			}
			return ""
		})
	}
	wantEnv(proxyURL, "extra.example.com")
	c.Edit(variable(`{"secretName":"mine","noProxy":["other.example.com"]}`))
	c.Eventually(contract.ReasonPublished)
	wantEnv(otherProxyURL, "other.example.com")
	c.Edit(variable(`{"secretName":"gone"}`))
	c.Eventually(contract.ReasonSettingsNotFound, "gone")
	wantEnv(otherProxyURL, "other.example.com") // what is out stays
	c.Edit(variable(`{"targets":"%s"}`))
	c.Eventually(contract.ReasonInvalidSettings, "targets")
	wantEnv(otherProxyURL, "other.example.com")
	eventually(t, "condition about nodes", func() string {
		cluster := c.Cluster()
		if found := vocabulary.Condition(cluster); found.Reason != contract.ReasonInvalidSettings || found.ObservedGeneration != cluster.Generation {
			return fmt.Sprintf("reason %s of generation %d", found.Reason, found.ObservedGeneration)
		}
		return ""
	})
	p.stop()
	staysQuiet(t, ns)
}
