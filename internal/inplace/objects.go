package inplace

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/agent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/remote"
)

const (
	// digestLength is the length of the digest at the end of a version.
	digestLength = 10
	// maxLabel is the length up to which NodeLabel is the name of a Secret: a version is the value of a label, which has
	// 63 characters at most.
	maxLabel = 63 - 1 - digestLength
	// maxFiles is how many bytes the files of a version can have, which are base64 in its Secret.
	maxFiles = corev1.MaxSecretSize - 1<<10
)

// graceSeconds is longer than an apply takes, which a signal does not end: with all endpoints unanswered, both restarts
// at their limit, and the previous files restored after that.
const graceSeconds = 3600

const (
	// appLabel is the label by which every object is found.
	appLabel = "app.kubernetes.io/name"
	// rbacGroup is the API group of roles.
	rbacGroup = "rbac.authorization.k8s.io"
)

// NodePods is how Pods on nodes are made.
type NodePods struct {
	// Image is their image, "" if updates in place are not installed.
	Image string
	// PullSecret is the Secret beside them with credentials of its registry, "" for none.
	PullSecret string
	// PullPolicy is the imagePullPolicy of the container that starts when the files are applied. With Always its start is
	// a pull by containerd with the new files.
	PullPolicy string
}

// NodeFiles are the files of one generated Secret for running nodes, and how Pods bring them there.
type NodeFiles struct {
	NodePods

	// Secret is the name of the generated Secret.
	Secret string
	// Data is that of patch.NodeData. Keys that no node reads are ignored.
	Data map[string][]byte
	// Key is the key of the digest in Version: the UID of the generated Secret, which readers of Secrets in the management
	// cluster know only. With another UID, as after clusterctl move, the Pods are replaced, and the files stay.
	Key []byte
	// Slots is how many nodes change at a time.
	Slots int
}

// NodeLabel returns the value of LabelNodeFiles for the nodes of a generated Secret: its name or, if that is
// too long, a shorter one with a hash. No two generated Secrets have the same: their names do not end like a hash.
func NodeLabel(secretName string) string {
	if len(secretName) <= maxLabel {
		return secretName
	}
	sum := sha256.Sum256([]byte(secretName))
	end := hex.EncodeToString(sum[:])[:20]
	return strings.TrimRight(secretName[:maxLabel-1-len(end)], ".-") + "-" + end
}

// nodeKeys lists the keys of a generated Secret that a node gets.
func nodeKeys() []string {
	return []string{
		contract.KeyProxyEnv, contract.KeyTrustedCABundle, contract.KeySetup, contract.KeyReadiness, contract.KeyNodeFiles,
	}
}

// Version identifies the files and the Pods that apply them: NodeLabel, a hyphen, and a digest. More people may read it
// than may read the files, so the digest is an HMAC: without the key a password cannot be guessed from it.
func (in NodeFiles) Version() string {
	hash := hmac.New(sha256.New, in.Key)
	write := func(part []byte) {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		hash.Write(length[:])
		hash.Write(part)
	}
	for _, name := range nodeKeys() {
		if value, given := in.Data[name]; given {
			write([]byte(name))
			write(value)
		}
	}
	pod, _ := json.Marshal(in.pod("")) //nolint:errchkjson // texts, numbers and lists of them
	write(pod)
	return NodeLabel(in.Secret) + "-" + hex.EncodeToString(hash.Sum(nil))[:digestLength]
}

// isTooLarge reports whether the files fit into no Secret.
func (in NodeFiles) isTooLarge() bool {
	size := 0
	for _, key := range nodeKeys() {
		size += len(in.Data[key])
	}
	return size > maxFiles
}

// object is a value in JSON.
type object = map[string]any

