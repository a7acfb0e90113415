package main

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed README.txt
var readme string

// repository is the URL of the project.
const repository = "https://github.com/capi-proxy-patcher/capi-proxy-patcher"

// checksums is the file with those of the other files of a folder.
const checksums = "checksums.txt"

// copies writes what is in the folder as it is in the repository, and the image.
func (r release) copies() error {
	names := []string{"LICENSE"}
	for _, pattern := range []string{
		"templates/*.yaml", "config/components/monitoring/dashboard.json",
		"config/components/monitoring/kube-state-metrics.yaml",
	} {
		found, err := fs.Glob(os.DirFS(r.root), pattern)
		if err != nil {
			return err
		}
		names = append(names, found...)
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(r.root, name)) //nolint:gosec // of the repository
		if err = errors.Join(err, r.file(filepath.Base(name), text)); err != nil {
			return err
		}
	}
	return os.CopyFS(filepath.Join(r.folder, "image"), os.DirFS(filepath.Join(r.built, "image")))
}

// readme writes what to do with the folder.
func (r release) readme() error {
	return r.file("README.txt", []byte(strings.NewReplacer(
		"VERSION", r.version, "IMAGE", r.image+":"+r.version, "CHART", r.chartName(),
		"DOCS", repository+"/blob/"+r.version+"/docs",
	).Replace(readme)))
}

// materials writes the bills of materials with the licences of the modules, of which ko knows none.
func (r release) materials() error {
	licences, err := r.licences()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(r.built, "sbom", "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // just built
		if err != nil {
			return err
		}
		var document map[string]any
		if err := json.Unmarshal(text, &document); err != nil {
			return fmt.Errorf("decoding %s: %w", file, err)
		}
		packages, _ := document["packages"].([]any)
		expressions := licences.of(packages)
		for _, one := range packages {
			module, _ := one.(map[string]any)
			name, _ := module["name"].(string)
			found := expressions[name]
			references, _ := json.Marshal(module["externalRefs"]) //nolint:errchkjson // it was JSON
			if found == "" && bytes.Contains(references, []byte("pkg:golang/")) {
				return fmt.Errorf("%s: the licence of %s is not known", file, name)
			}
			if found != "" {
				module["licenseConcluded"], module["licenseDeclared"] = found, found
			}
		}
		var out bytes.Buffer
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := errors.Join(encoder.Encode(document), r.file(filepath.Base(file), out.Bytes())); err != nil {
			return err
		}
	}
	return nil
}

// licences are those of packages, by their common path.
type licences map[string][]string

// licences reads what go-licenses says of the program: the path of packages with a licence, and its name.
func (r release) licences() (licences, error) {
	text, err := os.ReadFile(filepath.Join(r.built, "licences.txt"))
	if err != nil {
		return nil, err
	}
	found := licences{}
	for line := range strings.Lines(string(text)) {
		if path, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			found[path] = append(found[path], name)
		}
	}
	return found, nil
}

// of returns the licences of modules as expressions of SPDX. Packages are of the module with the longest path.
func (l licences) of(modules []any) map[string]string {
	names := map[string][]string{}
	for path, found := range l {
		owner := ""
		for _, one := range modules {
			module, _ := one.(map[string]any)
			name, _ := module["name"].(string)
			if strings.HasPrefix(path+"/", name+"/") && len(name) > len(owner) {
				owner = name
			}
		}
		names[owner] = append(names[owner], found...)
	}
	expressions := map[string]string{}
	for module, found := range names {
		slices.Sort(found)
		expressions[module] = strings.Join(slices.Compact(found), " AND ")
	}
	return expressions
}

// sums writes the checksums of all other files of a folder.
func sums(folder string) error {
	found := map[string]string{}
	err := fs.WalkDir(os.DirFS(folder), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(folder, path)) //nolint:gosec // just written
		found[path] = fmt.Sprintf("%x  %s\n", sha256.Sum256(text), path)
		return err
	})
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, path := range slices.Sorted(maps.Keys(found)) {
		text.WriteString(found[path])
	}
	return release{folder: folder}.file(checksums, []byte(text.String()))
}

// page writes the files of a release page, with checksums of exactly these, and its text. One of them is the whole
// folder, as clusterctl and installations without internet need it.
func (r release) page() error {
	notes, err := r.notes()
	if err != nil {
		return err
	}
	page := release{folder: filepath.Join(r.built, "page")}
	if err := os.RemoveAll(page.folder); err != nil {
		return err
	}
	if err := os.MkdirAll(page.folder, 0o755); err != nil { //nolint:gosec // anybody may read it
		return err
	}
	files, err := os.ReadDir(r.folder)
	if err != nil {
		return err
	}
	for _, entry := range files {
		if entry.IsDir() || entry.Name() == checksums {
			continue
		}
		text, err := os.ReadFile(filepath.Join(r.folder, entry.Name()))
		if err = errors.Join(err, page.file(entry.Name(), text)); err != nil {
			return err
		}
	}
	err = page.archive("capi-proxy-patcher-"+r.version+"-folder.tar.gz", provider+"/"+r.version, os.DirFS(r.folder))
	return errors.Join(err, sums(page.folder),
		os.WriteFile(filepath.Join(r.built, "notes.md"), []byte(notes), 0o644)) //nolint:gosec // anybody may read it
}

// link is one of Markdown to a file of the repository.
var link = regexp.MustCompile(`\]\(([a-z.][^:)]*)\)`)

// notes returns the section of CHANGELOG.md about the version, with links that work elsewhere.
func (r release) notes() (string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	_, section, found := strings.Cut("\n"+string(text), "\n## "+r.version+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if section = strings.TrimSpace(section); !found || section == "" {
		return "", fmt.Errorf("CHANGELOG.md has no section \"## %s\": give \"## Unreleased\" the version", r.version)
	}
	return link.ReplaceAllString(section, "]("+repository+"/blob/"+r.version+"/$1)") + "\n", nil
}
