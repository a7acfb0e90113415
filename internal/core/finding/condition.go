package finding

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// Condition is the content of contract.ConditionProxyConfigured, or of the condition of a capability. Its fields are
// those of the condition in Kubernetes.
type Condition struct{ Status, Reason, Message string }

// Limits of a message. Cluster API allows 32,768 characters, which nobody reads.
const (
	// maxFindings is how many findings a message lists; the others are counted.
	maxFindings = 8
	// maxFinding is the longest line of a finding in a message, in bytes.
	maxFinding = 1 << 10
	// maxMessage is the longest message, in bytes.
	maxMessage = 4 << 10
	// maxNote is the longest note that the API server accepts in an event, in bytes.
	maxNote = 1 << 10
)

// ellipsis replaces the text that was cut.
const ellipsis = "…"

// Cut returns text in at most limit bytes, cut between two characters. limit must hold the ellipsis.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}

// Line returns a text that others may have written as one line of at most limit bytes: unprintable characters and
// invalid UTF-8 become blanks, and consecutive blanks become one. limit must hold the ellipsis of Cut.
func Line(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, " "))
	return Cut(strings.Join(strings.Fields(text), " "), limit)
}

// item begins each item of a list in a message, as in the messages of Cluster API.
const item = "* "

// ConditionOf summarizes findings. The reason is that of the most severe finding. The message has one line for each
// finding, the most severe first and notes last. If no finding has a reason, its first line is summary. Findings are
// items of a list, except a finding that is the whole message.
func ConditionOf(findings []Finding, summary string) Condition {
	return ConditionWith(findings, contract.ReasonConfigured, summary)
}

// ConditionWith is ConditionOf for a condition of a capability, with the reason that it has when it is True.
func ConditionWith(findings []Finding, good, summary string) Condition {
	ranked := rank(findings)
	condition := Condition{Reason: good}
	if len(ranked) > 0 && ranked[0].Reason != "" {
		condition.Reason = ranked[0].Reason
	} else if summary != "" {
		condition.Message = Line(summary, maxFinding)
	}
	condition.Status = contract.ReasonOf(condition.Reason).Status
	lines, size := []string{}, 0
	if condition.Message != "" {
		lines, size = append(lines, condition.Message), len(condition.Message)
	}
	for i, f := range ranked {
		line := item + Line(f.String(), maxFinding)
		left := len(ranked) - i
		more := fmt.Sprintf("And %d more %s", left, form(left, "findings", "finding"))
		if i == maxFindings || size+len(line)+len(more)+2 > maxMessage {
			lines = append(lines, more)
			break
		}
		lines, size = append(lines, line), size+len(line)+1
	}
	if len(lines) == 1 {
		lines[0] = strings.TrimPrefix(lines[0], item)
	}
	condition.Message = strings.Join(lines, "\n")
	return condition
}

