package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/tables"
)

// maxImports is how many packages of the module one may import, longestChain how many import each other in a row, and
// mostPackages how many there are with the command. All of them shrink: a higher number than the real one is an error, too.
const (
	maxImports   = 13
	longestChain = 11
	mostPackages = 39
	// mostInCore is how many lines the core may have. It only falls.
	mostInCore = 15_000
)

// wholes are the functions that write a whole object, and which: never one of Cluster API. A cache does not keep it
// whole, and a later version of it may have more fields than our types: written back, it would lose them.
var wholes = map[string]string{
	"check.node":                    "a new Pod",
	"check.permissions":             "a SelfSubjectAccessReview",
	"check.rights":                  "a SelfSubjectAccessReview",
	"core/backoff.Create":           "what its callers write",
	"core/backoff.Update":           "what its callers write",
	"publish/publisher.create":      "a Secret, or another output",
	"publish/publisher.update":      "a Secret, or another output",
	"core/controller.replaceSecret": "a generated Secret",
	"core/controller.write":         "a generated Secret",
	"inplace.change":                "a Lease of a workload cluster",
	"inplace/agent.update":          "a Lease of its own cluster",
	"remote.write":                  "an object of the workload cluster",
	"check.admission":               "a new object, as a dry run",
	"fleet/preview.Create":          "what the pass writes, as a dry run",
	"fleet/preview.Update":          "what the pass writes, as a dry run",
}

// forms are the types that have the name of one of Cluster API's, and why.
var forms = map[string]string{
	"core/controller.Object":   "an object with the decision about it",
	"core/finding.Object":      "a row of the condition",
	"core/settings.Cluster":    "the settings of a Cluster, not its object",
	"core/settings.Pool":       "the settings of a pool, not its object",
	"offline/clusters.Cluster": "an object in its text, and its settings",
	"explain.Cluster":          "its destinations",
	"offline/manifest.Object":  "a part of a text",
	"core/plan.Object":         "the facts about an object that is decided about",
	"core/plan.Pool":           "the same, of a pool",
	"core/outdated.Machine":    "a row of the record",
	"remote.Object":            "an object in its text",
}

// memories are what the manager knows from one pass to the next, and what a crash loses of it.
var memories = map[string]string{
	"inplace.Step":           "the names of Nodes: they are read once more",
	"remote.Applier":         "what was applied lately: each object is compared once more",
	"remote.Clusters":        "which workload clusters answer: each is asked once more",
	"core/backoff.memory":    "what was written within two minutes: a few writes are repeated",
	"core/controller.memory": "its fields say it",
	"core/world.Memory":      "its fields say it",
}

// locked are types with a lock that no pass depends on, and why.
var locked = map[string]string{
	"cli/kit.ServerClock":  "the clock of one command",
	"remote.limited":       "the bytes that one connection may still read",
	"remote.limitedBody":   "the same",
	"core/settings.Parsed": "a field of world.Memory",
}

// libraries are what a library does for the product, the packages that may come near it, and the decision for each.
// Another one takes a decision in docs/development/adr that names the user whom the library hurts.
var libraries = []struct {
	what    *regexp.Regexp
	allowed map[string]string
}{
	{regexp.MustCompile(`\bhttp\.Server\{|\bhttp\.ListenAndServe|\bhttp\.Serve\(`), nil},
	{regexp.MustCompile(`\bsemaphore\.|\bnetutil\.`), nil},
	{regexp.MustCompile(`authentication\.k8s\.io|k8s\.io/api/authentication|x509\.CreateCertificate\(`), nil},
	{regexp.MustCompile(`\bcontainer/(heap|list|ring)"|\bworkqueue\.New|NewSharedI|tools/leaderelection|\bsingleflight\b`), nil},
	{regexp.MustCompile(`\.Token\(\)`), nil},
	{regexp.MustCompile(`\bjsontext\b|\bunsafe\.`), nil},
	{regexp.MustCompile(`func \(.*\) (DeepCopyObject|UnmarshalJSON)\(`), nil},
}

