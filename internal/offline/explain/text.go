package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/match"
)

// width is the number of columns that text for people keeps to, where a single word allows it.
const width = 100

// maxValueLines is how many lines of the value are shown.
const maxValueLines = 8

func itoa(n int) string { return strconv.Itoa(n) }

// display makes text from users fit for a terminal: userinfo is replaced, also the beginning of one whose password has a comma, and what is
// not printable is escaped.
func display(text string) string {
	scheme, rest, isURL := strings.Cut(text, "://")
	if isURL {
		scheme += "://"
	} else {
		scheme, rest = "", text
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = "xxxxx" + rest[i:]
	} else if _, port, ok := strings.Cut(rest, ":"); ok && (isURL || strings.Count(rest, ":") == 1) && !strings.HasPrefix(rest, "[") && strings.Trim(port, "0123456789/") != "" {
		rest = "xxxxx"
	}
	text = scheme + rest
	if !strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) && utf8.ValidString(text) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// label is the short name of a client and the first two numbers of its version, for example "curl 7.88".
func label(c match.Client) string {
	name := strings.TrimSuffix(strings.TrimPrefix(c.Name, "python-"), "+NODE_USE_ENV_PROXY")
	switch c.Name {
	case "go-httpproxy":
		name = "go"
	case "go-nethttp":
		name = "net/http"
	case "ruby-nethttp":
		name = "ruby"
	case "perl-lwp":
		name = "lwp"
	case "busybox-wget":
		name = "busybox"
	}
	numbers := strings.FieldsFunc(c.Version, func(r rune) bool { return r < '0' || r > '9' })
	return name + " " + strings.Join(numbers[:min(2, len(numbers))], ".")
}

// style colors words, or does nothing.
type style bool

func (s style) paint(code, text string) string {
	if !s {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// ANSI colors (ECMA-48, SGR).
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// Text returns the report for people, at most 100 columns wide where names allow it. With color it has ANSI sequences.
func (r Report) Text(color bool) string {
	p := &printer{report: r, style: style(color)}
	p.head()
	p.table()
	p.constants()
	p.entries()
	p.warnings()
	return p.b.String()
}

type printer struct {
	style

	report Report
	b      strings.Builder
	marked bool // a cell carries the mark
}

func (p *printer) line(text string) { p.b.WriteString(strings.TrimRight(text, " ") + "\n") }

// section starts a part of the report.
func (p *printer) section(title string) {
	p.line("")
	p.line(p.paint(bold, title))
}

// head says what is explained.
func (p *printer) head() {
	r := p.report
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+value)
		}
	}
	add("Cluster ", r.Cluster)
	add("pool ", r.Pool)
	add("", r.Secret)
	add("profile ", r.Profile)
	if len(parts) > 0 {
		p.line(strings.Join(parts, ", "))
	}
	const name = "NO_PROXY="
	lines := wrap(strings.SplitAfter(r.NoProxy, ","), "", width-len(name))
	for i, l := range lines {
		if i == maxValueLines && len(lines) > maxValueLines+1 {
			p.line(fmt.Sprintf("%*s... %d entries in all; -o json has them", len(name), "", len(r.Entries)))
			break
		}
		prefix := name
		if i > 0 {
			prefix = strings.Repeat(" ", len(name))
		}
		p.line(prefix + l)
	}
	p.line("")
}

// wrap puts words into lines of at most limit columns, with sep between words of a line.
func wrap(words []string, sep string, limit int) []string {
	lines := []string{""}
	for i, w := range words {
		last := &lines[len(lines)-1]
		switch {
		case i == 0:
			*last = w
		case utf8.RuneCountInString(*last)+len(sep)+utf8.RuneCountInString(w) <= limit:
			*last += sep + w
		default:
			*last += strings.TrimRight(sep, " ")
			lines = append(lines, w)
		}
	}
	return lines
}

// column is a group of clients that agree on every row.
type column struct {
	labels []string
	index  int // of the first client
	width  int
}

// columns groups the clients by their verdicts.
func (r Report) columns() []column {
	var out []column
	for i, c := range r.Clients {
		same := slices.IndexFunc(out, func(o column) bool {
			return !slices.ContainsFunc(r.Destinations, func(d Row) bool { return d.Answers[i].Verdict != d.Answers[o.index].Verdict })
		})
		if same < 0 {
			out = append(out, column{index: i, width: len("proxied!")})
			same = len(out) - 1
		}
		out[same].labels = append(out[same].labels, c.label)
		out[same].width = max(out[same].width, len(c.label))
	}
	return out
}

// table prints a row for each destination and a column for each group of clients. If it would be too wide, the name of a
// destination gets a line of its own.
func (p *printer) table() {
	columns := p.report.columns()
	const title = "DESTINATION"
	names, cells, height := len(title), 0, 0
	for _, d := range p.report.Destinations {
		names = max(names, utf8.RuneCountInString(d.Name))
	}
	for _, c := range columns {
		cells += 2 + c.width
		height = max(height, len(c.labels))
	}
	own := names+cells > width
	if own {
		names = 2
		p.line(p.paint(bold, title))
	}
	for i := range height {
		text := strings.Repeat(" ", names)
		if i == 0 && !own {
			text = pad(title, names)
		}
		for _, c := range columns {
			name := ""
			if i < len(c.labels) {
				name = c.labels[i]
			}
			text += "  " + pad(name, c.width)
		}
		p.line(p.paint(bold, strings.TrimRight(text, " ")))
	}
	for _, d := range p.report.Destinations {
		text := pad(d.Name, names)
		if own {
			p.line(d.Name)
			text = strings.Repeat(" ", names)
		}
		for _, c := range columns {
			text += "  " + p.cell(d, d.Answers[c.index].Verdict, c.width)
		}
		p.line(text)
		p.details(d)
	}
	if p.marked {
		p.line("")
		p.line("! an in-cluster destination that is not reached directly, or a counter-check that is not proxied")
	}
}

