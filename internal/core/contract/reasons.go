package contract

import "slices"

// Reasons of ConditionProxyConfigured. Those of settings, names, the endpoint and internal errors are also reasons of
// the conditions of capabilities.
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
	ReasonTooLarge             = "TooLarge"             // values are too long for an object, which stays unchanged
	ReasonWaitingForObjects    = "WaitingForObjects"    // an object that the Cluster refers to does not exist yet
	ReasonWaitingForEndpoint   = "WaitingForControlPlaneEndpoint"
	ReasonPaused               = "Paused"                   // a bootstrap object is paused
	ReasonRemovalWaiting       = "RemovalWaitingForRollout" // our entries are removed with the next rollout
	ReasonWaitingForRollout    = "WaitingForRollout"        // our entries are added with the next rollout
	ReasonConfiguring          = "Configuring"              // a control plane without Machines is paused to be patched
)

// Reason is a row of the table of reasons.
type Reason struct {
	Name string
	// Status is the status of a condition with this reason.
	Status string
	// Task is the user's task.
	Task Task
	// After is the reason that a reason of a capability follows in the table.
	After string
	// Remote reports that only a workload cluster can tell, which commands do not ask.
	Remote bool
}

// Values of Reason.Status, as Kubernetes has them.
const (
	StatusTrue    = "True"
	StatusFalse   = "False"
	StatusUnknown = "Unknown"
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
	table := []Reason{
		{Name: ReasonConfigured, Status: StatusTrue, Task: TaskNone},
		{Name: ReasonInternalError, Status: StatusUnknown, Task: TaskAct},
		{Name: ReasonInvalidSettings, Status: StatusFalse, Task: TaskCorrect},
		{Name: ReasonSettingsNotFound, Status: StatusFalse, Task: TaskCorrect},
		{Name: ReasonNameTaken, Status: StatusFalse, Task: TaskAct},
		{Name: ReasonTooLarge, Status: StatusFalse, Task: TaskAct},
		{Name: ReasonConflictingFile, Status: StatusFalse, Task: TaskAct},
		{Name: ReasonSharedTemplate, Status: StatusFalse, Task: TaskAct},
		{Name: ReasonContested, Status: StatusFalse, Task: TaskAct},
		{Name: ReasonTemplateNotSupported, Status: StatusFalse, Task: TaskAct},
		{Name: ReasonWaitingForObjects, Status: StatusUnknown, Task: TaskWait},
		{Name: ReasonWaitingForEndpoint, Status: StatusUnknown, Task: TaskWait},
		{Name: ReasonPaused, Status: StatusUnknown, Task: TaskWait},
		{Name: ReasonRemovalWaiting, Status: StatusFalse, Task: TaskRollOut},
		{Name: ReasonWaitingForRollout, Status: StatusFalse, Task: TaskRollOut},
		{Name: ReasonConfiguring, Status: StatusUnknown, Task: TaskWait},
	}
	for _, reason := range ofAll(func(c Capability) []Reason { return c.Reasons }) {
		after := slices.IndexFunc(table, func(r Reason) bool { return r.Name == reason.After })
		table = slices.Insert(table, after+1, reason)
	}
	return table
}

// ReasonOf returns the row of a reason, the zero value for any other text.
func ReasonOf(name string) Reason {
	table := Reasons()
	if i := slices.IndexFunc(table, func(r Reason) bool { return r.Name == name }); i >= 0 {
		return table[i]
	}
	return Reason{}
}
