package world

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

const (
	// templateMemory is for how long an answer is valid.
	templateMemory = 5 * time.Minute
	// absenceDelay is for how long a missing template is remembered at first; it doubles each time, up to
	// absenceMaxDelay.
	absenceDelay    = time.Second
	absenceMaxDelay = time.Minute
)

type templateKey struct{ group, kind, namespace, name string }

// Template has the facts about an infrastructure template.
type Template struct {
	// Windows is the field by which the template asks for Windows nodes, or "".
	Windows string
	// UserData is infrastructure.UserDataLimit.
	UserData int
	// Early is what its nodes fetch early.
	Early plan.Early
	// Exists is false if there is no such object yet, and then there are no Machines from it either. A kind that cannot
	// be read, because it is in another API group than those that Cluster API's providers use or is not installed,
	// counts as an existing one for Linux.
	Exists bool
	// Again is after which time the API server is asked again about a missing template.
	Again time.Duration

	until time.Time
	keep  time.Duration
}

// Templates returns the first fact that the infrastructure templates of pools tell, as Template reads them, and when a
// missing one is read again.
func (m *Memory) Templates(ctx context.Context, namespace string, pools []plan.Pool, fresh bool) (
	plan.Infrastructure, time.Duration, error,
) {
	for _, pool := range pools {
		template, err := m.Template(ctx, namespace, pool.Infrastructure, fresh)
		if err != nil || template.Windows != "" {
			return plan.Infrastructure{Windows: template.Windows}, 0, err
		}
		if !template.Exists {
			missing := fmt.Sprintf("%s %s of %s", pool.Infrastructure.Kind, klog.KRef(namespace, pool.Infrastructure.Name), pool)
			return plan.Infrastructure{Missing: missing}, template.Again, nil
		}
	}
	return plan.Infrastructure{}, 0, nil
}

// Template reads an infrastructure template, for the operating system that it asks for. It reads it live: there are as
// many kinds as providers, and each is read once, before the first patch of a pool. An answer is valid for a while: the
// template of a pool that stays unpatched, for Windows or because it waits, would be read in every pass, and one of the
// same name may replace it. With fresh the API server is asked again about a template that was missing: for Machines,
// which have been created from it, and for a write, which comes only once.
func (m *Memory) Template(
	ctx context.Context, namespace string, reference clusterv1.ContractVersionedObjectReference, fresh bool,
) (Template, error) {
	key := templateKey{reference.APIGroup, reference.Kind, namespace, reference.Name}
	if m.Known == nil {
		return m.readTemplate(ctx, key)
	}
	now := m.Now()
	stored, _ := m.Known.Get(key)
	known, found := stored.(Template)
	if found && known.until.After(now) && (known.Exists || !fresh) {
		known.Again = known.until.Sub(now)
		return known, nil
	}
	template, err := m.readTemplate(ctx, key)
	if err != nil {
		return Template{}, err
	}
	template.keep = templateMemory
	if !template.Exists {
		template.keep = absenceDelay
		if found && !known.Exists {
			template.keep = min(2*known.keep, absenceMaxDelay)
		}
		template.Again = template.keep
	}
	template.until = now.Add(template.keep)
	m.Known.Set(key, template, max(template.keep, 2*absenceMaxDelay))
	return template, nil
}

// readTemplate asks the API server.
func (m *Memory) readTemplate(ctx context.Context, key templateKey) (Template, error) {
	mapping, err := m.Mapper.RESTMapping(schema.GroupKind{Group: key.group, Kind: key.kind})
	if meta.IsNoMatchError(err) {
		return Template{Exists: true}, nil
	}
	if err != nil {
		return Template{}, fmt.Errorf("looking up kind %s: %w", key.kind, err)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(mapping.GroupVersionKind)
	name := types.NamespacedName{Namespace: key.namespace, Name: key.name}
	switch err := m.Live.Get(ctx, name, object); {
	case apierrors.IsNotFound(err):
		return Template{Again: absenceDelay}, nil
	case apierrors.IsForbidden(err):
		return Template{Exists: true}, nil
	case err != nil:
		return Template{}, fmt.Errorf("reading %s %s: %w", key.kind, name, err)
	}
	template := Template{
		Exists: true, Early: plan.EarlyOf(key.kind, object.Object),
		UserData: infrastructure.UserDataLimit(key.kind, object.Object),
	}
	if field := patch.WindowsField(object.Object["spec"]); field != "" {
		template.Windows = field + " of " + key.kind + " " + klog.KRef(name.Namespace, name.Name).String()
	}
	return template, nil
}
