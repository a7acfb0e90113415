// Command rooms rewrites the table of packages in a copy of docs/scope.md: it lowers each ceiling to the lines that a package
// has, rounded up to hundreds, and never raises one.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

var room = regexp.MustCompile("`([a-z/]+)` ([0-9]+)(, )?")

func main() {
	page := os.Args[1]
	text, err := os.ReadFile(page)
	if err != nil {
		exit(err)
	}
	lines, total := strings.Split(string(text), "\n"), 0
	for i, line := range lines {
		cells := strings.Split(line, " | ")
		if len(cells) != 3 || !room.MatchString(cells[1]) {
			if strings.HasPrefix(line, "| **all** |") {
				lines[i] = fmt.Sprintf("| **all** | | %d |", total)
			}
			continue
		}
		sum := 0
		cells[1] = room.ReplaceAllStringFunc(cells[1], func(entry string) string {
			parts := room.FindStringSubmatch(entry)
			written, _ := strconv.Atoi(parts[2])
			ceiling := min(written, (count(parts[1])+99)/100*100)
			if sum += ceiling; ceiling == 0 {
				return "" // the package is gone
			}
			return fmt.Sprintf("`%s` %d%s", parts[1], ceiling, parts[3])
		})
		lines[i] = fmt.Sprintf("%s | %s | %d |", cells[0], strings.TrimSuffix(cells[1], ", "), sum)
		total += sum
	}
	//nolint:gosec // a page of the repository
	if err := os.WriteFile(page, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		exit(err)
	}
}

// count returns the lines of the package's source without its tests.
func count(name string) int {
	files, _ := filepath.Glob(filepath.Join("internal", name, "*.go"))
	sum := 0
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // a file of the repository
		if err != nil {
			exit(err)
		}
		if !strings.HasSuffix(file, "_test.go") && !strings.Contains(file, "zz_generated") {
			sum += bytes.Count(text, []byte("\n"))
		}
	}
	return sum
}

func exit(err error) {
	fmt.Fprintln(os.Stderr, "rooms:", err)
	os.Exit(1)
}
