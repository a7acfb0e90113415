// Package pods makes the objects that give the Pods of a workload cluster the proxy's variables: an admission policy,
// which is a constant, and a ConfigMap with the values. It is pure.
package pods

import (
	"bytes"
	_ "embed"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/envfile"
)

// Engine is what carries out the policy in the workload cluster.
type Engine string

// The engines.
const (
	// EngineKubernetes is kube-apiserver v1.36 or later, with MutatingAdmissionPolicy.
	EngineKubernetes Engine = ""
	// EngineKyverno is Kyverno 1.17 or later, with MutatingPolicy of policies.kyverno.io/v1.
	EngineKyverno Engine = "kyverno"
)

// Name and namespace of the ConfigMap that the policy reads.
const (
	ConfigMapName      = "http-proxy-env"
	ConfigMapNamespace = "kube-system"
)

// MaxNoProxy is the longest NO_PROXY in bytes. Each container of a Pod gets it twice, and a Pod that does not fit into
// etcd is refused, whatever the policy says about failures.
const MaxNoProxy = 8 << 10

// SizeError says that NO_PROXY is longer than MaxNoProxy.
type SizeError struct {
	// Size is the length of NO_PROXY in bytes.
	Size int
}

// Error returns a sentence that says what to do.
func (e *SizeError) Error() string {
	return fmt.Sprintf("NO_PROXY has %d bytes, and every container would get a copy of it in each spelling; Pods accept "+
		"%d bytes; write networks or suffixes instead of single hosts", e.Size, MaxNoProxy)
}

var (
	//go:embed policy.yaml
	kubernetesPolicy []byte
	//go:embed kyverno.yaml
	kyvernoPolicy []byte
)

// Manifest returns the objects for the workload cluster as a YAML stream: the ConfigMap with the variables and then the
// policy. Without variables the ConfigMap has no data, and the policy changes nothing: that is how the output is
// withdrawn.
//
// The variables hold the proxy's credentials if it has any, and with the policy they stand in the spec of every Pod.
// The error is a *SizeError, or says that the engine is unknown.
func Manifest(engine Engine, vars []envfile.Var) ([]byte, error) {
	policy := kubernetesPolicy
	switch engine {
	case EngineKubernetes:
	case EngineKyverno:
		policy = kyvernoPolicy
	default:
		return nil, fmt.Errorf("composing the policy for Pods: unknown engine %q", engine)
	}
	config := configMap{
		APIVersion: "v1", Kind: "ConfigMap", Metadata: metadata{Name: ConfigMapName, Namespace: ConfigMapNamespace},
	}
	for _, v := range vars {
		if v.Name == "NO_PROXY" && len(v.Value) > MaxNoProxy {
			return nil, &SizeError{Size: len(v.Value)}
		}
		if config.Data == nil {
			config.Data = map[string]string{}
		}
		config.Data[v.Name] = v.Value
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("composing the policy for Pods: %w", err)
	}
	return bytes.Join([][]byte{text, policy}, []byte("---\n")), nil
}

// configMap has the fields of a ConfigMap that are written.
type configMap struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metadata          `json:"metadata"`
	Data       map[string]string `json:"data,omitempty"`
}

type metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}