// Few joins the first three of some names, and counts the others.
func Few(names []string) string {
	text := strings.Join(names[:min(len(names), 3)], ", ")
	if more := len(names) - 3; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// OneLine returns the message of a condition in one line, for events and tables.
func OneLine(message string) string {
	message = strings.TrimPrefix(message, item)
	return strings.ReplaceAll(strings.ReplaceAll(message, "\n"+item, "; "), "\n", "; ")
}

// Notes returns one note for each code: the first warning with that code, and the number of others. The order is that
// of warnings. Duplicates are not counted.
func Notes(warnings []Finding) []Finding {
	var firsts []Finding
	count, known := map[Code]int{}, map[string]bool{}
	for _, w := range warnings {
		if text := w.String(); !known[text] {
			known[text] = true
			if count[w.Code]++; count[w.Code] == 1 {
				firsts = append(firsts, w)
			}
		}
	}
	for i, w := range firsts {
		if others := count[w.Code] - 1; others > 0 {
			firsts[i] = Finding{Message: fmt.Sprintf("%s (and %d more like it)", w, others)}
		}
	}
	return firsts
}

// Digest changes whenever an operator should be notified again: when the reason, a finding with that reason, or a note
// that is not mere progress changes, even if the message has no room for it. Less severe findings are reported after
// the more severe ones are resolved.
func Digest(findings []Finding) string {
	hash := sha256.New()
	ranked := rank(findings)
	for _, f := range ranked {
		if !f.Progress && (f.Reason == ranked[0].Reason || f.Reason == "") {
			_, _ = fmt.Fprintf(hash, "%q %q\n", f.Reason, f)
		}
	}
	return string(hash.Sum(nil))
}

// rank returns findings without repetitions, the most severe reasons first.
func rank(findings []Finding) []Finding {
	ranked := make([]Finding, 0, len(findings))
	type text struct{ reason, message string }
	known := make(map[text]bool, len(findings))
	for _, f := range findings {
		if said := (text{f.Reason, f.String()}); !known[said] {
			known[said] = true
			ranked = append(ranked, f)
		}
	}
	if len(ranked) < 2 {
		return ranked
	}
	reasons := contract.Reasons()
	severity := map[string]int{"": len(reasons)}
	for i, reason := range reasons {
		severity[reason.Name] = i
	}
	slices.SortStableFunc(ranked, func(a, b Finding) int { return cmp.Compare(severity[a.Reason], severity[b.Reason]) })
	return ranked
}

// Types of events, as Kubernetes has them.
const (
	eventNormal  = "Normal"
	eventWarning = "Warning"
)

// Event is the content of an event, without the objects that it is about.
type Event struct{ Type, Reason, Note string }

// EventOf returns the event about a condition. It is a warning if the user must act.
func EventOf(condition Condition) Event {
	message := OneLine(condition.Message)
	event := Event{Type: eventWarning, Reason: contract.EventNotConfigured, Note: condition.Reason + ": " + message}
	switch contract.ReasonOf(condition.Reason).Task {
	case contract.TaskNone:
		event = Event{Type: eventNormal, Reason: contract.EventConfigured, Note: message}
	case contract.TaskCorrect:
		event.Reason, event.Note = contract.EventInvalidSettings, message
	case contract.TaskWait, contract.TaskRollOut:
		event.Type = eventNormal
	case contract.TaskAct:
	}
	event.Note = Cut(event.Note, maxNote)
	return event
}

// After returns the event with a text before its note, if that is not "".
func (e Event) After(text string) Event {
	if text != "" {
		e.Note = Cut(text+". "+e.Note, maxNote)
	}
	return e
}

// Object is a bootstrap object that a condition counts.
type Object struct {
	// Name is the object's name in messages: kind, namespace and name.
	Name string
	// Secret is the proxy Secret whose proxy the object should carry, or "" if it should carry none.
	Secret string
	// Pools is how many pools it serves. A control plane, and an object whose pool is not known, count as one.
	Pools int
	// Carries reports whether it carries the proxy.
	Carries bool
	// OnNodes reports that running nodes get the files though it does not.
	OnNodes bool
}

// Unconfigured returns why a Cluster without findings is not configured: nothing carries the proxy, or an object should
// and does not. unsupported reports whether an object was left alone because it cannot be patched.
func Unconfigured(cluster string, objects []Object, unsupported bool) []Finding {
	var found []Finding
	carried := false
	for _, o := range objects {
		carried = carried || o.Carries || o.OnNodes
		if o.Secret != "" && !o.Carries && !o.OnNodes {
			found = append(found,
				Finding{Reason: contract.ReasonWaitingForObjects, Message: o.Name + " does not carry the proxy yet"})
		}
	}
	switch {
	case carried || len(found) > 0:
		return found
	case len(objects) == 0 && !unsupported:
		return []Finding{{
			Reason:  contract.ReasonWaitingForObjects,
			Message: "Cluster " + cluster + " has neither a control plane nor a pool with a bootstrap object yet",
		}}
	default:
		return []Finding{{
			Reason: contract.ReasonTemplateNotSupported, Message: "no bootstrap object of Cluster " + cluster +
				" carries the proxy",
		}}
	}
}

// Summary counts the pools and control planes that have the proxy, and names their proxy Secrets, the most used first.
func Summary(objects []Object) string {
	counts, have, all := map[string]int{}, 0, 0
	for _, o := range objects {
		count := max(1, o.Pools)
		if all += count; o.Carries {
			have += count
			counts[o.Secret] += count
		}
	}
	if all == 0 {
		return ""
	}
	delete(counts, "")
	secrets := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var parts []string
	for i, secret := range secrets {
		switch {
		case i == maxFindings:
			parts = append(parts, fmt.Sprintf("%d more Secrets", len(secrets)-i))
		case i > maxFindings:
		case len(secrets) == 1:
			parts = append(parts, "Secret "+secret)
		default:
			parts = append(parts, fmt.Sprintf("%d Secret %s", counts[secret], secret))
		}
	}
	text := fmt.Sprintf("%d of %d pools and control planes %s the proxy", have, all, form(have, "have", "has"))
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	return text
}

// form chooses the form of a word for a number.
func form(n int, plural, singular string) string {
	if n == 1 {
		return singular
	}
	return plural
}
