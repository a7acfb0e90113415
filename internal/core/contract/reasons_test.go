package contract_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// TestReasons_HaveARow reads the constants from the source: a reason without a row would have no status, and would come
// before all others.
func TestReasons_HaveARow(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared, rows []string
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Reason") {
				name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				declared = append(declared, name)
			}
			return true
		})
	}
	for _, r := range contract.Reasons() {
		rows = append(rows, r.Name)
		if contract.ReasonOf(r.Name) != r {
			t.Errorf("%s has two rows", r.Name)
		}
		statuses := map[contract.Task][]string{
			contract.TaskNone: {"True"}, contract.TaskWait: {"Unknown"}, contract.TaskRollOut: {"False"},
			contract.TaskCorrect: {"False"}, contract.TaskAct: {"False", "Unknown"},
		}
		if !slices.Contains(statuses[r.Task], r.Status) {
			t.Errorf("%s asks the user to %q, and has status %q", r.Name, r.Task, r.Status)
		}
	}
	for _, name := range declared {
		if !slices.Contains(rows, name) {
			t.Errorf("reason %s has no row", name)
		}
	}
	if len(declared) < 15 {
		t.Errorf("reasons %q", declared)
	}
}
