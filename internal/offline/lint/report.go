package lint

import (
	"fmt"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// Level is the severity of a finding.
type Level string

const (
	// Rejection keeps a Cluster from being configured.
	Rejection Level = "rejection"
	// Warning is worth a change.
	Warning Level = "warning"
	// Note is a state that resolves itself.
	Note Level = "note"
)

// Row is a finding and its place in the input. Its JSON is an interface: field names do not change.
type Row struct {
	Level Level `json:"level"`
	// Code is one of noproxy.Codes, or a code of package settings.
	Code finding.Code `json:"code"`
	// File is the name of the input; Document is counted from 1 in it, and so is Line.
	File     string `json:"file"`
	Document int    `json:"document"`
	Line     int    `json:"line"`
	// Object is the object, for example "Secret team-a/http-proxy".
	Object string `json:"object"`
	// Where is the place in the object, for example "key noProxy entry 3", empty for the object as a whole.
	Where string `json:"where"`
	// Message is the problem or fact.
	Message string `json:"message"`
	// Fix is the advice, "" for none.
	Fix string `json:"fix,omitempty"`

	order int // of the object in the input
}

// String prints the finding without its line, and the fix below it.
func (r Row) String() string {
	where := r.Object
	if r.Where != "" {
		where += ", " + r.Where
	}
	text := fmt.Sprintf("%s: %s: %s (%s)", r.Level, where, r.Message, r.Code)
	if r.Fix != "" {
		text += "\n    fix: " + r.Fix
	}
	return text
}

// Report is the outcome. Its JSON is an interface: field names do not change.
type Report struct {
	// Findings are in the order of the objects in the input.
	Findings []Row   `json:"findings"`
	Summary  Summary `json:"summary"`
	// Unread are lines about input that was not checked, because it is not an object.
	Unread []string `json:"-"`
}

// Summary counts the findings and the checked objects.
type Summary struct {
	Rejections int `json:"rejections"`
	Warnings   int `json:"warnings"`
	Notes      int `json:"notes"`
	Clusters   int `json:"clusters"`
	Secrets    int `json:"secrets"`
}

// Text prints each finding in one line, with the fix and the other objects that have it below it, then the links and
// the counts.
func (r Report) Text() string {
	var b strings.Builder
	same := func(f Row) Row {
		kind, _, _ := strings.Cut(f.Object, " ")
		return Row{Level: f.Level, Code: f.Code, Object: kind, Where: f.Where, Message: f.Message, Fix: f.Fix}
	}
	also := map[Row][]string{}
	for _, f := range r.Findings {
		also[same(f)] = append(also[same(f)], f.Object)
	}
	for _, f := range r.Findings {
		objects := also[same(f)]
		if objects == nil {
			continue // it is printed
		}
		also[same(f)] = nil
		_, _ = fmt.Fprintf(&b, "%s:%d: %s\n", f.File, f.Line, f)
		if others := objects[1:]; len(others) > 0 {
			_, _ = fmt.Fprintf(&b, "    also: %s\n", finding.Few(others))
		}
	}
	b.WriteString(r.Links())
	s := r.Summary
	_, _ = fmt.Fprintf(&b, "%s, %s, %s in %s and %s\n", plural(s.Rejections, "rejection"),
		plural(s.Warnings, "warning"), plural(s.Notes, "note"),
		plural(s.Clusters, "labelled Cluster"), plural(s.Secrets, "proxy Secret"))
	return b.String()
}

// Links are the lines with the sections about the findings.
func (r Report) Links() string {
	names := make([]string, len(r.Findings))
	for i, f := range r.Findings {
		names[i] = string(f.Code)
	}
	return kit.Links(names...)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
