package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

const (
	// healthLimit is how long a service may take until it answers after a restart.
	healthLimit = 2 * time.Minute
	// healthTry is how long one answer may take, healthPause the time between two tries.
	healthTry, healthPause = 5 * time.Second, 250 * time.Millisecond

	maxAnswer = 4 << 10

	// Statuses of gRPC that are an answer: of a runtime, and of a containerd without the CRI plugin.
	grpcOK, grpcUnimplemented = "0", "12"
)

// socketOf returns the socket at which a service answers by gRPC, "" if it does not.
func socketOf(name string) string {
	for _, u := range patch.Units() {
		if u.Name() == name {
			return u.Socket
		}
	}
	return ""
}

// asked returns what asks a service once. healthz is where kubelet reports its health, "" if it does not.
func asked(root, name, healthz string) func(context.Context) error {
	switch socket := socketOf(name); {
	case socket != "":
		return func(ctx context.Context) error { return containerdAnswers(ctx, filepath.Join(root, socket)) }
	case healthz == "":
		return func(context.Context) error { return nil }
	}
	return func(ctx context.Context) error { return kubeletAnswers(ctx, healthz) }
}

// healthzOf returns where the kubelet with a command line reports its health, "" if it does not: flags come before the
// file of its configuration, and that of kubeadm is read if none is named.
func healthzOf(on Files, args []string) string {
	const file = "/var/lib/kubelet/config.yaml"
	flags := map[string]string{"config": file}
	for i, arg := range args {
		name, value, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !given && i+1 < len(args) {
			value = args[i+1]
		}
		flags[name] = value
	}
	config := struct {
		HealthzPort        *int   `json:"healthzPort"`
		HealthzBindAddress string `json:"healthzBindAddress"`
	}{}
	if f, err := on.ReadThroughLinks(flags["config"]); err == nil {
		_ = yaml.Unmarshal(f.Content, &config) // what kubelet cannot read it does not run with
	}
	host, port := cmp.Or(flags["healthz-bind-address"], config.HealthzBindAddress), flags["healthz-port"]
	if port == "" && config.HealthzPort != nil {
		port = strconv.Itoa(*config.HealthzPort)
	}
	address, err := netip.ParseAddr(cmp.Or(host, "127.0.0.1"))
	if err != nil || port == "0" {
		return ""
	}
	if address.IsUnspecified() {
		address = netip.MustParseAddr("127.0.0.1")
	}
	return "http://" + net.JoinHostPort(address.String(), cmp.Or(port, "10248")) + "/healthz"
}

// answers waits until a service answers.
func answers(ctx context.Context, root, name, healthz string) error {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	ask := asked(root, name, healthz)
	for {
		try, done := context.WithTimeout(ctx, healthTry)
		err := ask(try)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer %s after its restart: %w: see journalctl -u %s on the node", name,
				healthLimit, err, name)
		case <-time.After(healthPause):
		}
	}
}

// containerdAnswers asks the container runtime for its version, by gRPC.
func containerdAnswers(ctx context.Context, socket string) error {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{
		Protocols: &protocols, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", socket)
		},
	}
	defer transport.CloseIdleConnections()
	const emptyMessage = "\x00\x00\x00\x00\x00" // not compressed, 0 bytes
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/runtime.v1.RuntimeService/Version",
		bytes.NewReader([]byte(emptyMessage)))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer)); err != nil {
		return err
	}
	status := response.Trailer.Get("Grpc-Status")
	if status == "" {
		status = response.Header.Get("Grpc-Status") // an answer without a message
	}
	if status != grpcOK && status != grpcUnimplemented {
		return fmt.Errorf("status %d of HTTP, %.10q of gRPC", response.StatusCode, status)
	}
	return nil
}

// kubeletAnswers asks for the health of kubelet.
func kubeletAnswers(ctx context.Context, url string) error {
	transport := &http.Transport{DisableKeepAlives: true} // without a proxy
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(url + ": status " + http.StatusText(response.StatusCode))
	}
	return nil
}
