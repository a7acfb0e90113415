package check

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Text prints a report for people: one line for each check, and below it what to do and the link if it is needed.
func (r Report) Text(out io.Writer) error {
	p := printer{out: out}
	for _, group := range r.Groups {
		p.group(group)
	}
	return p.end(r)
}

// printer prints a report group by group.
type printer struct {
	out io.Writer
	// terminal takes colours; it is nil if out is no terminal. Width is that of a terminal, 0 if lines are not wrapped.
	terminal io.Writer
	width    int
	// short prints one line for each problem, and nothing else.
	short bool
	begun bool
	err   error
}

// column is where messages begin.
const column = 32

func (p *printer) group(group Group) {
	if p.begun && !p.short {
		p.print("\n")
	}
	if p.begun = true; !p.short {
		p.print(group.Name + "\n")
	}
	for _, result := range group.Checks {
		problem := result.Status != OK && result.Status != Skipped
		if p.short {
			if problem {
				p.status(result.Status)
				p.print(" " + group.Name + ": " + string(result.Check) + ": " + result.Message + "\n")
			}
			continue
		}
		p.print("  ")
		p.status(result.Status)
		p.print(fmt.Sprintf(" %-20s %s\n", result.Check, p.wrapped(result.Message)))
		for _, line := range []string{result.Do, result.Link} {
			if line != "" {
				p.print(strings.Repeat(" ", column) + p.wrapped(line) + "\n")
			}
		}
	}
}

// end prints the summary.
func (p *printer) end(r Report) error {
	if !p.short {
		p.print("\n")
	}
	p.print(r.Summary() + "\n")
	if p.err != nil {
		return fmt.Errorf("writing report: %w", p.err)
	}
	return nil
}

func (p *printer) print(text string) { p.to(p.out, text) }

func (p *printer) to(out io.Writer, text string) {
	if p.err == nil {
		_, p.err = io.WriteString(out, text)
	}
}

// status prints a status, in colour on a terminal.
func (p *printer) status(status Status) {
	text := fmt.Sprintf("%-8s", status)
	if p.terminal == nil {
		p.print(text)
		return
	}
	const red, yellow, green = 31, 33, 32
	colour := map[Status]int{Failed: red, Unknown: red, Warning: yellow, OK: green}[status]
	p.to(p.terminal, fmt.Sprintf("\x1b[%dm%s\x1b[0m", colour, text))
}

// wrapped breaks a text into lines that end within the width, each below the first. A longer word stays whole, and so
// does a command, which people copy.
func (p *printer) wrapped(text string) string {
	if p.width == 0 || strings.HasPrefix(text, "kubectl ") {
		return text
	}
	var b strings.Builder
	left := p.width - column
	for i, word := range strings.Fields(text) {
		size := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case size+1 > left:
			b.WriteString("\n" + strings.Repeat(" ", column))
			left = p.width - column
		default:
			b.WriteString(" ")
			left--
		}
		b.WriteString(word)
		left -= size
	}
	return b.String()
}

// Summary counts the results in one sentence, and names what failed.
func (r Report) Summary() string {
	counts, named := map[Status]int{}, map[Status][]string{}
	for _, group := range r.Groups {
		for _, result := range group.Checks {
			counts[result.Status]++
			named[result.Status] = append(named[result.Status], string(result.Check))
		}
	}
	texts := []string{}
	for _, status := range []Status{Failed, Unknown, Warning, Skipped, OK} {
		if counts[status] == 0 {
			continue
		}
		text := fmt.Sprintf("%d %s", counts[status], status)
		if status == Failed || status == Unknown {
			text += " (" + strings.Join(named[status], ", ") + ")"
		}
		texts = append(texts, text)
	}
	if r.Status == Unknown && counts[Unknown] == 0 {
		texts = append(texts, "you may see too little to tell whether it works")
	}
	return strings.Join(texts, ", ")
}

// waitsFor says in one line which checks failed or are not known, with the message of the first.
func (r Report) waitsFor() string {
	var named []string
	first := ""
	for _, group := range r.Groups {
		for _, result := range group.Checks {
			if result.Status == Failed || result.Status == Unknown {
				named = append(named, string(result.Check))
				first = cmp.Or(first, result.Message)
			}
		}
	}
	if len(named) == 0 {
		return "rights to see whether it works"
	}
	return strings.Join(named, ", ") + ": " + first
}
