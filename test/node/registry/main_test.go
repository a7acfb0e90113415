//go:build node

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRegistry_ServesAnImageThatMatchesItsDigests(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	r, err := newRegistry([]image{{
		Repository: "group/one", Tag: "v1", Files: map[string]string{"/usr/bin/one": program, "/two": program},
		Entrypoint: []string{"/usr/bin/one"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	handler := logged(r, &log)
	byTag := get(t, handler, "/v2/group/one/manifests/v1", manifestType)
	sum := sha256.Sum256(byTag)
	if byDigest := get(t, handler, "/v2/group/one/manifests/sha256:"+hex.EncodeToString(sum[:]),
		manifestType); !bytes.Equal(byTag, byDigest) {
		t.Errorf("by tag %s, by digest %s", byTag, byDigest)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	if err := json.Unmarshal(byTag, &manifest); err != nil {
		t.Fatal(err)
	}
	var config struct {
		Config struct{ Entrypoint []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(content(t, handler, manifest.Config), &config); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{manifest.Layers[0].Digest}, config.RootFS.DiffIDs); diff != "" {
		t.Errorf("layers (-manifest +configuration):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/usr/bin/one"}, config.Config.Entrypoint); diff != "" {
		t.Errorf("entrypoint (-want +got):\n%s", diff)
	}
	want := []string{"two 755", "usr/ 755", "usr/bin/ 755", "usr/bin/one 755"}
	if diff := cmp.Diff(want, names(t, content(t, handler, manifest.Layers[0]))); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}
	if line := "192.0.2.1 GET /v2/group/one/manifests/v1 200 \"\"\n"; !bytes.HasPrefix(log.Bytes(), []byte(line)) {
		t.Errorf("log: %s, want it to begin with %s", &log, line)
	}
}

func TestRegistry_RefusesWhatItDoesNotHave(t *testing.T) {
	t.Parallel()
	r, err := newRegistry(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, method, path string
		status             int
	}{
		{"the base of the API is there", http.MethodGet, "/v2/", http.StatusOK},
		{"an unknown image is not", http.MethodGet, "/v2/one/manifests/v1", http.StatusNotFound},
		{"an unknown blob is not", http.MethodHead, "/v2/one/blobs/sha256:00", http.StatusNotFound},
		{"a list of tags is not", http.MethodGet, "/v2/one/tags/list", http.StatusNotFound},
		{"what is outside of the API is not", http.MethodGet, "/etc/passwd", http.StatusNotFound},
		{"an upload is refused", http.MethodPost, "/v2/one/blobs/uploads/", http.StatusMethodNotAllowed},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			response := httptest.NewRecorder()
			r.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), test.method, test.path, http.NoBody))
			if response.Code != test.status {
				t.Errorf("status %d, want %d", response.Code, test.status)
			}
		})
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

func get(t *testing.T, handler http.Handler, path, mediaType string) []byte {
	t.Helper()
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	if got := response.Header().Get("Content-Type"); response.Code != http.StatusOK || got != mediaType {
		t.Fatalf("%s: status %d, type %q, want %q", path, response.Code, got, mediaType)
	}
	return response.Body.Bytes()
}

// content is a blob, checked against its descriptor.
func content(t *testing.T, handler http.Handler, d descriptor) []byte {
	t.Helper()
	got := get(t, handler, "/v2/group/one/blobs/"+d.Digest, d.MediaType)
	sum := sha256.Sum256(got)
	if digest := "sha256:" + hex.EncodeToString(sum[:]); digest != d.Digest || int64(len(got)) != d.Size {
		t.Errorf("%d bytes of digest %s, want %d of %s", len(got), digest, d.Size, d.Digest)
	}
	return got
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
