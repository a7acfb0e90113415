package publish

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/nodes"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/pods"
)

// Limits in bytes.
const (
	// maxAnnotations limits the three annotations of a Cluster together.
	maxAnnotations = 16 << 10
	// maxSecret limits the values of one Secret. The rest is for its keys.
	maxSecret = corev1.MaxSecretSize - 1<<10
)

// podsVersion is the first version of Kubernetes that has MutatingAdmissionPolicy, and has it on.
const podsVersion = "1.36.0"

// Input is what outputs are made of.
type Input struct {
	// Cluster is the name of the Cluster.
	Cluster string
	// Secret names the proxy Secret in messages.
	Secret string
	// Settings are the values of the proxy Secret.
	Settings proxyconfig.Settings
	// NoProxy is the complete NO_PROXY for programs of any kind.
	NoProxy string
	// HasNodeNetwork reports whether nodes may be among what NoProxy covers.
	HasNodeNetwork bool
	// Version is the Kubernetes version that the whole control plane runs, or "" if it is not known.
	Version string
}

// Secret is the content of a Secret in the namespace of the Cluster.
type Secret struct {
	Name string
	// Output is the value of contract.LabelOutput.
	Output string
	// Labels are labels beside those of every generated Secret.
	Labels map[string]string
	// Annotations are annotations beside those of every Secret of an output.
	Annotations map[string]string
	Data        map[string][]byte
	// Delivered is the output for the workload cluster that the Secret holds, under one key as a stream of YAML. Nil for
	// a Secret that is not delivered.
	Delivered *Output
	// Kept reports that there is no content now: a Secret that exists stays as it is, and none is created.
	Kept bool
}

// Result is what is written for a Cluster.
type Result struct {
	// Annotations are those of the Cluster.
	Annotations map[string]string
	// AnnotationsKept reports that annotations that exist stay as they are.
	AnnotationsKept bool
	// Secrets are in a fixed order.
	Secrets []Secret
	// Findings are about outputs that are not out, with a reason, and notes.
	Findings []finding.Finding
}

// Of makes what a Cluster asks for. An output that is asked for and not in the result is to be withdrawn.
func Of(asks Asks, in Input) (Result, error) {
	m := maker{asks: asks, in: in}
	m.outputs()
	m.annotations()
	m.giantSwarm()
	for _, name := range []Name{Trust, Pods, KappController} {
		for _, o := range asks.named(name) {
			m.deliver(o)
		}
	}
	return m.Result, m.err
}

// Kept is the result while the values are not known: everything that is asked for stays as it is.
func Kept(asks Asks, cluster string) Result {
	r := Result{AnnotationsKept: len(asks.named(Annotations)) > 0}
	keep := func(secret Secret) {
		secret.Data, secret.Kept = nil, true
		r.Secrets = append(r.Secrets, secret)
	}
	if len(asks.named(Env))+len(asks.named(Values)) > 0 {
		keep(secretOf(cluster, endOutputs))
	}
	if len(asks.named(GiantSwarm)) > 0 {
		keep(secretOf(cluster, endClusterValues))
		keep(secretOf(cluster, endSystemdProxy))
	}
	for _, o := range asks.Outputs {
		if o.IsDelivered() {
			keep(deliveredSecret(cluster, o))
		}
	}
	return r
}

// Ends of the names of Secrets that are not delivered, without the hyphen.
const (
	endOutputs       = "proxy-outputs"
	endClusterValues = "cluster-values"
	endSystemdProxy  = "systemd-proxy"
)

func secretOf(cluster, end string) Secret { return Secret{Name: cluster + "-" + end, Output: end} }

func deliveredSecret(cluster string, o Output) Secret {
	if o.Name == Nodes {
		return nodesSecret(cluster, o)
	}
	secret := secretOf(cluster, strings.TrimPrefix(contract.DeliverySuffix, "-")+"-"+string(o.Name))
	secret.Delivered = &o
	return secret
}

// key is the key of a delivered Secret.
func (o Output) key() string { return string(o.Name) + ".yaml" }

