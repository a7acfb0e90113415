package source

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Infrastructure tells which operating system infrastructure templates ask for. It reads them live: there are as many
// kinds as providers, and each is asked for once, before the first patch of a pool.
type Infrastructure struct {
	// Live reads from the API server.
	Live client.Reader
	// Mapper knows the kinds of the API server.
	Mapper meta.RESTMapper

	// Now is the clock; nil remembers nothing.
	Now func() time.Time

	// known keeps what was found out for a while: a pool that stays unpatched, for Windows or because it waits, would be
	// asked for in every pass. Cluster API's contract makes templates immutable; one of the same name may replace them.
	known sync.Map
}

// infrastructureMemory is how long an answer counts.
const infrastructureMemory = 5 * time.Minute

// answer is what is known of a template.
type answer struct {
	evidence string
	until    time.Time
}

// Windows says what tells that the machines of a template are Windows nodes, or "". exists is false if there is no such
// object yet, and then there are no machines of it either. A kind that cannot be read, because it is in another API group
// than those that Cluster API's providers use or is not installed, is taken for Linux.
func (i *Infrastructure) Windows(ctx context.Context, namespace string, reference clusterv1.ContractVersionedObjectReference) (evidence string, exists bool, err error) {
	key := types.NamespacedName{Namespace: namespace, Name: reference.Name}
	id := reference.APIGroup + "/" + reference.Kind + "/" + key.String()
	if known, found := i.known.Load(id); found && i.Now != nil {
		if known, ok := known.(answer); ok && i.Now().Before(known.until) {
			return known.evidence, true, nil
		}
	}
	mapping, err := i.Mapper.RESTMapping(schema.GroupKind{Group: reference.APIGroup, Kind: reference.Kind})
	if meta.IsNoMatchError(err) {
		return "", true, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("looking up kind %s: %w", reference.Kind, err)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(mapping.GroupVersionKind)
	switch err := i.Live.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		return "", false, nil
	case apierrors.IsForbidden(err):
		return "", true, nil
	case err != nil:
		return "", false, fmt.Errorf("reading %s %s: %w", reference.Kind, key, err)
	}
	if field := patch.WindowsField(object.Object["spec"]); field != "" {
		evidence = field + " of " + reference.Kind + " " + key.String()
	}
	if i.Now != nil {
		i.known.Range(func(id, known any) bool {
			if known, ok := known.(answer); !ok || !i.Now().Before(known.until) {
				i.known.Delete(id)
			}
			return true
		})
		i.known.Store(id, answer{evidence: evidence, until: i.Now().Add(infrastructureMemory)})
	}
	return evidence, true, nil
}
