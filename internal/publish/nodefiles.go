package publish

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// nodesPort is where a Pod on a node reports whether the files on the host are those that it has. It listens on the
// loopback interface only.
const nodesPort = 19279

const (
	// digestLength is the length of the digest at the end of a version.
	digestLength = 10
	// maxLabel is the length up to which NodeLabel is the name of a Secret: a version is the value of a label, which has
	// 63 characters at most.
	maxLabel = 63 - 1 - digestLength
)

// graceSeconds is longer than an apply takes, which a signal does not end: with all endpoints unanswered, both restarts
// at their limit, and the previous files restored after that.
const graceSeconds = 3600

// appLabel is the label by which every object is found.
const appLabel = "app.kubernetes.io/name"

// NodeFiles are the files of one generated Secret for running nodes, and how Pods bring them there: what
// contract.RolloutInPlace has in a workload cluster.
type NodeFiles struct {
	// Cluster is the name of the Cluster.
	Cluster string
	// Secret is the name of the generated Secret.
	Secret string
	// Data is that of patch.NodeData. Keys that no node reads are ignored.
	Data map[string][]byte
	// Key is the key of the digest in Version.
	Key []byte
	// Image is the image of the Pods, PullSecret the Secret beside them with credentials of its registry, if it is set.
	Image, PullSecret string
	// PullPolicy is the imagePullPolicy of the container that starts when the files are applied. With Always its start is
	// a pull by containerd with the new files.
	PullPolicy string
}

// NodeLabel returns the beginning of the versions of a generated Secret: its name or, if that is too long, a shorter
// one with a hash. No two generated Secrets have the same: names of generated Secrets do not end like a hash.
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

// ForNodes returns what of the data of a generated Secret a node gets. Without contract.KeySetup there is nothing for a
// node in it.
func ForNodes(data map[string][]byte) map[string][]byte {
	files := map[string][]byte{}
	for _, key := range nodeKeys() {
		if value, given := data[key]; given {
			files[key] = value
		}
	}
	return files
}

// Version identifies the files of a generated Secret and the Pods that apply them. It is the value of
// contract.LabelNodeFiles for the Nodes that may apply them, and the name of the Secret and the DaemonSet: NodeLabel, a
// hyphen, and a digest. More people may read it than may read the files, so the digest is an HMAC: without the key a
// password cannot be guessed from it.
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

// NodeLabelOf returns the NodeLabel that a version begins with, "" if it is none.
func NodeLabelOf(version string) string {
	i := strings.LastIndexByte(version, '-')
	if i < 0 || len(version)-i-1 != digestLength {
		return ""
	}
	return version[:i]
}

// NodeKey returns NodeFiles.Key for a generated Secret of a UID, which is known to readers of Secrets in the management
// cluster only. With another UID, as after clusterctl move, the Pods are replaced, and the files stay.
func NodeKey(uid types.UID) []byte { return []byte(uid) }

// HasNodeFiles reports whether there are files for nodes in the data of a generated Secret.
func HasNodeFiles(data map[string][]byte) bool {
	_, complete := data[contract.KeySetup]
	return complete
}

// object is a value in YAML.
type object = map[string]any

// Objects returns the objects of a version as a stream of YAML: the Namespace, the immutable Secret with the files, and
// the DaemonSet that brings them to the nodes with the version in contract.LabelNodeFiles. Each version has objects of
// its own, because which nodes may apply it is decided node by node.
func (in NodeFiles) Objects() ([]byte, error) {
	version := in.Version()
	secret, err := encode(in.secret(version))
	if err != nil {
		return nil, err
	}
	daemonSet, err := encode(in.daemonSet(version))
	if err != nil {
		return nil, err
	}
	ns, err := encode(nodesNamespace(in.Cluster))
	if err != nil {
		return nil, err
	}
	return []byte(strings.Join([]string{string(ns), string(secret), string(daemonSet)}, "---\n")), nil
}

// nodesNamespace returns the Namespace of the objects.
func nodesNamespace(cluster string) object {
	const podSecurity = "pod-security.kubernetes.io/"
	labels := nodeMarks(cluster)
	for _, mode := range []string{"enforce", "audit", "warn"} {
		labels[podSecurity+mode] = "privileged" // the Pods write files of the host
	}
	return object{
		"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": contract.NodesNamespace, "labels": labels},
	}
}

func encode(document object) ([]byte, error) {
	text, err := yaml.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encoding an object for nodes: %w", err)
	}
	return text, nil
}

// nodeMarks are labels of every object, and of the Pods.
func nodeMarks(cluster string) map[string]string {
	return map[string]string{appLabel: contract.NodesApp, contract.LabelGenerated: cluster}
}

