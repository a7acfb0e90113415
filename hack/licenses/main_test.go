package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestClassify_KnowsLicences(t *testing.T) {
	t.Parallel()
	own, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	const bsd = "Redistribution and use in source and binary forms, with or\n// without modification, are permitted"
	for text, want := range map[string][]string{
		string(own): {"Apache-2.0"},
		strings.ReplaceAll("Permission is hereby granted, free of charge,\n\tto any person obtaining a copy", " ", "\r\n "): {"MIT"},
		strings.ReplaceAll(bsd, "// ", ""):                                                   {"BSD-2-Clause"},
		strings.ReplaceAll(bsd, "// ", "") + " Neither the name of the copyright holder":     {"BSD-3-Clause"},
		"Permission to use, copy, modify, and distribute this software for any purpose with": {"ISC"},
		"GNU AFFERO GENERAL PUBLIC LICENSE\n Version 3, 19 November 2007":                    {"AGPL-3.0"},
		"GNU GENERAL PUBLIC LICENSE\n Version 2, June 1991":                                  {"GPL"},
		"Mozilla Public License Version 2.0":                                                 {"MPL-2.0"},
		"All rights reserved.":                                                               nil,
		"":                                                                                   nil,
	} {
		if got := classify(text); !slices.Equal(got, want) {
			t.Errorf("%.60q is %q, want %q", text, got, want)
		}
	}
}

func TestOfFolder_RefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files map[string]string
		want  string // part of the error
	}{
		"no licence":           {map[string]string{"README.md": "MIT"}, "there is no licence"},
		"an unknown licence":   {map[string]string{"LICENSE": "do no evil"}, "the licence in LICENSE is not known"},
		"an unknown second":    {map[string]string{"LICENSE": "mozilla public license version 2.0", "COPYING.x": "?"}, "COPYING.x is not known"},
		"a known one":          {map[string]string{"licence.txt": "mozilla public license version 2.0"}, ""},
		"a folder of licences": {map[string]string{"LICENSES/MIT.txt": "?"}, "there is no licence"},
	} {
		folder := t.TempDir()
		for file, text := range test.files {
			path := filepath.Join(folder, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := ofFolder(folder)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