// TestTables_Costs has the lines of each folder below internal in docs/scope.md, rounded to hundreds. Only the core has a
// ceiling.
func TestTables_Costs(t *testing.T) {
	t.Parallel()
	lines, all := map[string]int{}, 0
	for name, files := range packages(t) {
		folder, _, _ := strings.Cut(name, "/")
		lines[folder] += linesOf(files)
		all += linesOf(files)
	}
	table := tables.Table{Page: "../docs/scope.md", Name: "costs"}
	rounded := func(count int) string { return strconv.Itoa((count + 50) / 100 * 100) }
	for _, folder := range slices.Sorted(maps.Keys(lines)) {
		table.Add("`"+folder+"`", rounded(lines[folder]))
	}
	table.Add("**all**", rounded(all))
	table.Compare(t)
	if lines["core"] > mostInCore {
		t.Errorf("the core has %d lines, at most %d: shorten it, or make what is new a capability", lines["core"], mostInCore)
	}
}

// TestHack_KeepsToItsLines holds the programs for developers to the lines that they may have with their tests.
func TestHack_KeepsToItsLines(t *testing.T) {
	t.Parallel()
	const most = 2200
	lines := 0
	eachFile(t, "../hack", func(path string) {
		if filepath.Ext(path) == ".go" {
			lines += strings.Count(read(t, path), "\n")
		}
	})
	if lines == 0 || lines > most {
		t.Errorf("hack/ has %d lines of Go, at most %d: use a tool of others, or a script", lines, most)
	}
}

// TestRooms_KeepToTheirImports holds how many packages of the module each imports, how long the longest chain is, and
// that no small package has one importer.
func TestRooms_KeepToTheirImports(t *testing.T) {
	t.Parallel()
	imports, importers := map[string][]string{}, map[string]int{}
	for path, one := range imported(t) {
		name := strings.TrimPrefix(path, modulePath)
		for _, path := range one.Imports {
			if other, ours := strings.CutPrefix(path, modulePath); ours {
				imports[name] = append(imports[name], other)
				importers[other]++
			}
		}
	}
	chains := map[string]int{}
	var chain func(string) int
	chain = func(name string) int {
		if chains[name] == 0 {
			for _, other := range imports[name] {
				chains[name] = max(chains[name], chain(other))
			}
			chains[name]++
		}
		return chains[name]
	}
	// The command is the first of the chain.
	if length := 1 + chain("cli"); length != longestChain {
		t.Errorf("the longest chain of imports has %d packages, want %d, which only falls", length, longestChain)
	}
	if count := len(packages(t)) + 1; count != mostPackages {
		t.Errorf("the module has %d packages, want %d, which only falls: make it part of another one", count, mostPackages)
	}
	for name, files := range packages(t) {
		if count := len(imports[name]); name != "cli" && name != "core/manager" && count > maxImports {
			t.Errorf("package %s imports %d of ours, want at most %d, which only falls", name, count, maxImports)
		}
		if lines := linesOf(files); lines < 100 && importers[name] == 1 {
			t.Errorf("package %s has %d lines and one importer: make it a file of that", name, lines)
		}
	}
}

// TestWholes_AreNotOfClusterAPI lists what is written other than by a JSON patch or a server-side apply of own fields.
func TestWholes_AreNotOfClusterAPI(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for name, files := range packages(t) {
		for _, file := range files {
			for _, declared := range file.syntax.Decls {
				function, ok := declared.(*ast.FuncDecl)
				if !ok {
					continue
				}
				ast.Inspect(function, func(n ast.Node) bool {
					call, ok := n.(*ast.CallExpr)
					if !ok || len(call.Args) < 2 {
						return true
					}
					method, ok := call.Fun.(*ast.SelectorExpr)
					if ok && types.ExprString(call.Args[0]) == "ctx" && (method.Sel.Name == "Create" || method.Sel.Name == "Update") {
						found[name+"."+function.Name.Name] = true
					}
					return true
				})
			}
		}
	}
	for name := range found {
		if wholes[name] == "" {
			t.Errorf("%s writes a whole object: patch it, or say in the list why it is none of Cluster API", name)
		}
	}
	for name := range wholes {
		if !found[name] {
			t.Errorf("%s writes no whole object any more: remove it from the list", name)
		}
	}
}

