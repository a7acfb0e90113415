package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/output"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/tables"
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

func TestReference_HasEveryNameOfTheContract(t *testing.T) {
	t.Parallel()
	text := reference(t)
	names := 0
	for _, path := range []string{"../../internal/core/contract/contract.go", "../../internal/core/contract/reasons.go"} {
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

// TestTables_OfFlags compares docs/reference.md. The table of a command has the flags of its commands, too.
func TestTables_OfFlags(t *testing.T) {
	for _, cmd := range cli.NewRoot(kit.Streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}, capabilities()...).Commands() {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		table := tables.Table{Page: "../../docs/reference.md", Name: "flags of " + cmd.Name(), AnyOrder: true}
		for _, each := range append([]*cobra.Command{cmd}, cmd.Commands()...) {
			each.LocalFlags().VisitAll(func(f *pflag.Flag) {
				name := "`--" + f.Name + "`"
				if f.Shorthand != "" {
					name = "`-" + f.Shorthand + "`, " + name
				}
				if f.Name != "help" {
					table.Add(name)
				}
			})
		}
		table.Compare(t)
	}
}

// TestTables_OfReasons compares docs/reference.md. A reason is one of ProxyConfigured unless it is named here.
func TestTables_OfReasons(t *testing.T) {
	both := []string{
		contract.ReasonInternalError, contract.ReasonInvalidSettings, contract.ReasonSettingsNotFound, contract.ReasonNameTaken,
		contract.ReasonTooLarge, contract.ReasonWaitingForEndpoint,
	}
	published := append([]string{
		output.ReasonPublished, output.ReasonInvalidOutput, output.ReasonCredentialsWithheld, output.ReasonKubernetesTooOld,
		output.ReasonDeliveryFailed, output.ReasonDelivering, output.ReasonWithdrawing,
	}, both...)
	tableOf := map[bool]*tables.Table{
		false: {Page: "../../docs/reference.md", Name: "reasons of ProxyConfigured", Key: 1},
		true:  {Page: "../../docs/reference.md", Name: "reasons of ProxyPublished", Key: 1},
	}
	for _, r := range contract.Reasons() {
		tableOf[slices.Contains(published, r.Name)].Add(r.Status, "`"+r.Name+"`", string(r.Task))
		if slices.Contains(both, r.Name) {
			tableOf[false].Add(r.Status, "`"+r.Name+"`", string(r.Task))
		}
	}
	tableOf[false].Compare(t)
	tableOf[true].Compare(t)
}
