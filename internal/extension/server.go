package extension

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimeserver "sigs.k8s.io/cluster-api/exp/runtime/server"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/server"
)

// timeoutSeconds is how long Cluster API waits for an answer. An answer takes milliseconds; a short timeout lets
// Cluster API retry sooner when a server is gone.
const timeoutSeconds = 10

const (
	// maxBody is the limit of Cluster API's runtime server in bytes. Requests of a topology with 300 or more pools are
	// large.
	maxBody = 20 << 20
	// maxConnections is how many are open at once. Each may hold a body or an answer of that size.
	maxConnections = 8
	// maxSmall is the largest body of a request that Cluster API's runtime server decodes, whose decoded values can be
	// a thousand times as large as the text.
	maxSmall = 64 << 10
)

// maxAnswer returns the size of the largest answer to a body of a size, in bytes: an answer with all entries of the
// proxy is not ten times as large, and Cluster API reads 20 MiB.
func maxAnswer(body int) int { return min(20<<20, 1<<20+12*body) }

// NewServer returns Cluster API's runtime server with the handlers, to be started or added to a manager.
func (h *Handlers) NewServer(listener net.Listener, config *tls.Config) (*runtimeserver.Server, error) {
	catalog := runtimecatalog.New()
	if err := runtimehooksv1.AddToCatalog(catalog); err != nil {
		return nil, fmt.Errorf("building catalog of hooks: %w", err)
	}
	runtime, err := runtimeserver.New(runtimeserver.Options{Catalog: catalog})
	if err != nil {
		return nil, fmt.Errorf("setting up the server of hooks: %w", err)
	}
	handlers := []struct {
		hook    runtimecatalog.Hook
		name    string
		handler runtimecatalog.Hook
		direct  directHandler // nil where Cluster API's server decodes the request
	}{
		{runtimehooksv1.DiscoverVariables, contract.HandlerDiscoverVariables, h.DiscoverVariables, nil},
		{
			runtimehooksv1.GeneratePatches, contract.HandlerGeneratePatches,
			signature[runtimehooksv1.GeneratePatchesRequest, runtimehooksv1.GeneratePatchesResponse], h.respond,
		},
		{
			runtimehooksv1.ValidateTopology, contract.HandlerValidateTopology,
			signature[runtimehooksv1.ValidateTopologyRequest, runtimehooksv1.ValidateTopologyResponse], h.respondValidate,
		},
	}
	serving := server.New(server.Options{
		Listener: listener, TLS: config, Connections: maxConnections, MaxBody: maxBody, KeepAlive: true,
		Time: timeoutSeconds * time.Second, Answered: h.Answered, Name: "hooks",
	})
	bounded := bounded{Server: serving, direct: map[string]directHandler{}}
	for _, handler := range handlers {
		gvh, err := catalog.GroupVersionHook(handler.hook)
		if err != nil {
			return nil, fmt.Errorf("looking up hook: %w", err)
		}
		if handler.direct != nil {
			bounded.direct[runtimecatalog.GVHToPath(gvh, handler.name)] = handler.direct
		}
		if err := runtime.AddExtensionHandler(runtimeserver.ExtensionHandler{
			Hook: handler.hook, Name: handler.name, HandlerFunc: handler.handler,
			TimeoutSeconds: new(int32(timeoutSeconds)), FailurePolicy: new(runtimehooksv1.FailurePolicyFail),
		}); err != nil {
			return nil, fmt.Errorf("adding handler %s: %w", handler.name, err)
		}
	}
	runtime.Server = bounded
	return runtime, nil
}

// signature gives Cluster API's server the hook of a handler. It is never called: Register replaces it by a
// directHandler.
func signature[Request, Response any](context.Context, *Request, *Response) {}

// directHandler writes the answer to the body of a request. Its error is answered as a failure.
type directHandler func(ctx context.Context, body []byte, response *bytes.Buffer) error

// bounded is a server with own handlers for some paths. Cluster API's server decodes every template of a request before
// it calls a handler, which costs more than everything else and as much memory as the client chooses.
type bounded struct {
	ctrlwebhook.Server

	direct map[string]directHandler
}

// Register implements ctrlwebhook.Server.
func (b bounded) Register(path string, handler http.Handler) {
	if direct, found := b.direct[path]; found {
		handler = direct
	} else {
		handler = small{handler}
	}
	b.Server.Register(path, handler)
}

// ServeHTTP implements http.Handler.
func (d directHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, _ := w.(*server.Exchange)
	if err := d(ctrl.LoggerInto(r.Context(), ctrl.Log), x.Body, &x.Answer); err != nil {
		x.Outcome = server.Failed
		encodeFailure(err, &x.Answer)
	}
	w.Header().Set("Content-Type", "application/json")
}

// small answers requests with a small body.
type small struct{ http.Handler }

// ServeHTTP implements http.Handler.
func (s small) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength > maxSmall {
		http.Error(w, fmt.Sprintf("the request has more than %d bytes", maxSmall), http.StatusRequestEntityTooLarge)
		return
	}
	s.Handler.ServeHTTP(w, r)
}

// encodeFailure writes an error as the answer.
func encodeFailure(err error, response *bytes.Buffer) {
	answer := runtimehooksv1.GeneratePatchesResponse{}
	answer.SetStatus(runtimehooksv1.ResponseStatusFailure)
	answer.SetMessage(err.Error())
	text, _ := json.Marshal(answer) //nolint:errchkjson // two strings
	response.Reset()
	response.Write(text)
}
