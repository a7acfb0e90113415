package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
)

// curve is one figure over the number of Clusters.
type curve struct {
	title string
	unit  string
	of    func(*results) float64
}

// curves are what the plot shows, each beside the straight line of a cost that is the same for each Cluster.
func curves() []curve {
	return []curve{
		{
			"live heap after a restart", "MiB",
			func(r *results) float64 { return r.Phases["restart"].LiveMiB - r.EmptyLiveMiB },
		},
		{"resident memory after a restart", "MiB", func(r *results) float64 { return r.Phases["restart"].ResidentMiB }},
		{"requests to converge", "", func(r *results) float64 { return float64(r.Phases["converge"].Requests.total()) }},
		{"seconds of CPU to converge", "s", func(r *results) float64 { return r.Phases["converge"].CPUSeconds }},
	}
}

// Sizes of the plot in pixels: of one panel, and of the axes around it.
const (
	panelWidth, panelHeight = 300, 200
	marginLeft, marginTop   = 60, 40
	cellWidth, cellHeight   = panelWidth + marginLeft + 40, panelHeight + marginTop + 50
	columns                 = 2
)

// readRuns reads the JSON of several runs, the smallest first.
func readRuns(files []string) ([]*results, error) {
	if len(files) < 2 {
		return nil, errors.New("plotting: give the JSON files of two runs or more")
	}
	runs := make([]*results, 0, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // a file that the user names
		if err != nil {
			return nil, fmt.Errorf("reading a run: %w", err)
		}
		r := &results{}
		if err := json.Unmarshal(text, r); err != nil {
			return nil, fmt.Errorf("reading the run %s: %w", file, err)
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b *results) int { return a.Clusters - b.Clusters })
	return runs, nil
}

// writePlot writes the plot of runs into a file.
func writePlot(file string, runs []string) error {
	all, err := readRuns(runs)
	if err != nil {
		return err
	}
	out, err := os.Create(file) //nolint:gosec // the file that the user names
	if err != nil {
		return fmt.Errorf("writing the plot: %w", err)
	}
	return errors.Join(plot(out, all), out.Close())
}

// plot writes an SVG of how memory, requests and time grow with the number of Clusters. Both axes are logarithmic, so
// that a cost that is the same for each Cluster is a straight line of slope one, which is dashed.
func plot(out io.Writer, runs []*results) error {
	var b strings.Builder
	all := curves()
	rows := (len(all) + columns - 1) / columns
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" `+
		`font-size="11">`+"\n", columns*cellWidth, rows*cellHeight)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i, c := range all {
		panel(&b, c, runs, i%columns*cellWidth+marginLeft, i/columns*cellHeight+marginTop)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(out, b.String())
	return err //nolint:wrapcheck // of the caller's file
}

// panel draws one curve with its upper left corner at left and top.
func panel(b *strings.Builder, c curve, runs []*results, left, top int) {
	first, last := runs[0], runs[len(runs)-1]
	lowest, highest := math.Inf(1), math.Inf(-1)
	for _, r := range runs {
		lowest, highest = min(lowest, c.of(r)), max(highest, c.of(r))
	}
	// The line of slope one must fit, too.
	highest = max(highest, c.of(first)*float64(last.Clusters)/float64(first.Clusters))
	scale := func(value, from, to float64) float64 {
		return (math.Log(value) - math.Log(from)) / (math.Log(to) - math.Log(from))
	}
	x := func(clusters int) float64 {
		return float64(left) + panelWidth*scale(float64(clusters), float64(first.Clusters), float64(last.Clusters))
	}
	y := func(value float64) float64 {
		return float64(top) + panelHeight*(1-scale(max(value, lowest), lowest, highest))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" font-size="13">%s</text>`+"\n", left, top-12, c.title)
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#888"/>`+"\n",
		left, top, panelWidth, panelHeight)
	fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#888" stroke-dasharray="4"/>`+"\n",
		x(first.Clusters), y(c.of(first)), x(last.Clusters),
		y(c.of(first)*float64(last.Clusters)/float64(first.Clusters)))
	points := make([]string, len(runs))
	for i, r := range runs {
		points[i] = fmt.Sprintf("%.1f,%.1f", x(r.Clusters), y(c.of(r)))
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="#06c"/>`+"\n", x(r.Clusters), y(c.of(r)))
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n",
			x(r.Clusters), top+panelHeight+16, r.Clusters)
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n", x(r.Clusters)-5, y(c.of(r))-5,
			strings.TrimSpace(fmt.Sprintf("%.4g %s", c.of(r), c.unit)))
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="#06c" stroke-width="2"/>`+"\n", strings.Join(points, " "))
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">Clusters</text>`+"\n", left+panelWidth/2, top+panelHeight+34)
}
