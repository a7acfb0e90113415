package output

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// Limits in bytes.
const (
	// maxAnnotations limits the three annotations of a Cluster together.
	maxAnnotations = 16 << 10
	// maxSecret limits the values of one Secret. The rest is for its keys.
	maxSecret = corev1.MaxSecretSize - 1<<10
)

// Input is what outputs are made of.
type Input struct {
	// Cluster is the name of the Cluster. Namespace is "" if manifests do not say it.
	Cluster, Namespace string
	// Secret names the proxy Secret in messages.
	Secret string
	// Settings are the values of the proxy Secret.
	Settings settings.Proxy
	// NoProxy is the complete NO_PROXY for programs of any kind.
	NoProxy string
	// HasNodeNetwork reports whether nodes may be among what NoProxy covers.
	HasNodeNetwork bool
	// Version is the Kubernetes version that the whole control plane runs, or "" if it is not known.
	Version string
}

// Secret is the content of a Secret in the namespace of the Cluster or, if it is Delivered, objects of the workload
// cluster, which are in no Secret.
type Secret struct {
	Name string
	// Output is the value of contract.LabelOutput.
	Output string
	// Labels are labels beside those of every generated Secret.
	Labels map[string]string
	Data   map[string][]byte
	// Delivered is the output for the workload cluster whose objects are in Data, under one key as a stream of YAML. Nil
	// for a Secret.
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
	// Printed are outputs that only render writes.
	Printed []Printed
	// Findings are about outputs that are not out, with a reason, and notes.
	Findings []finding.Finding
}

// Printed are the objects of an output that only render writes.
type Printed struct {
	Output
	Objects []map[string]any
}

// Of makes what a Cluster asks for. An output that is asked for and not in the result is to be withdrawn.
func Of(request Request, in Input) (Result, error) {
	m := maker{request: request, in: in}
	var besides []beside
	for _, d := range catalog() {
		if outputs := request.named(d.Name); len(outputs) > 0 && d.isBeside() {
			besides = m.beside(besides, d, outputs)
		}
	}
	for _, b := range besides {
		m.add(b.secret, b.outputs)
	}
	for _, d := range catalog() {
		switch outputs := request.named(d.Name); {
		case len(outputs) == 0 || d.isBeside():
		case d.Goes == goesAnnotations:
			m.annotations(d, outputs[0])
		default:
			m.one(d, outputs[0])
		}
	}
	return m.Result, m.err
}

// Kept is the result while the values are not known: everything that is asked for stays as it is.
func Kept(request Request, cluster string) (r Result) {
	for _, d := range catalog() {
		outputs := request.named(d.Name)
		switch {
		case len(outputs) == 0 || d.Writer == writerRender:
		case d.Goes == goesAnnotations:
			r.AnnotationsKept = true
		default:
			for _, end := range d.writes {
				secret := secretOf(cluster, end)
				if secret.Kept = true; d.isDelivered() {
					secret.Delivered = &outputs[0]
				}
				if !slices.ContainsFunc(r.Secrets, func(other Secret) bool { return other.Name == secret.Name }) {
					r.Secrets = append(r.Secrets, secret)
				}
			}
		}
	}
	return r
}

func secretOf(cluster, end string) Secret { return Secret{Name: cluster + "-" + end, Output: end} }

func deliveredSecret(cluster string, o Output) Secret {
	secret := secretOf(cluster, deliveredEnd(o.Name))
	secret.Delivered = &o
	return secret
}

// deliveredEnd ends the name of a delivered output.
func deliveredEnd(name Name) string { return "proxy-" + string(name) }

// Objects returns the objects of a delivered output.
func (s Secret) Objects() (all []map[string]any, err error) {
	for _, stream := range s.Data { // one key
		for document := range strings.SplitSeq("\n"+string(stream), "\n---\n") {
			var one map[string]any
			if err := yaml.Unmarshal([]byte(document+"\n"), &one); err != nil {
				return nil, fmt.Errorf("reading objects of output %s: %w", s.Delivered, err)
			}
			if one != nil {
				all = append(all, one)
			}
		}
	}
	return all, nil
}

// key is the key of the objects of a delivered output.
func (o Output) key() string { return string(o.Name) + ".yaml" }

// ClustersOf returns the names of the Clusters for which a Secret of a name may be wanted.
func ClustersOf(secret string) []string {
	var clusters []string
	for _, end := range written(goesManagement) {
		if cluster, found := strings.CutSuffix(secret, "-"+end); found && cluster != "" {
			clusters = append(clusters, cluster)
		}
	}
	return clusters
}

