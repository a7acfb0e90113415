// Command licenses fails if a module that is linked into a program has a licence that is not allowed, or one that it
// does not know.
//
//	go run ./hack/licenses ./cmd/...
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

// allowed are the SPDX names of licences that ask for a notice and nothing else.
func allowed() []string { return []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"} }

// run checks the modules of packages and prints how many have which licence.
func run(out io.Writer, packages []string) error {
	folders, err := modules(packages)
	if err != nil {
		return err
	}
	var problems []error
	counts := map[string]int{}
	for _, module := range slices.Sorted(maps.Keys(folders)) {
		found, err := ofFolder(folders[module])
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", module, err))
			continue
		}
		counts[strings.Join(found, " AND ")]++
		for _, name := range found {
			if !slices.Contains(allowed(), name) {
				problems = append(problems, fmt.Errorf("%s: licence %s is not allowed", module, name))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		_, _ = fmt.Fprintf(out, "%4d %s\n", counts[name], name)
	}
	return errors.Join(problems...)
}

// modules returns the folders of the modules that packages are linked with, by path and version.
func modules(packages []string) (map[string]string, error) {
	list := exec.Command("go", append([]string{ //nolint:gosec,noctx // the arguments of this command
		"list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}@{{.Version}}\t{{.Dir}}{{end}}{{end}}",
	}, packages...)...)
	list.Stderr = os.Stderr
	text, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing modules: %w", err)
	}
	folders := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if module, folder, found := strings.Cut(lines.Text(), "\t"); found {
			folders[module] = folder
		}
	}
	if len(folders) == 0 {
		return nil, errors.New("no module is linked")
	}
	return folders, nil
}

// ofFolder returns the licences in the top folder of a module.
func ofFolder(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	isLicense := regexp.MustCompile(`(?i)^(un)?licen[cs]e|^copying`)
	var found []string
	for _, entry := range entries {
		if entry.IsDir() || !isLicense.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, entry.Name())) //nolint:gosec // of the module cache
		if err != nil {
			return nil, err
		}
		names := classify(string(text))
		if len(names) == 0 {
			return nil, fmt.Errorf("the licence in %s is not known", entry.Name())
		}
		found = append(found, names...)
	}
	if len(found) == 0 {
		return nil, errors.New("there is no licence")
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// classify returns the SPDX names of the licences in a text, in alphabetical order.
func classify(text string) []string {
	text = strings.Join(strings.Fields(strings.ToLower(text)), " ")
	var found []string
	for name, phrase := range map[string]string{
		"AGPL-3.0":     "gnu affero general public license version 3",
		"Apache-2.0":   "apache license version 2.0, january 2004",
		"BUSL-1.1":     "business source license 1.1",
		"EPL-2.0":      "eclipse public license - v 2.0",
		"GPL":          "gnu general public license version",
		"ISC":          "permission to use, copy, modify, and/or distribute this software for any purpose",
		"LGPL":         "gnu lesser general public license",
		"MIT":          "permission is hereby granted, free of charge, to any person obtaining a copy",
		"MPL-2.0":      "mozilla public license version 2.0",
		"SSPL-1.0":     "server side public license",
		"BSD-3-Clause": "redistribution and use in source and binary forms, with or without modification",
	} {
		switch {
		case !strings.Contains(text, phrase):
		case name == "BSD-3-Clause" && !strings.Contains(text, "neither the name"):
			found = append(found, "BSD-2-Clause")
		default:
			found = append(found, name)
		}
	}
	// Older texts of ISC say "and" or "or".
	if !slices.Contains(found, "ISC") &&
		strings.Contains(text, "permission to use, copy, modify, and distribute this software for any purpose") {
		found = append(found, "ISC")
	}
	slices.Sort(found)
	return found
}
