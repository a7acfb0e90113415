// Package nodes makes the objects that bring the files of a generated Secret to running nodes: what
// contract.RolloutInPlace has in a workload cluster. It is pure.
package nodes

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

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// Port is where a Pod on a node says whether the files on the host are those that it has. It listens on the loopback
// interface only.
const Port = 19279

const (
	// digestLength is the length of the digest at the end of a version.
	digestLength = 10
	// maxLabel is the length up to which Label is the name of a Secret: a version is the value of a label, which has 63
	// characters at most.
	maxLabel = 63 - 1 - digestLength
)

// graceSeconds is longer than an apply takes, which a signal does not end: with all endpoints unanswered, both restarts
// at their limit, and the previous files restored after that.
const graceSeconds = 3600

// appLabel is the label by which every object is found.
const appLabel = "app.kubernetes.io/name"

// Input is what the objects of one generated Secret are made of.
type Input struct {
	// Cluster is the name of the Cluster.
	Cluster string
	// Secret is the name of the generated Secret.
	Secret string
	// Data is that of patch.NodeData. Keys that no node reads are ignored.
	Data map[string][]byte
	// Key is the key of the Digest.
	Key []byte
	// Image is the image of the Pods, PullSecret the Secret beside them with credentials of its registry, if it is set.
	Image, PullSecret string
	// PullPolicy is the imagePullPolicy of the container that starts when the files are applied. With Always its start is
	// a pull by containerd with the new files.
	PullPolicy string
}

// Label returns the beginning of the versions of a generated Secret: the name of the Secret or, if that is too long, a
// shorter one with a hash. No two generated Secrets have the same: names of generated Secrets do not end like a hash.
func Label(secretName string) string {
	if len(secretName) <= maxLabel {
		return secretName
	}
	sum := sha256.Sum256([]byte(secretName))
	end := hex.EncodeToString(sum[:])[:20]
	return strings.TrimRight(secretName[:maxLabel-1-len(end)], ".-") + "-" + end
}

// keys lists the keys of a generated Secret that a node gets.
func keys() []string {
	return []string{
		contract.KeyProxyEnv, contract.KeyTrustedCABundle, contract.KeySetup, contract.KeyReadiness, contract.KeyNodeFiles,
	}
}

// Files returns what of the data of a generated Secret a node gets. Without contract.KeySetup there is nothing for a
// node in it.
func Files(data map[string][]byte) map[string][]byte {
	files := map[string][]byte{}
	for _, key := range keys() {
		if value, given := data[key]; given {
			files[key] = value
		}
	}
	return files
}

// Version identifies the files of a generated Secret and the Pods that apply them. It is the value of
// contract.LabelNodeFiles for the Nodes that may apply them, and the name of the Secret and the DaemonSet: Label, a
// hyphen, and a digest. More people may read it than may read the files, so the digest is an HMAC: without the key a
// password cannot be guessed from it.
func (in Input) Version() string {
	hash := hmac.New(sha256.New, in.Key)
	write := func(part []byte) {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		hash.Write(length[:])
		hash.Write(part)
	}
	for _, name := range keys() {
		if value, given := in.Data[name]; given {
			write([]byte(name))
			write(value)
		}
	}
	pod, _ := json.Marshal(in.pod("")) //nolint:errchkjson // texts, numbers and lists of them
	write(pod)
	return Label(in.Secret) + "-" + hex.EncodeToString(hash.Sum(nil))[:digestLength]
}

// LabelOf returns the Label that a version begins with, "" if it is none.
func LabelOf(version string) string {
	i := strings.LastIndexByte(version, '-')
	if i < 0 || len(version)-i-1 != digestLength {
		return ""
	}
	return version[:i]
}

// KeyOf returns the key of the Digest for a generated Secret of a UID, which only those know who may read Secrets in
// the management cluster. With another UID, as after clusterctl move, the Pods are replaced, and the files stay.
func KeyOf(uid types.UID) []byte { return []byte(uid) }

// IsComplete reports whether there are files for nodes in the data of a generated Secret.
func IsComplete(data map[string][]byte) bool {
	_, complete := data[contract.KeySetup]
	return complete
}

// object is a value in YAML.
type object = map[string]any

// Objects returns the objects of a version as a stream of YAML: the Namespace, the immutable Secret with the files, and
// the DaemonSet that brings them to the nodes with the version in contract.LabelNodeFiles. Each version has objects of
// its own, because which nodes may apply it is decided node by node.
func Objects(in Input) ([]byte, error) {
	version := in.Version()
	secret, err := encode(in.secret(version))
	if err != nil {
		return nil, err
	}
	daemonSet, err := encode(in.daemonSet(version))
	if err != nil {
		return nil, err
	}
	ns, err := encode(namespace(in.Cluster))
	if err != nil {
		return nil, err
	}
	return []byte(strings.Join([]string{string(ns), string(secret), string(daemonSet)}, "---\n")), nil
}

// namespace returns the Namespace of the objects.
func namespace(cluster string) object {
	const podSecurity = "pod-security.kubernetes.io/"
	labels := Marks(cluster)
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

// Marks are labels of every object, and of the Pods.
func Marks(cluster string) map[string]string {
	return map[string]string{appLabel: contract.NodesApp, contract.LabelGenerated: cluster}
}

// metadata is the metadata of an object in the namespace or, without a name, of a Pod.
func (in Input) metadata(name, version string) object {
	labels := Marks(in.Cluster)
	labels[contract.LabelNodeFiles] = version
	metadata := object{"labels": labels}
	if name != "" {
		metadata["name"], metadata["namespace"] = name, contract.NodesNamespace
	}
	return metadata
}

func (in Input) secret(version string) object {
	data := object{}
	for key, value := range Files(in.Data) {
		data[key] = base64.StdEncoding.EncodeToString(value)
	}
	return object{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
		"metadata": in.metadata(version, version), "data": data,
	}
}

func (in Input) daemonSet(version string) object {
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
func (in Input) pod(version string) object {
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
		"--listen", fmt.Sprintf("127.0.0.1:%d", Port))
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
		"httpGet":       object{"host": "127.0.0.1", "port": Port, "path": "/readyz"},
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
func (in Input) hasFiles() bool {
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
func (in Input) container(name string, args ...any) object {
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
