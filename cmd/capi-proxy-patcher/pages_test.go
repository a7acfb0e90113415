package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
)

const repository = "../.."

// pages returns the text of every Markdown file of the repository by its path from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(repository, func(path string, entry os.DirEntry, err error) error {
		name, _ := filepath.Rel(repository, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "out", ".demo"}, name):
			return filepath.SkipDir
		case !entry.IsDir() && filepath.Ext(name) == ".md":
			text, err := os.ReadFile(path) //nolint:gosec // a page of this repository
			found[name] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 20 {
		t.Fatalf("only %d pages", len(found))
	}
	return found
}

// codeOf returns the lines of code of a page, those of a block joined to one text, and the page without them.
func codeOf(page string) (blocks []string, rest string) {
	var block, text strings.Builder
	flush := func() {
		if block.Len() > 0 {
			blocks = append(blocks, block.String())
			block.Reset()
		}
	}
	fenced, shell := false, false
	for line := range strings.Lines(page) {
		language, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence:
			fenced = !fenced
			shell = fenced && slices.Contains([]string{"", "sh", "bash"}, language)
			flush()
		case fenced && shell, !fenced && strings.HasPrefix(line, "    "):
			block.WriteString(line)
		case !fenced:
			flush()
			text.WriteString(line)
		}
	}
	flush()
	return blocks, text.String()
}

var (
	codeSpan = regexp.MustCompile("`[^`]*`")
	heading  = regexp.MustCompile(`(?m)^#{1,6} +(.*)$`)
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// anchors returns the anchors of the headings of a page, as GitHub makes them.
func anchors(page string) map[string]bool {
	_, text := codeOf(page)
	found := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		var anchor strings.Builder
		for _, r := range strings.ToLower(strings.TrimSpace(match[1])) {
			switch {
			case r == ' ':
				anchor.WriteByte('-')
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				anchor.WriteRune(r)
			}
		}
		found[anchor.String()] = true
	}
	return found
}

func TestPages_LinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	all := pages(t)
	checked := 0
	for name, page := range all {
		_, text := codeOf(page)
		for _, match := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(text, ""), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			checked++
			path, anchor, hasAnchor := strings.Cut(match[1], "#")
			target := name
			if path != "" {
				target = filepath.Join(filepath.Dir(name), path)
			}
			if _, err := os.Stat(filepath.Join(repository, target)); err != nil {
				t.Errorf("%s: link %s leads nowhere", name, match[1])
			} else if hasAnchor && !anchors(all[target])[anchor] {
				t.Errorf("%s: link %s: %s has no such heading", name, match[1], target)
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d links", checked)
	}
}

// wordsOf splits a line of shell into commands, and these into words. Quotes hold words together; brackets of a synopsis
// are dropped, and so are comments and a redirection at the end.
func wordsOf(line string) (commands [][]string) {
	var words []string
	var word strings.Builder
	quote, inWord := rune(0), false
	endWord := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	endCommand := func() {
		endWord()
		if i := slices.Index(words, ">"); i >= 0 {
			words = words[:i]
		}
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == '#' && !inWord:
			endCommand()
			return commands
		case strings.ContainsRune("|;&()\n", r):
			endCommand()
		case unicode.IsSpace(r) || r == '[' || r == ']':
			endWord()
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	endCommand()
	return commands
}

// commandsOf returns the commands that a page shows, in blocks and in text.
func commandsOf(page string) (commands [][]string) {
	blocks, text := codeOf(page)
	for _, block := range blocks {
		for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
			commands = append(commands, wordsOf(line)...)
		}
	}
	for _, span := range codeSpan.FindAllString(text, -1) {
		commands = append(commands, wordsOf(strings.Trim(strings.ReplaceAll(span, "\n", " "), "`"))...)
	}
	return commands
}

// checkProgram parses a command line of this program with its real flags.
func checkProgram(args []string) error {
	streams := kit.Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}
	root := cli.NewRoot(streams, capabilities()...)
	root.InitDefaultCompletionCmd(args...)
	root.SetArgs(args)
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Run, cmd.RunE, cmd.PreRunE, cmd.PersistentPreRunE = func(*cobra.Command, []string) {}, nil, nil, nil
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	for _, sub := range root.Commands() {
		walk(sub)
	}
	return root.Execute()
}

