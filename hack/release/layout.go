package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// descriptor names a blob of an OCI layout.
type descriptor struct {
	Digest   string
	Platform struct{ OS, Architecture string }
}

// manifest is an index or a manifest of an image.
type manifest struct {
	Manifests []descriptor
	Layers    []descriptor
}

// binary is the program of a platform.
type binary struct {
	platform string
	content  []byte
}

// binaries reads the programs out of the image.
func (r release) binaries() (digest string, found []binary, err error) {
	var all, index manifest
	if err := decodeFile(filepath.Join(r.layout, "index.json"), &all); err != nil {
		return "", nil, err
	}
	if len(all.Manifests) != 1 {
		return "", nil, fmt.Errorf("%s has %d images", r.layout, len(all.Manifests))
	}
	digest = all.Manifests[0].Digest
	if err := decodeFile(r.blob(digest), &index); err != nil {
		return "", nil, err
	}
	for _, image := range index.Manifests {
		var m manifest
		if err := decodeFile(r.blob(image.Digest), &m); err != nil {
			return "", nil, err
		}
		if len(m.Layers) != 1 {
			return "", nil, fmt.Errorf("image %s has %d layers", image.Digest, len(m.Layers))
		}
		content, err := firstFile(r.blob(m.Layers[0].Digest))
		if err != nil {
			return "", nil, err
		}
		found = append(found, binary{platform: image.Platform.OS + "/" + image.Platform.Architecture, content: content})
	}
	if len(found) == 0 {
		return "", nil, errors.New("the image has no platform")
	}
	return digest, found, nil
}

func (r release) blob(digest string) string {
	return filepath.Join(r.layout, "blobs", filepath.FromSlash(strings.Replace(digest, ":", "/", 1)))
}

func decodeFile(path string, into any) error {
	text, err := os.ReadFile(path) //nolint:gosec // of our image
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("decoding %s: %w", path, err)
	}
	return nil
}

// firstFile returns the content of the first file of a layer.
func firstFile(path string) ([]byte, error) {
	text, err := os.ReadFile(path) //nolint:gosec // of our image
	if err != nil {
		return nil, err
	}
	uncompressed, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	files := tar.NewReader(uncompressed)
	if _, err := files.Next(); err != nil {
		return nil, err
	}
	return io.ReadAll(files)
}
