package generated

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/bootstrap"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller/report"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// KeepOriginals writes the files that edits replace into the Cluster's generated Secret. The cache has no contents of
// files, so they are read live. An object that waits for a rollout is read only once: the webhook that adopts its files
// in the request that rolls it compares them with the originals again.
func (s *Secrets) KeepOriginals(ctx context.Context, o bootstrap.Object, edits []patch.Edit, waits bool) error {
	s.needed[intent.GeneratedSecretName(s.cluster.Name)] = true
	secret, originals, err := s.originals(ctx)
	if err != nil {
		return err
	}
	unknown := slices.ContainsFunc(edits, func(edit patch.Edit) bool { return originals[o.Key()][edit.File.Path] == nil })
	if waits && !unknown {
		return nil
	}
	kind, err := s.Writer.Client.GroupVersionKindFor(o.Object)
	if err != nil {
		return fmt.Errorf("reading %s: %w", o, err)
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(kind)
	if err := s.Live.Get(ctx, client.ObjectKeyFromObject(o.Object), live); err != nil {
		return fmt.Errorf("reading %s: %w", o, err)
	}
	if live.GetResourceVersion() != o.GetResourceVersion() {
		return bootstrap.Stale(o.Kind, o.Object)
	}
	spec := plan.Locate(o.Kind, live.Object)
	files, _, err := unstructured.NestedSlice(spec, string(patch.ListFiles))
	if err != nil {
		return fmt.Errorf("reading files of %s: %w", o, err)
	}
	kept := map[string]json.RawMessage{}
	maps.Copy(kept, originals[o.Key()])
	changed := false
	for _, edit := range edits {
		if edit.Index >= len(files) {
			return bootstrap.Stale(o.Kind, o.Object)
		}
		if patch.SameEntry(files[edit.Index], kept[edit.File.Path]) {
			continue
		}
		if kept[edit.File.Path], err = json.Marshal(files[edit.Index]); err != nil {
			return fmt.Errorf("encoding file of %s: %w", o, err)
		}
		changed = true
	}
	if !changed {
		return nil
	}
	all := patch.Originals{}
	maps.Copy(all, originals)
	all[o.Key()] = kept
	text, err := all.Encode()
	if err != nil {
		return err
	}
	return s.writeOriginals(ctx, secret, text)
}

// holdable returns finding.Errors if a Secret with originals holds more than an API server accepts.
func holdable(secret *corev1.Secret) error {
	size := 0
	for _, value := range secret.Data {
		size += len(value)
	}
	if size <= corev1.MaxSecretSize {
		return nil
	}
	return report.Invalid("Secret %s would have %d bytes with the originals of adopted files, and a Secret holds %d; "+
		"remove some of the files, or remove annotation %s", klog.KObj(secret), size, corev1.MaxSecretSize,
		contract.AnnotationAdopt)
}

// writeOriginals creates or changes the Cluster's generated Secret. Without text there are no originals any more.
func (s *Secrets) writeOriginals(ctx context.Context, secret *corev1.Secret, text []byte) error {
	if secret == nil {
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.cluster.Namespace, Name: intent.GeneratedSecretName(s.cluster.Name),
				Labels: intent.SecretLabels(s.cluster), OwnerReferences: []metav1.OwnerReference{s.owner},
			},
			Type: corev1.SecretTypeOpaque,
			Data: map[string][]byte{contract.KeyAdoptedFiles: text},
		}
		if err := holdable(secret); err != nil {
			return err
		}
		ctrl.LoggerFrom(ctx).Info("Creating generated Secret for adopted files", "Secret", klog.KObj(secret))
		if err := s.Writer.Client.Create(ctx, secret); err != nil {
			return fmt.Errorf("creating Secret %s: %w", klog.KObj(secret), err)
		}
	} else {
		current := secret
		secret = current.DeepCopy()
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		if secret.Data[contract.KeyAdoptedFiles] = text; text == nil {
			delete(secret.Data, contract.KeyAdoptedFiles)
		}
		if err := holdable(secret); err != nil {
			return err
		}
		ctrl.LoggerFrom(ctx).Info("Keeping originals of adopted files", "Secret", klog.KObj(secret))
		if err := s.replaceSecret(ctx, current, secret); err != nil {
			return err
		}
	}
	s.known[secret.Name] = secret
	s.Writer.WroteOriginals(secret)
	return nil
}

// originals returns the Cluster's generated Secret, nil if there is none, and the originals in it. It includes what
// this process has written.
func (s *Secrets) originals(ctx context.Context) (*corev1.Secret, patch.Originals, error) {
	name := types.NamespacedName{Namespace: s.cluster.Namespace, Name: intent.GeneratedSecretName(s.cluster.Name)}
	secret, err := s.read(ctx, name.Name)
	if err != nil {
		return nil, nil, err
	}
	switch lacks, err := s.Writer.LacksOriginals(ctx, name, secret); {
	case err != nil:
		return nil, nil, fmt.Errorf("reading metadata of Secret %s: %w", name, err)
	case lacks:
		return nil, nil, bootstrap.Stale("Secret", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name.Name}})
	case secret == nil || secret.Labels[contract.LabelGenerated] != s.cluster.Name:
		return nil, nil, nil
	}
	originals, err := patch.ParseOriginals(secret.Data[contract.KeyAdoptedFiles])
	if err != nil {
		// Without the originals nothing can be removed, and nothing is: a repaired Secret enqueues the Cluster.
		return nil, nil, report.Invalid("key %s of Secret %s: %s", contract.KeyAdoptedFiles, klog.KObj(secret), err)
	}
	return secret, originals, nil
}

