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
	"strconv"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// NodeFile is a file of a recipe as a running node gets it.
type NodeFile struct {
	Path    string
	Mode    fs.FileMode
	Content []byte
}

// nodeFiles is contract.KeyNodeFiles. A file has its content, or the key beside it with its content.
type nodeFiles struct {
	Files []nodeFile `json:"files"`
	// Replace lets the node replace files of others.
	Replace bool `json:"replace,omitempty"`
}

type nodeFile struct {
	Path    string `json:"path"`
	Mode    string `json:"mode"`
	Key     string `json:"key,omitempty"`
	Content string `json:"content,omitempty"`
}

// NodeData adds contract.KeyNodeFiles to the data of a generated Secret: the files of a recipe, with the bytes and the
// modes that a new Machine gets by its spec. A recipe without files removes those of the product from a node. replace
// lets the node replace files of others.
func NodeData(generated map[string][]byte, recipe Recipe, replace bool) (map[string][]byte, error) {
	list := nodeFiles{Files: filesOf(recipe), Replace: replace}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encoding the files of nodes: %w", err)
	}
	data := maps.Clone(generated)
	if data == nil {
		data = map[string][]byte{}
	}
	if data[contract.KeySetup] == nil {
		data[contract.KeySetup] = setup // what takes certificates out of the trust store
	}
	data[contract.KeyNodeFiles] = text
	return data, nil
}

func filesOf(recipe Recipe) []nodeFile {
	files := make([]nodeFile, 0, len(recipe.Files))
	for _, f := range recipe.Files {
		files = append(files, nodeFile{Path: f.Path, Mode: f.Permissions, Key: f.ContentFrom.Key, Content: f.Content})
	}
	return files
}

// FilesDigest identifies the files of a recipe: which they are, not what a generated Secret has for them, so that
// nothing of a credential is in it. It is "" if a running node cannot get all that a Machine of the recipe has: kubeadm
// writes the variables of static Pods.
func FilesDigest(recipe Recipe) string {
	if slices.Contains(recipe.Targets, contract.TargetStaticPods) {
		return ""
	}
	text, _ := json.Marshal(filesOf(recipe)) //nolint:errchkjson // texts
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:16]
}

// ReadNodeData reads what NodeData has written. A path that is not the product's is an error, and so is content without
// the mark of the product, because the next version could not replace it.
func ReadNodeData(data map[string][]byte) (files []NodeFile, replace bool, err error) {
	text, found := data[contract.KeyNodeFiles]
	if !found {
		return nil, false, fmt.Errorf("there is no key %s in the mounted Secret", contract.KeyNodeFiles)
	}
	var list nodeFiles
	if err := json.Unmarshal(text, &list); err != nil || list.Files == nil {
		return nil, false, errors.New("key " + contract.KeyNodeFiles + " of the mounted Secret is not a list of files")
	}
	for _, f := range list.Files {
		place := fmt.Sprintf("key %s of the mounted Secret, file %.100q", contract.KeyNodeFiles, f.Path)
		mode, err := strconv.ParseUint(f.Mode, 8, 9)
		if err != nil || !slices.Contains(ManagedPaths(), f.Path) {
			return nil, false, errors.New(place + ": not a path and a mode of " + contract.Name)
		}
		content := []byte(f.Content)
		if f.Key != "" {
			content, place = data[f.Key], fmt.Sprintf("key %.100s of the mounted Secret", f.Key)
		}
		if !HasMark(string(content)) {
			return nil, false, fmt.Errorf("%s has no line \"Managed by %s\"", place, contract.Name)
		}
		files = append(files, NodeFile{Path: f.Path, Mode: fs.FileMode(mode), Content: content})
	}
	return files, list.Replace, nil
}

// ManagedPaths returns the paths of the files of every recipe: those of the product's folder, then drop-ins, which
// refer to them.
func ManagedPaths() []string {
	var own, dropIns []string
	for _, f := range managedFiles {
		if f.key != "" {
			own = append(own, f.path)
		} else {
			dropIns = append(dropIns, f.path)
		}
	}
	return append(own, dropIns...)
}
