// Package output makes the objects that give the composed values to Pods and add-ons: what AnnotationPublish
// of a Cluster asks for, the Secrets in the management cluster, and the objects for the workload cluster in some of
// them. It is pure: the controller writes them and render prints them.
package output

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// Name is the name of an output.
type Name string

// Limits of what an annotation may ask for.
const (
	maxOutputs = 32
	maxPath    = 253
)

// Output is one output that is asked for.
type Output struct {
	Name Name
	// Argument is complete: defaults are filled in.
	Argument string
}

// String returns the output as an entry of AnnotationPublish.
func (o Output) String() string {
	if o.Argument == "" {
		return string(o.Name)
	}
	return string(o.Name) + "=" + o.Argument
}

// IsDelivered reports whether the controller writes the output for the workload cluster.
func (o Output) IsDelivered() bool {
	d := lookup(o.Name)
	return d != nil && d.isDelivered()
}

// IsForWorkload reports whether the output is for the workload cluster.
func (o Output) IsForWorkload() bool {
	d := lookup(o.Name)
	return o.IsDelivered() || d != nil && d.Goes == goesWorkload
}

// Request is what a Cluster asks for.
type Request struct {
	// Outputs are in the order of the list.
	Outputs []Output
	// Credentials reports whether outputs that leave the management cluster may hold credentials.
	Credentials bool
}

// named returns the outputs of a name.
func (a Request) named(name Name) []Output {
	return slices.DeleteFunc(slices.Clone(a.Outputs), func(o Output) bool { return o.Name != name })
}

// Read reads the annotations of a Cluster. Its error is finding.Errors, one for each entry that cannot be used.
func Read(annotations map[string]string) (Request, error) { return read(annotations, writerController) }

// ReadForRender reads annotations that may ask for outputs that only render writes, too.
func ReadForRender(annotations map[string]string) (Request, error) {
	return read(annotations, writerRender)
}

func read(annotations map[string]string, writer string) (Request, error) {
	request, err := parseList(annotations[AnnotationPublish], writer)
	found := finding.Of(err)
	switch value, given := annotations[AnnotationPublishCredentials]; {
	case !given, value == "false":
	case value == PublishCredentialsValue:
		request.Credentials = true
	default:
		found = append(found, bad(AnnotationPublishCredentials, 0, fmt.Sprintf("unknown value %q", value),
			"use true or false"))
	}
	if len(found) > 0 {
		return Request{}, found
	}
	return request, nil
}

// ParseList reads a list of outputs. An empty one asks for nothing. Its error is finding.Errors.
func ParseList(list string) (Request, error) { return parseList(list, writerController) }

func parseList(list, writer string) (Request, error) {
	if strings.TrimSpace(list) == "" {
		return Request{}, nil
	}
	p := parser{writer: writer}
	for i, entry := range strings.SplitN(list, ",", maxOutputs+1) {
		if i == maxOutputs {
			p.reject(i+1, "too many outputs", fmt.Sprintf("ask for at most %d", maxOutputs))
			break
		}
		p.entry(i+1, strings.TrimSpace(entry))
	}
	if len(p.found) > 0 {
		return Request{}, p.found
	}
	return Request{Outputs: p.outputs}, nil
}

// parser collects outputs and findings.
type parser struct {
	writer  string
	outputs []Output
	found   finding.Errors
}

func (p *parser) reject(position int, message, advice string) {
	p.found = append(p.found, bad(AnnotationPublish, position, message, advice))
}

// bad reports an entry of an annotation; position 0 is the annotation as a whole.
func bad(annotation string, position int, message, advice string) finding.Finding {
	f := finding.Rejection(settings.CodeBadAnnotation, finding.Annotation(annotation).At(position), message, advice)
	f.Reason = ReasonInvalidOutput
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
	d := lookup(o.Name)
	if d == nil || d.Writer == writerRender && p.writer != writerRender {
		p.reject(position, fmt.Sprintf("%q is not an output", finding.Cut(string(o.Name), maxPath)), p.nearest(o.Name))
		return
	}
	message, advice := "", ""
	switch d.Argument {
	case argumentNone:
		if given {
			message, advice = "output "+string(o.Name)+" has no argument", "remove the equals sign and what follows it"
		}
	case argumentPath:
		message, advice = p.path(o)
	case argumentChoice:
		if given && !slices.Contains(d.Choices, o.Argument) {
			message = fmt.Sprintf("output %s has no argument %q", o.Name, finding.Cut(o.Argument, maxPath))
			advice = fmt.Sprintf("write %s or %[1]s=%s", o.Name, strings.Join(d.Choices, fmt.Sprintf(" or %s=", o.Name)))
		}
	case argumentNamespace:
		if !given {
			o.Argument = d.Default
		}
		if len(validation.IsDNS1123Label(o.Argument)) > 0 {
			message = fmt.Sprintf("%q cannot be the name of a namespace", finding.Cut(o.Argument, maxPath))
			advice = "write " + string(o.Name) + "=NAMESPACE"
		}
	}
	if message == "" && d.Argument != argumentPath &&
		slices.ContainsFunc(p.outputs, func(other Output) bool { return other.Name == o.Name }) {
		message, advice = fmt.Sprintf("output %s is asked for twice", o.Name), "remove one of them"
	}
	if message != "" {
		p.reject(position, message, advice)
		return
	}
	p.outputs = append(p.outputs, o)
}

// pathPattern is a path in values: keys joined by dots.
var pathPattern = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// path checks an argument that is a path beside those before it. It returns "" for a usable one.
func (p *parser) path(o Output) (message, advice string) {
	path := o.Argument
	if len(path) > maxPath || !pathPattern.MatchString(path) {
		return fmt.Sprintf("%q is not a path in values", finding.Cut(path, maxPath)),
			fmt.Sprintf("write %s=PATH, keys of letters, digits, _ and - joined by dots, for example %[1]s=defaults.env", o.Name)
	}
	for _, other := range p.outputs {
		inside := strings.HasPrefix(path+".", other.Argument+".") || strings.HasPrefix(other.Argument+".", path+".")
		if other.Name == o.Name && inside {
			return fmt.Sprintf("path %s and path %s are one inside the other", other.Argument, path), "remove one of them"
		}
	}
	return "", ""
}

// nearest is the advice about an unknown name: the output that was probably meant.
func (p *parser) nearest(name Name) string {
	all, written := make([]string, 0, len(catalog())), make([]string, 0, len(catalog()))
	for _, d := range catalog() {
		all = append(all, string(d.Name))
		if d.Writer == writerController || d.Writer == p.writer {
			written = append(written, string(d.Name))
		}
	}
	meant := finding.NearestName(string(name), all)
	switch {
	case meant == "":
		return "the outputs are " + strings.Join(written, ", ")
	case slices.Contains(written, meant):
		return "did you mean " + meant + "?"
	}
	return "the controller does not write it; print it with render --publish=" + meant
}
