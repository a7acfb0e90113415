// Package finding defines the one type for every problem and fact that an operator should know, and composes the text
// of one finding, the condition of many, and the digest that tells which findings are news. It is pure.
package finding

import (
	"errors"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// Code names one kind of finding about what users write. Codes are stable: messages, lint output and tests refer to
// them; docs/troubleshooting.md lists them. The packages that report findings define their codes.
type Code string

// Finding is one thing that a user or an operator should know: an input that is rejected, a warning, or a fact for the
// condition of a Cluster. It contains no secret and is the same on each try. Its JSON is part of the output of explain.
type Finding struct {
	// Reason is a reason of contract.ConditionProxyConfigured. It is "" for a warning or a note, which does not stop
	// the condition from being True.
	Reason string `json:"-"`
	// Code is for programs. It is "" where only people read the finding.
	Code Code `json:"code"`
	// Place is where the finding is. It is the zero value if Message names the place.
	Place Place `json:"where"`
	// Message is a sentence for people about the problem or fact.
	Message string `json:"message"`
	// Advice is what to do or to write instead. It may be empty.
	Advice string `json:"fix,omitempty"`
	// Progress marks a finding that changes with progress, such as a count of Machines. Such a change is not news.
	Progress bool `json:"-"`
}

// Rejection returns a finding about settings that keeps a Cluster from being configured.
func Rejection(code Code, place Place, message, advice string) Finding {
	return Finding{Reason: contract.ReasonInvalidSettings, Code: code, Place: place, Message: message, Advice: advice}
}

// String returns the finding in one line.
func (f Finding) String() string {
	text, place := f.Message, f.Place.String()
	switch {
	case place == "":
	case f.Code == "" || f.Reason != "" && f.Place.Kind == InOption:
		text = place + ": " + text
	case f.Reason == "":
		text = string(f.Code) + ": " + place + ": " + text
	default:
		text = place + ": " + text + " (" + string(f.Code) + ")"
	}
	if f.Advice != "" {
		text += "; " + f.Advice
	}
	return text
}

// Errors are findings as an error.
type Errors []Finding

// Error returns all findings in one line.
func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i, f := range e {
		texts[i] = f.String()
	}
	return strings.Join(texts, "; ")
}

// Err returns e as an error, nil if there are no findings.
func (e Errors) Err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// One returns all findings of e, which has at least one, as one finding with the reason of the first.
func (e Errors) One() Finding {
	if len(e) == 1 {
		return e[0]
	}
	return Finding{Reason: e[0].Reason, Message: e.Error()}
}

// Has reports whether a finding has a reason.
func (e Errors) Has(reason string) bool {
	for _, f := range e {
		if f.Reason == reason {
			return true
		}
	}
	return false
}

// Of returns the findings in err in their order, looking through wrapped and joined errors. A user cannot fix an error
// without findings.
func Of(err error) Errors {
	switch e := err.(type) { //nolint:errorlint // the tree is walked by hand to find all of them, not the first
	case nil:
		return nil
	case Errors:
		return e
	case interface{ Unwrap() []error }:
		var all Errors
		for _, joined := range e.Unwrap() {
			all = append(all, Of(joined)...)
		}
		return all
	}
	return Of(errors.Unwrap(err))
}