// OriginalsOf returns the originals of o, by the path of the managed file. A copy of a template that Cluster API has
// created has those of the template.
func (s *Secrets) OriginalsOf(ctx context.Context, o bootstrap.Object) (map[string]json.RawMessage, error) {
	_, originals, err := s.originals(ctx)
	if template := o.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation]; o.IsOfMachine() {
		return originals[plan.OriginalsKey(plan.KindTemplate, template)], err
	}
	return originals[o.Key()], err
}

// settleOriginals deletes the originals that are restored in their objects, keeps the Secret while there are others,
// and reports those that only the user can restore.
func (s *Secrets) settleOriginals(ctx context.Context, objects []bootstrap.Settled) (out report.Outcome, err error) {
	secret, originals, err := s.originals(ctx)
	if err != nil || len(originals) == 0 {
		return out, err
	}
	left := patch.Originals{}
	for _, key := range slices.Sorted(maps.Keys(originals)) {
		kept, found, err := s.outstanding(ctx, key, originals[key], objects)
		out.Join(found)
		if err != nil {
			return out, err
		}
		if len(kept) > 0 {
			left[key] = kept
		}
	}
	if len(left) > 0 {
		s.needed[secret.Name] = true
	}
	if !s.needed[secret.Name] || reflect.DeepEqual(left, originals) {
		return out, nil
	}
	var text []byte
	if len(left) > 0 {
		if text, err = left.Encode(); err != nil {
			return out, err
		}
	}
	return out, s.writeOriginals(ctx, secret, text)
}

// outstanding returns the originals of an object that are not restored in it, none if the object is deleted.
func (s *Secrets) outstanding(ctx context.Context, key string, originals map[string]json.RawMessage,
	objects []bootstrap.Settled) (
	kept map[string]json.RawMessage, out report.Outcome, err error,
) {
	o, err := s.holder(ctx, key, objects)
	if err != nil {
		return nil, out, err
	}
	if o == nil {
		if named, err := s.isNamed(ctx, key); err != nil || !named {
			return nil, out, err
		}
		return originals, out, nil
	}
	kept = map[string]json.RawMessage{}
	for _, path := range slices.Sorted(maps.Keys(originals)) {
		switch patch.PlaceOf(o.Spec, path) {
		case patch.Replaced:
		case patch.Back:
			wanted := func(f patch.File) bool { return f.Path == path }
			if !s.cluster.Enabled || o.Recipe != nil && !slices.ContainsFunc(o.Recipe.Files, wanted) {
				continue
			}
		case patch.Nowhere:
			reason := contract.ReasonConflictingFile
			if s.cluster.Enabled {
				reason = ""
			}
			out.Add(reason, "%s: your file that %s replaced is missing; "+
				"the original is in key %s of Secret %s; put it back, or delete the key",
				o, path, contract.KeyAdoptedFiles, intent.GeneratedSecretName(s.cluster.Name))
		}
		kept[path] = originals[path]
	}
	return kept, out, nil
}

// holder returns the object to which originals belong, nil if it does not exist.
func (s *Secrets) holder(ctx context.Context, key string, objects []bootstrap.Settled) (*bootstrap.Settled, error) {
	if i := slices.IndexFunc(objects, func(o bootstrap.Settled) bool { return o.Key() == key }); i >= 0 {
		return &objects[i], nil
	}
	kind, name, _ := strings.Cut(key, "/")
	object := bootstrap.Empty(kind)
	exists, err := s.Get(ctx, s.cluster.Namespace, name, object)
	if err != nil || !exists {
		return nil, err
	}
	return &bootstrap.Settled{Object: bootstrap.New(object, kind, bootstrap.SpecOf(object), false)}, nil
}

// isNamed reports whether the Cluster or a pool of it refers to an object.
func (s *Secrets) isNamed(ctx context.Context, key string) (bool, error) {
	if s.cluster.ControlPlaneName != "" &&
		key == plan.OriginalsKey(s.cluster.ControlPlaneKind, s.cluster.ControlPlaneName) {
		return true, nil
	}
	pools, err := s.Pools(ctx, s.cluster)
	return slices.ContainsFunc(pools, func(p plan.Pool) bool {
		return key == plan.OriginalsKey(p.Bootstrap.Kind, p.Bootstrap.Name)
	}), err
}

// ReportAdopted reports which files are taken over, and which are not because of the Cluster's targets or delivery.
func (s *Secrets) ReportAdopted(ctx context.Context, objects []bootstrap.Settled,
	options intent.Options,
) (out report.Outcome, err error) {
	_, originals, err := s.originals(ctx)
	if err != nil {
		return out, err
	}
	for _, o := range objects {
		if options.Adopt && o.Recipe != nil && len(o.Recipe.Files)+len(o.Recipe.First) > 0 {
			if paths := patch.Spared(o.Spec, *o.Recipe); len(paths) > 0 {
				out.Note("%s: kept your own %s, because annotations %s and %s require no managed file there",
					o, strings.Join(paths, ", "), contract.AnnotationTargets, contract.AnnotationDelivery)
			}
		}
		paths := slices.Sorted(maps.Keys(originals[o.Key()]))
		paths = slices.DeleteFunc(paths, func(path string) bool { return patch.PlaceOf(o.Spec, path) != patch.Replaced })
		if len(paths) > 0 {
			yours, replace, are := "file", "replaces", "is"
			if len(paths) > 1 {
				yours, replace, are = "files", "replace", "are"
			}
			out.Note("%s: your %s that %s %s %s saved in Secret %s and restored when label %s is removed", o, yours,
				strings.Join(paths, ", "), replace, are, intent.GeneratedSecretName(s.cluster.Name), contract.LabelEnabled)
		}
	}
	return out, nil
}
