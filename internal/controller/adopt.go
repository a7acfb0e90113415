package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// keepOriginals writes the files that edits replace into the Cluster's generated Secret. The cache has no contents of
// files, so they are read live. An object that waits for a rollout is read only once: the webhook that adopts its files
// in the request which rolls it compares them with the originals again.
func (r *reconciliation) keepOriginals(ctx context.Context, o bootstrapObject, edits []patch.Edit, waits bool) error {
	r.needed[intent.GeneratedSecretName(r.view.Name)] = true
	secret, originals, err := r.originals(ctx)
	if err != nil {
		return err
	}
	unknown := slices.ContainsFunc(edits, func(edit patch.Edit) bool { return originals[o.key()][edit.File.Path] == nil })
	if waits && !unknown {
		return nil
	}
	kind, err := r.Client.GroupVersionKindFor(o.object)
	if err != nil {
		return fmt.Errorf("reading %s: %w", o, err)
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(kind)
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(o.object), live); err != nil {
		return fmt.Errorf("reading %s: %w", o, err)
	}
	if live.GetResourceVersion() != o.object.GetResourceVersion() {
		return stale(o.kind, o.object)
	}
	spec, _ := plan.Locate(o.kind, live.Object)
	files, _, err := unstructured.NestedSlice(spec, string(patch.ListFiles))
	if err != nil {
		return fmt.Errorf("reading files of %s: %w", o, err)
	}
	kept := map[string]json.RawMessage{}
	maps.Copy(kept, originals[o.key()])
	changed := false
	for _, edit := range edits {
		if edit.Index >= len(files) {
			return stale(o.kind, o.object)
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
	all[o.key()] = kept
	text, err := all.Encode()
	if err != nil {
		return err
	}
	return r.writeOriginals(ctx, secret, text)
}

// stale is the conflict of a cache that is behind, about an object of a kind.
func stale(kind string, object client.Object) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: kind}, object.GetName(), errors.New("the cache is behind"))
}

// holdable returns finding.Errors if a Secret with originals holds more than an API server takes.
func holdable(secret *corev1.Secret) error {
	size := 0
	for _, value := range secret.Data {
		size += len(value)
	}
	if size <= corev1.MaxSecretSize {
		return nil
	}
	return invalid("Secret %s would have %d bytes with the originals of adopted files, and a Secret holds %d; "+
		"remove some of the files, or remove annotation %s", klog.KObj(secret), size, corev1.MaxSecretSize, contract.AnnotationAdopt)
}

// writeOriginals creates or changes the Cluster's generated Secret. Without text there are no originals any more.
func (r *reconciliation) writeOriginals(ctx context.Context, secret *corev1.Secret, text []byte) error {
	if secret == nil {
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: r.view.Namespace, Name: intent.GeneratedSecretName(r.view.Name),
				Labels: intent.SecretLabels(r.view), OwnerReferences: r.ownerReferences(),
			},
			Type: corev1.SecretTypeOpaque,
			Data: map[string][]byte{contract.KeyAdoptedFiles: text},
		}
		if err := holdable(secret); err != nil {
			return err
		}
		ctrl.LoggerFrom(ctx).Info("Creating generated Secret for adopted files", "Secret", klog.KObj(secret))
		if err := r.Client.Create(ctx, secret); err != nil {
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
		if err := r.replaceSecret(ctx, current, secret); err != nil {
			return err
		}
	}
	r.adopted = secret
	return nil
}

// originals returns the Cluster's generated Secret, nil if there is none, and the originals in it. It has what this
// pass has written.
func (r *reconciliation) originals(ctx context.Context) (*corev1.Secret, patch.Originals, error) {
	secret := r.adopted
	if secret == nil {
		secret = &corev1.Secret{}
		exists, err := r.get(ctx, r.view.Namespace, intent.GeneratedSecretName(r.view.Name), secret)
		if err != nil || !exists || secret.Labels[contract.LabelGenerated] != r.view.Name {
			return nil, nil, err
		}
	}
	originals, err := patch.ParseOriginals(secret.Data[contract.KeyAdoptedFiles])
	if err != nil {
		// Without the originals nothing can be taken out, and nothing is: the Secret comes back when it is mended.
		return nil, nil, invalid("key %s of Secret %s: %s", contract.KeyAdoptedFiles, klog.KObj(secret), err)
	}
	return secret, originals, nil
}

// originalsOf returns the originals of o, by the path of the managed file. A copy that Cluster API has made of a template has
// those of the template.
func (r *reconciliation) originalsOf(ctx context.Context, o bootstrapObject) (map[string]json.RawMessage, error) {
	_, originals, err := r.originals(ctx)
	if template := o.object.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation]; isOfMachine(o.object) {
		return originals[plan.OriginalsKey(plan.KindTemplate, template)], err
	}
	return originals[o.key()], err
}

