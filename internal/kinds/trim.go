package kinds

import (
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Trim removes values from an object before a cache keeps it: contents of files that decisions do not compare, values
// of other variables, conditions of others, and metadata that is never read. Strings that many objects have are kept
// once. It has the form of a transform of a cache.
func Trim(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		trimMetadata(o)
	}
	switch o := object.(type) {
	case *Cluster:
		o.Status.Conditions = conditions(o.Status.Conditions, contract.ConditionProxyConfigured,
			contract.ConditionProxyPublished, clusterv1.ClusterTopologyReconciledCondition)
		o.Spec.Topology.trim()
	case *KubeadmControlPlane:
		o.Status.Conditions = conditions(o.Status.Conditions, append(rollConditions(), clusterv1.PausedCondition)...)
		for i := range o.Status.Conditions {
			o.Status.Conditions[i].Message = ""
		}
		o.Bootstrap().trim()
	case *KubeadmConfigTemplate:
		o.Bootstrap().trim()
	case *KubeadmConfig:
		o.Status.Conditions = conditions(o.Status.Conditions, bootstrapv1.KubeadmConfigDataSecretAvailableCondition)
		o.Bootstrap().trim()
	}
	return object, nil
}

func trimMetadata(o metav1.Object) {
	o.SetManagedFields(nil)
	annotations := o.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	o.SetAnnotations(shared(annotations))
	o.SetLabels(shared(o.GetLabels()))
	o.SetNamespace(once(o.GetNamespace()))
	shareAll(o.GetFinalizers())
	owners := o.GetOwnerReferences()
	for i := range owners {
		owners[i].APIVersion, owners[i].Kind = once(owners[i].APIVersion), once(owners[i].Kind)
	}
	o.SetOwnerReferences(slices.Clip(owners))
}

func (t *Topology) trim() {
	if t == nil {
		return
	}
	lists := [][]Variable{t.Variables}
	if t.ControlPlane != nil {
		lists = append(lists, t.ControlPlane.Variables.Overrides)
	}
	for i := range t.Workers.MachineDeployments {
		lists = append(lists, t.Workers.MachineDeployments[i].Variables.Overrides)
	}
	for i := range t.Workers.MachinePools {
		lists = append(lists, t.Workers.MachinePools[i].Variables.Overrides)
	}
	for _, list := range lists {
		for i := range list {
			if list[i].Name != contract.VariableName {
				list[i].Value = nil
			}
		}
	}
}

func (b *Bootstrap) trim() {
	if b == nil {
		return
	}
	b.Files = slices.Clip(b.Files)
	for i := range b.Files {
		f := &b.Files[i]
		if !patch.IsManagedFile(*f) && !patch.ReadsContent(*f) {
			f.Dropped, f.Content = patch.FileSize(b.Format, *f), ""
		}
		f.Path, f.Owner, f.Permissions, f.Content = once(f.Path), once(f.Owner), once(f.Permissions), once(f.Content)
		f.ContentFrom.Key, f.Encoding = once(f.ContentFrom.Key), once(f.Encoding)
		if i > 0 && f.ContentFrom.Name == b.Files[i-1].ContentFrom.Name {
			f.ContentFrom.Name = b.Files[i-1].ContentFrom.Name
		}
	}
	for _, list := range []*[]string{&b.PreKubeadmCommands, &b.PostKubeadmCommands, &b.CRISockets, &b.KubeletArgs} {
		*list = slices.Clip(*list)
		shareAll(*list)
	}
}

// conditions returns those of some types.
func conditions(all []metav1.Condition, types ...string) []metav1.Condition {
	kept := slices.DeleteFunc(all, func(c metav1.Condition) bool { return !slices.Contains(types, c.Type) })
	for i := range kept {
		kept[i].Type, kept[i].Reason = once(kept[i].Type), once(kept[i].Reason)
	}
	return slices.Clip(kept)
}

// words are strings that many objects have: keys, kinds, finalizers, commands. Everybody may invent some, so only the
// first are kept, and no long ones.
type words struct {
	mutex sync.RWMutex
	known map[string]string
}

// maxWords is how many strings are kept, maxWord the length of the longest.
const (
	maxWords = 4096
	maxWord  = 1024
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

func shareAll(list []string) {
	for i := range list {
		list[i] = once(list[i])
	}
}

// shared returns the values with keys that are kept once. An empty map stays one: a patch that adds the first value
// must not replace the map, which may have values that were trimmed.
func shared(values map[string]string) map[string]string {
	if values == nil {
		return nil
	}
	kept := make(map[string]string, len(values))
	for key, value := range values {
		kept[once(key)] = value
	}
	return kept
}
