// Package ocilayout reads images of one layer with one program, as make image writes them, out of an OCI layout.
package ocilayout

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

// Image is the image of a layout.
type Image struct {
	// Digest is that of the index.
	Digest string
	// Programs are in the order of the index.
	Programs []Program
}

// Program is the program of a platform.
type Program struct {
	// Platform is like linux/amd64.
	Platform string
	Content  []byte
}

// manifest is an index or a manifest of an image.
type manifest struct {
	Manifests, Layers []struct {
		Digest   string
		Platform struct{ OS, Architecture string }
	}
}

// Read reads the image of a layout.
func Read(folder string) (Image, error) {
	image, err := read(folder)
	if err != nil {
		return Image{}, fmt.Errorf("reading OCI layout %s: %w", folder, err)
	}
	return image, nil
}

func read(folder string) (Image, error) {
	var all, index manifest
	if err := decode(filepath.Join(folder, "index.json"), &all); err != nil {
		return Image{}, err
	}
	if len(all.Manifests) != 1 {
		return Image{}, fmt.Errorf("it has %d images", len(all.Manifests))
	}
	image := Image{Digest: all.Manifests[0].Digest}
	if err := decode(blob(folder, image.Digest), &index); err != nil {
		return Image{}, err
	}
	for _, of := range index.Manifests {
		var m manifest
		if err := decode(blob(folder, of.Digest), &m); err != nil {
			return Image{}, err
		}
		if len(m.Layers) != 1 {
			return Image{}, fmt.Errorf("image %s has %d layers", of.Digest, len(m.Layers))
		}
		content, err := firstFile(blob(folder, m.Layers[0].Digest))
		if err != nil {
			return Image{}, err
		}
		image.Programs = append(image.Programs, Program{
			Platform: of.Platform.OS + "/" + of.Platform.Architecture,
			Content:  content,
		})
	}
	if len(image.Programs) == 0 {
		return Image{}, errors.New("the image has no platform")
	}
	return image, nil
}

func blob(folder, digest string) string {
	return filepath.Join(folder, "blobs", filepath.FromSlash(strings.Replace(digest, ":", "/", 1)))
}

func decode(path string, into any) error {
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