// ClustersOf returns the names of the Clusters for which a Secret of a name may be wanted.
func ClustersOf(secret string) []string {
	var clusters []string
	delivered := func(name Name) string { return deliveredSecret("", Output{Name: name}).Output }
	ends := []string{
		endOutputs, endClusterValues, endSystemdProxy, delivered(Trust), delivered(Pods), delivered(KappController),
	}
	for _, end := range ends {
		if cluster, found := strings.CutSuffix(secret, "-"+end); found && cluster != "" {
			clusters = append(clusters, cluster)
		}
	}
	if found := nodesPattern.FindStringSubmatch(secret); found != nil {
		clusters = append(clusters, found[1])
	}
	return clusters
}

// maker collects a result.
type maker struct {
	Result

	asks Asks
	in   Input
	err  error
}

// leaveOut reports why outputs are not out.
func (m *maker) leaveOut(reason string, outputs []Output, format string, args ...any) {
	texts := make([]string, len(outputs))
	for i, o := range outputs {
		texts[i] = o.String()
	}
	m.Findings = append(m.Findings, finding.Finding{
		Reason: reason, Message: fmt.Sprintf("output %s: %s", strings.Join(texts, ", "), fmt.Sprintf(format, args...)),
	})
}

// add adds a Secret with the content of outputs, or keeps the one that exists if the content is too large.
func (m *maker) add(secret Secret, outputs []Output, data map[string][]byte) {
	size := 0
	for _, value := range data {
		size += len(value)
	}
	if secret.Data = data; size > maxSecret {
		secret.Data, secret.Kept = nil, true
		m.leaveOut(contract.ReasonTooLarge, outputs, "Secret %s would hold %d bytes, and it can hold %d; "+
			"write networks or suffixes instead of single hosts into noProxy", secret.Name, size, maxSecret)
	}
	m.Secrets = append(m.Secrets, secret)
}

// encoded returns the encoding of a value.
func (m *maker) encoded(value object) []byte {
	text, err := encode(value)
	m.fail(err)
	return text
}

// fail keeps the first error.
func (m *maker) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

// outputs makes the Secret of Env and Values.
func (m *maker) outputs() {
	env, values := m.asks.named(Env), m.asks.named(Values)
	data := map[string][]byte{}
	if len(env) > 0 {
		for _, v := range m.in.vars() {
			data[v.Name] = []byte(v.Value)
		}
	}
	if len(values) > 0 {
		data["values.yaml"] = m.encoded(m.in.valuesAt(values))
	}
	if outputs := slices.Concat(env, values); len(outputs) > 0 {
		m.add(secretOf(m.in.Cluster, endOutputs), outputs, data)
	}
}

// annotations makes the annotations of the Cluster.
func (m *maker) annotations() {
	outputs := m.asks.named(Annotations)
	if len(outputs) == 0 {
		return
	}
	annotations := map[string]string{}
	for key, value := range map[string]string{
		contract.AnnotationHTTPProxy: m.in.value("HTTP_PROXY"), contract.AnnotationHTTPSProxy: m.in.value("HTTPS_PROXY"),
		contract.AnnotationNoProxy: m.in.value("NO_PROXY"),
	} {
		if value != "" && (key == contract.AnnotationNoProxy || !m.in.Settings.HasCredentials()) {
			annotations[key] = value
		}
	}
	size := 0
	for key, value := range annotations {
		size += len(key) + len(value)
	}
	if size > maxAnnotations {
		m.AnnotationsKept = true
		m.leaveOut(contract.ReasonTooLarge, outputs, "the annotations would have %d bytes, more than %d; "+
			"write networks or suffixes instead of single hosts into noProxy", size, maxAnnotations)
		return
	}
	m.Annotations = annotations
	if m.in.Settings.HasCredentials() {
		m.note(outputs[0], "the proxy has credentials, so only %s is written", contract.AnnotationNoProxy)
	}
}

// note reports what people should know of an output that is out.
func (m *maker) note(o Output, format string, args ...any) {
	m.leaveOut("", []Output{o}, format, args...)
}

// giantSwarm makes the Secrets of GiantSwarm.
func (m *maker) giantSwarm() {
	outputs := m.asks.named(GiantSwarm)
	if len(outputs) == 0 {
		return
	}
	dropIn, err := m.in.dropIn()
	m.fail(err)
	for _, made := range []struct {
		end, key string
		value    []byte
	}{
		{endClusterValues, "values", m.encoded(m.in.giantSwarmValues())}, {endSystemdProxy, "containerdProxy", dropIn},
	} {
		secret := secretOf(m.in.Cluster, made.end)
		secret.Labels = map[string]string{
			"giantswarm.io/cluster": m.in.Cluster, "giantswarm.io/managed-by": contract.Name,
		}
		m.add(secret, outputs, map[string][]byte{made.key: made.value})
	}
}

