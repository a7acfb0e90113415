package controller

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

// Every event names the object that it is about beside the Cluster: events that differ in nothing but their text are
// counted as one, and the texts of the later ones are lost.
//
// Text always goes through "%s": names and messages may hold a percent sign.

func (c *Controller) eventInjected(cluster, related runtime.Object, object string) {
	c.Recorder.Eventf(cluster, related, corev1.EventTypeNormal, contract.EventSettingsInjected, actionInject, "%s", "Added the proxy to "+object)
}

func (c *Controller) eventRemoved(cluster, related runtime.Object, object string) {
	c.Recorder.Eventf(cluster, related, corev1.EventTypeNormal, contract.EventSettingsRemoved, actionRemove, "%s", "Removed the proxy from "+object)
}

func (c *Controller) eventRollout(cluster, related runtime.Object, object string) {
	c.Recorder.Eventf(cluster, related, corev1.EventTypeNormal, contract.EventRolloutStarted, actionRollOut, "%s", "Set spec.rollout.after of "+object)
}

// eventReported tells of a condition.
func (c *Controller) eventReported(cluster runtime.Object, condition finding.Condition) {
	event := finding.EventOf(condition)
	action := actionReport
	if event.Reason == contract.EventInvalidSettings {
		action = actionValidate
	}
	c.Recorder.Eventf(cluster, nil, event.Type, event.Reason, action, "%s", event.Note)
}

// eventGone tells that the condition is gone.
func (c *Controller) eventGone(cluster runtime.Object) {
	c.Recorder.Eventf(cluster, nil, corev1.EventTypeNormal, contract.EventNotConfigured, actionReport, "%s", "Removed everything that this product added")
}