func pad(text string, n int) string {
	return text + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(text)))
}

// cell is the verdict of one column. An exclamation mark calls for a look, with and without color.
func (p *printer) cell(d Row, v match.Verdict, n int) string {
	text, code := string(v), green
	switch v {
	case match.Direct:
	case match.Proxied:
		code = ""
	case match.Refuses:
		code = yellow
	case match.DependsOnDNS:
		text, code = "by DNS", yellow
	}
	if d.InCluster && misses(v) || d.CounterCheck && (v == match.Direct || v == match.Refuses) {
		text, code = text+"!", red
		p.marked = true
	}
	padding := strings.Repeat(" ", max(0, n-len(text)))
	if code == "" {
		return text + padding
	}
	return p.paint(code, text) + padding
}

// details prints below a row what it is and, for each deciding entry, the clients. What a client says of every row is left to
// constants.
func (p *printer) details(d Row) {
	what := d.What
	if what == "" && d.InCluster {
		what = "in the Cluster"
	}
	var reasons []string
	clients := map[string][]string{}
	for i, a := range d.Answers {
		if p.report.constant(i) {
			continue
		}
		reason := because(a)
		if len(clients[reason]) == 0 {
			reasons = append(reasons, reason)
		}
		clients[reason] = append(clients[reason], p.report.Clients[i].label)
	}
	if len(reasons) == 1 { // all agree
		if line := strings.TrimPrefix(what+": "+reasons[0], ": "); utf8.RuneCountInString(line) <= width-2 {
			p.line("  " + line)
			return
		}
		clients[reasons[0]] = nil
	}
	if what != "" {
		p.line("  " + what)
	}
	for _, reason := range reasons {
		p.item(reason, clients[reason])
	}
}

// item prints a reason and its clients, on further lines if they do not fit.
func (p *printer) item(reason string, clients []string) {
	const indent = "    "
	if len(clients) > 0 {
		reason += ":"
	}
	all := strings.TrimRight(reason+" "+strings.Join(clients, ", "), " ")
	if utf8.RuneCountInString(all) <= width-len(indent) {
		p.line(indent + all)
		return
	}
	for _, l := range wrap(strings.SplitAfter(reason, " "), "", width-len(indent)) {
		p.line(indent + l)
	}
	if len(clients) == 0 {
		return
	}
	for _, l := range wrap(clients, ", ", width-2*len(indent)) {
		p.line(indent + indent + l)
	}
}

// because says what decided.
func because(a Answer) string {
	text := a.Reason
	if a.Entry != "" {
		text = a.Entry
		if a.Origin != "" {
			text += " (" + a.Origin + ")"
		}
		switch a.Verdict {
		case match.DependsOnDNS:
			text = "depends on DNS and " + text
		case match.Refuses:
			text = "refuses because of " + text
		case match.Direct, match.Proxied:
		}
	} else if a.Verdict == match.DependsOnDNS || a.Verdict == match.Refuses {
		text = strings.ReplaceAll(string(a.Verdict), "-on-dns", " on DNS") + ": " + text
	}
	return text
}

// constant reports whether client i gives the same answer, for a reason that is not the destination, in all of several rows.
func (r Report) constant(i int) bool {
	rows := r.Destinations
	if len(rows) < 2 {
		return false
	}
	for _, d := range rows {
		if d.Answers[i] != rows[0].Answers[i] {
			return false
		}
	}
	first := rows[0].Answers[i]
	return first.Verdict == match.Refuses || !r.Clients[i].ReadsNoProxy
}

// constants prints what a client says of every row.
func (p *printer) constants() {
	if len(p.report.Destinations) == 0 {
		return
	}
	started := false
	for i, c := range p.report.Clients {
		if !p.report.constant(i) {
			continue
		}
		if !started {
			p.section("For every destination")
			started = true
		}
		p.line("  " + c.label + ": " + because(p.report.Destinations[0].Answers[i]))
	}
}

// entries prints the entries that do nothing or do harm, and what to write instead.
func (p *printer) entries() {
	readers := 0
	for _, c := range p.report.Clients {
		if c.ReadsNoProxy {
			readers++
		}
	}
	started := false
	for _, e := range p.report.Entries {
		var what string
		switch {
		case len(e.FatalIn) > 0:
			what = "breaks " + strings.Join(p.labels(e.FatalIn), ", ")
		case e.dead(readers):
			what = "matches in no client"
		default:
			continue
		}
		if !started {
			p.section("Entries that need a change")
			started = true
		}
		p.line("  " + e.Value + " (" + e.Origin + "): " + p.paint(red, what))
		if e.Fix != "" {
			p.line("      " + e.Fix)
		}
	}
}

// labels returns the short names of clients.
func (p *printer) labels(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = n
		if at := slices.IndexFunc(p.report.Clients, func(c Client) bool { return c.Name == n }); at >= 0 {
			out[i] = p.report.Clients[at].label
		}
	}
	return out
}

// warnings prints the findings of the composer.
func (p *printer) warnings() {
	if len(p.report.Warnings) == 0 {
		return
	}
	p.section("Warnings")
	for _, w := range p.report.Warnings {
		p.line("  " + p.paint(yellow, string(w.Code)) + ": " + w.Place.String())
		text := w.Message
		if w.Advice != "" {
			text += "; " + w.Advice
		}
		for _, l := range wrap(strings.Fields(text), " ", width-6) {
			p.line("      " + l)
		}
	}
}
