// Package tables has the tables of docs/ follow the program. The first columns of a table come from it; the others are
// written by hand, and stay with their row. It serves tests.
package tables

import (
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// update is set by make generate.
var update = flag.Bool("update-docs", false, "write the tables of docs/") //nolint:gochecknoglobals // a flag

// Table is the table of a page below the line `<!-- make generate: NAME -->`.
type Table struct {
	// Page is the path of the page.
	Page, Name string
	// Key is the column that identifies a row.
	Key int
	// AnyOrder leaves the rows in the order of the page, with new ones at its end.
	AnyOrder bool

	rows [][]string
}

// Add adds the first cells of a row, unless it is there.
func (table *Table) Add(cells ...string) {
	if !slices.ContainsFunc(table.rows, func(row []string) bool { return row[table.Key] == cells[table.Key] }) {
		table.rows = append(table.rows, cells)
	}
}

// Compare compares the table with the program, and writes it for make generate. What is new needs its text.
func (table *Table) Compare(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(table.Page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "<!-- make generate: "+table.Name+" -->\n\n")
	lines := strings.SplitAfter(rest, "\n")
	end := slices.IndexFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "|") })
	if !found || end < 2 || len(table.rows) == 0 {
		t.Fatalf("%s has no table %s, or the program no row for it", table.Page, table.Name)
	}
	var order []string
	kept := map[string][]string{}
	for _, line := range lines[2:end] {
		cells := cellsOf(line)
		order = append(order, cells[table.Key])
		kept[cells[table.Key]] = cells[len(table.rows[0]):]
	}
	if table.AnyOrder {
		at := func(row []string) int { return slices.Index(append(order, row[table.Key]), row[table.Key]) }
		slices.SortStableFunc(table.rows, func(a, b []string) int { return at(a) - at(b) })
	}
	var written strings.Builder
	written.WriteString(lines[0] + lines[1])
	for _, row := range table.rows {
		byHand := kept[row[table.Key]]
		if len(byHand) == 0 || byHand[len(byHand)-1] == "" {
			t.Errorf("%s, table %s: say what %s means", table.Page, table.Name, row[table.Key])
			byHand = make([]string, len(cellsOf(lines[0]))-len(row))
		}
		for _, cell := range slices.Concat(row, byHand) {
			written.WriteString(strings.TrimRight("| "+cell, " ") + " ")
		}
		written.WriteString("|\n")
	}
	was := strings.Join(lines[:end], "")
	if *update {
		whole := strings.TrimSuffix(string(text), rest) + written.String() + strings.TrimPrefix(rest, was)
		if err := os.WriteFile(table.Page, []byte(whole), 0o600); err != nil { //nolint:gosec // as above
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(was, written.String()); diff != "" {
		t.Errorf("%s, table %s: run make generate (-is +want):\n%s", table.Page, table.Name, diff)
	}
}

// cellsOf returns the cells of a line of Markdown.
func cellsOf(line string) []string {
	cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// HasFields checks that a page names each field that the JSON of a type has, also of the structs in it.
func HasFields(t *testing.T, page string, of reflect.Type) {
	t.Helper()
	text, err := os.ReadFile(page) //nolint:gosec // a page of this repository
	if err != nil {
		t.Fatal(err)
	}
	for f := range of.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" && !strings.Contains(string(text), "`"+name+"`") &&
			!strings.Contains(string(text), "`"+name+"[]`") {
			t.Errorf("field %s of %s is not on the page", name, of)
		}
		kind := f.Type
		for kind.Kind() == reflect.Slice {
			kind = kind.Elem()
		}
		if kind.Kind() == reflect.Struct {
			HasFields(t, page, kind)
		}
	}
}
