//go:build e2e

package infra

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

// endpointPort is the port of every control-plane endpoint; their addresses differ.
const endpointPort = 6443

// Workloads are the API servers of all workload clusters: views of one API server. A view shows the Nodes of its
// cluster and no others, and has another namespace under the name kube-system. Everything else is shared.
type Workloads struct {
	backend   *url.URL
	transport http.RoundTripper
	client    client.Client

	mu    sync.Mutex
	hosts map[types.NamespacedName]string
}

// NewWorkloads returns the API servers of workload clusters, kept in the one that config names.
func NewWorkloads(config *rest.Config) (*Workloads, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.UserAgent = -1, "workload-clusters"
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("preparing workload clusters: %w", err)
	}
	backend, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("preparing workload clusters: %w", err)
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("preparing workload clusters: %w", err)
	}
	return &Workloads{backend: backend, transport: transport, client: c, hosts: map[types.NamespacedName]string{}}, nil
}

// systemNamespace is the namespace that a workload cluster sees as kube-system. Its name is as long as that, so that
// one can be put in the place of the other in any encoding.
func systemNamespace(cluster types.NamespacedName) string {
	sum := sha256.Sum256([]byte(cluster.String()))
	return "w" + hex.EncodeToString(sum[:5])
}

// Ensure returns the endpoint of a workload cluster and begins to serve it, if it does not yet. Its certificates are
// issued by the authority that Cluster API makes for the cluster, which is read from secrets with the first connection.
func (w *Workloads) Ensure(ctx context.Context, cluster types.NamespacedName, secrets client.Reader) (host string,
	port int, err error,
) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if host, ok := w.hosts[cluster]; ok {
		return host, endpointPort, nil
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace(cluster)}}
	if err := client.IgnoreAlreadyExists(w.client.Create(ctx, namespace)); err != nil {
		return "", 0, fmt.Errorf("creating Namespace %s: %w", namespace.Name, err)
	}
	number := len(w.hosts) + 1
	host = fmt.Sprintf("10.99.%d.%d", 1+number/250, 1+number%250) // in management.EndpointNetwork
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(endpointPort)))
	if err != nil {
		return "", 0, fmt.Errorf("serving workload cluster %s: %w", cluster, err)
	}
	identity := &identity{cluster: cluster, host: host, secrets: secrets}
	server := &http.Server{
		Handler:           w.view(cluster),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0),
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: identity.config},
	}
	go func() { _ = server.ServeTLS(listener, "", "") }() // it ends with the process
	w.hosts[cluster] = host
	return host, endpointPort, nil
}

// identity issues the serving certificate of a workload cluster when it is needed first.
type identity struct {
	cluster types.NamespacedName
	host    string
	secrets client.Reader

	mu      sync.Mutex
	current *tls.Config
}

func (i *identity) config(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current != nil {
		return i.current, nil
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: i.cluster.Namespace, Name: i.cluster.Name + "-ca"}
	if err := i.secrets.Get(hello.Context(), key, secret); err != nil {
		return nil, fmt.Errorf("reading authority of workload cluster %s: %w", i.cluster, err)
	}
	authority, err := pki.Parse(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, err
	}
	certificate, private, err := authority.Issue("kube-apiserver", i.host)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, private)
	if err != nil {
		return nil, fmt.Errorf("issuing certificate of workload cluster %s: %w", i.cluster, err)
	}
	clients := authority.Pool()
	i.current = &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
	}
	return i.current, nil
}

// view forwards requests of one workload cluster.
func (w *Workloads) view(cluster types.NamespacedName) http.Handler {
	namespace := systemNamespace(cluster)
	proxy := &httputil.ReverseProxy{
		Transport:     w.transport,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(w.backend)
			r.Out.Header.Del("Accept-Encoding")
			r.Out.Body = rename(r.Out.Body, metav1.NamespaceSystem, namespace)
			path := r.Out.URL.Path
			r.Out.URL.Path = strings.Replace(path, "/namespaces/"+metav1.NamespaceSystem, "/namespaces/"+namespace, 1)
			if path == "/api/v1/nodes" && r.Out.Method == http.MethodGet {
				query := r.Out.URL.Query()
				selector := clusterLabel + "=" + namespace
				if given := query.Get("labelSelector"); given != "" {
					selector += "," + given
				}
				query.Set("labelSelector", selector)
				r.Out.URL.RawQuery = query.Encode()
			}
		},
		ModifyResponse: func(r *http.Response) error {
			r.Body = rename(r.Body, namespace, metav1.NamespaceSystem)
			return nil
		},
	}
	return proxy
}

// renamed is a stream in which one name is put in the place of another of the same length.
type renamed struct {
	io.ReadCloser
	from, to []byte
	pending  []byte // read, and perhaps the beginning of from
	ready    []byte
	err      error
}

func rename(body io.ReadCloser, from, to string) io.ReadCloser {
	if body == nil {
		return nil
	}
	return &renamed{ReadCloser: body, from: []byte(from), to: []byte(to)}
}

func (r *renamed) Read(p []byte) (int, error) {
	for len(r.ready) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		chunk := make([]byte, 32*1024)
		var n int
		n, r.err = r.ReadCloser.Read(chunk)
		data := bytes.ReplaceAll(append(r.pending, chunk[:n]...), r.from, r.to)
		keep := 0
		if r.err == nil {
			keep = r.begun(data)
		}
		r.ready, r.pending = data[:len(data)-keep], bytes.Clone(data[len(data)-keep:])
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

// begun returns how many bytes at the end of data are the beginning of from.
func (r *renamed) begun(data []byte) int {
	for n := min(len(r.from)-1, len(data)); n > 0; n-- {
		if bytes.HasSuffix(data, r.from[:n]) {
			return n
		}
	}
	return 0
}
