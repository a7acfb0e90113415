// Command testsummary reads the events of go test -json from standard input and prints what a reader of a log wants:
// one line for each package, the output of failing tests, and the skipped tests with their reasons.
//
//	go test -json ./... | testsummary -counts out/test-counts
//
// It counts leaves: a test without subtests, and every subtest without subtests of its own. A test with subtests counts
// through them, unless it fails although none of them did. What started and never ended has failed. A package counts as
// one more failure if it fails without a failing test, because it does not build or panics outside of a test.
//
// The exit status is 1 if anything failed. With pipefail the exit status of go test itself is not lost either.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	file := flag.String("counts", os.DevNull, "`file` to append \"passed failed skipped\" to")
	flag.Parse()
	total, err := summarize(os.Stdin, os.Stdout)
	if err == nil {
		err = appendLine(*file, fmt.Sprintln(total.passed, total.failed, total.skipped))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsummary:", err)
	}
	if err != nil || total.failed > 0 {
		os.Exit(1)
	}
}

func appendLine(name, line string) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the file is an argument of the one who runs this
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

// event is one line of go test -json; see go doc test2json and go help buildjson.
type event struct{ Action, Package, Test, Output string }

// test is a test, or with the empty name the package that the others belong to.
type test struct {
	name           string
	output         []string
	result         string // "pass", "fail" or "skip"; empty if it never ended
	parent, blamed bool   // has tests below it; one of them failed
}

// suite is a package: its tests in the order of their start, the package itself first.
type suite struct {
	tests  []*test
	byName map[string]*test
}

// counts are leaves; see the package comment.
type counts struct{ passed, failed, skipped int }

// summarize prints each package to w when it ends, and the skipped tests at the end. Lines that are not events, such as
// messages of go itself, are printed unchanged.
func summarize(r io.Reader, w io.Writer) (counts, error) {
	var total counts
	var skips, order []string
	packages := map[string]*suite{}
	report := func(name string) {
		skips = append(skips, end(w, name, packages[name], &total)...)
		delete(packages, name)
	}
	for lines := bufio.NewReader(r); ; {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case json.Unmarshal(line, &e) != nil || e.Action == "":
			_, _ = w.Write(line)
		case e.Action == "build-output":
			_, _ = io.WriteString(w, e.Output)
		case e.Package != "":
			if packages[e.Package] == nil {
				packages[e.Package] = &suite{byName: map[string]*test{}}
				packages[e.Package].add(event{})
				order = append(order, e.Package)
			}
			packages[e.Package].add(e)
			if packages[e.Package].tests[0].result != "" {
				report(e.Package)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return total, fmt.Errorf("reading events: %w", err)
		}
	}
	for _, name := range order {
		if packages[name] != nil {
			report(name)
			_, _ = fmt.Fprintf(w, "FAIL\t%s [no result]\n", name)
		}
	}
	for _, skip := range skips {
		_, _ = fmt.Fprintf(w, "SKIP\t%s\n", skip)
	}
	return total, nil
}

// add takes an event of the package.
func (s *suite) add(e event) {
	t := s.byName[e.Test]
	if t == nil {
		t = &test{name: e.Test}
		s.tests = append(s.tests, t)
		s.byName[e.Test] = t
		s.parent(t).parent = true
	}
	switch e.Action {
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") { // RUN, PAUSE, CONT, NAME
			t.output = append(t.output, e.Output)
		}
	case "pass", "fail", "skip":
		t.result = e.Action
	}
}

// parent returns the nearest test that t is below of: slashes also occur inside of names.
func (s *suite) parent(t *test) *test {
	for i := strings.LastIndexByte(t.name, '/'); i >= 0; i = strings.LastIndexByte(t.name[:i], '/') {
		if up := s.byName[t.name[:i]]; up != nil {
			return up
		}
	}
	return s.tests[0]
}

// end counts the tests of a package, prints what there is to say and returns a line for each skipped test.
func end(w io.Writer, name string, s *suite, total *counts) (skips []string) {
	pkg := s.tests[0]
	for _, t := range slices.Backward(s.tests) { // A test starts before those below it.
		failed := t.result == "fail" || t.result == ""
		if up := s.parent(t); t != pkg {
			up.blamed = up.blamed || failed
		}
		switch {
		case failed && !t.blamed:
			total.failed++
		case failed || t.parent || t == pkg:
		case t.result == "skip":
			total.skipped++
			skips = append(skips, fmt.Sprintf("%s %s: %s", name, t.name, reason(t.output)))
		default:
			total.passed++
		}
	}
	for _, t := range slices.Concat(s.tests[1:], s.tests[:1]) {
		for _, line := range t.output {
			if t.result != "pass" && t.result != "skip" && line != "FAIL\n" || isResult(line) {
				_, _ = io.WriteString(w, line)
			}
		}
	}
	slices.Reverse(skips)
	return skips
}

// isResult reports whether a line of a package's output is its result; a failing one is printed anyway.
func isResult(line string) bool {
	return strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "?   \t")
}

// reason returns on one line what a skipped test said.
func reason(output []string) string {
	output = slices.DeleteFunc(slices.Clone(output), func(line string) bool {
		return strings.Contains(line, "--- SKIP: ")
	})
	if said := strings.Join(strings.Fields(strings.Join(output, " ")), " "); said != "" {
		return said
	}
	return "no reason given"
}
