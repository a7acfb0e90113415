package cli

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
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
	names := 0
	for _, path := range []string{"../contract/contract.go", "../contract/reasons.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if _, ok := n.(*ast.ImportSpec); ok {
				return false
			}
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
	}
	if names < 40 {
		t.Errorf("only %d names found in package contract", names)
	}
}

// TestReference_HasTheTableOfReasons compares the tables of both conditions with the one that the program reads. Each
// has its rows in the same order.
func TestReference_HasTheTableOfReasons(t *testing.T) {
	t.Parallel()
	_, text, _ := strings.Cut(reference(t), "\n## Condition\n")
	text, _, _ = strings.Cut(text, "\n## Events\n")
	configured, published, _ := strings.Cut(text, "\n`"+contract.ConditionProxyPublished+"`")
	listed := map[contract.Reason]bool{}
	for _, table := range []string{configured, published} {
		last := -1
		for _, row := range regexp.MustCompile("(?m)^\\| (True|False|Unknown) \\| `(\\w+)` \\| ([a-z ]+) \\|").FindAllStringSubmatch(table, -1) {
			reason := contract.Reason{Status: row[1], Name: row[2], Task: contract.Task(row[3])}
			at := slices.Index(contract.Reasons(), reason)
			if at <= last {
				t.Errorf("%v: there is no such reason, or it comes before the row above", reason)
			}
			listed[reason], last = true, at
		}
	}
	for _, reason := range contract.Reasons() {
		if !listed[reason] {
			t.Errorf("docs/reference.md has no row for %v", reason)
		}
	}
}
