package report

import (
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

// Every event names the object that it is about in addition to the Cluster: events that differ only in their text are
// counted as one, and the texts of the later ones are lost.
//
// Text always goes through "%s": names and messages may hold a percent sign.

// Injected emits the event that the proxy was added to an object, given by its name in messages.
func (r *Reporter) Injected(cluster, related runtime.Object, object string) {
	r.Recorder.Eventf(cluster, related, corev1.EventTypeNormal, contract.EventSettingsInjected, actionInject, "%s",
		"Added the proxy to "+object)
}

// Removed emits the event that the proxy was removed from an object.
func (r *Reporter) Removed(cluster, related runtime.Object, object string) {
	r.Recorder.Eventf(cluster, related, corev1.EventTypeNormal, contract.EventSettingsRemoved, actionRemove, "%s",
		"Removed the proxy from "+object)
}

// RolloutStarted emits the event that the Machines of an object are replaced.
func (r *Reporter) RolloutStarted(cluster, related runtime.Object, object string) {
	r.Recorder.Eventf(cluster, related, corev1.EventTypeNormal, contract.EventRolloutStarted, actionRollOut, "%s",
		"Set spec.rollout.after of "+object)
}

// reported emits the event of a condition.
func (r *Reporter) reported(cluster runtime.Object, condition finding.Condition) {
	event := finding.EventOf(condition)
	action := actionReport
	if event.Reason == contract.EventInvalidSettings {
		action = actionValidate
	}
	r.Recorder.Eventf(cluster, nil, event.Type, event.Reason, action, "%s", event.Note)
}

// gone emits the event that the condition is removed.
func (r *Reporter) gone(cluster runtime.Object) {
	r.Recorder.Eventf(cluster, nil, corev1.EventTypeNormal, contract.EventNotConfigured, actionReport, "%s",
		"Removed everything that this product added")
}