// TestForms_AreThoseOfClusterAPI holds one form of each object: no package has types with the names of objects.
func TestForms_AreThoseOfClusterAPI(t *testing.T) {
	t.Parallel()
	object := regexp.MustCompile(`^(Cluster|ClusterClass|Pool|Machine|MachineDeployment|MachinePool|Kubeadm(ControlPlane|Config)(Template)?|Object)$`)
	compare(t, forms, func(_ string, declared *ast.TypeSpec) bool {
		return object.MatchString(declared.Name.Name) && !declared.Assign.IsValid()
	}, "is a second form of an object: use Cluster API's type")
}

// TestInterfaces_AreNotEmbeddedByWrappers holds that a method that is added to an interface of ours does not compile until
// each reader has it: a struct that embeds the interface would pass it by. An interface without methods of its own,
// as kinds.BootstrapObject, is implemented by types of others and gets none.
func TestInterfaces_AreNotEmbeddedByWrappers(t *testing.T) {
	t.Parallel()
	interfaces, embedded := map[string]bool{}, map[string]string{}
	for folder, files := range packages(t) {
		name := filepath.Base(folder)
		for _, file := range files {
			ast.Inspect(file.syntax, func(n ast.Node) bool {
				switch of := n.(type) {
				case *ast.TypeSpec:
					methods, is := of.Type.(*ast.InterfaceType)
					interfaces[name+"."+of.Name.Name] = is &&
						slices.ContainsFunc(methods.Methods.List, func(method *ast.Field) bool { return len(method.Names) > 0 })
				case *ast.StructType:
					for _, field := range of.Fields.List {
						if of := types.ExprString(field.Type); len(field.Names) == 0 {
							embedded[of], embedded[name+"."+of] = folder, folder
						}
					}
				}
				return true
			})
		}
	}
	if !interfaces["settings.SecretReader"] {
		t.Error("settings.SecretReader is not found")
	}
	for of, folder := range embedded {
		if interfaces[of] {
			t.Errorf("package %s embeds %s: make it a field with a name, or do without the wrapper", folder, of)
		}
	}
}

// TestMemories_HaveAnOwner lists the types that outlive a call and change: those with a lock, and reconcilers and servers
// with a map. The linter forbids variables of packages.
func TestMemories_HaveAnOwner(t *testing.T) {
	t.Parallel()
	lock := regexp.MustCompile(`sync\.(Mutex|RWMutex|Map)|atomic\.[A-Z]|\.Expiring|\.LRU`)
	served := map[string]bool{}
	for name, files := range packages(t) {
		for _, file := range files {
			for _, declaration := range file.syntax.Decls {
				method, ok := declaration.(*ast.FuncDecl)
				if ok && method.Recv != nil && slices.Contains([]string{"Reconcile", "Handle", "ServeHTTP", "Start"}, method.Name.Name) {
					served[name+"."+strings.TrimPrefix(types.ExprString(method.Recv.List[0].Type), "*")] = true
				}
			}
		}
	}
	listed := maps.Clone(memories)
	maps.Copy(listed, locked)
	compare(t, listed, func(name string, declared *ast.TypeSpec) bool {
		composed, ok := declared.Type.(*ast.StructType)
		return ok && slices.ContainsFunc(composed.Fields.List, func(field *ast.Field) bool {
			of := types.ExprString(field.Type)
			return lock.MatchString(of) || served[name+"."+declared.Name.Name] && strings.HasPrefix(of, "map[")
		})
	}, "is a memory: make it a field of world.Memory that says what a crash loses, or compute it in each reconcile")
}

