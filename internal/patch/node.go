package patch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// NodeFile is a file of a recipe as a running node gets it.
type NodeFile struct {
	Path    string
	Mode    fs.FileMode
	Content []byte
}

// nodeFiles is contract.KeyNodeFiles. What has no value of the user is not in it: whoever writes Secrets must not
// decide what root runs on a node.
type nodeFiles struct {
	// Files are paths.
	Files []string `json:"files"`
}

// NodeData adds contract.KeyNodeFiles to the data of a generated Secret: the files of a recipe, which get the bytes and
// the modes that a new Machine gets by its spec. A recipe without files removes those of the product from a node.
func NodeData(generated map[string][]byte, recipe Recipe) (map[string][]byte, error) {
	list := nodeFiles{Files: []string{}}
	for _, f := range recipe.Files {
		list.Files = append(list.Files, f.Path)
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encoding the files of nodes: %w", err)
	}
	data := maps.Clone(generated)
	if data == nil {
		data = map[string][]byte{}
	}
	if data[contract.KeySetup] == nil {
		data[contract.KeySetup] = setup // without it the data of a generated Secret are not complete
	}
	data[contract.KeyNodeFiles] = text
	return data, nil
}

// FilesDigest identifies the files of a recipe: which they are, not what a generated Secret has for them, so that
// nothing of a credential is in it. It is "" if a running node cannot get all that a Machine of the recipe has: kubeadm
// writes the variables of static Pods.
func FilesDigest(recipe Recipe) string {
	if slices.Contains(recipe.Targets, contract.TargetStaticPods) {
		return ""
	}
	sum := sha256.New()
	for _, f := range recipe.Files {
		_, _ = fmt.Fprintf(sum, "%q\n", []string{f.Path, f.Permissions, f.ContentFrom.Key, f.Content})
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// ReadNodeData reads what NodeData has written. Variables and certificates come from the data, all else from this
// program. A path that is not the product's is an error, and so is content without the mark of the product, because the
// next version could not replace it.
func ReadNodeData(data map[string][]byte) (files []NodeFile, err error) {
	text, found := data[contract.KeyNodeFiles]
	if !found {
		return nil, fmt.Errorf("there is no key %s in the mounted Secret", contract.KeyNodeFiles)
	}
	var list nodeFiles
	if err := json.Unmarshal(text, &list); err != nil || list.Files == nil {
		return nil, errors.New("key " + contract.KeyNodeFiles + " of the mounted Secret is not a list of files")
	}
	for _, name := range list.Files {
		i := slices.IndexFunc(managedFiles(), func(f managedFile) bool { return f.path == name })
		if i < 0 {
			return nil, fmt.Errorf("key %s of the mounted Secret, file %.100q: not a path of %s", contract.KeyNodeFiles, name,
				contract.Name)
		}
		f := managedFiles()[i]
		content := []byte(f.content)
		switch f.key {
		case "":
		case contract.KeySetup:
			content = []byte(SetupWithEndpoints(strings.Fields(string(data[contract.KeyReadiness]))))
		default:
			content = data[f.key]
		}
		if !HasMark(string(content)) {
			return nil, fmt.Errorf("key %s of the mounted Secret has no line \"Managed by %s\"", f.key, contract.Name)
		}
		files = append(files, NodeFile{Path: f.path, Mode: f.mode, Content: content})
	}
	return files, nil
}

// ManagedPaths returns the paths of the files of every recipe: those of the product's folder, then drop-ins, which
// refer to them.
func ManagedPaths() []string {
	var own, dropIns []string
	for _, f := range managedFiles() {
		if f.key != "" {
			own = append(own, f.path)
		} else {
			dropIns = append(dropIns, f.path)
		}
	}
	return append(own, dropIns...)
}
