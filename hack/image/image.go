package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	module = "github.com/capi-proxy-patcher/capi-proxy-patcher"
	// program is the one file of the image.
	program = "capi-proxy-patcher"
	// user is a number without a name: the one that Deployments ask for.
	user = "65532:65532"
)

// options say what is built.
type options struct {
	// root is the folder of the repository, program the package to build.
	root, program     string
	version, revision string
	created           time.Time
	platforms         []*v1.Platform
}

// labels are in the configuration of the image, and are annotations of its manifests.
func (o options) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    program,
		"org.opencontainers.image.version":  o.version,
		"org.opencontainers.image.revision": o.revision,
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
}

// build builds the program for every platform and returns the index of its images.
func (o options) build(ctx context.Context) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range o.platforms {
		binary, err := o.compile(ctx, platform)
		if err != nil {
			return nil, fmt.Errorf("building for %s: %w", platform, err)
		}
		image, err := o.image(binary, platform)
		if err != nil {
			return nil, fmt.Errorf("making the image for %s: %w", platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return mutate.Annotations(index, o.labels()).(v1.ImageIndex), nil
}

// compile builds the program for a platform, which is always given. The program contains nothing of this machine.
func (o options) compile(ctx context.Context, platform *v1.Platform) ([]byte, error) {
	folder, err := os.MkdirTemp("", "capi-proxy-patcher-image-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	binary := filepath.Join(folder, program)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", //nolint:gosec // the caller says what is built
		"-ldflags", strings.Join([]string{
			"-s -w", "-X", module + "/internal/version.release=" + o.version, "-X", module +
				"/internal/version.commit=" + o.revision,
		}, " "), "-o", binary, o.program)
	cmd.Dir = o.root
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "GOOS="+platform.OS, "GOARCH="+platform.Architecture, "CGO_ENABLED=0",
		"GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off")
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	return os.ReadFile(binary) //nolint:gosec // just built
}

// image returns an image of one layer with one file.
func (o options) image(binary []byte, platform *v1.Platform) (v1.Image, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	err := w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: program, Size: int64(len(binary)), Mode: 0o555, ModTime: time.Unix(0, 0),
		Format: tar.FormatUSTAR,
	})
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(binary); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	content, err := tarball.LayerFromOpener(func() (io.ReadCloser,
		error,
	) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	},
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{
		Layer: content, History: v1.History{Created: v1.Time{Time: o.created}, CreatedBy: "make image"},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = platform.OS, platform.Architecture, platform.Variant
	config.Created = v1.Time{Time: o.created}
	config.Config = v1.Config{
		User: user, Entrypoint: []string{"/" + program}, Cmd: []string{"manager"}, WorkingDir: "/", Labels: o.labels(),
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(image, o.labels()).(v1.Image), nil
}

// write writes a folder as an OCI layout with only one image under a name. It replaces an existing layout.
func write(folder string, index v1.ImageIndex, ref string) error {
	if _, err := os.Stat(filepath.Join(folder, "oci-layout")); err != nil {
		if files, err := os.ReadDir(folder); err == nil && len(files) > 0 {
			return fmt.Errorf("-out %s: it is not an OCI layout, and not empty", folder)
		}
	}
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)); err != nil { //nolint:gosec // anybody may read it
		return err
	}
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return fmt.Errorf("writing %s: %w", folder, err)
	}
	if err := path.AppendIndex(index,
		layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": ref})); err != nil {
		return fmt.Errorf("writing %s: %w", folder, err)
	}
	// Anybody may read it.
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return os.Chmod(path, 0o644) //nolint:gosec // nothing secret
	})
}
