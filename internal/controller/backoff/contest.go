package backoff

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
)

type contests = map[field]contest

// field is a part of an object that a write changes.
type field struct {
	object object
	paths  string
}

// contest is a field that another manager keeps reverting.
type contest struct {
	last  time.Time
	rival string
}

// Contested returns a finding for each object of a Cluster of which a write is contested, and when the next pass is
// due; zero for none.
func (c *Client) Contested(cluster types.NamespacedName) (found []finding.Finding, again time.Duration) {
	stored, _ := c.memory.contests.Get(cluster)
	known, _ := stored.(contests)
	messages := map[object]string{}
	for field, one := range known {
		left := delay - c.memory.now().Sub(one.last)
		if left <= 0 {
			continue
		}
		if again == 0 || left < again {
			again = left
		}
		// An object is named once, whatever is reverted in it.
		if text := field.message(one.rival); messages[field.object] == "" || text < messages[field.object] {
			messages[field.object] = text
		}
	}
	for _, text := range messages {
		found = append(found, finding.Finding{Reason: contract.ReasonContested, Message: text})
	}
	slices.SortFunc(found, func(a, b finding.Finding) int { return cmp.Compare(a.Message, b.Message) })
	return found, again
}

func (f field) message(rival string) string {
	by := "another manager"
	if rival != "" {
		by += ", " + rival + ","
	}
	advice := "keep it from changing our labels, annotations and conditions"
	switch {
	case f.object.kind.Kind == "Secret":
		advice = "keep it from managing this Secret, which is generated"
	case f.paths == spec:
		advice = "enable the webhooks, or keep it from managing files and commands"
	}
	return fmt.Sprintf("%s: %s keeps reverting our changes, which are repeated once a minute; %s", f.object, by, advice)
}

// rival returns which other manager has written one of the lists last, as far as the API server has recorded it: a
// manager that owns no entry of a list, because it has emptied it, is not recorded.
func (c *Client) rival(ctx context.Context, o client.Object, lists []string) string {
	kind, err := c.GroupVersionKindFor(o)
	if err != nil || len(lists) == 0 || c.remote != (types.NamespacedName{}) {
		return ""
	}
	stored := &metav1.PartialObjectMetadata{}
	stored.SetGroupVersionKind(kind)
	if err := c.memory.live.Get(ctx, client.ObjectKeyFromObject(o), stored); err != nil {
		return ""
	}
	name, latest := "", time.Time{}
	for _, entry := range stored.ManagedFields {
		if entry.Manager == contract.Name || entry.FieldsV1 == nil || entry.Time == nil || entry.Time.Time.Before(latest) {
			continue
		}
		fields := string(entry.FieldsV1.GetRawBytes())
		if slices.ContainsFunc(lists, func(list string) bool { return strings.Contains(fields, `"f:`+list+`"`) }) {
			name, latest = entry.Manager, entry.Time.Time
		}
	}
	return name
}
