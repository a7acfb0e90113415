//go:build e2e

// Package nodedata reads bootstrap data as a node does: the files that it writes and the commands that it runs.
package nodedata

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// File is a file that a node writes.
type File struct {
	Path, Content string
	Mode          uint64
}

// Node is what bootstrap data makes of a node.
type Node struct {
	// Files are in the order of the bootstrap data, those that are written twice included.
	Files []File
	// Commands are what the user's shell runs: those before kubeadm, the one that runs it, and those after it.
	Commands []string
}

// File returns the file at a path.
func (n Node) File(path string) (File, bool) {
	for _, f := range n.Files {
		if f.Path == path {
			return f, true
		}
	}
	return File{}, false
}

// Kubeadm returns the index in Commands of the one that runs kubeadm, or -1.
func (n Node) Kubeadm() int {
	for i, command := range n.Commands {
		if strings.HasPrefix(command, "kubeadm ") {
			return i
		}
	}
	return -1
}

// Decode reads bootstrap data of a format of Cluster API: cloud-config or ignition. Cloud-config is taken for what it
// is after cloud-init has rendered its Jinja template, so what it holds has to be free of Jinja.
func Decode(format string, data []byte) (Node, error) {
	switch format {
	case "cloud-config":
		return decodeCloudConfig(data)
	case "ignition":
		return decodeIgnition(data)
	}
	return Node{}, fmt.Errorf("decoding bootstrap data: format %q is not known", format)
}

func decodeCloudConfig(data []byte) (Node, error) {
	if !bytes.HasPrefix(data, []byte("## template: jinja\n#cloud-config\n")) {
		return Node{}, fmt.Errorf("decoding cloud-config: it begins with %.40q", data)
	}
	for _, mark := range []string{"{{", "{%", "{#"} {
		if bytes.Contains(data, []byte(mark)) {
			return Node{}, fmt.Errorf("decoding cloud-config: it has Jinja, %q", mark)
		}
	}
	var config struct {
		WriteFiles []struct {
			Path, Content, Permissions, Encoding string
			Append                               bool
		} `json:"write_files"`
		RunCmd []string
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return Node{}, fmt.Errorf("decoding cloud-config: %w", err)
	}
	node := Node{Commands: config.RunCmd}
	for _, f := range config.WriteFiles {
		mode, err := strconv.ParseUint(f.Permissions, 8, 32)
		if err != nil && f.Permissions != "" {
			return Node{}, fmt.Errorf("decoding cloud-config: permissions of %s: %w", f.Path, err)
		}
		if f.Encoding != "" || f.Append {
			return Node{}, fmt.Errorf("decoding cloud-config: %s is encoded or appended to, which nothing here does", f.Path)
		}
		node.Files = append(node.Files, File{Path: f.Path, Content: f.Content, Mode: mode})
	}
	return node, nil
}

func decodeIgnition(data []byte) (Node, error) {
	var config struct {
		Storage struct {
			Files []struct {
				Path     string
				Mode     uint64
				Contents struct{ Source string }
			}
		}
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return Node{}, fmt.Errorf("decoding Ignition: %w", err)
	}
	var node Node
	for _, f := range config.Storage.Files {
		content, err := source(f.Contents.Source)
		if err != nil {
			return Node{}, fmt.Errorf("decoding Ignition: content of %s: %w", f.Path, err)
		}
		node.Files = append(node.Files, File{Path: f.Path, Content: content, Mode: f.Mode})
	}
	script, ok := node.File("/etc/kubeadm.sh")
	if !ok {
		return Node{}, errors.New("decoding Ignition: it has no /etc/kubeadm.sh")
	}
	for line := range strings.SplitSeq(script.Content, "\n") {
		if line = strings.TrimSpace(line); line != "" && line != "#!/bin/bash" && line != "set -e" {
			node.Commands = append(node.Commands, line)
		}
	}
	return node, nil
}

// source reads a data URL (RFC 2397).
func source(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	header, rest, found := strings.Cut(text, ",")
	if !found || !strings.HasPrefix(header, "data:") {
		return "", errors.New("it is no data URL")
	}
	if !strings.HasSuffix(header, ";base64") {
		return url.PathUnescape(rest)
	}
	decoded, err := base64.StdEncoding.DecodeString(rest)
	return string(decoded), err
}
