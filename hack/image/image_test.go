package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// small is a package that is built in a second for every platform.
const small = "./small"

const (
	testVersion = "v1.2.3-rc.1"
	revision    = "0123456789abcdef0123456789abcdef01234567"
)

// root is the folder of a repository with a small program.
const root = "testdata/repository"

// makeImage runs the command and returns the digest that it prints.
func makeImage(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	args = append([]string{
		"-root", root, "-version", testVersion, "-revision", revision, "-created",
		"1700000000",
	}, args...)
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

// openImage returns the index of a layout, which is valid, and what it is called.
func openImage(t *testing.T, folder string) v1.ImageIndex {
	t.Helper()
	all, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 ||
		manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != testVersion {
		t.Fatalf("the layout has %+v", manifest.Manifests)
	}
	index, err := all.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	return index
}

// files returns the content of every file of a folder.
func files(t *testing.T, folder string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // a folder of the test
		found[strings.TrimPrefix(path, folder)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestImage_IsTheSameTwice(t *testing.T) {
	first := filepath.Join(t.TempDir(), "layout")
	digest := makeImage(t, "-package", small, "-out", first)

	// In a checkout of another place, by somebody with other settings.
	checkout := filepath.Join(t.TempDir(), "another place")
	for _, path := range []string{"go.mod", "small/main.go"} {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(checkout, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o700), os.WriteFile(target, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for variable, value := range map[string]string{
		"TZ": "Pacific/Apia", "GOFLAGS": "-tags=other", "GOAMD64": "v2",
		"GOOS": "darwin", "LC_ALL": "C",
	} {
		t.Setenv(variable, value)
	}
	defer syscall.Umask(syscall.Umask(0o077))
	second := filepath.Join(t.TempDir(), "layout")
	if again := makeImage(t, "-root", checkout, "-package", small, "-out", second); again != digest {
		t.Errorf("digest %s, and then %s", digest, again)
	}
	was, is := files(t, first), files(t, second)
	for path, text := range was {
		if is[path] != text {
			t.Errorf("%s differs", path)
		}
	}
	if len(was) != len(is) {
		t.Errorf("%d files, and then %d", len(was), len(is))
	}

	// A layout is replaced, anything else is kept.
	if again := makeImage(t, "-package", small, "-out", second, "-platforms", "linux/amd64"); again == digest {
		t.Error("another image has the same digest")
	}
	if now := files(t, second); len(now) != 6 {
		t.Errorf("%d files in a layout of one image", len(now))
	}
	err := run(t.Context(), []string{"-root", root, "-package", small, "-out", checkout}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "it is not an OCI layout") {
		t.Errorf("overwriting a folder of somebody else's: %v", err)
	}
}

func TestImage_SaysWhatItIs(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "layout")
	digest := makeImage(t, "-package", small, "-out", folder)
	index := openImage(t, folder)
	if is, err := index.Digest(); err != nil || is.String() != digest {
		t.Errorf("the index is %s, %v; printed was %s", is, err, digest)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	machines := map[string]elf.Machine{"linux/amd64": elf.EM_X86_64, "linux/arm64": elf.EM_AARCH64}
	for _, descriptor := range manifest.Manifests {
		platform := descriptor.Platform.String()
		machine, expected := machines[platform]
		if delete(machines, platform); !expected {
			t.Fatalf("an image for %s", platform)
		}
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/capi-proxy-patcher"}) ||
			!slices.Equal(config.Config.Cmd, []string{"manager"}) || config.OS+"/"+config.Architecture != platform ||
			config.Created.Unix() != 1700000000 {
			t.Errorf("%s: configuration %+v", platform, config)
		}
		for label, want := range map[string]string{
			"org.opencontainers.image.version": testVersion, "org.opencontainers.image.revision": revision, "org.opencontainers.image.licenses": "Apache-2.0",
		} {
			if config.Config.Labels[label] != want || manifest.Annotations[label] != want {
				t.Errorf("%s: label %s is %q, annotation %q, want %q", platform, label, config.Config.Labels[label],
					manifest.Annotations[label], want)
			}
		}
		content := unpack(t, image, t.TempDir())
		binary, err := elf.NewFile(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		if binary.Machine != machine || len(binary.Progs) == 0 ||
			slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			t.Errorf("%s: the program is for %s, or not static", platform, binary.Machine)
		}
	}
	if len(machines) > 0 {
		t.Errorf("no image for %v", machines)
	}
}

// unpack unpacks an image into a folder, checks that it has one file, and returns the content of that.
func unpack(t *testing.T, image v1.Image, folder string) []byte {
	t.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	stream, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	files := tar.NewReader(stream)
	header, err := files.Next()
	if err != nil {
		t.Fatal(err)
	}
	if header.Name != "capi-proxy-patcher" || header.Mode != 0o555 || header.Uid != 0 || header.Gid != 0 ||
		header.Uname != "" || header.ModTime.Unix() != 0 {
		t.Errorf("file %+v", header)
	}
	content, err := io.ReadAll(files)
	if err != nil {
		t.Fatal(err)
	}
	if header, err := files.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("a second file: %+v, %v", header, err)
	}
	if err := os.WriteFile(filepath.Join(folder, "capi-proxy-patcher"), content, 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return content
}

// TestImage_RunsByItself runs the product with nothing around it but its image, as the user of the image.
func TestImage_RunsByItself(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("needs Linux and root")
	}
	folder := filepath.Join(t.TempDir(), "layout")
	makeImage(t, "-root", "../..", "-out", folder, "-platforms", "linux/"+runtime.GOARCH)
	index := openImage(t, folder)
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	inside, err := os.MkdirTemp("", "capi-proxy-patcher-root-") //nolint:usetesting // other users may enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(inside) })
	unpack(t, image, inside)
	if err := os.Chmod(inside, 0o755); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	inImage := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), config.Config.Entrypoint[0], args...)
		cmd.Dir, cmd.Env = "/", []string{}
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Chroot:     inside,
			Credential: &syscall.Credential{Uid: 65532, Gid: 65532},
			Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := inImage("--version")
	if errors.Is(err, syscall.EPERM) {
		t.Skip("may not make namespaces: ", err)
	}
	if err != nil || !strings.Contains(out, testVersion+" "+runtime.Version()) {
		t.Errorf("%v: %s", err, out)
	}
	out, err = inImage("version", "-o", "json")
	if err != nil || !strings.Contains(out, `"commit": "`+revision+`"`) {
		t.Errorf("%v: %s", err, out)
	}
	// Without arguments it is the manager, and says what it misses.
	out, err = inImage(config.Config.Cmd...)
	if err == nil || !strings.Contains(out, "kubeconfig") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestImage_IsPushed(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(registry.New())
	defer server.Close()
	target := strings.TrimPrefix(server.URL, "http://") + "/team/capi-proxy-patcher:" + testVersion
	digest := makeImage(t, "-package", small, "-out", filepath.Join(t.TempDir(), "layout"), "-push", target)
	ref, err := name.ParseReference(target)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if is, err := pulled.Digest(); err != nil || is.String() != digest {
		t.Errorf("the registry has %s, %v, want %s", is, err, digest)
	}
	if err := validate.Index(pulled); err != nil {
		t.Error(err)
	}
}

func TestImage_RefusesWhatItCannotBuild(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"name a registry, a repository and a tag": {"-push", "capi-proxy-patcher:dev"},
		`-platforms "darwin/arm64"`:               {"-platforms", "darwin/arm64"},
		"building for linux/amd64":                {"-platforms", "linux/amd64", "-package", "./nothing"},
	} {
		out := filepath.Join(t.TempDir(), "layout")
		err := run(t.Context(), append([]string{"-root", root, "-out", out}, args...), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%v: there is a layout", args)
		}
	}
}
