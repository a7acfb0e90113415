package noproxy

import (
	"fmt"
	"strings"
)

// Origins lists the entries one per line as "value<TAB>group<TAB>origin", in at most limit bytes. If not all lines fit,
// the last line says how many entries are omitted; if not even that line fits, the result is empty.
func (r Result) Origins(limit int) string {
	var all, b strings.Builder
	lines := make([]string, len(r.Entries))
	all.Grow(len(r.Entries) * 64) // about
	for i, e := range r.Entries {
		begin := all.Len()
		all.WriteString(e.Value)
		all.WriteByte('\t')
		all.WriteString(string(e.Group))
		all.WriteByte('\t')
		all.WriteString(e.Origin())
		all.WriteByte('\n')
		lines[i] = all.String()[begin:]
	}
	if all.Len() <= limit {
		return all.String()
	}
	for i, line := range lines {
		// Keep room for the last line as it would read after this one.
		if b.Len()+len(line)+len(leftOut(len(lines)-i-1)) > limit {
			if rest := leftOut(len(lines) - i); b.Len()+len(rest) <= limit {
				b.WriteString(rest)
				return b.String()
			}
			return ""
		}
		b.WriteString(line)
	}
	return b.String()
}

func leftOut(n int) string { return fmt.Sprintf("... and %d more\n", n) }
