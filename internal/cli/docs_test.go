package cli

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// reference returns docs/reference.md.
func reference(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReference_HasEveryFlag(t *testing.T) {
	t.Parallel()
	text := reference(t)
	for _, cmd := range newRoot(Streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}).Commands() {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		_, section, found := strings.Cut(text, "### `capi-proxy-patcher "+cmd.Name()+"`")
		if !found {
			t.Errorf("no section for %s", cmd.Name())
			continue
		}
		section, _, _ = strings.Cut(section, "\n### ")
		checkFlags(t, cmd, section)
	}
}

func checkFlags(t *testing.T, cmd *cobra.Command, section string) {
	t.Helper()
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && !strings.Contains(section, "`--"+f.Name+"`") {
			t.Errorf("%s --%s is not in its section", cmd.Name(), f.Name)
		}
	})
	for _, sub := range cmd.Commands() {
		if !strings.Contains(section, "`"+sub.Name()+"`") {
			t.Errorf("%s is not in the section of %s", sub.Name(), cmd.Name())
		}
		checkFlags(t, sub, section)
	}
}

func TestReference_HasEveryNameOfTheContract(t *testing.T) {
	t.Parallel()
	text := reference(t)
	file, err := parser.ParseFile(token.NewFileSet(), "../contract/contract.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		names++
		if !strings.Contains(text, value) {
			t.Errorf("%q is not in docs/reference.md", value)
		}
		return true
	})
	if names < 40 {
		t.Errorf("only %d names found in package contract", names)
	}
}
