package contract

import "slices"

// Reasons of ConditionProxyConfigured. Those of settings, names, the endpoint and internal errors are also reasons of
// ConditionProxyPublished.
const (
	ReasonConfigured           = "Configured"           // every bootstrap object of the Cluster carries the proxy
	ReasonInternalError        = "InternalError"        // an API call failed, and is tried again
	ReasonInvalidSettings      = "InvalidSettings"      // the proxy Secret, an annotation or the network cannot be used
	ReasonSettingsNotFound     = "SettingsNotFound"     // there is no proxy Secret
	ReasonNameTaken            = "NameTaken"            // another has made an object of that name
	ReasonConflictingFile      = "ConflictingFile"      // the user has a file at a managed path
	ReasonSharedTemplate       = "SharedTemplate"       // pools that need different settings share one template
	ReasonContested            = "Contested"            // another manager keeps reverting our writes
	ReasonTemplateNotSupported = "TemplateNotSupported" // Machines come from a kind that cannot be patched
	ReasonInPlaceFailed        = "InPlaceFailed"        // RolloutInPlace failed on a node, and stops for the pool
	ReasonWaitingForObjects    = "WaitingForObjects"    // an object that the Cluster refers to does not exist yet
	ReasonWaitingForEndpoint   = "WaitingForControlPlaneEndpoint"
	ReasonPaused               = "Paused"                   // a bootstrap object is paused
	ReasonRemovalWaiting       = "RemovalWaitingForRollout" // our entries are removed with the next rollout
	ReasonWaitingForRollout    = "WaitingForRollout"        // our entries are added with the next rollout
	ReasonInPlaceUnknown       = "InPlaceUnknown"           // the workload cluster cannot be reached for RolloutInPlace
	ReasonInPlaceProgressing   = "InPlaceProgressing"       // RolloutInPlace changes nodes
	ReasonConfiguring          = "Configuring"              // a control plane without Machines is paused to be patched
)

// Reasons of ConditionProxyPublished alone.
const (
	ReasonPublished           = "Published"           // every output is out
	ReasonInvalidOutput       = "InvalidOutput"       // AnnotationPublish or AnnotationPublishCredentials cannot be read
	ReasonCredentialsWithheld = "CredentialsWithheld" // AnnotationPublishCredentials does not let credentials out
	ReasonKubernetesTooOld    = "KubernetesTooOld"    // the workload cluster lacks an API that an output needs
	ReasonTooLarge            = "TooLarge"            // values are too long for an output; the output stays unchanged
	ReasonDeliveryFailed      = "DeliveryFailed"      // an output could not be applied to the workload cluster
	ReasonInPlaceNotInstalled = "InPlaceNotInstalled" // the manager runs without --node-image
	ReasonDelivering          = "Delivering"          // the workload cluster has not answered yet
	ReasonWithdrawing         = "Withdrawing"         // objects of the workload cluster are not deleted yet
)

// Reason is a row of the table of reasons.
type Reason struct {
	Name string
	// Status is the status of a condition with this reason.
	Status string
	// Task is the user's task.
	Task Task
}

// Values of Reason.Status, as Kubernetes has them.
const (
	statusTrue    = "True"
	statusFalse   = "False"
	statusUnknown = "Unknown"
)

// Task is the user's task.
type Task string

// The tasks.
const (
	TaskNone    Task = "nothing"  // the Cluster is as it asks
	TaskWait    Task = "wait"     // the reason resolves itself, or the user has asked for it
	TaskRollOut Task = "roll out" // the reason ends with a rollout, which the user begins
	TaskCorrect Task = "correct"  // the settings cannot be used
	TaskAct     Task = "act"      // anything else that does not resolve itself
)

// Reasons returns the table of reasons: those of a condition that is True, and then the one that the user must act on
// first before all others. A condition has the first reason of its findings.
func Reasons() []Reason {
	return []Reason{
		{ReasonConfigured, statusTrue, TaskNone},
		{ReasonPublished, statusTrue, TaskNone},
		{ReasonInternalError, statusUnknown, TaskAct},
		{ReasonInvalidOutput, statusFalse, TaskCorrect},
		{ReasonInvalidSettings, statusFalse, TaskCorrect},
		{ReasonSettingsNotFound, statusFalse, TaskCorrect},
		{ReasonNameTaken, statusFalse, TaskAct},
		{ReasonCredentialsWithheld, statusFalse, TaskAct},
		{ReasonKubernetesTooOld, statusFalse, TaskAct},
		{ReasonTooLarge, statusFalse, TaskAct},
		{ReasonDeliveryFailed, statusFalse, TaskAct},
		{ReasonInPlaceNotInstalled, statusFalse, TaskAct},
		{ReasonConflictingFile, statusFalse, TaskAct},
		{ReasonSharedTemplate, statusFalse, TaskAct},
		{ReasonContested, statusFalse, TaskAct},
		{ReasonTemplateNotSupported, statusFalse, TaskAct},
		{ReasonInPlaceFailed, statusFalse, TaskAct},
		{ReasonWaitingForObjects, statusUnknown, TaskWait},
		{ReasonWaitingForEndpoint, statusUnknown, TaskWait},
		{ReasonPaused, statusUnknown, TaskWait},
		{ReasonRemovalWaiting, statusFalse, TaskRollOut},
		{ReasonWaitingForRollout, statusFalse, TaskRollOut},
		{ReasonInPlaceUnknown, statusUnknown, TaskWait},
		{ReasonInPlaceProgressing, statusUnknown, TaskWait},
		{ReasonConfiguring, statusUnknown, TaskWait},
		{ReasonDelivering, statusUnknown, TaskWait},
		{ReasonWithdrawing, statusUnknown, TaskWait},
	}
}

// ReasonOf returns the row of a reason, the zero value for any other text.
func ReasonOf(name string) Reason {
	table := Reasons()
	if i := slices.IndexFunc(table, func(r Reason) bool { return r.Name == name }); i >= 0 {
		return table[i]
	}
	return Reason{}
}
