// Package nodes makes the objects that bring the files of a generated Secret to running nodes: what
// contract.RolloutInPlace has in a workload cluster. It is pure.
package nodes

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// Port is where a Pod on a node says whether the files on the host are those that it has. It listens on the loopback
// interface only.
const Port = 19279

// maxLabel is how long the value of a label may be in Kubernetes.
const maxLabel = 63

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
	// MaxUnavailable is how many nodes change at a time, as a positive number or percentage.
	MaxUnavailable string
}

// Label returns the value of contract.LabelNodeFiles for a generated Secret, which is also the name of its DaemonSet:
// the name of the Secret or, if that is no value of a label, a shorter one with a hash. No two generated Secrets have
// the same: names of generated Secrets do not end like a hash.
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

// Digest identifies the files of a generated Secret. It stands in objects that more people may read than may read the
// files, so it is an HMAC: without the key a password cannot be guessed from it.
func Digest(key []byte, data map[string][]byte) string {
	hash := hmac.New(sha256.New, key)
	for _, name := range keys() {
		value, given := data[name]
		if !given {
			continue
		}
		for _, part := range [][]byte{[]byte(name), value} {
			var length [8]byte
			binary.BigEndian.PutUint64(length[:], uint64(len(part)))
			hash.Write(length[:])
			hash.Write(part)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:10]
}

// SecretName returns the name of the immutable Secret in the workload cluster.
func SecretName(label, digest string) string { return label + "-" + digest }

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

// Objects returns the objects as a stream of YAML: the Namespace, the immutable Secret with the files, and the
// DaemonSet that brings them to the nodes with contract.LabelNodeFiles. A Secret per digest, because Pods of before
// must keep what they have applied: they would all be unready at once, and be replaced at once.
func Objects(in Input) ([]byte, error) {
	digest := Digest(in.Key, in.Data)
	secret, err := encode(in.secret(digest))
	if err != nil {
		return nil, err
	}
	daemonSet, err := encode(in.daemonSet(digest))
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

// metadata is the metadata of an object in the namespace.
func (in Input) metadata(name, digest string) object {
	labels := Marks(in.Cluster)
	labels[contract.LabelNodeFiles] = Label(in.Secret)
	if digest != "" {
		labels[contract.LabelFilesDigest] = digest
	}
	metadata := object{"labels": labels}
	if name != "" {
		metadata["name"], metadata["namespace"] = name, contract.NodesNamespace
	}
	return metadata
}

func (in Input) secret(digest string) object {
	data := object{}
	for key, value := range Files(in.Data) {
		data[key] = base64.StdEncoding.EncodeToString(value)
	}
	return object{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
		"metadata": in.metadata(SecretName(Label(in.Secret), digest), digest), "data": data,
	}
}

func (in Input) daemonSet(digest string) object {
	var maxUnavailable any = in.MaxUnavailable
	if number, err := strconv.Atoi(in.MaxUnavailable); err == nil {
		maxUnavailable = number
	}
	return object{
		"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": in.metadata(Label(in.Secret), ""),
		"spec": object{
			"selector": object{"matchLabels": object{
				appLabel: contract.NodesApp, contract.LabelNodeFiles: Label(in.Secret),
			}},
			"updateStrategy": object{"type": "RollingUpdate", "rollingUpdate": object{"maxUnavailable": maxUnavailable}},
			"template":       object{"metadata": in.metadata("", digest), "spec": in.pod(digest)},
		},
	}
}

// pod is the spec of a Pod: one container that applies the files and ends, and one that compares them afterwards.
func (in Input) pod(digest string) object {
	const root, files, state = "/host", "/files", "/state"
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
	watch["volumeMounts"] = []any{mount("host", root, true), mount("files", files, true)}
	watch["readinessProbe"] = object{
		"httpGet":       object{"host": "127.0.0.1", "port": Port, "path": "/readyz"},
		"periodSeconds": 10, "timeoutSeconds": 5,
	}
	pod := object{
		"affinity": object{"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": object{
			"nodeSelectorTerms": []any{object{"matchExpressions": []any{
				object{"key": contract.LabelNodeFiles, "operator": "In", "values": []any{Label(in.Secret)}},
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
		"volumes": []any{
			object{"name": "host", "hostPath": object{"path": "/", "type": "Directory"}},
			object{"name": "files", "secret": object{
				"secretName": SecretName(Label(in.Secret), digest), "defaultMode": 0o400,
			}},
			object{"name": "state", "emptyDir": object{"sizeLimit": "1Mi"}},
		},
	}
	if in.PullSecret != "" {
		pod["imagePullSecrets"] = []any{object{"name": in.PullSecret}}
	}
	return pod
}

func mount(name, path string, readOnly bool) object {
	m := object{"name": name, "mountPath": path}
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
