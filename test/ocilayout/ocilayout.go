// Package ocilayout reads images with one program, as make image writes them, out of an OCI layout.
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
	// Digest is that of the index, or that of the image if there is only one platform.
	Digest string
	// Programs are in the order of the index.
	Programs []Program
}

// Program is the program of a platform.
type Program struct {
	// Platform is like linux/amd64.
	Platform string
	Content  []byte
	// Config is how the program is run.
	Config Config
}

// Config is how a container runs a program.
type Config struct {
	User       string
	Entrypoint []string
	Labels     map[string]string
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
	var layout struct{ Manifests []struct{ Digest string } }
	if err := decode(filepath.Join(folder, "index.json"), &layout); err != nil {
		return Image{}, err
	}
	if len(layout.Manifests) != 1 {
		return Image{}, fmt.Errorf("it has %d images", len(layout.Manifests))
	}
	image := Image{Digest: layout.Manifests[0].Digest}
	return image, image.add(folder, image.Digest)
}

// add adds the programs of an index, or the one of an image.
func (i *Image) add(folder, digest string) error {
	var of struct {
		Manifests, Layers []struct{ Digest string }
		Config            struct{ Digest string }
	}
	if err := decode(blob(folder, digest), &of); err != nil {
		return err
	}
	for _, manifest := range of.Manifests {
		if err := i.add(folder, manifest.Digest); err != nil {
			return err
		}
	}
	if len(of.Layers) == 0 {
		return nil
	}
	var config struct {
		OS, Architecture string
		Config           Config
	}
	if err := decode(blob(folder, of.Config.Digest), &config); err != nil {
		return err
	}
	content, err := firstFile(blob(folder, of.Layers[len(of.Layers)-1].Digest))
	i.Programs = append(i.Programs, Program{config.OS + "/" + config.Architecture, content, config.Config})
	return err
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
	for files := tar.NewReader(uncompressed); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("layer %s has no file", path)
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag == tar.TypeReg {
			return io.ReadAll(files)
		}
	}
}