// settleAdopted forgets the originals that are back in their objects, keeps the Secret as long as there are others,
// and says which of them nobody but the user can put back.
func (r *reconciliation) settleAdopted(ctx context.Context, objects []bootstrapObject) error {
	secret, originals, err := r.originals(ctx)
	if err != nil || len(originals) == 0 {
		return err
	}
	left := patch.Originals{}
	for _, key := range slices.Sorted(maps.Keys(originals)) {
		kept, err := r.outstanding(ctx, key, originals[key], objects)
		if err != nil {
			return err
		}
		if len(kept) > 0 {
			left[key] = kept
		}
	}
	if len(left) > 0 {
		r.needed[secret.Name] = true
	}
	if !r.needed[secret.Name] || reflect.DeepEqual(left, originals) {
		return nil
	}
	var text []byte
	if len(left) > 0 {
		if text, err = left.Encode(); err != nil {
			return err
		}
	}
	return r.writeOriginals(ctx, secret, text)
}

// outstanding returns those originals of an object that are not back in it. Those of an object that is gone for good
// are gone, too.
func (r *reconciliation) outstanding(ctx context.Context, key string, originals map[string]json.RawMessage, objects []bootstrapObject) (
	map[string]json.RawMessage, error,
) {
	o, err := r.holder(ctx, key, objects)
	if err != nil {
		return nil, err
	}
	if o == nil {
		if named, err := r.isNamed(ctx, key); err != nil || !named {
			return nil, err
		}
		return originals, nil
	}
	kept := map[string]json.RawMessage{}
	for _, path := range slices.Sorted(maps.Keys(originals)) {
		switch patch.PlaceOf(o.spec, path) {
		case patch.Replaced:
		case patch.Back:
			wanted := func(f patch.File) bool { return f.Path == path }
			if !r.view.Enabled || o.recipe != nil && !slices.ContainsFunc(o.recipe.Files, wanted) {
				continue
			}
		case patch.Nowhere:
			reason := contract.ReasonConflictingFile
			if r.view.Enabled {
				reason = ""
			}
			r.found.add(reason, "%s: your file that %s replaced is missing; "+
				"the original is in key %s of Secret %s; put it back, or delete the key",
				o, path, contract.KeyAdoptedFiles, intent.GeneratedSecretName(r.view.Name))
		}
		kept[path] = originals[path]
	}
	return kept, nil
}

// holder returns the object that originals are of, nil if it does not exist.
func (r *reconciliation) holder(ctx context.Context, key string, objects []bootstrapObject) (*bootstrapObject, error) {
	if i := slices.IndexFunc(objects, func(o bootstrapObject) bool { return o.key() == key }); i >= 0 {
		return &objects[i], nil
	}
	kind, name, _ := strings.Cut(key, "/")
	object := objectOf(kind)
	exists, err := r.get(ctx, r.view.Namespace, name, object)
	if err != nil || !exists {
		return nil, err
	}
	o := newObject(object, kind, specOf(object), false)
	return &o, nil
}

// isNamed reports whether the Cluster or a pool of it refers to an object.
func (r *reconciliation) isNamed(ctx context.Context, key string) (bool, error) {
	if r.view.ControlPlaneName != "" && key == plan.OriginalsKey(r.view.ControlPlaneKind, r.view.ControlPlaneName) {
		return true, nil
	}
	pools, err := r.pools(ctx, r.view)
	return slices.ContainsFunc(pools, func(p plan.Pool) bool {
		return key == plan.OriginalsKey(p.Bootstrap.Kind, p.Bootstrap.Name)
	}), err
}

// objectOf returns an empty object of a kind.
func objectOf(kind string) client.Object {
	switch kind {
	case plan.KindControlPlane:
		return &controlplanev1.KubeadmControlPlane{}
	case plan.KindTemplate:
		return &bootstrapv1.KubeadmConfigTemplate{}
	default:
		return &bootstrapv1.KubeadmConfig{}
	}
}

// reportAdopted says which files have been taken over, and which have not because of the Cluster's targets or delivery.
func (r *reconciliation) reportAdopted(ctx context.Context, objects []bootstrapObject, options intent.Options) error {
	_, originals, err := r.originals(ctx)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if options.Adopt && o.recipe != nil && len(o.recipe.Files)+len(o.recipe.First) > 0 {
			if paths := patch.Spared(o.spec, *o.recipe); len(paths) > 0 {
				r.found.note("%s: kept your own %s, because annotations %s and %s require no managed file there",
					o, strings.Join(paths, ", "), contract.AnnotationTargets, contract.AnnotationDelivery)
			}
		}
		paths := slices.Sorted(maps.Keys(originals[o.key()]))
		paths = slices.DeleteFunc(paths, func(path string) bool { return patch.PlaceOf(o.spec, path) != patch.Replaced })
		if len(paths) > 0 {
			r.found.note("%s: %s replaced files of yours; the originals are in Secret %s and are restored when label %s is removed",
				o, strings.Join(paths, ", "), intent.GeneratedSecretName(r.view.Name), contract.LabelEnabled)
		}
	}
	return nil
}