// TestLibraries_AreReplacedByDecisionOnly looks for what was once written in place of a library, or easily is.
func TestLibraries_AreReplacedByDecisionOnly(t *testing.T) {
	t.Parallel()
	for _, library := range libraries {
		for name, files := range packages(t) {
			decision := library.allowed[name]
			if found, err := filepath.Glob("../docs/development/adr/" + decision + "-*.md"); decision != "" && len(found) != 1 {
				t.Errorf("package %s: no decision %s (%v)", name, decision, err)
			}
			uses := slices.IndexFunc(files, func(file source) bool { return library.what.MatchString(file.text) })
			if uses >= 0 && decision == "" {
				t.Errorf("package %s has %q: use the library, or write a decision", name, library.what.FindString(files[uses].text))
			}
			if uses < 0 && decision != "" {
				t.Errorf("package %s has nothing like %s any more: remove it from the list", name, library.what)
			}
		}
	}
}

// TestContributing_NamesFilesThatExist follows the table of questions.
func TestContributing_NamesFilesThatExist(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(read(t, "../CONTRIBUTING.md"), "| question |")
	table, _, _ = strings.Cut(table, "\n\n")
	if rows := strings.Count(table, "? |"); rows != 17 {
		t.Errorf("%d questions, want 17", rows)
	}
	for _, file := range regexp.MustCompile("`([a-z]+/[a-z/_.]+)`").FindAllStringSubmatch(table, -1) {
		if _, err := os.Stat(file[1]); err != nil {
			t.Error(err)
		}
	}
}

// TestTestingPage_NamesTestsThatExist: the page says which test holds a bug.
func TestTestingPage_NamesTestsThatExist(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, folder := range []string{"../internal", "../test"} {
		eachFile(t, folder, func(path string) {
			if strings.HasSuffix(path, "_test.go") {
				code.WriteString(read(t, path))
			}
		})
	}
	for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(read(t, "../docs/development/testing.md"), -1) {
		if !strings.Contains(code.String(), "\nfunc "+name+"(") {
			t.Errorf("docs/development/testing.md names %s, which does not exist", name)
		}
	}
}

// source is a Go file without tests.
type source struct {
	text   string
	syntax *ast.File
}

func linesOf(files []source) (lines int) {
	for _, file := range files {
		lines += strings.Count(file.text, "\n")
	}
	return lines
}

// packages returns the source below internal by package, without what is generated.
func packages(t *testing.T) map[string][]source {
	t.Helper()
	found, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var parsed = sync.OnceValues(func() (map[string][]source, error) {
	found := map[string][]source{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		name := filepath.Base(path)
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
			strings.HasPrefix(name, "zz_generated") || strings.Contains(path, "testdata") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		folder := filepath.ToSlash(filepath.Dir(path))
		found[folder] = append(found[folder], source{string(text), syntax})
		return err
	})
	return found, err
})

// compare compares the types that are of a sort with those that are listed.
func compare(t *testing.T, listed map[string]string, of func(string, *ast.TypeSpec) bool, advice string) {
	t.Helper()
	found := map[string]bool{}
	for name, files := range packages(t) {
		for _, file := range files {
			ast.Inspect(file.syntax, func(n ast.Node) bool {
				if declared, ok := n.(*ast.TypeSpec); ok && of(name, declared) {
					found[name+"."+declared.Name.Name] = true
				}
				return true
			})
		}
	}
	for name := range found {
		if listed[name] == "" {
			t.Errorf("%s %s", name, advice)
		}
	}
	for name := range listed {
		if !found[name] {
			t.Errorf("%s is gone: remove it from the list", name)
		}
	}
}