// maker collects a result.
type maker struct {
	Result

	request Request
	in      Input
	err     error
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
func (m *maker) add(secret Secret, outputs []Output) {
	size := 0
	for _, value := range secret.Data {
		size += len(value)
	}
	if size > maxSecret {
		secret.Data, secret.Kept = nil, true
		what := "Secret " + secret.Name
		if secret.Delivered != nil {
			what = "an object of the workload cluster"
		}
		m.leaveOut(contract.ReasonTooLarge, outputs, "%s would hold %d bytes, and it can hold %d; "+
			"write networks or suffixes instead of single hosts into noProxy", what, size, maxSecret)
	}
	m.Secrets = append(m.Secrets, secret)
}

// fail keeps the first error.
func (m *maker) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

// values are what the template of outputs sees.
func (m *maker) values(d *definition, outputs ...Output) *values { return m.in.values(d, outputs) }

// notes reports what people should know of an output that is out.
func (m *maker) notes(o Output, in *values) {
	for _, note := range in.notes {
		m.leaveOut("", []Output{o}, "%s", note)
	}
}

// annotations makes the annotations of the Cluster.
func (m *maker) annotations(d *definition, o Output) {
	in := m.values(d, o)
	annotations, err := d.annotations(in)
	m.fail(err)
	maps.DeleteFunc(annotations, func(_, value string) bool { return value == "" })
	size := 0
	for key, value := range annotations {
		size += len(key) + len(value)
	}
	if size > maxAnnotations {
		m.AnnotationsKept = true
		m.leaveOut(contract.ReasonTooLarge, []Output{o}, "the annotations would have %d bytes, more than %d; "+
			"write networks or suffixes instead of single hosts into noProxy", size, maxAnnotations)
		return
	}
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	maps.Copy(m.Annotations, annotations)
	m.notes(o, in)
}

// beside is a Secret in the management cluster, which several outputs may share.
type beside struct {
	secret  Secret
	outputs []Output
}

// beside adds the Secrets of an output to those that it may share.
func (m *maker) beside(all []beside, d *definition, outputs []Output) []beside {
	in := m.values(d, outputs...)
	secrets, err := d.secrets(in)
	m.fail(err)
	for _, secret := range secrets {
		i := slices.IndexFunc(all, func(b beside) bool { return b.secret.Name == secret.Name })
		if i < 0 {
			all = append(all, beside{secret: secret, outputs: slices.Clone(outputs)})
			continue
		}
		maps.Copy(all[i].secret.Data, secret.Data)
		all[i].outputs = append(all[i].outputs, outputs...)
	}
	m.notes(outputs[0], in)
	return all
}

// one makes an output that shares nothing with another: objects for the workload cluster, or for render.
func (m *maker) one(d *definition, o Output) {
	if d.Goes == goesWorkload && *d.Credentials && m.in.Settings.HasCredentials() && !m.request.Credentials {
		m.leaveOut(ReasonCredentialsWithheld, []Output{o}, "%s has credentials, which would be readable in the "+
			"workload cluster; set annotation %s to %s if they may be", m.in.Secret, AnnotationPublishCredentials,
			PublishCredentialsValue)
		return
	}
	in := m.values(d, o)
	if d.Writer == writerRender {
		objects, err := documents[map[string]any](d, in)
		m.fail(err)
		m.Printed = append(m.Printed, Printed{Output: o, Objects: objects})
		m.notes(o, in)
		return
	}
	secret := deliveredSecret(m.in.Cluster, o)
	text, err := d.text(in)
	if refused, ok := errors.AsType[*refusal](err); ok {
		secret.Kept = true
		m.leaveOut(refused.reason, []Output{o}, "%s", refused.message)
		m.Secrets = append(m.Secrets, secret)
		return
	}
	m.fail(err)
	m.notes(o, in)
	secret.Data = map[string][]byte{o.key(): text}
	m.add(secret, []Output{o})
}

// KeptDelivered returns every output that is delivered, to be left as it is.
func KeptDelivered() (all []Secret) {
	for _, d := range catalog() {
		if d.isDelivered() {
			all = append(all, Secret{Delivered: &Output{Name: d.Name}, Kept: true})
		}
	}
	return all
}

// IsWritten reports whether a Cluster has annotations of an output.
func IsWritten(annotations map[string]string) bool {
	return slices.ContainsFunc(AnnotationKeys(), func(key string) bool {
		_, found := annotations[key]
		return found
	})
}

// AnnotationKeys lists the annotations of a Cluster that outputs write.
func AnnotationKeys() []string { return written(goesAnnotations) }
