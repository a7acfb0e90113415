package extension

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimeserver "sigs.k8s.io/cluster-api/exp/runtime/server"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// ServerOptions say where hooks are served.
type ServerOptions struct {
	// Host is the address to listen at; empty means all.
	Host string
	// Port is the port to listen at.
	Port int
	// CertDir is the folder with tls.crt and tls.key, which are read again when they change.
	CertDir string
	// ClientCAName is the file in CertDir with the authorities whose clients may call. Empty lets everybody call.
	ClientCAName string
}

// timeoutSeconds is how long Cluster API waits for an answer. An answer takes milliseconds; a server that has gone away is
// asked again sooner for it.
const timeoutSeconds = 10

// maxBody is the limit of Cluster API's runtime server.
const maxBody = 20 << 20

// NewServer returns Cluster API's runtime server with the handlers, to be started with Start or added to a manager.
// BeforeClusterCreate is announced only where there is a State and a Hold.
func (h *Handlers) NewServer(o ServerOptions) (*runtimeserver.Server, error) {
	catalog := runtimecatalog.New()
	if err := runtimehooksv1.AddToCatalog(catalog); err != nil {
		return nil, fmt.Errorf("building catalog of hooks: %w", err)
	}
	server, err := runtimeserver.New(runtimeserver.Options{
		Catalog: catalog, Host: o.Host, Port: o.Port, CertDir: o.CertDir, ClientCAName: o.ClientCAName,
		TLSOpts: []func(*tls.Config){func(config *tls.Config) {
			config.MinVersion = tls.VersionTLS12
			// Cluster API sends one request after the other, and HTTP/2 lets one connection ask for work without end.
			config.NextProtos = []string{"http/1.1"}
			// Answers are large and all of an answer is needed, so small first records only cost system calls.
			config.DynamicRecordSizingDisabled = true
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the server of hooks: %w", err)
	}
	handlers := []runtimeserver.ExtensionHandler{
		{Hook: runtimehooksv1.DiscoverVariables, Name: contract.HandlerDiscoverVariables, HandlerFunc: h.DiscoverVariables},
		{Hook: runtimehooksv1.GeneratePatches, Name: contract.HandlerGeneratePatches, HandlerFunc: h.GeneratePatches},
		{Hook: runtimehooksv1.ValidateTopology, Name: contract.HandlerValidateTopology, HandlerFunc: h.ValidateTopology},
	}
	if h.State != nil && h.Hold > 0 {
		handlers = append(handlers, runtimeserver.ExtensionHandler{
			Hook: runtimehooksv1.BeforeClusterCreate, Name: contract.HandlerBeforeClusterCreate, HandlerFunc: h.BeforeClusterCreate,
		})
	}
	for _, handler := range handlers {
		handler.TimeoutSeconds = new(int32(timeoutSeconds))
		handler.FailurePolicy = new(runtimehooksv1.FailurePolicyFail)
		if err := server.AddExtensionHandler(handler); err != nil {
			return nil, fmt.Errorf("adding handler %s: %w", handler.Name, err)
		}
	}
	generate, err := catalog.GroupVersionHook(runtimehooksv1.GeneratePatches)
	if err != nil {
		return nil, fmt.Errorf("looking up hook: %w", err)
	}
	server.Server = direct{
		Server: server.Server, path: runtimecatalog.GVHToPath(generate, contract.HandlerGeneratePatches), handler: http.HandlerFunc(h.serveGenerate),
	}
	return server, nil
}

// direct is a server on which one path has a handler of its own. Cluster API's server decodes every template of a request
// before it calls a handler, which costs more than everything else.
type direct struct {
	ctrlwebhook.Server
	path    string
	handler http.Handler
}

// Register implements ctrlwebhook.Server.
func (d direct) Register(path string, handler http.Handler) {
	if path == d.path {
		handler = d.handler
	}
	d.Server.Register(path, handler)
}

// serveGenerate answers GeneratePatches from the body of the request.
func (h *Handlers) serveGenerate(w http.ResponseWriter, r *http.Request) {
	body, response := h.buffer(), h.buffer()
	defer h.release(body)
	defer h.release(response)
	err := readBody(w, r, body)
	if err == nil {
		err = h.respond(ctrl.LoggerInto(r.Context(), ctrl.Log), body.Bytes(), response)
	}
	if err != nil {
		encodeFailure(err, response)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(response.Len()))
	_, _ = w.Write(response.Bytes())
}

// respond writes the answer to a body, as encoding/json writes a GeneratePatchesResponse.
func (h *Handlers) respond(ctx context.Context, body []byte, response *bytes.Buffer) error {
	response.WriteString(`{"status":"Success"`)
	to := bodyResponder{response: response}
	if err := h.generateBody(ctx, body, &to); err != nil {
		return err
	}
	if to.started {
		response.WriteByte(']')
	}
	response.WriteByte('}')
	return nil
}

// bodyResponder writes patches into a body.
type bodyResponder struct {
	response *bytes.Buffer
	started  bool
	written  []writtenPatch
}

// writtenPatch is where a patch that was kept is in the response.
type writtenPatch struct {
	patch      []byte
	start, end int
}

func (b *bodyResponder) add(uid, patch []byte, kept bool) {
	separator := `,`
	if !b.started {
		separator = `,"items":[`
		b.started = true
	}
	r := b.response
	r.WriteString(separator)
	r.WriteString(`{"uid":`)
	r.Write(uid)
	r.WriteString(`,"patchType":"JSONPatch","patch":"`)
	b.write(patch, kept)
	r.WriteString(`"}`)
}

// write writes a patch in base64 (RFC 4648), by a copy if it has been written before.
func (b *bodyResponder) write(patch []byte, kept bool) {
	r := b.response
	if kept {
		for _, w := range b.written {
			if len(w.patch) == len(patch) && &w.patch[0] == &patch[0] {
				r.Grow(w.end - w.start)
				r.Write(r.Bytes()[w.start:w.end])
				return
			}
		}
	}
	start, size := r.Len(), base64.StdEncoding.EncodedLen(len(patch))
	r.Grow(size)
	text := r.AvailableBuffer()[:size]
	base64.StdEncoding.Encode(text, patch)
	r.Write(text)
	if kept {
		b.written = append(b.written, writtenPatch{patch, start, r.Len()})
	}
}

// encodeFailure writes an error as the answer.
func encodeFailure(err error, response *bytes.Buffer) {
	answer := runtimehooksv1.GeneratePatchesResponse{}
	answer.SetStatus(runtimehooksv1.ResponseStatusFailure)
	answer.SetMessage(message(err))
	text, _ := json.Marshal(answer) //nolint:errchkjson // two strings
	response.Reset()
	response.Write(text)
}

// maxKept is the largest buffer that is kept for the next request.
const maxKept = 4 << 20

func (h *Handlers) buffer() *bytes.Buffer {
	if b, found := h.buffers.Get().(*bytes.Buffer); found {
		b.Reset()
		return b
	}
	return &bytes.Buffer{}
}

func (h *Handlers) release(b *bytes.Buffer) {
	if b.Cap() <= maxKept {
		h.buffers.Put(b)
	}
}

// readBody reads at most maxBody bytes. Before they have come, it makes no more room than a usual request needs.
func readBody(w http.ResponseWriter, r *http.Request, body *bytes.Buffer) error {
	const usual = 1 << 20
	body.Grow(int(min(max(r.ContentLength, 0), usual)) + bytes.MinRead)
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return fmt.Errorf("reading the request: it has more than %d bytes", maxBody)
	}
	if err != nil {
		return errors.New("reading the request: the connection broke")
	}
	return nil
}
