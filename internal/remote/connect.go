// Package remote is the one way to workload clusters: a connection for each pass, with bounded answers and in bounded
// time (Clusters), and objects that are applied there and deleted (Applier). The owner of a workload cluster decides
// how it answers, and may be hostile.
package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

const (
	// callTime is how long one request may take.
	callTime = 5 * time.Second
	// maxAnswer is the largest answer that is read, in bytes. An object has 1.5 MiB at most, and a page of Pods or of
	// metadata less than this.
	maxAnswer = 32 << 20
	// maxAnswers bounds all answers to one connection together, in bytes. The metadata of the Nodes and the Pods of 5,000
	// nodes have 40 MB.
	maxAnswers = 2 * maxAnswer
)

// Connection is a client for a workload cluster, without a cache. Requests follow each other.
type Connection struct {
	client.Client

	// Server identifies the server that the kubeconfig names.
	Server string
	// Close closes what is open.
	Close func()
}

// Connect returns a function for NewClusters: it reads the kubeconfig of a Cluster as Cluster API does, from live, and
// sends nothing to the workload cluster yet.
func Connect(live client.Reader) func(context.Context, client.ObjectKey) (Connection, error) {
	scheme := runtime.NewScheme()
	failed := clientgoscheme.AddToScheme(scheme)
	mapper := newMapper()
	return func(ctx context.Context, cluster client.ObjectKey) (Connection, error) {
		if failed != nil {
			return Connection{}, fmt.Errorf("building scheme: %w", failed)
		}
		config, httpClient, err := Dial(ctx, live, cluster)
		if err != nil {
			return Connection{}, err
		}
		remote, err := client.New(config, client.Options{HTTPClient: httpClient, Scheme: scheme, Mapper: mapper})
		if err != nil {
			return Connection{}, fmt.Errorf("connecting to the workload cluster: %w", err)
		}
		return Connection{
			Client: remote, Server: identityOf(config),
			Close: func() { utilnet.CloseIdleConnectionsFor(httpClient.Transport) },
		}, nil
	}
}

// Dial returns how to connect to the workload cluster of a Cluster, and what sends requests there: it follows no
// redirect, asks for no compression, and reads a bounded number of bytes, of each answer and of all together.
func Dial(ctx context.Context, live client.Reader, cluster client.ObjectKey) (*rest.Config, *http.Client, error) {
	config, err := RESTConfig(ctx, live, cluster)
	if err != nil {
		return nil, nil, err
	}
	httpClient, err := rest.HTTPClientFor(bounded(config))
	if err != nil {
		return nil, nil, refused(KubeconfigName(cluster), "it cannot be used")
	}
	httpClient.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return config, httpClient, nil
}

// newMapper maps the kinds that are read and written. Nothing is discovered: the answer would be another's.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for scope, kinds := range map[meta.RESTScope][]schema.GroupVersionKind{
		meta.RESTScopeNamespace: {
			corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Secret"),
			corev1.SchemeGroupVersion.WithKind("ServiceAccount"), corev1.SchemeGroupVersion.WithKind("Pod"),
			{Group: "apps", Version: "v1", Kind: "DaemonSet"},
			{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
			{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
			{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		},
		meta.RESTScopeRoot: {
			corev1.SchemeGroupVersion.WithKind("Namespace"), corev1.SchemeGroupVersion.WithKind("Node"),
			{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
			{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
			{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicyBinding"},
			{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicy"},
			{Group: "policies.kyverno.io", Version: "v1", Kind: "MutatingPolicy"},
		},
	} {
		for _, kind := range kinds {
			mapper.Add(kind, scope)
		}
	}
	return mapper
}

// bounded bounds what the server of a config can make the manager read, and returns config.
func bounded(config *rest.Config) *rest.Config {
	config.UserAgent = contract.Name + "/" + contract.CurrentBuild().Version
	config.Timeout, config.DisableCompression = callTime, true // a megabyte of gzip can be a gigabyte of memory
	config.QPS = -1                                            // one pass is bounded already
	config.Proxy = http.ProxyFromEnvironment                   // and client-go keeps no transport for ever
	config.WarningHandler = rest.NoWarnings{}
	var left atomic.Int64
	left.Store(maxAnswers)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limited{next, &left} })
	return config
}

// limited ends an answer with more than maxAnswer bytes, and answers with more than maxAnswers together, with an error.
type limited struct {
	http.RoundTripper

	left *atomic.Int64
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
	total *atomic.Int64
}

var errTooLarge = errors.New("the workload cluster answers with too many bytes")

// Read implements io.Reader.
func (b *limitedBody) Read(into []byte) (int, error) {
	if len(into) > b.left+1 {
		into = into[:b.left+1]
	}
	n, err := b.ReadCloser.Read(into)
	b.left -= n
	if b.total.Add(-int64(n)) < 0 || b.left < 0 {
		return 0, errTooLarge
	}
	return n, err //nolint:wrapcheck // io.EOF must be itself
}
