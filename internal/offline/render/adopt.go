package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/plan"
)

// maxSecretSize is how many bytes a Secret holds.
const maxSecretSize = 1 << 20

// keptOriginals are all originals that the generated Secret of a Cluster keeps after this run.
type keptOriginals struct {
	view  intent.Cluster
	files patch.Originals
}

// originals returns the files of the user that managed files of a Cluster have replaced, if the input has the generated
// Secret that keeps them.
func (r *renderer) originals(view intent.Cluster) patch.Originals {
	key := types.NamespacedName{Namespace: view.Namespace, Name: intent.GeneratedSecretName(view.Name)}
	generated := r.ProxySecret(key)
	if generated == nil || generated.Labels()[contract.LabelGenerated] != view.Name {
		return nil
	}
	secret, err := r.Secret(generated)
	if hidden, ok := errors.AsType[*clusters.HiddenError](err); ok {
		if _, keeps := hidden.Data[contract.KeyAdoptedFiles]; !keeps {
			return nil
		}
	}
	if err != nil {
		r.problems.add(nil, err.Error())
		return nil
	}
	originals, err := patch.ParseOriginals(secret.Data[contract.KeyAdoptedFiles])
	if err != nil {
		r.reject(generated, "data.%s: %s", contract.KeyAdoptedFiles, err)
	}
	return originals
}

// keep records the files of an object that adopted edits replace, for the generated Secret.
func (c *clusterRun) keep(o *manifest.Object, at location, adopted []patch.Edit) {
	files, _ := clusters.Dig(o.Value(), at.path...)[string(patch.ListFiles)].([]any)
	kept := c.kept[c.object]
	if kept == nil {
		kept = &keptOriginals{view: c.view, files: patch.Originals{}}
		maps.Copy(kept.files, c.originals(c.view))
		c.kept[c.object], c.keepers = kept, append(c.keepers, c.object)
	}
	key := plan.OriginalsKey(o.Kind(), o.Name())
	all := map[string]json.RawMessage{}
	maps.Copy(all, kept.files[key])
	for _, edit := range adopted {
		entry, err := json.Marshal(files[edit.Index])
		if err != nil {
			c.reject(o, "encoding files[%d]: %s", edit.Index, err)
			return
		}
		all[edit.File.Path] = entry
		c.note(o, "%s.files[%d] is adopted; Secret %s keeps its original", strings.Join(at.path, "."), edit.Index,
			clusters.Qualified(c.view.Namespace, intent.GeneratedSecretName(c.view.Name)))
	}
	kept.files[key] = all
}

// conflict returns further advice about a conflicting file, in addition to that of the conflict, or "".
func (c *clusterRun) conflict() string {
	switch {
	case !c.options.Adopt:
		return fmt.Sprintf(
			"; or set annotation %s of the Cluster to %q and render with --include-secrets to let the product take over "+
				"such files",
			contract.AnnotationAdopt, contract.AdoptValue)
	case !c.IncludeSecrets:
		return fmt.Sprintf(
			"; annotation %s takes such files over with --include-secrets, because the generated Secret keeps their originals",
			contract.AnnotationAdopt)
	}
	return ""
}

// originalsText is the value of contract.KeyAdoptedFiles in the generated Secret of a Cluster, nil if no file was
// adopted.
func (r *renderer) originalsText(cluster *manifest.Object) ([]byte, error) {
	kept := r.kept[cluster]
	if kept == nil {
		return nil, nil
	}
	text, err := kept.files.Encode()
	if err == nil && len(text) > maxSecretSize {
		err = errors.New(
			"the originals of adopted files do not fit into a Secret; remove some of the files, or remove annotation " +
				contract.AnnotationAdopt)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", clusters.Place(cluster), err)
	}
	return text, nil
}
