package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain/match"
)

// maxShown is the number of bytes of the value that are shown.
const maxShown = 1000

func itoa(n int) string { return strconv.Itoa(n) }

// display makes text from users fit for a terminal: userinfo is replaced, also the beginning of one whose password has
// a comma, and unprintable characters are escaped.
func display(text string) string {
	scheme, rest, isURL := strings.Cut(text, "://")
	if isURL {
		scheme += "://"
	} else {
		scheme, rest = "", text
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = "xxxxx" + rest[i:]
	} else if _, port, ok := strings.Cut(rest, ":"); ok && (isURL || strings.Count(rest, ":") == 1) &&
		!strings.HasPrefix(rest, "[") && strings.Trim(port, "0123456789/") != "" {
		rest = "xxxxx"
	}
	text = scheme + rest
	if !strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) && utf8.ValidString(text) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// label is the short name of a client and the first two numbers of its version, for example "curl 7.88". The version of
// Go's client is that of module golang.org/x/net, not of Go: "go (x/net 0.62)".
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
	version := strings.Join(numbers[:min(2, len(numbers))], ".")
	if c.Name == "go-httpproxy" {
		return name + " (x/net " + version + ")"
	}
	return name + " " + version
}

// Text returns the report for people: for each destination what the clients do, and what decides.
func (r Report) Text() string {
	p := &printer{report: r}
	p.summary()
	p.head()
	p.line("")
	for _, d := range r.Destinations {
		what := d.What
		if what == "" && d.InCluster {
			what = "in the Cluster"
		}
		p.line(strings.TrimSuffix(d.Name+", "+what, ", "))
		p.answers(d, false)
	}
	p.constants()
	p.entries()
	p.warnings()
	return p.b.String()
}

type printer struct {
	report Report
	b      strings.Builder
}

func (p *printer) line(text string) { p.b.WriteString(text + "\n") }

// section starts a part of the report.
func (p *printer) section(title string) {
	p.line("")
	p.line(title)
}

// summary prints how many destinations of the Cluster are direct, and what is wrong: one line for the clients with the
// same answers.
func (p *printer) summary() {
	var lines [][2]string
	clients := map[[2]string][]string{}
	for i, c := range p.report.Clients {
		count, byDNS, wrong, wide := 0, 0, []string{}, ""
		for _, d := range p.report.Destinations {
			isDirect := d.Answers[i].Verdict == match.Direct
			switch {
			case d.CounterCheck && isDirect:
				wide = "; " + d.Name + " is direct, too: NO_PROXY is too wide"
			case d.InCluster && misses(d.Answers[i].Verdict):
				wrong = append(wrong, d.Name)
				fallthrough
			case d.InCluster:
				count++
				if d.Answers[i].Verdict == match.DependsOnDNS {
					byDNS++
				}
			}
		}
		if count == 0 {
			return
		}
		line := [2]string{fmt.Sprintf("%d of %d in-cluster destinations are direct", count-byDNS-len(wrong), count), wide}
		if byDNS > 0 {
			line[1] = fmt.Sprintf("; %d by DNS", byDNS) + wide
		}
		if len(wrong) > 0 && len(wrong) < count {
			line[1] = "; not " + strings.Join(wrong, ", ") + line[1]
		}
		if clients[line] == nil {
			lines = append(lines, line)
		}
		clients[line] = append(clients[line], c.label)
	}
	for _, line := range lines {
		with := ""
		if len(lines) > 1 {
			with = " with " + strings.Join(clients[line], ", ")
		}
		p.line(line[0] + with + line[1])
	}
}

// head prints the subject of the explanation.
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
	value := r.NoProxy
	if len(value) > maxShown {
		value = value[:strings.LastIndexByte(value[:maxShown], ',')+1] +
			fmt.Sprintf("... %d entries in all; -o json has them", len(r.Entries))
	}
	p.line("NO_PROXY=" + value)
	if r.ownAddresses {
		p.line("Each node adds its own addresses and names, so they are direct on that node though they are not in the list.")
	}
}

// verdict is a word for the result of a client. An exclamation mark marks a problem.
func (p *printer) verdict(d Row, v match.Verdict) string {
	text := string(v)
	if v == match.DependsOnDNS {
		text = "by DNS"
	}
	if d.InCluster && misses(v) || d.CounterCheck && (v == match.Direct || v == match.Refuses) {
		text += "!"
	}
	return text
}

// answers prints a line for each verdict and each reason for it, with the clients: either those with the same answer
// for every destination, or all others.
func (p *printer) answers(d Row, constant bool) {
	type key struct{ verdict, because string }
	var keys []key
	clients := map[key][]string{}
	shown := 0
	for i, a := range d.Answers {
		if p.report.constant(i) != constant {
			continue
		}
		shown++
		k := key{p.verdict(d, a.Verdict), because(a)}
		if clients[k] == nil {
			keys = append(keys, k)
		}
		clients[k] = append(clients[k], p.report.Clients[i].label)
	}
	for _, k := range keys {
		who := strings.Join(clients[k], ", ")
		switch {
		case constant || len(keys) > 1 || shown == 1:
		case shown < len(d.Answers):
			who = "all others"
		default:
			who = "all"
		}
		p.line(fmt.Sprintf("  %-8s  %s: %s", k.verdict, who, k.because))
	}
}

// because returns the reason of a verdict.
func because(a Answer) string {
	switch {
	case a.Entry == "":
		return a.Reason
	case a.Origin != "":
		a.Entry += " (" + a.Origin + ")"
	}
	if a.Verdict == match.DependsOnDNS {
		return "direct if the address of the host matches " + a.Entry + " or a later entry"
	}
	return a.Entry
}

// constant reports whether client i gives the same answer, for a reason that is not the destination, in all of several
// rows.
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

// constants prints the answers that clients give for every destination, with the mark if one destination requires it.
func (p *printer) constants() {
	all := Row{}
	for _, d := range p.report.Destinations {
		all.Answers = d.Answers
		all.InCluster = all.InCluster || d.InCluster
	}
	for i := range all.Answers {
		if p.report.constant(i) {
			p.section("every destination")
			p.answers(all, true)
			return
		}
	}
}

// entries prints the entries that have no effect or do harm, and their replacements.
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
		case e.dead(readers) && len(p.report.Clients) == 1:
			what = "matches nothing in " + p.report.Clients[0].label
		case e.dead(readers):
			what = "matches in no client"
		default:
			continue
		}
		if !started {
			p.section("Entries that need a change")
			started = true
		}
		p.line("  " + e.Value + " (" + e.Origin + "): " + what)
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
		text := w.Message
		if w.Advice != "" {
			text += "; " + w.Advice
		}
		p.line("  " + string(w.Code) + ": " + w.Place.String())
		p.line("      " + text)
	}
	p.b.WriteString(kit.Links(kit.Sections(p.report.Warnings)...))
}
