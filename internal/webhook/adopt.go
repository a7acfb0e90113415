package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/jsonread"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// recognize returns the write with the managed files of the stored object in place of adopted files that the write
// contains again. Later decisions see a write without them.
func (a *admission) recognize(ctx context.Context) (write, error) {
	var managed []patch.File
	for _, f := range a.stored.Spec.Files {
		if patch.IsManagedFile(f) {
			managed = append(managed, f)
		}
	}
	if a.created || len(managed) == 0 {
		return a.write, nil
	}
	return a.adopt(ctx, patch.Recipe{Files: managed})
}

// adopt returns the write with files of recipe in place of the user's files whose originals the controller already
// keeps.
func (a *admission) adopt(ctx context.Context, recipe patch.Recipe) (write, error) {
	w := a.write
	adoptable, err := a.adoptable(ctx, recipe)
	if err != nil || len(adoptable) == 0 {
		return w, err
	}
	w.adopted = patch.Adopt(w.spec, recipe, func(index int) bool { return adoptable[index] })
	w.spec = patch.Apply(w.spec, w.adopted)
	return w, nil
}

// adoptable are the files of the write, by index, that managed files of recipe may replace, because the controller
// keeps the same files as originals.
func (a *admission) adoptable(ctx context.Context, recipe patch.Recipe) (map[int]bool, error) {
	candidates := patch.Adopt(a.spec, recipe, func(int) bool { return true })
	adoptable := map[int]bool{}
	if len(candidates) == 0 {
		return adoptable, nil
	}
	stored, err := a.fromCache(ctx)
	if err != nil || !a.isStored(stored) {
		return adoptable, err // do not reveal whether a file equals an original
	}
	originals, err := a.originals(ctx)
	if err != nil {
		return nil, err
	}
	r := jsonread.New(a.asked.Text)
	spec, _ := r.Value().(map[string]any)
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("reading files of %s: %w", a, err)
	}
	files := filesOf(spec)
	for _, edit := range candidates {
		if patch.SameEntry(files[edit.Index], originals[edit.File.Path]) {
			adoptable[edit.Index] = true
		}
	}
	return adoptable, nil
}

// answerable are the originals for which the stored object, as the cache has it, has a managed file: any client that
// reaches the port can claim what was stored. They are withheld if the write needs others too.
func (a *admission) answerable(ctx context.Context) (*plan.Originals, error) {
	all, err := a.originals(ctx)
	if err != nil || len(all) == 0 {
		return &plan.Originals{}, err
	}
	stored, err := a.fromCache(ctx)
	if err != nil {
		return nil, err
	}
	originals := map[string]json.RawMessage{}
	if a.isStored(stored) {
		for _, f := range specOf(stored).Files {
			if original := all[f.Path]; original != nil && patch.IsManagedFile(f) {
				originals[f.Path] = original
			}
		}
	}
	unconfirmed := func(f patch.File) bool {
		return patch.IsManagedFile(f) && all[f.Path] != nil && originals[f.Path] == nil
	}
	return &plan.Originals{Files: originals, Withheld: slices.ContainsFunc(a.stored.Spec.Files, unconfirmed)}, nil
}

// originals are the user's files that managed files of the object have replaced, as far as the controller keeps them.
func (a *admission) originals(ctx context.Context) (map[string]json.RawMessage, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: a.view.Namespace, Name: intent.GeneratedSecretName(a.view.Name)}
	exists, err := a.get(ctx, key, secret)
	if err != nil || !exists || secret.Labels[contract.LabelGenerated] != a.view.Name {
		return nil, err
	}
	originals, err := patch.ParseOriginals(secret.Data[contract.KeyAdoptedFiles])
	if err != nil {
		return nil, fmt.Errorf("key %s of Secret %s: %w", contract.KeyAdoptedFiles, key, err)
	}
	return originals[plan.OriginalsKey(a.kind, a.name)], nil
}
