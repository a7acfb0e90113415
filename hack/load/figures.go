package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"text/tabwriter"
)

// figures are all that was measured with a number of Clusters.
type figures struct {
	clusters int
	rows     []row
}

// row is one figure. Its unit is in its name.
type row struct {
	name  string
	value float64
	// floor is the figure of a program that does nothing, nil without one.
	floor *float64
}

func (f *figures) add(name string, value float64) {
	f.rows = append(f.rows, row{name: name, value: value})
}

func (f *figures) addWithFloor(name string, value, floor float64) {
	f.rows = append(f.rows, row{name, value, &floor})
}

// bound is the most that a figure may be.
type bound struct {
	Figure string `json:"figure"`
	// Clusters is the number of Clusters for which the bound holds, 0 for any.
	Clusters int     `json:"clusters,omitempty"`
	Most     float64 `json:"most"`
	// NeededBy names the user or the issue that needs the bound, and why.
	NeededBy string `json:"neededBy"`
}

func readBounds(file string) ([]bound, error) {
	text, err := os.ReadFile(file) //nolint:gosec // the developer names the file
	if err != nil {
		return nil, fmt.Errorf("reading bounds: %w", err)
	}
	var bounds []bound
	if err := json.Unmarshal(text, &bounds); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", file, err)
	}
	for _, b := range bounds {
		if b.NeededBy == "" {
			return nil, fmt.Errorf("%s: the bound of %q does not say who needs it", file, b.Figure)
		}
	}
	return bounds, nil
}

// print writes the figures as a table with their bounds. It returns an error if a figure exceeds its bound, or if a
// bound has no figure.
func (f *figures) print(out io.Writer, bounds []bound) error {
	most, measured := map[string]float64{}, map[string]bool{}
	for _, b := range bounds {
		if b.Clusters == 0 || b.Clusters == f.clusters {
			most[b.Figure] = b.Most
		}
	}
	var failed []error
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(table, "%d Clusters\tmeasured\tfloor\tat most\n", f.clusters)
	for _, r := range f.rows {
		measured[r.name] = true
		floor, bound := "", ""
		if r.floor != nil {
			floor = number(*r.floor)
		}
		if limit, found := most[r.name]; found {
			bound = number(limit)
			if r.value > limit {
				bound += "  EXCEEDED"
				failed = append(failed, fmt.Errorf("%s: %s, at most %s", r.name, number(r.value), number(limit)))
			}
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.name, number(r.value), floor, bound)
	}
	_ = table.Flush()
	for _, b := range bounds {
		if !measured[b.Figure] {
			failed = append(failed, fmt.Errorf("nothing measures %q, which has a bound", b.Figure))
		}
	}
	return errors.Join(failed...)
}

// number formats a value with three decimals at most, fewer for large ones.
func number(value float64) string {
	decimals := 3
	for limit := 1.0; decimals > 0 && value >= limit; limit *= 10 {
		decimals--
	}
	return strconv.FormatFloat(value, 'f', decimals, 64)
}
