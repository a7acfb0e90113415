// Package workload is the manager's way to workload clusters. It applies objects there and deletes them (Applier),
// with a connection for each time. For updates in place (contract.RolloutInPlace) it follows the nodes, too: it labels
// the Nodes that get files, records which Machines have got them, and reports how far that is; a function of values
// decides (Decide). Only Clusters that ask for updates in place stay connected.
package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

const (
	// maxAnswer is the largest answer of a workload cluster that is read, in bytes. An object has 1.5 MiB at most, and the
	// metadata of a page of them less than this.
	maxAnswer = 32 << 20
	// maxAnswers bounds all answers to one connection together, in bytes: lists are kept until the pass ends. The metadata
	// of the Nodes and Pods of 5,000 nodes have 40 MB.
	maxAnswers = 2 * maxAnswer
)

// refusedError is a kubeconfig that the manager does not connect with.
type refusedError struct{ why string }

func (e *refusedError) Error() string { return e.why }

func refused(format string, key client.ObjectKey, more ...any) error {
	return &refusedError{fmt.Sprintf(format, append([]any{key}, more...)...)}
}

// Connect returns a function for Applier.Connect: it reads the kubeconfig of a Cluster as Cluster API does, from live.
func Connect(live client.Reader) (func(context.Context, client.ObjectKey) (client.Client, func(), error), error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("building scheme: %w", err)
	}
	mapper := newMapper()
	return func(ctx context.Context, cluster client.ObjectKey) (client.Client, func(), error) {
		config, err := RESTConfig(ctx, live, cluster)
		if err != nil {
			return nil, nil, err
		}
		httpClient, err := rest.HTTPClientFor(bounded(config))
		if err != nil {
			return nil, nil, refused("reading kubeconfig of Secret %s-kubeconfig: it cannot be used", cluster)
		}
		httpClient.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		remote, err := client.New(config, client.Options{HTTPClient: httpClient, Scheme: scheme, Mapper: mapper})
		if err != nil {
			return nil, nil, fmt.Errorf("connecting to the workload cluster: %w", err)
		}
		return remote, func() { utilnet.CloseIdleConnectionsFor(httpClient.Transport) }, nil
	}, nil
}

// bounded bounds what the server of a config can make the manager read, and returns config.
func bounded(config *rest.Config) *rest.Config {
	config.UserAgent = contract.Name + "/" + contract.CurrentBuild().Version
	config.Timeout, config.DisableCompression = callTime, true
	config.QPS = -1                          // one pass is bounded already
	config.Proxy = http.ProxyFromEnvironment // and client-go keeps no transport for ever
	config.WarningHandler = rest.NoWarnings{}
	left := maxAnswers
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limited{next, &left} })
	return config
}

// limited ends an answer with more than maxAnswer bytes, and answers with more than maxAnswers together, with an error.
// Requests of a pass follow each other.
type limited struct {
	http.RoundTripper

	left *int
}

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = &limitedBody{response.Body, maxAnswer, l.left}
	}
	return response, err //nolint:wrapcheck // it is the transport
}

// WrappedRoundTripper implements net.RoundTripperWrapper, by which connections are closed.
func (l limited) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }

type limitedBody struct {
	io.ReadCloser

	left  int
	total *int
}

var errTooLarge = errors.New("the workload cluster answers with too many bytes")

// Read implements io.Reader.
func (b *limitedBody) Read(into []byte) (int, error) {
	if len(into) > b.left+1 {
		into = into[:b.left+1]
	}
	n, err := b.ReadCloser.Read(into)
	b.left -= n
	if *b.total -= n; b.left < 0 || *b.total < 0 {
		return 0, errTooLarge
	}
	return n, err //nolint:wrapcheck // io.EOF must be itself
}