func TestPages_ShowCommandsThatExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	checked := map[string]int{}
	for name, page := range pages(t) {
		if name == "CHANGELOG.md" { // it names what was removed, too
			continue
		}
		for _, words := range commandsOf(page) {
			program := filepath.Base(words[0])
			if program == "kubectl" && len(words) > 1 && words[1] == "capi-proxy" {
				program, words = "capi-proxy-patcher", words[1:]
			}
			switch program {
			case "capi-proxy-patcher":
				err = checkProgram(words[1:])
			case "make":
				err = checkMake(string(makefile), words[1:])
			case "kubectl":
				err = checkFolder(words)
			default:
				continue
			}
			if checked[program]++; err != nil {
				t.Errorf("%s: %q: %v", name, words, err)
			}
		}
	}
	for program, least := range map[string]int{"capi-proxy-patcher": 30, "make": 30, "kubectl": 10} {
		if checked[program] < least {
			t.Errorf("only %d commands of %s", checked[program], program)
		}
	}
}

// checkMake checks that targets and variables of a call of make are those of the Makefile.
func checkMake(makefile string, words []string) error {
	for _, word := range words {
		name, _, isVariable := strings.Cut(word, "=")
		switch {
		case isVariable && !strings.Contains(makefile, "$("+name+")"):
			return fmt.Errorf("the Makefile reads no variable %s", name)
		case !isVariable && !strings.HasPrefix(word, "-") && !strings.Contains(makefile, "\n.PHONY: "+word+"\n"):
			return fmt.Errorf("the Makefile has no target %s", word)
		}
	}
	return nil
}

// checkFolder checks that the folder that kubectl builds has a kustomization.
func checkFolder(words []string) error {
	for i, word := range words[:len(words)-1] {
		if word != "-k" && word != "kustomize" {
			continue
		}
		folder := strings.TrimPrefix(words[i+1], "path/to/")
		if _, err := os.Stat(filepath.Join(repository, folder, "kustomization.yaml")); err != nil {
			return err
		}
	}
	return nil
}

// TestPages_ShowShellThatParses reads the blocks of a page that begin with a program as bash does.
func TestPages_ShowShellThatParses(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	programs := []string{"capi-proxy-patcher", "kubectl", "make", "clusterctl", "flux", "argocd", "cat", "sha256sum"}
	checked := 0
	for name, page := range pages(t) {
		blocks, _ := codeOf(page)
		for _, block := range blocks {
			if first := strings.Fields(block); !slices.Contains(programs, first[0]) || strings.Contains(block, "...") {
				continue
			}
			checked++
			cmd := exec.CommandContext(t.Context(), bash, "-n") // which runs nothing
			cmd.Stdin = strings.NewReader(block)
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s: %v: %s in\n%s", name, err, out, block)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d blocks", checked)
	}
}

// TestScopePage_SaysWhoAsksWhyNotAndWhatInstead checks each section, which has to name a thread.
func TestScopePage_SaysWhoAsksWhyNotAndWhatInstead(t *testing.T) {
	t.Parallel()
	sections := strings.Split(pages(t)["docs/scope.md"], "\n## ")[1:]
	for _, section := range sections {
		if strings.HasPrefix(section, "What it costs\n") {
			continue // the table of make generate
		}
		asked, rest, _ := strings.Cut(section, "\n**Why not.** ")
		why, instead, found := strings.Cut(rest, "\n**Instead.** ")
		if !found || !strings.Contains(asked, "**Asked for in**") || !strings.Contains(asked, "](https://github.com/") ||
			len(why) < 30 || len(instead) < 30 {
			t.Errorf("section %.20q does not say who asks, why not and what instead", section)
		}
	}
	if len(sections) < 8 {
		t.Errorf("only %d sections", len(sections))
	}
}

