// Package contract holds the names that users and other programs see: labels, annotations, Secret keys, paths on a
// node, the condition and its reasons. docs/reference.md documents them; a name here never changes.
package contract

// Domain is the prefix of every label, annotation and condition type of this product.
const Domain = "capi-proxy-patcher.io"

// Name marks the product's writes: field manager, comment in files, end of managed commands.
const Name = "capi-proxy-patcher"

// Labels.
const (
	// LabelEnabled on a Cluster, with the value LabelEnabledValue, enables the product for it. Written by the user,
	// read by every part of the product. Removing it, or the value LabelDisabledValue, removes what the product added
	// to bootstrap specs; any other value changes nothing.
	LabelEnabled = Domain + "/enabled"
	// LabelEnabledValue is the only value of LabelEnabled that enables.
	LabelEnabledValue = "true"
	// LabelDisabledValue is the only value of LabelEnabled that disables.
	LabelDisabledValue = "false"
	// LabelProxySecret on a Secret, with any value, lets the product notice a change of the proxy Secret at once.
	// Written by the user, and on generated Secrets by the product: it selects what the manager caches. Without it a
	// change is noticed at the next resync.
	LabelProxySecret = Domain + "/proxy"
	// LabelDefaultProxy on a Namespace, with value DefaultProxyAllowed, lets its Clusters, and who can read Secrets there,
	// use the installation-wide Secret. The manager's --default-proxy-namespaces may choose another label.
	LabelDefaultProxy = Domain + "/default-proxy"
	// LabelGenerated marks an object that the product generated; its value is the name of the Cluster.
	LabelGenerated = Domain + "/generated-for"
	// LabelOutput marks a generated Secret that no node reads with the end of the Secret's name, and an object that is
	// applied to a workload cluster with the name of its output.
	LabelOutput = Domain + "/output"
)

// Annotations on a Cluster, unless the comment says otherwise. Written by the user.
const (
	// AnnotationSecret names the proxy Secret in the Cluster's namespace. On a MachineDeployment or MachinePool
	// it names another Secret for that pool, or SecretNone.
	AnnotationSecret = Domain + "/secret"
	// AnnotationRollout chooses when and how a change reaches running Machines: RolloutOnNextRollout (default),
	// RolloutImmediate, or a value of a capability.
	AnnotationRollout = Domain + "/rollout"
	// AnnotationTargets lists the parts of a node that are configured, separated by commas: any subset of Targets.
	AnnotationTargets = Domain + "/targets"
	// AnnotationNoProxyGroups lists NO_PROXY groups to omit, each with a leading hyphen.
	AnnotationNoProxyGroups = Domain + "/no-proxy-groups"
)

// The variable of a ClusterClass that declares the product's patch. Its value is an object; every field is optional.
const (
	// VariableName is the name of the variable in spec.topology.variables of a Cluster and in overrides of its pools.
	VariableName = "capiProxyPatcher"
	// VariableSecretName names the proxy Secret, as AnnotationSecret does. In the override of a pool it may be
	// SecretNone.
	VariableSecretName = "secretName"
	// VariableTargets is the array of parts of a node that are configured, as AnnotationTargets is.
	VariableTargets = "targets"
	// VariableNoProxy is an array of additional NO_PROXY entries of the Cluster.
	VariableNoProxy = "noProxy"
)

// Names of the handlers that serve Cluster API's runtime hooks. A ClusterClass refers to them as
// HANDLER.EXTENSIONCONFIG.
const (
	HandlerGeneratePatches   = "generate-patches"
	HandlerValidateTopology  = "validate-topology"
	HandlerDiscoverVariables = "discover-variables"
)

