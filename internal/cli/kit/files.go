package kit

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
)

// File is what a user names as a file, read.
type File struct {
	// Name is for messages; "-" stands for standard input.
	Name string
	Data []byte
}

// maxInput is how many bytes of manifests a command reads in total.
const maxInput = 64 << 20

// ReadFiles reads the manifests and the files with Secrets of a command.
func ReadFiles(files, secrets []string, stdin io.Reader) (manifests, beside []File, err error) {
	if os.Getenv("GOGC") == "" {
		// What is read is needed until the end: collecting garbage less often saves a fifth of the time.
		debug.SetGCPercent(300)
	}
	r := fileReader{stdin: stdin, left: maxInput}
	if manifests, err = r.read(files); err != nil {
		return nil, nil, err
	}
	beside, err = r.read(secrets)
	return manifests, beside, err
}

// fileReader reads inputs up to a limit.
type fileReader struct {
	stdin io.Reader
	left  int64
}

// read reads files, the manifests of folders in the order of their names, and standard input.
func (r *fileReader) read(names []string) ([]File, error) {
	var inputs []File
	for _, name := range names {
		files := []string{name}
		if name != "-" {
			var err error
			if files, err = manifestFiles(name); err != nil {
				return nil, err
			}
		}
		for _, file := range files {
			data, err := r.readFile(file)
			if err != nil {
				return nil, err
			}
			inputs = append(inputs, File{Name: file, Data: data})
		}
	}
	return inputs, nil
}

// readFile reads one input.
func (r *fileReader) readFile(name string) ([]byte, error) {
	from := r.stdin
	if name == "-" {
		name = "standard input"
	} else {
		file, err := os.Open(name) //nolint:gosec // the user names the file
		if err != nil {
			return nil, fmt.Errorf("reading input: %w", err)
		}
		defer func() { _ = file.Close() }()
		from = file
	}
	data, err := io.ReadAll(io.LimitReader(from, r.left+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if r.left -= int64(len(data)); r.left < 0 {
		return nil, fmt.Errorf("reading %s: the input is larger than %d MiB in total; give fewer manifests at a time",
			name, maxInput>>20)
	}
	return data, nil
}

// manifestFiles returns the file itself, or the manifests of a folder as kubectl takes them.
func manifestFiles(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("reading input: %w", err)
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("reading input: %w", err)
	}
	var files []string
	for _, entry := range entries {
		if !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
			files = append(files, filepath.Join(name, entry.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("reading input: folder %s has no file that ends with .yaml, .yml or .json", name)
	}
	return files, nil
}

// ReadFile reads one file, or standard input by the name "-".
func ReadFile(name string, stdin io.Reader) ([]byte, error) {
	r := fileReader{stdin: stdin, left: maxInput}
	return r.readFile(name)
}
