// Package ocilayout reads images with one program, as make image writes them, out of an OCI layout.
package ocilayout

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
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
	Config v1.Config
}

// Read reads the image of a layout.
func Read(folder string) (image Image, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("reading OCI layout %s: %w", folder, err)
		}
	}()
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return image, err
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		return image, errors.Join(err, errors.New("it has not one image"))
	}
	image.Digest = manifest.Manifests[0].Digest.String()
	return image, image.add(index)
}

// add adds the programs of an index.
func (i *Image) add(index v1.ImageIndex) error {
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, descriptor := range manifest.Manifests {
		if descriptor.MediaType.IsIndex() {
			below, err := index.ImageIndex(descriptor.Digest)
			if err == nil {
				err = i.add(below)
			}
			if err != nil {
				return err
			}
			continue
		}
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			return err
		}
		program, err := programOf(image)
		if err != nil {
			return err
		}
		i.Programs = append(i.Programs, program)
	}
	return nil
}

// programOf returns the first file of the last layer.
func programOf(image v1.Image) (Program, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return Program{}, err
	}
	extracted := mutate.Extract(image)
	defer func() { _ = extracted.Close() }()
	for files := tar.NewReader(extracted); ; {
		header, err := files.Next()
		if err != nil {
			return Program{}, err
		}
		if header.Typeflag == tar.TypeReg {
			content, err := io.ReadAll(files)
			return Program{config.Platform().String(), content, config.Config}, err
		}
	}
}
