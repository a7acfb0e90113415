package finding

import (
	"strings"
	"unicode"
)

// SameName reports whether a and b differ only in letter case and _-.
func SameName(a, b string) bool { return normalize(a) == normalize(b) }

func normalize(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("_-.", r) {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
}

// NearestName returns the name that word was probably meant to be, or "". Letter case and _-. do not count. A name that
// is more than three edits away is not suggested. Of equally near names it is the first.
func NearestName(word string, names []string) string {
	word = normalize(word)
	best, distance := "", 4
	for _, name := range names {
		if d := editDistance(word, normalize(name)); d < distance {
			best, distance = name, d
		}
	}
	return best
}

// editDistance is the Levenshtein distance of a and b in bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
