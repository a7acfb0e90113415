package controller

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// Actions of events.
const (
	actionInject   = "Inject"
	actionRemove   = "Remove"
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

func (c *Controller) eventInvalid(cluster runtime.Object, message string) {
	// An event holds 1,024 characters; the condition has the whole message.
	const limit = 1000
	if runes := []rune(message); len(runes) > limit {
		message = string(runes[:limit]) + "…"
	}
	c.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, contract.EventInvalidSettings, actionValidate, "%s", message)
}
