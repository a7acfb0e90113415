//go:build node

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

// Media types of the OCI image specification.
const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
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

// descriptor points to a blob.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

// blob is content that can be read again and again.
type blob struct {
	descriptor
	open func() (io.ReadCloser, error)
}

// inMemory is a blob of bytes.
func inMemory(mediaType string, content []byte) blob {
	sum := sha256.Sum256(content)
	return blob{
		descriptor: descriptor{
			MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]),
			Size: int64(len(content)),
		},
		open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
	}
}

// blobs returns the manifest of an image, its configuration and its one layer, which is written anew whenever it is
// read: the same files give the same bytes.
func (i image) blobs() ([]blob, error) {
	hash := sha256.New()
	count := &counter{to: hash}
	if err := i.writeLayer(count); err != nil {
		return nil, err
	}
	layer := blob{
		descriptor: descriptor{
			MediaType: layerType, Digest: "sha256:" + hex.EncodeToString(hash.Sum(nil)),
			Size: count.bytes,
		},
		open: func() (io.ReadCloser, error) {
			reader, writer := io.Pipe()
			go func() { _ = writer.CloseWithError(i.writeLayer(writer)) }()
			return reader, nil
		},
	}
	text, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{
			"Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, "Entrypoint": i.Entrypoint,
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layer.Digest}},
	})
	if err != nil {
		return nil, err
	}
	config := inMemory(configType, text)
	text, err = json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": config.descriptor, "layers": []descriptor{layer.descriptor},
	})
	if err != nil {
		return nil, err
	}
	return []blob{inMemory(manifestType, text), config, layer}, nil
}

// writeLayer writes the files as a tar archive: the folders above them, then each in the order of its path.
func (i image) writeLayer(to io.Writer) error {
	archive := tar.NewWriter(to)
	done := map[string]bool{"/": true}
	for _, name := range slices.Sorted(maps.Keys(i.Files)) {
		if err := writeFolders(archive, path.Dir(name), done); err != nil {
			return err
		}
		if err := writeFile(archive, name, i.Files[name]); err != nil {
			return fmt.Errorf("adding %s to %s: %w", name, i.Repository, err)
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
	return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(folder, "/") +
		"/", Mode: 0o755})
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

// counter counts what it passes on.
type counter struct {
	to    io.Writer
	bytes int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.bytes += int64(n)
	return n, err
}