// Annotations written by the product.
const (
	// AnnotationTopologyHold on a Cluster with a ClusterClass freezes the templates of objects that run a Kubernetes
	// version, or an earlier one, with or without the proxy, whatever the label asks for. Its value is HoldEnabled or
	// HoldDisabled, an at sign and that version. Written by the webhook when LabelEnabled changes on a Cluster that
	// runs, read by the topology hook, and removed when no object runs such a version any more, when the label changes
	// back, or for RolloutImmediate.
	AnnotationTopologyHold = Domain + "/topology-hold"
	// AnnotationEnabledBefore on a Cluster with a ClusterClass is LabelEnabledValue or LabelDisabledValue: the value of
	// LabelEnabled before it got an unknown one. The topology hook continues with it, because templates without patches
	// would remove the proxy. Written by the webhook, and removed by it when the label has a known value again.
	AnnotationEnabledBefore = Domain + "/enabled-before"
	// AnnotationOutputVersion on a patched object records the output version of its managed entries. It is removed with
	// our entries.
	AnnotationOutputVersion = Domain + "/output-version"
	// AnnotationNudge on a KubeadmConfig makes the bootstrap provider reconcile it at once when the generated Secret
	// that it waits for exists. Its value has no meaning.
	AnnotationNudge = Domain + "/nudge"
	// AnnotationWarnings on a generated Secret lists the codes of NO_PROXY warnings, separated by commas.
	AnnotationWarnings = Domain + "/warnings"
	// AnnotationChangedAt on a generated Secret is when a value that nodes read last changed, in RFC 3339. It is absent
	// as long as the values are those that the Secret was created with. Machines whose bootstrap data is not younger
	// are behind.
	AnnotationChangedAt = Domain + "/changed-at"
	// AnnotationMachinesBehind on a Cluster counts its Machines that are behind, by control plane and pool, as a JSON
	// array of objects with kind, name, machines and oldest. It is absent while none is. Written by the controller for
	// command status and other programs, read by nothing that decides, and removed with the condition.
	AnnotationMachinesBehind = Domain + "/machines-behind"
	// AnnotationUpdatedAt on the KubeadmConfig of a Machine is AnnotationChangedAt of the generated Secret with the
	// values that its Node got after it had booted. Written by a capability; a Machine is not behind values of this time
	// or before.
	AnnotationUpdatedAt = Domain + "/updated-at"
	// AnnotationUpdatedFiles on the KubeadmConfig of a Machine whose entries are not the current ones is patch.FilesDigest
	// of the files that its Node got after it had booted. Written by a capability; with these files it is not behind. With
	// the value FilesRemovedValue its Node has lost the files of its entries.
	AnnotationUpdatedFiles = Domain + "/updated-files"
	// AnnotationSource on a generated Secret names the proxy Secret its values come from, as namespace/name.
	AnnotationSource = Domain + "/source"
)

// Values of annotations.
const (
	// RolloutOnNextRollout lets a running control plane wait for the user's next rollout.
	RolloutOnNextRollout = "OnNextRollout"
	// RolloutImmediate changes a running control plane at once, which replaces its Machines.
	RolloutImmediate = "Immediate"
	// AppliedValue is the value of AppliedAnnotations.
	AppliedValue = "true"
	// FilesRemovedValue is the value of AnnotationUpdatedFiles for a Node without the files of its Machine's entries.
	FilesRemovedValue = "removed"
	// HoldEnabled begins an AnnotationTopologyHold that keeps templates with the proxy.
	HoldEnabled = "enabled"
	// HoldDisabled begins an AnnotationTopologyHold that keeps templates without the proxy.
	HoldDisabled = "disabled"
	// SecretNone on a pool means that the pool uses no proxy.
	SecretNone = "none"
	// DefaultSecretName is the proxy Secret of a namespace, for Clusters that neither name one nor have one of their own.
	DefaultSecretName = "http-proxy"
	// ClusterSecretSuffix after the name of a Cluster is the name of the Cluster's own proxy Secret.
	ClusterSecretSuffix = "-http-proxy"
	// DefaultProxyAllowed, of LabelDefaultProxy, lets the Clusters of a Namespace use the installation-wide Secret.
	DefaultProxyAllowed = "allowed"
	// GeneratedSecretSuffix after the name of a Cluster is the name of its generated Secret.
	GeneratedSecretSuffix = "-proxy-files"
	// PoolSecretSuffix ends the name of a pool's generated Secret. No name of a Cluster's generated Secret has its dot.
	PoolSecretSuffix = ".proxy-files"
)

// PausedForPatch is the value of annotation cluster.x-k8s.io/paused on a KubeadmControlPlane without Machines that the
// controller is about to patch while Cluster API may be creating the first one. The controller removes it when it
// patches the object, once condition Paused confirms the pause, or leaves the object unchanged if a Machine exists.
const PausedForPatch = Domain + "/waiting-to-be-patched"

// Target is a part of a node that is configured for the proxy.
type Target string

// The targets.
const (
	TargetContainerd Target = "containerd"
	TargetKubelet    Target = "kubelet"
	// TargetCommands is the shell of the user's preKubeadmCommands and postKubeadmCommands. kubeadm, which runs between
	// them, sees no variable.
	TargetCommands Target = "commands"
	TargetTrust    Target = "trust"
	// TargetStaticPods leaves variables without credentials in the environment of kubeadm, which copies them into
	// static Pods and kube-proxy. It is not in the default.
	TargetStaticPods Target = "static-pods"
)

// Targets returns the targets of the default, in the order of design and documentation.
func Targets() []Target {
	return []Target{TargetContainerd, TargetKubelet, TargetCommands, TargetTrust}
}

// AllTargets returns every target, those of the default first.
func AllTargets() []Target { return append(Targets(), TargetStaticPods) }

