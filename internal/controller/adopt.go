package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
	proxysource "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/source"
)

// adopt takes over the files of the user that stand in the way of recipe, if the Cluster asks for it. It keeps their
// originals before it answers with edits, and reports whether nothing stands in the way any more.
func (r *reconciliation) adopt(ctx context.Context, o bootstrapObject, recipe patch.Recipe, options proxysource.Options) (patch.Plan, bool, error) {
	if !options.Adopt {
		return patch.Plan{}, false, nil
	}
	edits := patch.Adopt(o.spec, recipe, func(int) bool { return true })
	brought, err := patch.Ensure(patch.Apply(o.spec, edits), recipe)
	if err != nil || len(edits) == 0 {
		return patch.Plan{}, false, nil //nolint:nilerr // more than files is in the way, and the conflict says what
	}
	if !isOfMachine(o.object) { // a Machine's own KubeadmConfig goes with it
		if free, err := r.isFree(ctx, proxysource.GeneratedSecretName(r.view.Name)); err != nil || !free {
			return patch.Plan{}, false, err
		}
		if err := r.keepOriginals(ctx, o, edits, r.waits(o, options)); err != nil {
			return patch.Plan{}, false, err
		}
	}
	brought.Edits = append(edits, brought.Edits...)
	return brought, true, nil
}

// keepOriginals writes the files that edits replace into the Cluster's generated Secret. The cache has no contents of
// files, so they are read live. An object that waits for a rollout is read only once: the webhook that adopts its files
// in the request which rolls it compares them with the originals again.
func (r *reconciliation) keepOriginals(ctx context.Context, o bootstrapObject, edits []patch.Edit, waits bool) error {
	r.needed[proxysource.GeneratedSecretName(r.view.Name)] = true
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
		return stale(o)
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
			return stale(o)
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

// stale is the conflict of a cache that is behind.
func stale(o bootstrapObject) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: o.kind}, o.object.GetName(), errors.New("the cache is behind"))
}

// writeOriginals creates or changes the Cluster's generated Secret.
func (r *reconciliation) writeOriginals(ctx context.Context, secret *corev1.Secret, text []byte) error {
	if secret == nil {
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: r.view.Namespace, Name: proxysource.GeneratedSecretName(r.view.Name),
				Labels: proxysource.SecretLabels(r.view), OwnerReferences: r.ownerReferences(),
			},
			Type: corev1.SecretTypeOpaque,
			Data: map[string][]byte{contract.KeyAdoptedFiles: text},
		}
		ctrl.LoggerFrom(ctx).Info("Creating generated Secret for adopted files", "Secret", klog.KObj(secret))
		if err := r.Client.Create(ctx, secret); err != nil {
			return fmt.Errorf("creating Secret %s: %w", klog.KObj(secret), err)
		}
	} else {
		secret = secret.DeepCopy()
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[contract.KeyAdoptedFiles] = text
		ctrl.LoggerFrom(ctx).Info("Keeping originals of adopted files", "Secret", klog.KObj(secret))
		if err := r.Client.Update(ctx, secret); err != nil {
			return fmt.Errorf("updating Secret %s: %w", klog.KObj(secret), err)
		}
	}
	r.adopted = secret
	return nil
}

// originals returns the Cluster's generated Secret, nil if there is none, and the originals in it. It has what this pass
// has written.
func (r *reconciliation) originals(ctx context.Context) (*corev1.Secret, patch.Originals, error) {
	secret := r.adopted
	if secret == nil {
		secret = &corev1.Secret{}
		exists, err := r.get(ctx, r.view.Namespace, proxysource.GeneratedSecretName(r.view.Name), secret)
		if err != nil || !exists || secret.Labels[contract.LabelGenerated] != r.view.Name {
			return nil, nil, err
		}
	}
	originals, err := patch.ParseOriginals(secret.Data[contract.KeyAdoptedFiles])
	if err != nil {
		// Without the originals nothing can be taken out, and nothing is: the Secret comes back when it is mended.
		return nil, nil, &proxysource.InvalidError{Message: fmt.Sprintf("key %s of Secret %s: %s", contract.KeyAdoptedFiles, klog.KObj(secret), err)}
	}
	return secret, originals, nil
}

// take returns the edits that take our entries out of o and put back what was adopted.
func (r *reconciliation) take(ctx context.Context, o bootstrapObject) ([]patch.Edit, error) {
	if !patch.IsPatched(o.spec) {
		return nil, nil
	}
	_, originals, err := r.originals(ctx)
	if err != nil {
		return nil, err
	}
	return patch.Take(o.spec, originals[o.key()]), nil
}

// keepAdopted keeps the Secret with the originals of objects that still have our files in their places.
func (r *reconciliation) keepAdopted(ctx context.Context, objects []bootstrapObject) error {
	secret, originals, err := r.originals(ctx)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if _, adopted := originals[o.key()]; adopted && patch.IsPatched(o.spec) {
			r.needed[secret.Name] = true
		}
	}
	return nil
}

// reportAdopted says which files have been taken over.
func (r *reconciliation) reportAdopted(ctx context.Context, objects []bootstrapObject) error {
	_, originals, err := r.originals(ctx)
	if err != nil {
		return err
	}
	for _, o := range objects {
		paths := slices.Sorted(maps.Keys(originals[o.key()]))
		paths = slices.DeleteFunc(paths, func(path string) bool {
			return !slices.ContainsFunc(o.spec.Files, func(f patch.File) bool { return f.Path == path && patch.IsManagedFile(f) })
		})
		if len(paths) > 0 {
			r.found.note("%s: the files of yours that %s took the place of are kept in Secret %s and come back with the removal of label %s",
				o, strings.Join(paths, ", "), proxysource.GeneratedSecretName(r.view.Name), contract.LabelEnabled)
		}
	}
	return nil
}

// reportConflict says what stands in the way, and how to have it taken over.
func (r *reconciliation) reportConflict(o bootstrapObject, conflict *patch.ConflictError, options proxysource.Options) {
	hint := ""
	if !options.Adopt {
		hint = fmt.Sprintf("; or set annotation %s of the Cluster to %q to have such files taken over", contract.AnnotationAdopt, contract.AdoptValue)
	}
	r.found.add(contract.ReasonConflictingFile, "%s: %s%s", o, conflict, hint)
}
