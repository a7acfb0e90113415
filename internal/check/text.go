package check

import (
	"fmt"
	"io"
	"strings"
)

// Text prints a report for people: one line for each check, and below it what to do and the link if it is needed.
func (r Report) Text(out io.Writer) error {
	var b strings.Builder
	for i, group := range r.Groups {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(group.Name + "\n")
		for _, result := range group.Checks {
			fmt.Fprintf(&b, "  %-8s %-20s %s\n", result.Status, result.Check, result.Message)
			for _, line := range []string{result.Do, result.Link} {
				if line != "" {
					fmt.Fprintf(&b, "  %29s %s\n", "", line)
				}
			}
		}
	}
	fmt.Fprintf(&b, "\n%s\n", r.Summary())
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("writing report: %w", err)
	}
	return nil
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
	return strings.Join(texts, ", ")
}
