package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
)

// workplace has the files that the commands of the pages read, as somebody has them who follows the pages.
func workplace(t *testing.T) (files map[string]string, manifests string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/nodes.md")
	if err != nil {
		t.Fatal(err)
	}
	manifests = fence.FindStringSubmatch(string(text))[2]
	secret, rest, _ := strings.Cut(manifests, "---\n")
	class := strings.Replace(rest, "\nspec:\n", "\nspec:\n  topology: {classRef: {name: proxied}, version: v1.36.3}\n", 1)
	class, _, _ = strings.Cut(class, "---\n")
	clusterClass, err := os.ReadFile("../../templates/clusterclass-proxied.yaml")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "clusters"), 0o700); err != nil {
		t.Fatal(err)
	}
	files = map[string]string{"clusters/": filepath.Join(folder, "clusters"), "-": "-"}
	for name, content := range map[string]string{
		"clusters/prod.yaml": manifests, "proxy-secret.yaml": secret, "cluster.yaml": class,
		"clusterclass.yaml": string(clusterClass),
	} {
		files[filepath.Base(name)] = filepath.Join(folder, name)
		if err := os.WriteFile(files[filepath.Base(name)], []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files, manifests
}

// runnable returns the arguments of a command with the files of the workplace, and whether it can be run there: it
// reads files that the workplace has, and no management cluster.
func runnable(words []string, files map[string]string) (args []string, runs bool) {
	reads := false
	for i, word := range words {
		switch flag := words[max(0, i-1)]; {
		case strings.Contains(word, "...") || strings.Contains(word, "…") || word == "--context":
			return nil, false
		case word == strings.ToUpper(word) && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" && word != "":
			return nil, false // a placeholder
		case slices.Contains([]string{"-f", "--filename", "--secret"}, flag):
			path, known := files[word]
			if !known {
				return nil, false
			}
			args, reads = append(args, path), true
			continue
		case word == "--no-proxy":
			reads = true
		}
		args = append(args, word)
	}
	return args, reads
}

// TestPages_CommandsWithoutAClusterWork runs the commands that read files only, with files of the names in the pages.
func TestPages_CommandsWithoutAClusterWork(t *testing.T) {
	t.Parallel()
	files, manifests := workplace(t)
	ran := map[string]int{}
	for name, page := range pages(t) {
		for _, words := range commandsOf(page) {
			if filepath.Base(words[0]) != "capi-proxy-patcher" || len(words) < 2 ||
				!slices.Contains([]string{"render", "lint", "explain", "secret"}, words[1]) || name == "CHANGELOG.md" {
				continue
			}
			args, runs := runnable(words[1:], files)
			if !runs {
				continue
			}
			ran[words[1]]++
			status, _, problems := run(t, manifests, args...)
			if status != kit.ExitDone && (status != 3 || !slices.Contains(words, "--fail-on")) {
				t.Errorf("%s: %q: exit status %d: %s", name, words, status, problems)
			}
		}
	}
	for command, least := range map[string]int{"render": 5, "lint": 3, "explain": 3, "secret": 2} {
		if ran[command] < least {
			t.Errorf("only %d commands %s: %v", ran[command], command, ran)
		}
	}
}