// metadata is the metadata of an object in the namespace or, without a name, of a Pod.
func (in NodeFiles) metadata(name, version string) object {
	labels := nodeMarks(in.Cluster)
	labels[contract.LabelNodeFiles] = version
	metadata := object{"labels": labels}
	if name != "" {
		metadata["name"], metadata["namespace"] = name, contract.NodesNamespace
	}
	return metadata
}

func (in NodeFiles) secret(version string) object {
	data := object{}
	for key, value := range ForNodes(in.Data) {
		data[key] = base64.StdEncoding.EncodeToString(value)
	}
	return object{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
		"metadata": in.metadata(version, version), "data": data,
	}
}

func (in NodeFiles) daemonSet(version string) object {
	return object{
		"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": in.metadata(version, version),
		"spec": object{
			"selector": object{"matchLabels": object{appLabel: contract.NodesApp, contract.LabelNodeFiles: version}},
			// No edit of a template starts anything on a node: the version does, with which Pods come and go.
			"updateStrategy": object{"type": "OnDelete"},
			"template":       object{"metadata": in.metadata("", version), "spec": in.pod(version)},
		},
	}
}

// pod is the spec of a Pod: one container that applies the files and ends, and one that compares them afterwards.
func (in NodeFiles) pod(version string) object {
	const root, files, state, units = "/host", "/files", "/state", "/etc/systemd/system"
	arguments := []any{"node", "apply", "--root", root, "--from", files, "--state", state}
	if registry, _, named := strings.Cut(in.Image, "/"); named && strings.ContainsAny(registry, ".:") {
		arguments = append(arguments, "--endpoint", "https://"+registry+"/v2/")
	}
	apply := in.container("apply", arguments...)
	apply["volumeMounts"] = []any{
		mount("host", root, false), mount("files", files, true), mount("state", state, false),
	}
	watch := in.container("watch", "node", "watch", "--root", root, "--from", files,
		"--listen", fmt.Sprintf("127.0.0.1:%d", nodesPort))
	watched := []any{mount("units", root+units, true), mount("files", files, true)}
	volumes := []any{
		object{"name": "host", "hostPath": object{"path": "/", "type": "Directory"}},
		object{"name": "units", "hostPath": object{"path": units, "type": "Directory"}},
		object{"name": "files", "secret": object{"secretName": version, "defaultMode": 0o400}},
		object{"name": "state", "emptyDir": object{"sizeLimit": "1Mi"}},
	}
	if in.hasFiles() {
		folder := path.Dir(contract.PathProxyEnv)
		watched = append(watched, mount("product", root+folder, true))
		volumes = append(volumes, object{"name": "product", "hostPath": object{"path": folder}}) // apply makes it
	}
	watch["volumeMounts"] = watched
	watch["imagePullPolicy"] = in.PullPolicy
	watch["readinessProbe"] = object{
		"httpGet":       object{"host": "127.0.0.1", "port": nodesPort, "path": "/readyz"},
		"periodSeconds": 10, "timeoutSeconds": 5,
	}
	pod := object{
		"affinity": object{"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": object{
			"nodeSelectorTerms": []any{object{"matchExpressions": []any{
				object{"key": contract.LabelNodeFiles, "operator": "In", "values": []any{version}},
				object{"key": "kubernetes.io/os", "operator": "In", "values": []any{"linux"}},
			}}},
		}}},
		"tolerations":                   []any{object{"operator": "Exists"}},
		"terminationGracePeriodSeconds": graceSeconds,
		"hostNetwork":                   true, "dnsPolicy": "Default", "enableServiceLinks": false,
		"priorityClassName": "system-node-critical", "automountServiceAccountToken": false,
		"securityContext": object{
			"runAsUser": 0, "runAsGroup": 0,
			"seLinuxOptions":  object{"type": "spc_t"},
			"appArmorProfile": object{"type": "Unconfined"},
			"seccompProfile":  object{"type": "RuntimeDefault"},
		},
		"initContainers": []any{apply},
		"containers":     []any{watch},
		"volumes":        volumes,
	}
	if in.PullSecret != "" {
		pod["imagePullSecrets"] = []any{object{"name": in.PullSecret}}
	}
	return pod
}

// hasFiles reports whether a node has files with this version. Otherwise it does not even have their folder, which a
// mount would make again.
func (in NodeFiles) hasFiles() bool {
	var list struct {
		Files []json.RawMessage `json:"files"`
	}
	return json.Unmarshal(in.Data[contract.KeyNodeFiles], &list) == nil && len(list.Files) > 0
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
		"resources": object{"requests": object{"cpu": "5m", "memory": "16Mi"}},
		"securityContext": object{
			"allowPrivilegeEscalation": false, "privileged": false, "readOnlyRootFilesystem": true,
			"capabilities": object{"drop": []any{"ALL"}},
		},
		"terminationMessagePolicy": "FallbackToLogsOnError",
	}
}
