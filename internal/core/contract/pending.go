package contract

// Reasons of capabilities.
const (
	ReasonInPlaceFailed       = "InPlaceFailed"       // RolloutInPlace failed on a node
	ReasonInPlaceUnknown      = "InPlaceUnknown"      // the workload cluster cannot be reached for RolloutInPlace
	ReasonInPlaceProgressing  = "InPlaceProgressing"  // RolloutInPlace changes nodes
	ReasonInPlaceNotInstalled = "InPlaceNotInstalled" // the manager runs without --node-image
	ReasonPublished           = "Published"           // every output is out
	ReasonInvalidOutput       = "InvalidOutput"       // AnnotationPublish or AnnotationPublishCredentials cannot be read
	ReasonCredentialsWithheld = "CredentialsWithheld" // AnnotationPublishCredentials does not let credentials out
	ReasonKubernetesTooOld    = "KubernetesTooOld"    // the workload cluster lacks an API that an output needs
	ReasonTooLarge            = "TooLarge"            // values are too long for an output; the output stays unchanged
	ReasonDeliveryFailed      = "DeliveryFailed"      // an output could not be applied to the workload cluster
	ReasonDelivering          = "Delivering"          // the workload cluster has not answered yet
	ReasonWithdrawing         = "Withdrawing"         // objects of the workload cluster are not deleted yet
)
