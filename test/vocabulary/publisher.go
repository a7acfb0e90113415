package vocabulary

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// Names of outputs, as users write them: tests of other capabilities use this package, too.
const (
	annotationPublish  = contract.Domain + "/publish"
	conditionPublished = contract.Domain + "/ProxyPublished"
	reasonPublished    = "Published"
)

// Publisher is a labelled Cluster that asks for outputs.
type Publisher struct {
	T               *testing.T
	Client          client.Client
	Namespace, Name string
	// Wait waits until problem returns "".
	Wait func(t *testing.T, what string, problem func() string)
}

// Create creates the Cluster, which asks for a list of outputs, its control plane, and its proxy Secret of data.
func (p Publisher) Create(list string, data map[string]string) {
	p.T.Helper()
	o := NewClassic(p.Namespace, p.Name, p.Name)
	o.Cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	o.Cluster.Annotations = map[string]string{annotationPublish: list}
	Create(p.T, p.Client, ProxySecret(p.Namespace, p.Name+contract.ClusterSecretSuffix, data), o.ControlPlane, o.Cluster)
}

// Cluster returns the Cluster.
func (p Publisher) Cluster() *clusterv1.Cluster {
	p.T.Helper()
	return Fetch(p.T, p.Client, p.Namespace, p.Name, &clusterv1.Cluster{})
}

// Edit edits the Cluster.
func (p Publisher) Edit(edit func(*clusterv1.Cluster)) {
	p.T.Helper()
	Change(p.T, p.Client, p.Cluster(), edit)
}

// Publish asks for another list; "" removes the annotation.
func (p Publisher) Publish(list string) {
	p.T.Helper()
	p.Edit(func(c *clusterv1.Cluster) {
		if c.Annotations[annotationPublish] = list; list == "" {
			delete(c.Annotations, annotationPublish)
		}
	})
}

// UseProxy replaces the proxy Secret's content.
func (p Publisher) UseProxy(data map[string]string) {
	p.T.Helper()
	secret := Fetch(p.T, p.Client, p.Namespace, p.Name+contract.ClusterSecretSuffix, &corev1.Secret{})
	Change(p.T, p.Client, secret, func(s *corev1.Secret) { s.Data, s.StringData = nil, data })
}

// Runs reports the version that the control plane runs.
func (p Publisher) Runs(version string) {
	p.T.Helper()
	controlPlane := Fetch(p.T, p.Client, p.Namespace, p.Name, &controlplanev1.KubeadmControlPlane{})
	before := client.MergeFrom(controlPlane.DeepCopy())
	controlPlane.Status.Version = version //nolint:staticcheck // the field of the contract
	if err := p.Client.Status().Patch(p.T.Context(), controlPlane, before); err != nil {
		p.T.Fatal(err)
	}
}

// Eventually waits until the condition has a reason, "" for none, and its message some parts.
func (p Publisher) Eventually(reason string, parts ...string) {
	p.T.Helper()
	p.eventually(reason, func(message string) string {
		for _, part := range parts {
			if !strings.Contains(message, part) {
				return fmt.Sprintf("message %q lacks %q", message, part)
			}
		}
		return ""
	})
}

// Publishes waits until the condition says that these outputs are published, and no other.
func (p Publisher) Publishes(outputs string) {
	p.T.Helper()
	p.eventually(reasonPublished, func(message string) string {
		if first, _, _ := strings.Cut(message, "\n"); first != outputs {
			return fmt.Sprintf("message %q does not begin with %q", message, outputs)
		}
		return ""
	})
}

// eventually waits until the condition has a reason, "" for none, and nothing is wrong with its message.
func (p Publisher) eventually(reason string, wrong func(message string) string) {
	p.T.Helper()
	p.Wait(p.T, "condition of Cluster "+p.Name, func() string {
		cluster := p.Cluster()
		condition := meta.FindStatusCondition(cluster.Status.Conditions, conditionPublished)
		if condition == nil {
			condition = &metav1.Condition{ObservedGeneration: cluster.Generation}
		}
		if problem := wrong(condition.Message); problem != "" {
			return problem
		}
		if condition.Reason != reason || condition.ObservedGeneration != cluster.Generation {
			return fmt.Sprintf("reason %s, want %s; message: %s", condition.Reason, reason, condition.Message)
		}
		return ""
	})
}

// Secret returns the data of a Secret, nil if it does not exist.
func (p Publisher) Secret(end string) map[string][]byte {
	p.T.Helper()
	var secret corev1.Secret
	err := p.Client.Get(p.T.Context(), client.ObjectKey{Namespace: p.Namespace, Name: p.Name + end}, &secret)
	if client.IgnoreNotFound(err) != nil {
		p.T.Fatal(err)
	}
	return secret.Data
}
