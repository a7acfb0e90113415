//go:build node

package main

import (
	"archive/tar"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image is an image from scratch: some files of this machine.
type image struct {
	// Repository and Tag name it, without the registry's host.
	Repository, Tag string
	// Files are what it holds, by absolute path: paths on this machine. Their modes are kept.
	Files map[string]string
	// Entrypoint is what runs where a container names no command.
	Entrypoint []string
}

// build returns the image, with one layer.
func (i image) build() (v1.Image, error) {
	built, err := mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON), &v1.ConfigFile{
		Architecture: runtime.GOARCH, OS: "linux", RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, Entrypoint: i.Entrypoint,
		},
	})
	if err != nil {
		return nil, err
	}
	l := layer{files: i.Files}
	content, _ := l.Uncompressed()
	defer func() { _ = content.Close() }()
	if l.digest, l.size, err = v1.SHA256(content); err != nil {
		return nil, fmt.Errorf("reading the files of %s: %w", i.Repository, err)
	}
	return mutate.AppendLayers(built, l)
}

// layer is a layer that is not compressed. It is written anew whenever it is read, so that nothing is stored twice: the
// same files give the same bytes.
type layer struct {
	files  map[string]string
	digest v1.Hash
	size   int64
}

func (l layer) Digest() (v1.Hash, error)            { return l.digest, nil }
func (l layer) DiffID() (v1.Hash, error)            { return l.digest, nil }
func (l layer) Size() (int64, error)                { return l.size, nil }
func (l layer) MediaType() (types.MediaType, error) { return types.OCIUncompressedLayer, nil }
func (l layer) Compressed() (io.ReadCloser, error)  { return l.Uncompressed() }
func (l layer) Uncompressed() (io.ReadCloser, error) {
	reader, writer := io.Pipe()
	go func() { _ = writer.CloseWithError(l.write(writer)) }()
	return reader, nil
}

// write writes the files as a tar archive: the folders above them, then each in the order of its path.
func (l layer) write(to io.Writer) error {
	archive := tar.NewWriter(to)
	done := map[string]bool{"/": true}
	for _, name := range slices.Sorted(maps.Keys(l.files)) {
		if err := writeFolders(archive, path.Dir(name), done); err != nil {
			return err
		}
		if err := writeFile(archive, name, l.files[name]); err != nil {
			return fmt.Errorf("adding %s: %w", name, err)
		}
	}
	return archive.Close()
}

func writeFolders(archive *tar.Writer, folder string, done map[string]bool) error {
	if done[folder] {
		return nil
	}
	done[folder] = true
	if err := writeFolders(archive, path.Dir(folder), done); err != nil {
		return err
	}
	return archive.WriteHeader(&tar.Header{
		Typeflag: tar.TypeDir, Name: strings.TrimPrefix(folder, "/") + "/", Mode: 0o755,
	})
}

func writeFile(archive *tar.Writer, name, source string) error {
	file, err := os.Open(source) //nolint:gosec // one that the test names
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: strings.TrimPrefix(name, "/"), Mode: int64(info.Mode().Perm()),
		Size: info.Size(),
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(archive, file)
	return err
}