// Keys of a proxy Secret.
const (
	// KeyHTTPProxy is the proxy URL for http destinations.
	KeyHTTPProxy = "httpProxy"
	// KeyHTTPSProxy is the proxy URL for https destinations; KeyHTTPProxy serves both if it is empty.
	KeyHTTPSProxy = "httpsProxy"
	// KeyNoProxy lists additional destinations that are reached directly.
	KeyNoProxy = "noProxy"
	// KeyTrustedCA is a bundle of PEM certificates that nodes trust.
	KeyTrustedCA = "trustedCA"
	// KeyUsername is the proxy user, not percent-encoded.
	KeyUsername = "username"
	// KeyPassword is the proxy password, not percent-encoded.
	KeyPassword = "password"
	// KeyReadinessEndpoints lists URLs that a node asks for through the proxy. When it boots it asks scheme and host of
	// each; before and after a change of its files, the URL.
	KeyReadinessEndpoints = "readinessEndpoints"
)

// SecretKeys returns every key that a proxy Secret may have.
func SecretKeys() []string {
	return []string{
		KeyHTTPProxy, KeyHTTPSProxy, KeyNoProxy, KeyTrustedCA, KeyUsername, KeyPassword, KeyReadinessEndpoints,
	}
}

// Keys of a generated Secret.
const (
	// KeyProxyEnv is the content of PathProxyEnv.
	KeyProxyEnv = "proxy.env"
	// KeyTrustedCABundle is the content of PathTrustedCA.
	KeyTrustedCABundle = "trusted-ca.pem"
	// KeySetup is the content of PathSetup, the same in every generated Secret that one version of the product writes,
	// but for the hosts of KeyReadinessEndpoints.
	KeySetup = "setup.sh"
	// KeyReadiness is the list of KeyReadinessEndpoints, one URL per line, for running nodes. No bootstrap data refers to
	// it, so its change leaves no Machine behind; nor does the change of KeySetup with it.
	KeyReadiness = "readiness-endpoints"
	// KeyNodeFiles lists the files that a running node should have, in JSON; see patch.NodeData. No generated Secret of
	// the management cluster has it.
	KeyNodeFiles = "node-files.json"
	// KeyNoProxyOrigins lists every NO_PROXY entry with its group and origin, for people; no node reads it.
	KeyNoProxyOrigins = "no-proxy-origins.txt"
	// KeyContentHash is the SHA-256 of KeyProxyEnv and KeyTrustedCABundle as they were last rendered, in hex; no node
	// reads it. It distinguishes a change of the values from the repair of a Secret that somebody edited, and from
	// another version of KeySetup, after which no Machine is behind.
	KeyContentHash = "content-sha256"
	// KeyInfrastructure holds what the infrastructure cluster object of the Cluster told when it was read, in JSON; no
	// node reads it. A process that starts does not read those objects again.
	KeyInfrastructure = "infrastructure.json"
)

// GeneratedKeys returns every key that a generated Secret of nodes may have. The cache drops the values of others.
func GeneratedKeys() []string {
	return []string{
		KeyProxyEnv, KeyTrustedCABundle, KeySetup, KeyReadiness, KeyNodeFiles, KeyNoProxyOrigins, KeyContentHash,
		KeyInfrastructure,
	}
}

// Paths on a node.
const (
	// PathProxyEnv holds the variables, for systemd and for the shell.
	PathProxyEnv = "/etc/capi-proxy-patcher/proxy.env"
	// PathNodeEnv holds NO_PROXY of PathProxyEnv with the node's own addresses. The node writes it itself, and its readers
	// read it after PathProxyEnv.
	PathNodeEnv = "/etc/capi-proxy-patcher/node.env"
	// PathTrustedCA holds the certificates of the proxy Secret, or only a comment.
	PathTrustedCA = "/etc/capi-proxy-patcher/trusted-ca.pem"
	// PathSetup is the script that the managed commands call.
	PathSetup = "/etc/capi-proxy-patcher/setup.sh"
	// PathProblems has a line for each thing that PathSetup could not do when the node was prepared. The node writes it,
	// and there is none without a problem.
	PathProblems = "/etc/capi-proxy-patcher/problems"
)

// ConditionProxyConfigured is the condition on a Cluster. It is True when every bootstrap object of the Cluster
// carries the proxy.
const ConditionProxyConfigured = Domain + "/ProxyConfigured"

// Reasons of events.
const (
	// EventSettingsInjected is emitted on the Cluster when entries were added to a bootstrap object.
	EventSettingsInjected = "ProxySettingsInjected"
	// EventSettingsRemoved is emitted on the Cluster when entries were removed from a bootstrap object.
	EventSettingsRemoved = "ProxySettingsRemoved"
	// EventRolloutStarted is emitted on the Cluster when Machines that are behind are replaced because the Cluster asks
	// for RolloutImmediate.
	EventRolloutStarted = "ProxyRolloutStarted"
	// EventInvalidSettings is emitted on the Cluster when its settings become unusable, or unusable for another cause.
	EventInvalidSettings = "InvalidProxySettings"
	// EventConfigured is emitted on the Cluster when the condition becomes True, or is True with other notes.
	EventConfigured = "ProxyConfigured"
	// EventNotConfigured is emitted on the Cluster when the condition is not True for another cause than before, and
	// when it is removed.
	EventNotConfigured = "ProxyNotConfigured"
)