// deliver makes the Secret of an output for the workload cluster.
func (m *maker) deliver(o Output) {
	secret := deliveredSecret(m.in.Cluster, o)
	if o.holdsCredentials() && m.in.Settings.HasCredentials() && !m.asks.Credentials {
		m.leaveOut(contract.ReasonCredentialsWithheld, []Output{o}, "%s has credentials, which would be readable in the "+
			"workload cluster; set annotation %s to %s if they may be", m.in.Secret, contract.AnnotationPublishCredentials,
			contract.PublishCredentialsValue)
		return
	}
	text, err := m.in.manifest(o)
	var tooLong *pods.SizeError
	switch {
	case o.Name == Pods && !m.hasPolicies(o):
		secret.Kept = true
	case errors.As(err, &tooLong):
		secret.Kept = true
		m.leaveOut(contract.ReasonTooLarge, []Output{o}, "%s", tooLong)
	case err != nil:
		m.fail(err)
	case o.Name == Pods && !m.in.HasNodeNetwork && !m.in.Settings.IsTrustOnly():
		m.note(o, "NO_PROXY has no network of the nodes, so Pods that ask kubelets, as scrapers do, ask through the proxy; "+
			"add the networks of the nodes to noProxy")
	case o.Name == Trust && len(m.in.Settings.TrustedCA) == 0:
		m.note(o, "%s has no key %s, so ca.crt is empty", m.in.Secret, contract.KeyTrustedCA)
	}
	if secret.Kept {
		m.Secrets = append(m.Secrets, secret)
		return
	}
	m.add(secret, []Output{o}, map[string][]byte{o.key(): text})
}

// hasPolicies reports whether the workload cluster can have the policy.
func (m *maker) hasPolicies(o Output) bool {
	if o.Argument == "" {
		version, err := utilversion.ParseGeneric(m.in.Version)
		switch {
		case err != nil:
			m.leaveOut(contract.ReasonKubernetesTooOld, []Output{o}, "the Kubernetes version of the control plane is not "+
				"known yet; the output needs v1.36 or later")
			return false
		case version.LessThan(utilversion.MustParseGeneric(podsVersion)):
			m.leaveOut(contract.ReasonKubernetesTooOld, []Output{o}, "the control plane runs Kubernetes %s, and the output "+
				"needs v1.36 or later; upgrade, or use pods=%s with Kyverno 1.17 or later", m.in.Version, podsKyverno)
			return false
		}
	}
	return true
}

// Withdraw returns the Secret of a delivered output with content that has no effect in the workload cluster.
func Withdraw(cluster string, o Output) (Secret, error) {
	secret := deliveredSecret(cluster, o)
	text, err := withdrawn(cluster, o)
	secret.Data = map[string][]byte{o.key(): text}
	return secret, err
}

func withdrawn(cluster string, o Output) ([]byte, error) {
	if o.Name == Nodes {
		return nodes.Withdrawn(cluster)
	}
	return Input{}.manifest(o)
}

// Delivered reads the output of a delivered Secret from the Secret's annotation. It reports false for one that names
// none.
func Delivered(annotations map[string]string) (Output, bool) {
	if o, found := deliveredNodes(annotations[contract.AnnotationOutput]); found {
		return o, true
	}
	asks, err := ParseList(annotations[contract.AnnotationOutput])
	if err != nil || len(asks.Outputs) != 1 || !asks.Outputs[0].IsDelivered() {
		return Output{}, false
	}
	return asks.Outputs[0], true
}

// IsWritten reports whether a Cluster has annotations of output Annotations.
func IsWritten(annotations map[string]string) bool {
	return slices.ContainsFunc(AnnotationKeys(), func(key string) bool {
		_, found := annotations[key]
		return found
	})
}

// AnnotationKeys lists the annotations of output Annotations.
func AnnotationKeys() []string {
	return slices.Sorted(maps.Keys(map[string]bool{
		contract.AnnotationHTTPProxy: true, contract.AnnotationHTTPSProxy: true, contract.AnnotationNoProxy: true,
	}))
}
