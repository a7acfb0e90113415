package main

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sources returns every file of the program, parsed.
func sources(t *testing.T) []*ast.File {
	t.Helper()
	var files []*ast.File
	err := filepath.WalkDir("../../internal", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		files = append(files, file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// literal returns the text of a string literal.
func literal(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	return constant.StringVal(constant.MakeFromLiteral(l.Value, l.Kind, 0)), true
}

// isCode reports whether an expression is the type of codes.
func isCode(e ast.Expr, in string) bool {
	if selector, ok := e.(*ast.SelectorExpr); ok {
		from, ok := selector.X.(*ast.Ident)
		return ok && from.Name == "finding" && selector.Sel.Name == "Code"
	}
	name, ok := e.(*ast.Ident)
	return ok && in == "finding" && name.Name == "Code"
}

// namesOf returns the reasons, events and codes that a file defines. A code may also be written where it is used.
func namesOf(file *ast.File) (names []string) {
	add := func(e ast.Expr) {
		if text, ok := literal(e); ok {
			names = append(names, text)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, name := range n.Names {
				ofContract := slices.Contains([]string{"contract", "output", "inplace"}, file.Name.Name) &&
					(strings.HasPrefix(name.Name, "Reason") || strings.HasPrefix(name.Name, "Event"))
				if i < len(n.Values) && (ofContract || isCode(n.Type, file.Name.Name)) {
					add(n.Values[i])
				}
			}
		case *ast.CallExpr:
			if name, ok := n.Fun.(*ast.SelectorExpr); len(n.Args) > 0 && (isCode(n.Fun, file.Name.Name) ||
				ok && name.Sel.Name == "Rejection") {
				add(n.Args[0])
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Code" {
				add(n.Value)
			}
		}
		return true
	})
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// textsOf returns the texts in a file: literals, those that are joined with plus as one. What is not constant in them
// is a NUL.
func textsOf(file *ast.File) (texts []string) {
	var joined func(e ast.Expr) string
	joined = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BinaryExpr:
			if e.Op == token.ADD {
				return joined(e.X) + joined(e.Y)
			}
		case *ast.BasicLit:
			if text, ok := literal(e); ok {
				return verb.ReplaceAllString(text, "\x00")
			}
		}
		return "\x00"
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch e := n.(type) {
		case *ast.BinaryExpr:
			texts = append(texts, joined(e))
		case *ast.BasicLit:
			texts = append(texts, joined(e))
		}
		return true
	})
	return texts
}

var (
	verb    = regexp.MustCompile(`%[.0-9]*[sdqvt]`)
	section = regexp.MustCompile("(?m)^### `([^`]+)`\n\n((?:.+\n)+)")
)

// TestTroubleshooting_HasEveryReasonEventAndCode reads the names from the source, so that a new one needs a section.
func TestTroubleshooting_HasEveryReasonEventAndCode(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var said strings.Builder
	for _, file := range sources(t) {
		names = append(names, namesOf(file)...)
		said.WriteString(strings.Join(textsOf(file), "\n") + "\n")
	}
	outputs, err := filepath.Glob("../../internal/publish/output/outputs/*.yaml")
	if err != nil || len(outputs) == 0 {
		t.Fatal(outputs, err)
	}
	for _, file := range outputs { // templates say why they refuse
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		said.Write(text)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	// No finding has it: render counts Clusters with it, in words.
	names = slices.DeleteFunc(names, func(name string) bool { return name == "variables" })
	if len(names) < 65 {
		t.Errorf("only %d names in the source: %q", len(names), names)
	}
	parts := section.FindAllStringSubmatch(string(text), -1)
	for _, name := range names {
		if n := strings.Count(string(text), "\n### `"+name+"`\n"); n != 1 {
			t.Errorf("docs/troubleshooting.md has %d sections for %s, want one", n, strconv.Quote(name))
		}
	}
	for _, part := range parts {
		if !slices.Contains(names, part[1]) {
			t.Errorf("there is a section for %s, which is neither a reason nor an event nor a code", part[1])
		}
		checkSection(t, part[1], part[2], said.String())
	}
	if strings.Count(string(text), "\n### ") != len(parts) {
		t.Error("a section has no text")
	}
}

// checkSection checks that a section has what is seen and what to do, with or without why, and that the program can say
// what it quotes.
func checkSection(t *testing.T, name, text, said string) {
	t.Helper()
	text, hasSeen := strings.CutPrefix(strings.Join(strings.Fields(text), " "), "- Seen: ")
	seen, do, hasDo := strings.Cut(text, " - Do: ")
	seen, why, hasWhy := strings.Cut(seen, " - Why: ")
	if !hasSeen || !hasDo || len(seen) < 10 || hasWhy && len(why) < 10 || len(do) < 5 {
		t.Errorf("%s: the section does not say what is seen and what to do", name)
	}
	for _, quote := range codeSpan.FindAllString(seen, -1) {
		for piece := range strings.SplitSeq(strings.Trim(quote, "`"), "…") {
			if piece = strings.Trim(piece, " "); !strings.Contains(said, strings.Trim(piece, ";")) {
				t.Errorf("%s: nothing says %q", name, piece)
			}
		}
	}
}

// TestTexts_ArePlainEnglish keeps phrases out that people did not understand, from help, conditions and fixes.
func TestTexts_ArePlainEnglish(t *testing.T) {
	t.Parallel()
	unclear := regexp.MustCompile(`\b(looked at although|took the place|come back with|everybody may|none of both|` +
		`(files|commands) of the user|such a one|blanks?|is no (name|version|network|host)|has to be looked|should be here|broken off|of before|[Ww]ho may|[Ww]hoever|` +
		`a change would replace|tried again by|left alone|are behind the|any more that|is published before)\b`)
	for _, file := range sources(t) {
		for _, text := range textsOf(file) {
			if found := unclear.FindString(text); found != "" {
				t.Errorf("package %s says %q in %q", file.Name.Name, found, text)
			}
		}
	}
}

// TestFindings_NeverShowACodeAlone checks that every finding with a code has a sentence as well.
func TestFindings_NeverShowACodeAlone(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, file := range sources(t) {
		assigns := false // a message that is chosen after the finding is made
		ast.Inspect(file, func(n ast.Node) bool {
			if assign, ok := n.(*ast.AssignStmt); ok {
				to, ok := assign.Lhs[0].(*ast.SelectorExpr)
				assigns = assigns || ok && to.Sel.Name == "Message"
			}
			return true
		})
		ast.Inspect(file, func(n ast.Node) bool {
			var keys []string
			switch n := n.(type) {
			case *ast.CompositeLit:
				for _, element := range n.Elts {
					if pair, ok := element.(*ast.KeyValueExpr); ok {
						if key, ok := pair.Key.(*ast.Ident); ok {
							keys = append(keys, key.Name)
						}
					}
				}
			case *ast.CallExpr:
				name, ok := n.Fun.(*ast.SelectorExpr)
				if ok && name.Sel.Name == "Rejection" && len(n.Args) == 4 {
					checked++
					if text, ok := literal(n.Args[2]); ok && text == "" {
						t.Errorf("package %s: a rejection without a sentence", file.Name.Name)
					}
				}
			}
			if slices.Contains(keys, "Code") {
				if checked++; !slices.Contains(keys, "Message") && !assigns {
					t.Errorf("package %s: a finding has %v and no sentence", file.Name.Name, keys)
				}
			}
			return true
		})
	}
	if checked < 20 {
		t.Errorf("only %d findings", checked)
	}
}
