//go:build node

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func TestRegistry_ServesAnImageThatMatchesItsDigests(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	one := image{
		Repository: "group/one", Tag: "v1", Files: map[string]string{"/usr/bin/one": program, "/two": program},
		Entrypoint: []string{"/usr/bin/one"},
	}
	r, err := newRegistry([]image{one})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	handler := logged(r, &log)
	byTag := get(t, handler, "/v2/group/one/manifests/v1")
	manifest, err := v1.ParseManifest(bytes.NewReader(byTag))
	if err != nil || len(manifest.Layers) != 1 {
		t.Fatalf("%v: %s", err, byTag)
	}
	if byDigest := get(t, handler, "/v2/group/one/manifests/"+digestOf(t, byTag)); !bytes.Equal(byTag, byDigest) {
		t.Errorf("by tag %s, by digest %s", byTag, byDigest)
	}
	config, err := v1.ParseConfigFile(bytes.NewReader(blob(t, handler, manifest.Config)))
	if err != nil || !slices.Equal(config.Config.Entrypoint, one.Entrypoint) {
		t.Errorf("configuration: %v, %+v", err, config)
	}
	want := []string{"two 755", "usr/ 755", "usr/bin/ 755", "usr/bin/one 755"}
	if got := names(t, blob(t, handler, manifest.Layers[0])); !slices.Equal(got, want) {
		t.Errorf("layer has %q, want %q", got, want)
	}
	if line := "192.0.2.1 GET /v2/group/one/manifests/v1 200 \"\"\n"; !bytes.HasPrefix(log.Bytes(), []byte(line)) {
		t.Errorf("log: %s, want it to begin with %s", &log, line)
	}
	missing := "/v2/group/one/blobs/" + digestOf(t, []byte("nothing"))
	for path, want := range map[string]int{
		"/v2/": http.StatusOK, "/v2/one/manifests/v1": http.StatusNotFound, missing: http.StatusNotFound,
	} {
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		if response.Code != want {
			t.Errorf("%s: status %d, want %d", path, response.Code, want)
		}
	}
}

func TestRegistry_DoesNotStartWithoutItsFile(t *testing.T) {
	t.Parallel()
	_, err := newRegistry(
		[]image{{Repository: "one", Tag: "v1", Files: map[string]string{"/one": filepath.Join(t.TempDir(), "none")}}})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want that the file does not exist", err)
	}
}

func get(t *testing.T, handler http.Handler, path string) []byte {
	t.Helper()
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	if response.Code != http.StatusOK {
		t.Fatalf("%s: status %d", path, response.Code)
	}
	return response.Body.Bytes()
}

// blob returns a blob, checked against its descriptor.
func blob(t *testing.T, handler http.Handler, d v1.Descriptor) []byte {
	t.Helper()
	got := get(t, handler, "/v2/group/one/blobs/"+d.Digest.String())
	if digest := digestOf(t, got); digest != d.Digest.String() || int64(len(got)) != d.Size {
		t.Errorf("%d bytes of digest %s, want %d of %s", len(got), digest, d.Size, d.Digest)
	}
	return got
}

func digestOf(t *testing.T, content []byte) string {
	t.Helper()
	digest, _, err := v1.SHA256(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

func names(t *testing.T, layer []byte) []string {
	t.Helper()
	var names []string
	archive := tar.NewReader(bytes.NewReader(layer))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name+" "+strconv.FormatInt(header.Mode, 8))
	}
}
