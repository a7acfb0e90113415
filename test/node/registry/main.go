//go:build node

// Command registry is a registry of container images, for reading only, by the OCI distribution specification. It
// serves images that it makes from files of this machine, so that nothing is stored twice.
//
//	registry ADDRESS CERTIFICATE KEY IMAGES
//
// ADDRESS is host:port, CERTIFICATE and KEY are files in PEM, IMAGES is a file with a JSON list of images. Every
// request gives a line on standard output: the client's address, the method, the path, the status and the client's name
// of itself. It prints "ready" when it serves.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
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
	registry, err := newRegistry(images)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", args[0]) //nolint:noctx // it listens until the process ends
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: logged(registry, os.Stdout), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: log.New(io.Discard, "", 0), // handshakes that clients break off, as they should where they do not trust
	}
	if _, err := fmt.Fprintln(os.Stdout, "ready"); err != nil {
		return err
	}
	return server.ServeTLS(listener, args[1], args[2])
}

// registry serves blobs by digest, and manifests by digest or tag.
type registry struct {
	blobs     map[string]blob // by digest
	manifests map[string]blob // by repository:tag and by digest
}

func newRegistry(images []image) (*registry, error) {
	r := &registry{blobs: map[string]blob{}, manifests: map[string]blob{}}
	for _, i := range images {
		blobs, err := i.blobs()
		if err != nil {
			return nil, err
		}
		for _, b := range blobs[1:] {
			r.blobs[b.Digest] = b
		}
		r.manifests[i.Repository+":"+i.Tag] = blobs[0]
		r.manifests[blobs[0].Digest] = blobs[0]
	}
	return r, nil
}

// ServeHTTP answers GET and HEAD of /v2/, /v2/NAME/manifests/REFERENCE and /v2/NAME/blobs/DIGEST.
func (r *registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		http.Error(w, "for reading only", http.StatusMethodNotAllowed)
		return
	}
	if request.URL.Path == "/v2/" {
		return
	}
	b, found := r.find(request.URL.Path)
	if !found {
		http.Error(w, "not here", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", b.MediaType)
	w.Header().Set("Content-Length", strconv.FormatInt(b.Size, 10))
	w.Header().Set("Docker-Content-Digest", b.Digest)
	if request.Method == http.MethodHead {
		return
	}
	content, err := b.open()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = content.Close() }()
	_, _ = io.Copy(w, content) // a client that disconnects, or a file that changed: the client sees it by the length
}

func (r *registry) find(path string) (blob, bool) {
	rest, found := strings.CutPrefix(path, "/v2/")
	if !found {
		return blob{}, false
	}
	if _, digest, found := strings.Cut(rest, "/blobs/"); found {
		b, found := r.blobs[digest]
		return b, found
	}
	name, reference, found := strings.Cut(rest, "/manifests/")
	if !found {
		return blob{}, false
	}
	if !strings.HasPrefix(reference, "sha256:") {
		reference = name + ":" + reference
	}
	b, found := r.manifests[reference]
	return b, found
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
