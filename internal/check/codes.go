package check

import (
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// Names of checks. Each has a section in docs/troubleshooting.md.
const (
	CodeAPIServer     finding.Code = "api-server"
	CodeClusterAPI    finding.Code = "cluster-api-version"
	CodeKinds         finding.Code = "cluster-api-kinds"
	CodeCertManager   finding.Code = "cert-manager"
	CodeFeatureGates  finding.Code = "feature-gates"
	CodeExtensions    finding.Code = "other-extensions"
	CodeRights        finding.Code = "rights"
	CodeDeployments   finding.Code = "deployments"
	CodeReplicas      finding.Code = "replicas"
	CodeVersion       finding.Code = "version"
	CodeLease         finding.Code = "lease"
	CodeCertificates  finding.Code = "certificates"
	CodeGuard         finding.Code = "guard"
	CodePermissions   finding.Code = "permissions"
	CodeAdmission     finding.Code = "admission"
	CodeHooks         finding.Code = "hooks"
	CodeClasses       finding.Code = "cluster-classes"
	CodeSecrets       finding.Code = "proxy-secrets"
	CodeLabels        finding.Code = "labels"
	CodeClusterLabel  finding.Code = "cluster-label"
	CodeClusterSecret finding.Code = "cluster-secret"
	CodeClusterReport finding.Code = "cluster-condition"
	CodePublished     finding.Code = "cluster-published"
	CodeMachines      finding.Code = "cluster-machines"
	CodeAddresses     finding.Code = "cluster-addresses"
	CodeStillLabelled finding.Code = "still-labelled"
	CodeEntriesLeft   finding.Code = "entries-left"
	CodeWorkloadLeft  finding.Code = "workload-objects-left"
	CodeRegistered    finding.Code = "hooks-registered"
)

// advice is what the user does about a check that failed, or has no answer; "" if its message says it.
func advice(code finding.Code, status Status) string {
	switch {
	case status != Unknown:
	case code == CodeAPIServer:
		return "choose a cluster that runs with --context or --kubeconfig, or let --wait wait for it"
	case strings.HasPrefix(string(code), "node-"):
		return "look at the API server of the workload cluster, and whether it can be reached from here"
	default:
		return "look at what the API server says: kubectl get --raw '/readyz?verbose'"
	}
	switch code {
	case CodeClusterAPI:
		return "clusterctl upgrade changes the version of Cluster API; the link says which versions go together"
	case CodeKinds:
		return "install Cluster API with the kubeadm bootstrap and control plane providers: clusterctl init"
	case CodeCertManager:
		return "install cert-manager, or use config/without-webhooks"
	case CodeFeatureGates:
		return "set CLUSTER_TOPOLOGY=true and EXP_RUNTIME_SDK=true for clusterctl, and upgrade Cluster API with them"
	case CodeExtensions:
		return "repair or delete the other extension, or let only one set the proxy of a Cluster"
	case CodeRights:
		return "install as another user, for example with the role cluster-admin"
	case CodeDeployments:
		return "install it, or mend what the message names; kubectl describe pods shows the events"
	case CodeReplicas:
		return "run two replicas on two nodes: without the manager new nodes wait, and webhooks do not answer"
	case CodeVersion:
		return "use the program of the installed version; delete Pods that run another image of it"
	case CodeLease:
		return "read the log of the manager: without a leader no Cluster is reconciled"
	case CodeCertificates:
		return "describe the Certificates in the namespace of the manager, and read the logs of cert-manager"
	case CodeGuard, CodePermissions:
		return "apply the release again"
	case CodeAdmission:
		return "find what keeps the API server from calling the webhooks: network policies, firewalls, its own proxy"
	case CodeHooks:
		return "apply extensionconfig.yaml of the release when Deployment capi-proxy-patcher-hooks is available"
	case CodeClasses:
		return "apply the ExtensionConfig that the patches of the ClusterClass name, or correct their names"
	case CodeSecrets:
		return "capi-proxy-patcher status -A shows each Cluster"
	case CodeMachines:
		return "replace them when it suits you; capi-proxy-patcher status --machines lists them"
	case CodeAddresses:
		return "add the network of the nodes to key noProxy of the proxy Secret, unless the proxy may reach it"
	case CodeStillLabelled:
		return "kubectl label clusters -A -l capi-proxy-patcher.io/enabled capi-proxy-patcher.io/enabled-"
	case CodeEntriesLeft:
		return "let the manager run, and roll out what waits; annotation capi-proxy-patcher.io/rollout=Immediate does it now"
	case CodeWorkloadLeft:
		return "let the manager run until condition ProxyPublished of the Cluster is gone"
	case CodeRegistered:
		return "remove the patch from the ClusterClasses, then: kubectl delete extensionconfig capi-proxy-patcher"
	case CodeNodePod:
		return "let the Pod run in namespace kube-system: admission policies and taints of the workload cluster may forbid it"
	case CodeNodeImage:
		return "mend what the message names; the proxy, its password and the certificates are in the proxy Secret"
	case "node-problems":
		return "mend what the message names in the image or the proxy Secret, and replace the Machine"
	case "node-variables":
		return "replace the Machine, or use rollout InPlace: it has booted without the proxy"
	case "node-trust":
		return "replace the Machine, or use rollout InPlace; the log of the bootstrap says why trust was not set up"
	case "node-endpoint":
		return "mend what the message names: 407 is a wrong password, an unknown authority belongs into key trustedCA"
	case "node-api-server", "node-dns":
		return "mend the network or the DNS of the workload cluster, or add what is proxied to key noProxy"
	case "node-network":
		return "add the network of the nodes to key noProxy of the proxy Secret"
	default:
		return ""
	}
}
