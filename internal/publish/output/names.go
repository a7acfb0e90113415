package output

import "github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"

// Names that users see.
const (
	// AnnotationPublish lists the outputs in which composed values are published for Pods and add-ons, separated by
	// commas, each as NAME or NAME=ARGUMENT.
	AnnotationPublish = contract.Domain + "/publish"
	// AnnotationPublishCredentials, with the value PublishCredentialsValue, lets outputs that leave the management cluster
	// hold the user and the password of the proxy.
	AnnotationPublishCredentials = contract.Domain + "/publish-credentials"
	// AnnotationHTTPProxy, AnnotationHTTPSProxy and AnnotationNoProxy on a Cluster are the values of output annotations.
	AnnotationHTTPProxy  = contract.Domain + "/http-proxy"
	AnnotationHTTPSProxy = contract.Domain + "/https-proxy"
	AnnotationNoProxy    = contract.Domain + "/no-proxy"
	// AnnotationApplied on a Cluster, with the value contract.AppliedValue, is there while objects of outputs may be in
	// the workload cluster. Written by the product before the first object is applied, and removed by it after the last
	// one is gone.
	AnnotationApplied = contract.Domain + "/applied"
	// PublishCredentialsValue is the only value of AnnotationPublishCredentials that publishes credentials.
	PublishCredentialsValue = "true"
	// ConditionProxyPublished is the condition on a Cluster that says whether every output of AnnotationPublish is out. It
	// is there while something is asked for or being withdrawn.
	ConditionProxyPublished   = contract.Domain + "/ProxyPublished"
	ReasonPublished           = "Published"           // every output is out
	ReasonInvalidOutput       = "InvalidOutput"       // AnnotationPublish or AnnotationPublishCredentials cannot be read
	ReasonCredentialsWithheld = "CredentialsWithheld" // AnnotationPublishCredentials does not let credentials out
	ReasonKubernetesTooOld    = "KubernetesTooOld"    // the workload cluster lacks an API that an output needs
	ReasonDeliveryFailed      = "DeliveryFailed"      // an output could not be applied to the workload cluster
	ReasonDelivering          = "Delivering"          // the workload cluster has not answered yet
	ReasonWithdrawing         = "Withdrawing"         // objects of the workload cluster are not deleted yet
)

// Names are the names of outputs, which the core does not know.
func Names() contract.Capability {
	return contract.Capability{
		Name:        "publish",
		Annotations: []contract.Annotation{{Key: AnnotationPublish}, {Key: AnnotationPublishCredentials}},
		Records: []string{
			AnnotationHTTPProxy, AnnotationHTTPSProxy, AnnotationNoProxy,
		},
		Applied:    []string{AnnotationApplied},
		Conditions: []string{ConditionProxyPublished},
		Reasons: []contract.Reason{
			{Name: ReasonPublished, Status: contract.StatusTrue, Task: contract.TaskNone, After: contract.ReasonConfigured},
			{
				Name: ReasonInvalidOutput, Status: contract.StatusFalse, Task: contract.TaskCorrect,
				After: contract.ReasonInternalError,
			},
			{
				Name: ReasonCredentialsWithheld, Status: contract.StatusFalse, Task: contract.TaskAct,
				After: contract.ReasonNameTaken,
			},
			{
				Name: ReasonKubernetesTooOld, Status: contract.StatusFalse, Task: contract.TaskAct,
				After: ReasonCredentialsWithheld,
			},
			{Name: ReasonDeliveryFailed, Status: contract.StatusFalse, Task: contract.TaskAct, After: contract.ReasonTooLarge},
			{
				Name: ReasonDelivering, Status: contract.StatusUnknown, Task: contract.TaskWait,
				After: contract.ReasonConfiguring,
			},
			{Name: ReasonWithdrawing, Status: contract.StatusUnknown, Task: contract.TaskWait, After: ReasonDelivering},
		},
	}
}