// TestVersioningPage_NamesTheClusterAPIOfTheModule compares the pages that say what is supported with go.mod.
func TestVersioningPage_NamesTheClusterAPIOfTheModule(t *testing.T) {
	t.Parallel()
	module, err := os.ReadFile(filepath.Join(repository, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`sigs.k8s.io/cluster-api (v\d+\.\d+)\.`).FindSubmatch(module)
	if version == nil {
		t.Fatal("go.mod does not name Cluster API")
	}
	previous, err := filepath.Glob(filepath.Join(repository, "hack", "kube", "cluster-api-v*"))
	if err != nil || len(previous) != 1 {
		t.Fatalf("modules of the previous minor version of Cluster API: %v, error %v", previous, err)
	}
	_, older, _ := strings.Cut(filepath.Base(previous[0]), "cluster-api-")
	all := pages(t)
	for _, name := range []string{"README.md"} {
		if !strings.Contains(all[name], fmt.Sprintf("| Cluster API | %s and %s", older, version[1])) {
			t.Errorf("%s does not say that it supports Cluster API %s and %s", name, older, version[1])
		}
	}
	if makefile, err := os.ReadFile(filepath.Join(repository, "Makefile")); err != nil ||
		!strings.Contains(string(makefile), "CAPI_PREVIOUS := "+older+"\n") {
		t.Errorf("the Makefile does not upgrade from Cluster API %s; error %v", older, err)
	}
}

// helpOf returns what a program says about a command, with the flags of all its commands. It skips the test if the
// program is not there.
func helpOf(t *testing.T) func(program string, words ...string) string {
	t.Helper()
	known := map[string]string{}
	return func(program string, words ...string) string {
		t.Helper()
		name := program + " " + strings.Join(words, " ")
		if text, found := known[name]; found {
			return text
		}
		path := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), program)
		if _, err := os.Stat(path); err != nil || !filepath.IsAbs(path) {
			if path, err = exec.LookPath(program); err != nil {
				t.Skipf("there is no %s in $PATH and in $KUBEBUILDER_ASSETS", program)
			}
		}
		cmd := exec.CommandContext(t.Context(), path, append(words, "--help")...)
		cmd.Env = []string{"HOME=" + t.TempDir(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if program == "kubectl" && len(words) > 0 {
			options := exec.CommandContext(t.Context(), path, "options")
			global, err := options.Output()
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, global...)
		}
		known[name] = string(out)
		return known[name]
	}
}

var word = regexp.MustCompile(`^[a-z][a-z-]+$`)

// checkFlagsOf compares the flags of a command with the help of its program.
func checkFlagsOf(help func(program string, words ...string) string, words []string) error {
	program, rest := words[0], words[1:]
	var flags, command []string
	for len(rest) > 1 && strings.HasPrefix(rest[0], "-") { // with a value
		flags, rest = append(flags, rest[0]), rest[2:]
	}
	for ; len(rest) > 0 && len(command) < 3 &&
		word.MatchString(rest[0]) && strings.Contains(help(program, command...), "\n  "+rest[0]+" "); rest = rest[1:] {
		command = append(command, rest[0])
	}
	if len(command) == 0 {
		return fmt.Errorf("%s has no such command", program)
	}
	text := help(program, command...)
	for _, w := range rest {
		if name, _, _ := strings.Cut(w, "="); strings.HasPrefix(w, "-") && w != "-" {
			flags = append(flags, name)
		}
	}
	for _, flag := range flags {
		if !regexp.MustCompile(regexp.QuoteMeta(flag) + `[ ,=\[]`).MatchString(text) {
			return fmt.Errorf("%s %s has no flag %s", program, strings.Join(command, " "), flag)
		}
	}
	return nil
}

func TestPages_ShowFlagsOfKubectlAndClusterctl(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for program, least := range map[string]int{"kubectl": 25, "clusterctl": 8} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			help, checked := helpOf(t), 0
			for name, page := range all {
				for _, words := range commandsOf(page) {
					if words[0] != program || len(words) < 3 || words[1] == "capi-proxy" || strings.HasPrefix(name, "CHANGELOG") {
						continue
					}
					checked++
					if err := checkFlagsOf(help, words); err != nil {
						t.Errorf("%s: %q: %v", name, words, err)
					}
				}
			}
			if checked < least {
				t.Errorf("only %d commands", checked)
			}
		})
	}
}

// TestReadme_ShortestWayIsThatOfTheStartPage holds the first commands that people see to those that test/envtest runs.
func TestReadme_ShortestWayIsThatOfTheStartPage(t *testing.T) {
	t.Parallel()
	all := pages(t)
	_, way, _ := strings.Cut(all["README.md"], "The shortest way, ")
	blocks, _ := codeOf(way)
	commands := strings.Split(strings.TrimSpace(blocks[0]), "\n")
	for _, command := range commands {
		if !strings.Contains(all["docs/start.md"], "\n    "+strings.TrimSpace(command)+"\n") {
			t.Errorf("docs/start.md has no command %s", command)
		}
	}
	if len(commands) != 4 {
		t.Errorf("%d commands", len(commands))
	}
}
