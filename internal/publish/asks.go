// Package publish makes the objects that give the composed values to Pods and add-ons: what contract.AnnotationPublish
// of a Cluster asks for, the Secrets in the management cluster, and the objects for the workload cluster in some of
// them. It is pure: the controller writes them and render prints them.
package publish

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/pods"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/spelling"
)

// Name is the name of an output.
type Name string

// The outputs.
const (
	// Env is a Secret with the variables as keys.
	Env Name = "env"
	// Values is a key of that Secret with values for Helm. Its argument is the path in them; it may be repeated.
	Values Name = "values"
	// Annotations are annotations of the Cluster.
	Annotations Name = "annotations"
	// GiantSwarm are the two Secrets that Giant Swarm's charts read.
	GiantSwarm Name = "giantswarm"
	// Pods is a policy that gives the variables to every container of the workload cluster. Its argument is "" or
	// "kyverno".
	Pods Name = "pods"
	// Trust is a ConfigMap with the certificates. Its argument is a namespace of the workload cluster.
	Trust Name = "trust"
	// KappController is the Secret with the settings of kapp-controller. Its argument is its namespace in the workload
	// cluster.
	KappController Name = "kapp-controller"
)

// podsKyverno is the argument of Pods that asks for a policy of Kyverno.
const podsKyverno = string(pods.EngineKyverno)

// Limits of what an annotation may ask for.
const (
	maxOutputs = 32
	maxPath    = 253
)

// names lists the outputs in the order in which they are carried out and reported.
func names() []Name { return []Name{Env, Values, Annotations, GiantSwarm, Trust, Pods, KappController} }

// Output is one output that is asked for.
type Output struct {
	Name Name
	// Argument is complete: defaults are filled in.
	Argument string
}

// String returns the output as an entry of contract.AnnotationPublish.
func (o Output) String() string {
	if o.Argument == "" {
		return string(o.Name)
	}
	return string(o.Name) + "=" + o.Argument
}

// IsDelivered reports whether the output is for the workload cluster.
func (o Output) IsDelivered() bool {
	return o.Name == Pods || o.Name == Trust || o.Name == KappController || o.Name == Nodes
}

// holdsCredentials reports whether the output would bring the credentials of the proxy into the workload cluster.
func (o Output) holdsCredentials() bool { return o.Name == Pods || o.Name == KappController }

// Asks is what a Cluster asks for.
type Asks struct {
	// Outputs are in the order of the list.
	Outputs []Output
	// Credentials reports whether outputs that leave the management cluster may hold credentials.
	Credentials bool
}

// named returns the outputs of a name.
func (a Asks) named(name Name) []Output {
	return slices.DeleteFunc(slices.Clone(a.Outputs), func(o Output) bool { return o.Name != name })
}

// Read reads the annotations of a Cluster. Its error is finding.Errors, one for each entry that cannot be used.
func Read(annotations map[string]string) (Asks, error) {
	asks, err := ParseList(annotations[contract.AnnotationPublish])
	found := finding.Of(err)
	switch value, given := annotations[contract.AnnotationPublishCredentials]; {
	case !given, value == "false":
	case value == contract.PublishCredentialsValue:
		asks.Credentials = true
	default:
		found = append(found, bad(contract.AnnotationPublishCredentials, 0, fmt.Sprintf("unknown value %q", value),
			"use true or false"))
	}
	if len(found) > 0 {
		return Asks{}, found
	}
	return asks, nil
}

// ParseList reads a list of outputs. An empty one asks for nothing. Its error is finding.Errors.
func ParseList(list string) (Asks, error) {
	if strings.TrimSpace(list) == "" {
		return Asks{}, nil
	}
	p := parser{}
	for i, entry := range strings.SplitN(list, ",", maxOutputs+1) {
		if i == maxOutputs {
			p.reject(i+1, "too many outputs", fmt.Sprintf("ask for at most %d", maxOutputs))
			break
		}
		p.entry(i+1, strings.TrimSpace(entry))
	}
	if len(p.found) > 0 {
		return Asks{}, p.found
	}
	return Asks{Outputs: p.outputs}, nil
}

