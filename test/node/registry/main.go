//go:build node

// Command registry is a registry of container images that it makes from files of this machine, so that nothing is
// stored twice.
//
//	registry ADDRESS CERTIFICATE KEY IMAGES
//
// ADDRESS is host:port, CERTIFICATE and KEY are files in PEM, IMAGES is a file with a JSON list of images. Every
// request gives a line on standard output: the client's address, the method, the path, the status and the client's name
// of itself. It prints "ready" when it serves.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	headerTimeout = 10 * time.Second
	// idleTimeout is short, because a proxy logs a tunnel when it is closed.
	idleTimeout = time.Second
)

func main() {
	log.SetFlags(0)
	if err := run(os.Args[1:]); err != nil {
		log.Fatal("registry: ", err)
	}
}

func run(args []string) error {
	if len(args) != 4 {
		return errors.New("usage: registry ADDRESS CERTIFICATE KEY IMAGES")
	}
	text, err := os.ReadFile(args[3]) //nolint:gosec // an argument of the test
	if err != nil {
		return err
	}
	var images []image
	if err := json.Unmarshal(text, &images); err != nil {
		return fmt.Errorf("reading %s: %w", args[3], err)
	}
	handler, err := newRegistry(images)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", args[0]) //nolint:noctx // it listens until the process ends
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: logged(handler, os.Stdout), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: log.New(io.Discard, "", 0), // handshakes that clients break off, as they should where they do not trust
	}
	if _, err := fmt.Fprintln(os.Stdout, "ready"); err != nil {
		return err
	}
	return server.ServeTLS(listener, args[1], args[2])
}

// newRegistry returns a registry with images.
func newRegistry(images []image) (http.Handler, error) {
	held := blobs{}
	handler := registry.New(registry.WithBlobHandler(held), registry.Logger(log.New(io.Discard, "", 0)))
	for _, i := range images {
		built, err := i.build()
		if err != nil {
			return nil, err
		}
		layers, err := built.Layers()
		if err != nil {
			return nil, err
		}
		config, err := partial.ConfigLayer(built)
		if err != nil {
			return nil, err
		}
		for _, l := range append(layers, config) {
			digest, err := l.Digest()
			if err != nil {
				return nil, err
			}
			held[digest] = l
		}
		manifest, err := built.RawManifest()
		if err != nil {
			return nil, err
		}
		put := httptest.NewRequest(http.MethodPut, "/v2/"+i.Repository+"/manifests/"+i.Tag, bytes.NewReader(manifest)) //nolint:noctx // nothing waits for it
		put.Header.Set("Content-Type", string(types.OCIManifestSchema1))
		answer := httptest.NewRecorder()
		if handler.ServeHTTP(answer, put); answer.Code != http.StatusCreated {
			return nil, fmt.Errorf("adding %s: %s", i.Repository, answer.Body)
		}
	}
	return handler, nil
}

// blobs are the layers and configurations of images, for reading only.
type blobs map[v1.Hash]v1.Layer

// Get implements registry.BlobHandler.
func (b blobs) Get(_ context.Context, _ string, digest v1.Hash) (io.ReadCloser, error) {
	if l, found := b[digest]; found {
		return l.Compressed()
	}
	return nil, registry.ErrNotFound
}

// Stat implements registry.BlobStatHandler.
func (b blobs) Stat(_ context.Context, _ string, digest v1.Hash) (int64, error) {
	if l, found := b[digest]; found {
		return l.Size()
	}
	return 0, registry.ErrNotFound
}

// logged writes a line for every request to out.
func logged(handler http.Handler, out io.Writer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		recorder := &recorder{ResponseWriter: w, status: http.StatusOK}
		handler.ServeHTTP(recorder, request)
		client, _, _ := net.SplitHostPort(request.RemoteAddr)
		_, _ = fmt.Fprintf(out, "%s %s %s %d %q\n", client, request.Method, request.URL.Path, recorder.status,
			request.UserAgent())
	})
}

type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}
