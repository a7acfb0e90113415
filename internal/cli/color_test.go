package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestColorIsForTerminalsThatWantIt(t *testing.T) {
	device, err := os.Open(os.DevNull) // a character device, as a terminal is
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = device.Close() }()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, test := range []struct {
		name          string
		out           any
		noColor, term string
		want          bool
	}{
		{"a terminal", device, "", "xterm", true},
		{"a terminal whose user wants none", device, "1", "xterm", false},
		{"a terminal without any", device, "", "dumb", false},
		{"a file", file, "", "xterm", false},
		{"a buffer", &bytes.Buffer{}, "", "xterm", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("NO_COLOR", test.noColor)
			t.Setenv("TERM", test.term)
			if got := colorful(test.out); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
