package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestProgram_CallsNoMethodByAVariableName holds the program to what lets the linker leave out methods that nothing
// calls: without it the program is a quarter larger. text/template is what mostly brings such calls.
func TestProgram_CallsNoMethodByAVariableName(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-dumpdep", "-o", filepath.Join(t.TempDir(), "program"), ".")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%.1000s", err, said.String())
	}
	if !bytes.Contains(said.Bytes(), []byte("main.main -> ")) {
		t.Fatalf("the linker lists no dependencies: %.1000s", said.String())
	}
	if found := regexp.MustCompile(`\S+ <ReflectMethod>`).Find(said.Bytes()); found != nil {
		t.Errorf("the linker keeps every method because of %s", found)
	}
}
