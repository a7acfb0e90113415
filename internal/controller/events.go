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
	actionValidate = "Validate"
)

// Text always goes through "%s": names and messages may hold a percent sign.

func (c *Controller) eventInjected(cluster runtime.Object, object string) {
	c.Recorder.Eventf(cluster, nil, corev1.EventTypeNormal, contract.EventSettingsInjected, actionInject, "%s", "Added the proxy to "+object)
}

func (c *Controller) eventRemoved(cluster runtime.Object, object string) {
	c.Recorder.Eventf(cluster, nil, corev1.EventTypeNormal, contract.EventSettingsRemoved, actionRemove, "%s", "Removed the proxy from "+object)
}

func (c *Controller) eventInvalid(cluster runtime.Object, message string) {
	// An event holds 1,024 characters; the condition has the whole message.
	const limit = 1000
	if runes := []rune(message); len(runes) > limit {
		message = string(runes[:limit]) + "…"
	}
	c.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, contract.EventInvalidSettings, actionValidate, "%s", message)
}
