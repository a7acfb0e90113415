package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// list reads all objects of a kind of the namespace.
func (f *fleet) list(into client.ObjectList) {
	f.t.Helper()
	if err := shared.Client.List(f.t.Context(), into, client.InNamespace(f.ns)); err != nil {
		f.t.Fatal(err)
	}
}

// eventuallyHolds waits until every bootstrap object has what the user wrote once, and each entry of the product so many
// times, 0 or 1. test/templates and test/model compare content and order.
func (f *fleet) eventuallyHolds(times int) {
	f.t.Helper()
	eventually(f.t, "bootstrap objects", func() string {
		for _, name := range f.names {
			controlPlane := &controlplanev1.KubeadmControlPlane{ObjectMeta: f.meta(name)}
			own := []string{
				`"path":"` + ownPath, `"content":` + quoted(rude), `"example.com/own":` + quoted(rude), quoted("echo '" + rude + "'"),
				`"echo done"`,
			}
			if problem := f.holds(controlPlane, times, own...); problem != "" {
				return problem
			}
			template := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: f.meta(name + "-md")}
			if problem := f.holds(template, times); problem != "" {
				return problem
			}
		}
		return ""
	})
}

// quoted returns text as it is in JSON.
func quoted(text string) string {
	quoted, _ := json.Marshal(text) // a string can be encoded
	return string(quoted)
}

// holds reads an object. It returns the first part that the object has too often or too rarely: own parts once, those of the
// product so many times.
func (f *fleet) holds(object client.Object, times int, own ...string) string {
	if err := shared.Client.Get(f.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		return err.Error()
	}
	object.SetManagedFields(nil)
	text, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	counts := map[string]int{
		`"path":"` + contract.PathSetup: times, contract.PathSetup + " own-addresses": times,
		`"` + contract.AnnotationOutputVersion + `":`: times,
	}
	if times == 0 {
		counts = map[string]int{contract.Name: 0}
	}
	for _, part := range own {
		counts[part] = 1
	}
	for part, want := range counts {
		if got := bytes.Count(text, []byte(part)); got != want {
			return fmt.Sprintf("%T %s has %s %d times, want %d", object, object.GetName(), part, got, want)
		}
	}
	return ""
}

// eventuallyHasProxy waits until every object has the proxy once beside the user's entries, and every Cluster reports
// it.
func (f *fleet) eventuallyHasProxy() {
	f.t.Helper()
	f.eventuallyHolds(1)
	eventually(f.t, "generated Secrets", func() string {
		for _, name := range f.names {
			secret := &corev1.Secret{}
			key := client.ObjectKey{Namespace: f.ns, Name: name + contract.GeneratedSecretSuffix}
			if err := shared.Client.Get(f.t.Context(), key, secret); err != nil {
				return err.Error()
			}
			if env := string(secret.Data[contract.KeyProxyEnv]); !strings.Contains(env, f.proxy) {
				return fmt.Sprintf("Secret of Cluster %s does not have %s:\n%s", name, f.proxy, env)
			}
		}
		return ""
	})
	f.eventuallyReports(contract.ReasonConfigured)
}

// eventuallyAsBefore waits until no object has anything of the product, no generated Secret is left, and no Cluster has a
// condition.
func (f *fleet) eventuallyAsBefore() {
	f.t.Helper()
	f.eventuallyHolds(0)
	f.eventuallyReports(vocabulary.NoCondition)
	var secrets corev1.SecretList
	f.list(&secrets)
	for i := range secrets.Items {
		if _, generated := secrets.Items[i].Labels[contract.LabelGenerated]; generated {
			f.t.Errorf("Secret %s is left", secrets.Items[i].Name)
		}
	}
}

// eventuallyReports waits until the conditions of all Clusters have a reason.
func (f *fleet) eventuallyReports(reason string) {
	f.t.Helper()
	eventually(f.t, "conditions", func() string {
		var clusters clusterv1.ClusterList
		f.list(&clusters)
		for i := range clusters.Items {
			if condition := vocabulary.Condition(&clusters.Items[i]); condition.Reason != reason {
				return fmt.Sprintf("Cluster %s has reason %s, want %s; message: %s", clusters.Items[i].Name, condition.Reason, reason,
					condition.Message)
			}
		}
		return ""
	})
}
