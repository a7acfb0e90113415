package backoff

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// The paths of writes to a spec, and of a deletion.
const (
	spec     = "/spec"
	deletion = "deletion"
)

// seconds are those of a time as Kubernetes writes it. Two rollouts in one minute are one.
var seconds = regexp.MustCompile(`(T\d\d:\d\d):\d\dZ`)

type digest [sha256.Size]byte

// write is the change of a request.
type write struct {
	// paths are the fields that it changes, spec for one that changes a spec.
	paths string
	// digest is that of the content that it writes there, without versions; times count to the minute.
	digest digest
	// conditional reports that the API server refuses it if the object has changed.
	conditional bool
	// lists are the lists of a spec that it changes.
	lists []string
}

// read reads a JSON patch, a merge patch, an apply configuration or a whole object.
func read(data []byte) (write, error) {
	var content any
	if err := json.Unmarshal(data, &content); err != nil {
		return write{}, fmt.Errorf("decoding what is written: %w", err)
	}
	var (
		w     write
		paths []string
	)
	switch content := content.(type) {
	case []any: // a JSON patch
		content = slices.DeleteFunc(content, func(operation any) bool {
			path := pathOf(operation)
			w.conditional = w.conditional || path == "/metadata/resourceVersion"
			return path == "/metadata/resourceVersion"
		})
		for _, operation := range content {
			paths = append(paths, pathOf(operation))
		}
		w.digest = digestOf(content)
	case map[string]any:
		metadata, _ := content["metadata"].(map[string]any)
		_, w.conditional = metadata["resourceVersion"]
		paths = leaves("", withoutTimes(content), nil)
		w.digest = digestOf(content)
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	w.paths = strings.Join(paths, ",")
	for _, path := range paths {
		if !strings.HasPrefix(path, spec+"/") {
			continue
		}
		w.paths = spec
		names := slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool {
			return strings.Trim(name, "-0123456789") == "" // an index
		})
		w.lists = append(w.lists, names[len(names)-1])
	}
	w.lists = slices.Compact(w.lists)
	return w, nil
}

func pathOf(operation any) string {
	fields, _ := operation.(map[string]any)
	path, _ := fields["path"].(string)
	return path
}

// withoutTimes returns content without the values that differ between two writes of the same meaning.
func withoutTimes(content map[string]any) map[string]any {
	for _, name := range []string{"resourceVersion", "uid", "lastTransitionTime", contract.AnnotationChangedAt} {
		delete(content, name)
	}
	for _, value := range content {
		switch value := value.(type) {
		case map[string]any:
			withoutTimes(value)
		case []any:
			for _, item := range value {
				if fields, ok := item.(map[string]any); ok {
					withoutTimes(fields)
				}
			}
		}
	}
	return content
}

// leaves appends the paths of the values of content that are no objects.
func leaves(path string, content map[string]any, paths []string) []string {
	for name, value := range content {
		if fields, ok := value.(map[string]any); ok {
			paths = leaves(path+"/"+name, fields, paths)
			continue
		}
		paths = append(paths, path+"/"+name)
	}
	return paths
}

func digestOf(content any) digest {
	text, _ := json.Marshal(content) //nolint:errchkjson // it was decoded from JSON
	return sha256.Sum256(seconds.ReplaceAll(text, []byte("$1")))
}
