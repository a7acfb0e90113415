package report

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
)

// Actions of events.
const (
	actionInject   = "Inject"
	actionRemove   = "Remove"
	actionReport   = "Report"
	actionRollOut  = "RollOut"
	actionValidate = "Validate"
)

// A pass over a Cluster emits one event: about its condition if that is news, with the changes before it, else about
// the changes. The note goes through "%s", because names and messages may contain a percent sign.

// maxObjects is the largest number of objects that an event names for each kind of change.
const maxObjects = 5

// changed emits the event that the proxy was added to objects, or removed from them, if it was.
func (r *Reporter) changed(cluster runtime.Object, changes Outcome) {
	reason, action := contract.EventSettingsInjected, actionInject
	if len(changes.Added) == 0 {
		reason, action = contract.EventSettingsRemoved, actionRemove
	}
	if note := changes.changes(); note != "" {
		r.Recorder.Eventf(cluster, nil, corev1.EventTypeNormal, reason, action, "%s", note)
	}
}

// changes describes to which objects the proxy was added, and from which it was removed; "" if there are none.
func (o Outcome) changes() string {
	var parts []string
	for _, change := range []struct {
		what    string
		objects []string
	}{{"Added the proxy to ", o.Added}, {"Removed the proxy from ", o.Removed}} {
		if len(change.objects) == 0 {
			continue
		}
		named := change.objects[:min(len(change.objects), maxObjects)]
		part := change.what + strings.Join(named, ", ")
		if more := len(change.objects) - len(named); more > 0 {
			part += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ". ")
}

// RolloutStarted emits the event that the Machines of an object are replaced.
func (r *Reporter) RolloutStarted(cluster, related runtime.Object, object string) {
	r.Recorder.Eventf(cluster, related, corev1.EventTypeNormal, contract.EventRolloutStarted, actionRollOut, "%s",
		"Set spec.rollout.after of "+object)
}

// reported emits the event of a condition, after changes if they are not "".
func (r *Reporter) reported(cluster runtime.Object, condition finding.Condition, changes string) {
	event := finding.EventOf(condition).After(changes)
	action := actionReport
	if event.Reason == contract.EventInvalidSettings {
		action = actionValidate
	}
	r.Recorder.Eventf(cluster, nil, event.Type, event.Reason, action, "%s", event.Note)
}

// gone emits the event that the condition is removed, after changes if they are not "".
func (r *Reporter) gone(cluster runtime.Object, changes string) {
	event := finding.Event{
		Type: corev1.EventTypeNormal, Reason: contract.EventNotConfigured,
		Note: "Removed everything that this product added",
	}
	r.Recorder.Eventf(cluster, nil, event.Type, event.Reason, actionReport, "%s", event.After(changes).Note)
}