// parser collects outputs and findings.
type parser struct {
	outputs []Output
	found   finding.Errors
}

func (p *parser) reject(position int, message, advice string) {
	p.found = append(p.found, bad(contract.AnnotationPublish, position, message, advice))
}

// bad reports an entry of an annotation; position 0 is the annotation as a whole.
func bad(annotation string, position int, message, advice string) finding.Finding {
	f := finding.Rejection(intent.CodeBadAnnotation, finding.Annotation(annotation).At(position), message, advice)
	f.Reason = contract.ReasonInvalidOutput
	return f
}

// entry reads one entry.
func (p *parser) entry(position int, entry string) {
	name, argument, given := strings.Cut(entry, "=")
	o := Output{Name: Name(strings.TrimSpace(name)), Argument: strings.TrimSpace(argument)}
	if entry == "" {
		p.reject(position, "an empty entry", "remove one of the commas")
		return
	}
	if !slices.Contains(names(), o.Name) {
		p.reject(position, fmt.Sprintf("%q is not an output", finding.Cut(string(o.Name), maxPath)), nearest(o.Name))
		return
	}
	message, advice := "", ""
	switch {
	case o.Name == Env || o.Name == Annotations || o.Name == GiantSwarm:
		if given {
			message, advice = "output "+string(o.Name)+" has no argument", "remove the equals sign and what follows it"
		}
	case o.Name == Values:
		message, advice = p.path(o.Argument)
	case o.Name == Pods && given && o.Argument != podsKyverno:
		message, advice = fmt.Sprintf("output pods has no argument %q", finding.Cut(o.Argument, maxPath)),
			"write pods or pods="+podsKyverno
	case o.Name != Pods:
		if !given {
			o.Argument = namespaceOf(o.Name)
		}
		if len(validation.IsDNS1123Label(o.Argument)) > 0 {
			message = fmt.Sprintf("%q cannot be the name of a namespace", finding.Cut(o.Argument, maxPath))
			advice = "write " + string(o.Name) + "=NAMESPACE"
		}
	}
	if message == "" && o.Name != Values &&
		slices.ContainsFunc(p.outputs, func(other Output) bool { return other.Name == o.Name }) {
		message, advice = fmt.Sprintf("output %s is asked for twice", o.Name), "remove one of them"
	}
	if message != "" {
		p.reject(position, message, advice)
		return
	}
	p.outputs = append(p.outputs, o)
}

// namespaceOf is the namespace in the workload cluster of an output without an argument.
func namespaceOf(name Name) string {
	if name == KappController {
		return "kapp-controller"
	}
	return "kube-system"
}

// pathPattern is a path in values: keys joined by dots.
var pathPattern = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// path checks the argument of Values beside the paths before it. It returns "" for a usable one.
func (p *parser) path(path string) (message, advice string) {
	if len(path) > maxPath || !pathPattern.MatchString(path) {
		return fmt.Sprintf("%q is not a path in values", finding.Cut(path, maxPath)),
			"write values=PATH, keys of letters, digits, _ and - joined by dots, for example values=defaults.env"
	}
	for _, other := range p.outputs {
		inside := strings.HasPrefix(path+".", other.Argument+".") || strings.HasPrefix(other.Argument+".", path+".")
		if other.Name == Values && inside {
			return fmt.Sprintf("path %s and path %s are one inside the other", other.Argument, path), "remove one of them"
		}
	}
	return "", ""
}

// nearest is the advice about an unknown name: the output that was probably meant.
func nearest(name Name) string {
	known := make([]string, 0, len(names()))
	for _, one := range names() {
		known = append(known, string(one))
	}
	switch meant := spelling.Nearest(string(name), append(slices.Clone(known), "istio", "tkg")); meant {
	case "":
	case "istio", "tkg":
		return "the controller does not write it; print it with render --publish=" + meant
	default:
		return "did you mean " + meant + "?"
	}
	return "the outputs are " + strings.Join(known, ", ")
}
