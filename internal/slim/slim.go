// Package slim removes from objects what no decision reads, before a cache keeps them, and stores equal strings once. A
// management cluster may have ten thousand Clusters, and the manager has little memory.
//
// Cluster API's kinds are kept as types of this package, which take a third of the memory; caches show readers whole
// objects. Others keep their type, and the functions change the object that they are given. Every decision is the same
// on the rest: SpecOf of a slim spec is that of the whole one but for the contents of files that are not managed, and a
// spec is empty only if it was. Labels, annotations and owner references stay, as they are written back. Never send a
// slim object to the API server whole. Lists are clipped: the decoder over-allocates.
package slim

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// Metadata drops managed fields and the configuration that kubectl has applied last.
func Metadata(object metav1.Object) {
	object.SetManagedFields(nil)
	delete(object.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	object.SetAnnotations(share(object.GetAnnotations()))
	object.SetLabels(share(object.GetLabels()))
	object.SetNamespace(once(object.GetNamespace()))
	object.SetFinalizers(each(object.GetFinalizers(), once))
	owners := slices.Clone(object.GetOwnerReferences())
	for i := range owners {
		o := &owners[i]
		o.APIVersion, o.Kind = once(o.APIVersion), once(o.Kind)
	}
	object.SetOwnerReferences(owners)
}

// Name keeps nothing but what names a version of an object.
func Name(object *metav1.PartialObjectMetadata) {
	object.ObjectMeta = metav1.ObjectMeta{
		Namespace: once(object.Namespace), Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion,
	}
}

// Secret keeps all data, as it is written back, and script once for all Secrets that have it.
func Secret(secret *corev1.Secret, script []byte) {
	Metadata(secret)
	data := make(map[string][]byte, len(secret.Data))
	for key, value := range secret.Data {
		if bytes.Equal(value, script) {
			value = script
		}
		data[once(key)] = value
	}
	if secret.Data != nil {
		secret.Data = data
	}
}

// ClusterResourceSet keeps what it delivers, and Cluster API's message about it.
func ClusterResourceSet(set *addonsv1.ClusterResourceSet) {
	Metadata(set)
	set.Status = addonsv1.ClusterResourceSetStatus{
		Conditions: conditions(set.Status.Conditions, addonsv1.ClusterResourceSetResourcesAppliedCondition),
	}
}

// Binding keeps what Cluster API has applied of our ClusterResourceSet.
func Binding(binding *addonsv1.ClusterResourceSetBinding) {
	binding.ObjectMeta = metav1.ObjectMeta{
		Namespace: once(binding.Namespace), Name: binding.Name, UID: binding.UID, ResourceVersion: binding.ResourceVersion,
	}
	ours := slices.DeleteFunc(binding.Spec.Bindings, func(b addonsv1.ResourceSetBinding) bool {
		return b.ClusterResourceSetName != binding.Name+contract.DeliverySuffix
	})
	binding.Spec.Bindings = slices.Clone(ours)
}

// words are strings that many objects have: keys, kinds, finalizers, namespaces. Everybody may invent some, so that
// only the first are kept, and no long ones.
type words struct {
	mutex sync.RWMutex
	known map[string]string
}

// maxWords is how many strings are kept, maxWord how long one is at the most.
const (
	maxWords = 4096
	maxWord  = 256
)

var common = words{known: map[string]string{}} //nolint:gochecknoglobals // for all caches of the process

// once returns the string that is kept and equals s, or s.
func once(s string) string { return common.once(s) }

func (w *words) once(s string) string {
	w.mutex.RLock()
	known, found := w.known[s]
	full := len(w.known) >= maxWords
	w.mutex.RUnlock()
	switch {
	case found:
		return known
	case full || len(s) > maxWord:
		return s
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if known, found = w.known[s]; !found {
		known = strings.Clone(s)
		w.known[known] = known
	}
	return known
}

// share returns an equal map whose keys are kept once. It has no spare room.
func share(values map[string]string) map[string]string {
	if values == nil {
		return nil
	}
	shared := make(map[string]string, len(values))
	for key, value := range values {
		shared[once(key)] = value
	}
	return shared
}