// objects returns the objects of a version: the immutable Secret with the files, and the DaemonSet that brings them to
// the nodes. All its Pods are replaced at once, because nodes take turns by themselves.
func (in NodeFiles) objects() []remote.Object {
	version, label := in.Version(), NodeLabel(in.Secret)
	data := object{}
	for _, key := range nodeKeys() {
		if value, given := in.Data[key]; given {
			data[key] = base64.StdEncoding.EncodeToString(value)
		}
	}
	selector := object{appLabel: NodesApp, LabelNodeFiles: label}
	return []remote.Object{
		ofNodes("v1", "Secret", version, object{
			"type": "Opaque", "immutable": true, "data": data,
		}, LabelNodeFiles, label),
		ofNodes("apps/v1", "DaemonSet", label, object{"spec": object{
			"selector":       object{"matchLabels": selector},
			"updateStrategy": object{"type": "RollingUpdate", "rollingUpdate": object{"maxUnavailable": "100%"}},
			"template": object{
				"metadata": object{"labels": object{
					appLabel: NodesApp, LabelNodeFiles: label, LabelFilesVersion: version,
				}},
				"spec": in.pod(version),
			},
		}}, LabelNodeFiles, label),
	}
}

// ofNodes returns an object in the workload cluster. Its name is that of the product, with an end unless that is "".
func ofNodes(version, kind, end string, content object, labels ...string) remote.Object {
	o := remote.Object{Unstructured: &unstructured.Unstructured{Object: content}, Of: "updates in place"}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	if o.SetName(contract.Name); end != "" {
		o.SetName(contract.Name + "-" + end)
	}
	if !strings.HasPrefix(kind, "Cluster") {
		o.SetNamespace(NodesNamespace)
	}
	if len(labels) > 0 {
		o.SetLabels(map[string]string{labels[0]: labels[1]})
	}
	return o
}

// access returns the service account of the Pods and its rights: to read Nodes, and to take and release slots.
func access(slots int) []remote.Object {
	names := make([]any, slots)
	for i := range slots {
		names[i] = agent.LeaseName(i)
	}
	subjects := []any{object{"kind": "ServiceAccount", "name": contract.Name, "namespace": NodesNamespace}}
	to := func(kind string) object {
		return object{
			"roleRef": object{"apiGroup": rbacGroup, "kind": kind, "name": contract.Name}, "subjects": subjects,
		}
	}
	const v1 = rbacGroup + "/v1"
	return []remote.Object{
		ofNodes("v1", "ServiceAccount", "", object{}),
		ofNodes(v1, "Role", "", object{"rules": []any{object{
			"apiGroups": []any{"coordination.k8s.io"}, "resources": []any{"leases"}, "resourceNames": names,
			"verbs": []any{"get", "update"},
		}}}),
		ofNodes(v1, "ClusterRole", "", object{"rules": []any{object{
			"apiGroups": []any{""}, "resources": []any{"nodes"}, "verbs": []any{"get"},
		}}}),
		ofNodes(v1, "RoleBinding", "", to("Role")),
		ofNodes(v1, "ClusterRoleBinding", "", to("ClusterRole")),
	}
}

// kindsOfNodes are the kinds of all objects but the Leases, in the order in which they are deleted.
func kindsOfNodes() []remote.Kind {
	named := func(name string) bool { return name == contract.Name || strings.HasPrefix(name, contract.Name+"-") }
	kind := func(group, kind, namespace string) remote.Kind {
		return remote.Kind{
			GroupVersionKind: schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind},
			Namespace:        namespace, Named: named,
		}
	}
	return []remote.Kind{
		kind("apps", "DaemonSet", NodesNamespace), kind("", "Secret", NodesNamespace),
		kind(rbacGroup, "RoleBinding", NodesNamespace), kind(rbacGroup, "ClusterRoleBinding", ""),
		kind(rbacGroup, "Role", NodesNamespace), kind(rbacGroup, "ClusterRole", ""),
		kind("", "ServiceAccount", NodesNamespace),
	}
}

// setOf returns what a Cluster wants in its workload cluster. Objects of versions in kept stay as they are.
func setOf(cluster string, slots int, wanted []NodeFiles, kept map[string]bool) remote.Set {
	set := remote.Set{
		Kinds: kindsOfNodes(), Labels: marks(cluster), Failed: ReasonInPlaceFailed,
		Keeps: func(o metav1.Object) bool { return kept[o.GetLabels()[LabelNodeFiles]] },
	}
	if len(wanted)+len(kept) > 0 {
		set.Objects = access(slots)
	}
	for _, in := range wanted {
		set.Objects = append(set.Objects, in.objects()...)
	}
	return set
}

