package inplace

import (
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/agent"
)

// Names that users see.
const (
	// LabelNodeFiles on a Node of a workload cluster names the generated Secret whose files it has with RolloutInPlace.
	// Written by the product once, and removed by it when the Cluster no longer asks for RolloutInPlace. A kubelet cannot
	// set this prefix on its own Node, so that no node can ask for the files of another pool. The Secret of the files,
	// their DaemonSet and its Pods have the same label.
	LabelNodeFiles = contract.Name + ".node-restriction.kubernetes.io/files"
	// LabelFilesVersion on a Pod of RolloutInPlace is the version of its files: the end of the name of their Secret.
	LabelFilesVersion = contract.Domain + "/files-version"
	// AnnotationInPlaceMaxUnavailable is how many Nodes of a Cluster RolloutInPlace changes at a time: a number from 1 to
	// InPlaceMaxUnavailableLimit. The default is 1.
	AnnotationInPlaceMaxUnavailable = contract.Domain + "/in-place-max-unavailable"
	// InPlaceMaxUnavailableLimit is the largest AnnotationInPlaceMaxUnavailable.
	InPlaceMaxUnavailableLimit = agent.MaxSlots
	// AnnotationInPlaceApplied on a Cluster, with the value contract.AppliedValue, is there while objects of
	// RolloutInPlace may be in the workload cluster. Its value is RestoredValue when all running nodes are restored,
	// after LabelEnabled was removed with RolloutInPlace.
	AnnotationInPlaceApplied = contract.Domain + "/in-place-applied"
	// RolloutInPlace treats specs as RolloutOnNextRollout does, and changes the files of running nodes without replacing
	// their Machines.
	RolloutInPlace = "InPlace"
	// RestoredValue is the value of AnnotationInPlaceApplied when all running nodes are restored.
	RestoredValue = "restored"
	// NodesNamespace is the namespace of everything that RolloutInPlace has in a workload cluster. Nobody who may write
	// there needs this product to become root on the nodes.
	NodesNamespace = "kube-system"
	// NodesApp is the value of label app.kubernetes.io/name of every object there.
	NodesApp                  = contract.Name + "-node"
	ReasonInPlaceFailed       = "InPlaceFailed"       // RolloutInPlace failed on a node
	ReasonInPlaceUnknown      = "InPlaceUnknown"      // the workload cluster cannot be reached for RolloutInPlace
	ReasonInPlaceProgressing  = "InPlaceProgressing"  // RolloutInPlace changes nodes
	ReasonInPlaceNotInstalled = "InPlaceNotInstalled" // the manager runs without --node-image
)