// marks are labels of every object.
func marks(cluster string) client.MatchingLabels {
	return client.MatchingLabels{appLabel: NodesApp, contract.LabelGenerated: cluster}
}

// pod is the spec of a Pod: one container that applies the files and ends, and one that compares them afterwards.
func (in NodeFiles) pod(version string) object {
	const root, files, state = "/host", "/files", "/state"
	slots := strconv.Itoa(in.Slots)
	arguments := []any{"node", "apply", "--root", root, "--from", files, "--state", state, "--slots", slots}
	if registry, _, named := strings.Cut(in.Image, "/"); named && strings.ContainsAny(registry, ".:") {
		arguments = append(arguments, "--endpoint", "https://"+registry+"/v2/")
	}
	apply := in.container("apply", arguments...)
	apply["volumeMounts"] = []any{
		hostMount(root, false), mount("files", files, true), mount("state", state, false),
	}
	watch := in.container("watch", "node", "watch", "--root", root, "--from", files, "--slots", slots)
	watch["volumeMounts"] = []any{hostMount(root, true), mount("files", files, true)}
	watch["imagePullPolicy"] = in.PullPolicy
	pod := object{
		"affinity": object{"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": object{
			"nodeSelectorTerms": []any{object{"matchExpressions": []any{
				object{"key": LabelNodeFiles, "operator": "In", "values": []any{NodeLabel(in.Secret)}},
				object{"key": "kubernetes.io/os", "operator": "In", "values": []any{"linux"}},
			}}},
		}}},
		"tolerations":                   []any{object{"operator": "Exists"}},
		"terminationGracePeriodSeconds": int64(graceSeconds),
		"hostNetwork":                   true, "dnsPolicy": "Default", "enableServiceLinks": false,
		"priorityClassName": "system-node-critical", "serviceAccountName": contract.Name,
		"automountServiceAccountToken": true,
		"securityContext": object{
			"runAsUser": int64(0), "runAsGroup": int64(0),
			"seLinuxOptions":  object{"type": "spc_t"},
			"appArmorProfile": object{"type": "Unconfined"},
			"seccompProfile":  object{"type": "RuntimeDefault"},
		},
		"initContainers": []any{apply},
		"containers":     []any{watch},
		"volumes": []any{
			object{"name": "host", "hostPath": object{"path": "/", "type": "Directory"}},
			object{"name": "files", "secret": object{
				"secretName": contract.Name + "-" + version, "defaultMode": int64(0o400),
			}},
			object{"name": "state", "emptyDir": object{"sizeLimit": "1Mi"}},
		},
	}
	if in.PullSecret != "" {
		pod["imagePullSecrets"] = []any{object{"name": in.PullSecret}}
	}
	return pod
}

// hostMount mounts the root of the node. What the node unmounts is unmounted in the container, too, and not kept busy.
func hostMount(at string, readOnly bool) object {
	m := mount("host", at, readOnly)
	m["mountPropagation"] = "HostToContainer"
	return m
}

func mount(name, at string, readOnly bool) object {
	m := object{"name": name, "mountPath": at}
	if readOnly {
		m["readOnly"] = true
	}
	return m
}

// container is what the containers have in common. They run as root, whose files those on the host are, and need no
// capability for it.
func (in NodeFiles) container(name string, args ...any) object {
	return object{
		"name": name, "image": in.Image, "imagePullPolicy": "IfNotPresent", "args": args,
		"env": []any{object{"name": "NODE_NAME", "valueFrom": object{"fieldRef": object{
			"apiVersion": "v1", "fieldPath": "spec.nodeName",
		}}}},
		"resources": object{"requests": object{"cpu": "5m", "memory": "16Mi"}},
		"securityContext": object{
			"allowPrivilegeEscalation": false, "privileged": false, "readOnlyRootFilesystem": true,
			"capabilities": object{"drop": []any{"ALL"}},
		},
		"terminationMessagePolicy": "FallbackToLogsOnError",
	}
}

// tooLarge is the message about files that fit into no Secret.
func (in NodeFiles) tooLarge() string {
	return fmt.Sprintf("the files of Secret %s for running nodes have more than %d bytes; remove certificates that no "+
		"node needs from %s", in.Secret, maxFiles, contract.KeyTrustedCA)
}
