//go:build e2e

package management

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ports"
)

// BinaryVariable is the environment variable that names a program to run instead of one that is built from the
// checkout.
const BinaryVariable = "CAPI_PROXY_PATCHER_E2E_BINARY"

// Product is the manager of this repository in a management cluster.
type Product struct {
	*Process
	// User is the name by which the API server knows it.
	User string

	cluster   *Cluster
	manifests *manifests
}

// Build builds the product from the checkout into a folder and returns the path of the program, or what BinaryVariable
// names.
func Build(ctx context.Context, root, dir string) (string, error) {
	if binary := os.Getenv(BinaryVariable); binary != "" {
		return binary, nil
	}
	return mgmt.Build(ctx, root, dir)
}

// BuildChanged builds the product from the checkout with one file of it changed, which stays as it is, and returns the
// path of the program. file is relative to root.
func BuildChanged(ctx context.Context, root, dir, file string, change func(string) (string, error)) (string, error) {
	path, err := filepath.Abs(filepath.Join(root, file))
	if err != nil {
		return "", fmt.Errorf("changing %s: %w", file, err)
	}
	text, err := os.ReadFile(path) //nolint:gosec // of the checkout
	if err != nil {
		return "", fmt.Errorf("changing %s: %w", file, err)
	}
	changed, err := change(string(text))
	if err != nil {
		return "", fmt.Errorf("changing %s: %w", file, err)
	}
	replacement, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: replacement}})
	if err != nil {
		return "", fmt.Errorf("changing %s: %w", file, err)
	}
	if err := errors.Join(os.WriteFile(replacement, []byte(changed), 0o600),
		os.WriteFile(overlay, list, 0o600)); err != nil {
		return "", fmt.Errorf("changing %s: %w", file, err)
	}
	return mgmt.Build(ctx, root, dir, "-overlay", overlay)
}

// InstallProduct applies config/default, starts the manager with the arguments of its
// Deployment, those of more added, and has its webhooks asked. It returns when the manager is ready.
func (c *Cluster) InstallProduct(ctx context.Context, binary string, more ...string) (*Product, error) {
	port, err := ports.Free(ctx)
	if err != nil {
		return nil, err
	}
	m, err := c.load(filepath.Join(c.root, "config", "default"), port)
	if err != nil {
		return nil, err
	}
	if err := mgmt.InstallCRDs(c.Config(), m.crds); err != nil {
		return nil, err
	}
	if err := c.apply(ctx, m.objects); err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(c.dir, "product.kubeconfig")
	if err := c.accountKubeconfig(ctx, m, kubeconfig); err != nil {
		return nil, err
	}
	health, err := ports.Address(ctx)
	if err != nil {
		return nil, err
	}
	args := append(append([]string{}, m.args...), c.managerFlags(kubeconfig, m.account.Namespace, health, port)...)
	// There is no kubelet to start a manager again that could not renew its lease, and tests kill this one.
	args = append(args, "--leader-elect=false")
	p := &Product{
		Process:   c.newProcess("capi-proxy-patcher", binary, health, append(args, more...)...),
		User:      "system:serviceaccount:" + m.account.Namespace + ":" + m.account.Name,
		cluster:   c,
		manifests: m,
	}
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	return p, p.InstallWebhooks(ctx)
}

// managerFlags are those of a manager that is a process on loopback. They come after its own: the last of two flags
// counts.
func (c *Cluster) managerFlags(kubeconfig, namespace, health string, port int) []string {
	return []string{
		"--kubeconfig", kubeconfig, "--leader-elect-namespace", namespace, "--health-addr", health,
		"--diagnostics-address", "0",
		"--webhook-bind-address", "127.0.0.1", "--webhook-port", strconv.Itoa(port), "--webhook-cert-dir",
		c.certificates(), "--v=4",
		// A manager that cannot renew its Lease in time, on a busy machine, ends, and there is no kubelet to start it again:
		// so it has more time.
		"--leader-elect=true", "--leader-elect-lease-duration=30s", "--leader-elect-renew-deadline=25s",
	}
}

// accountKubeconfig writes a kubeconfig of the ServiceAccount of a Deployment.
func (c *Cluster) accountKubeconfig(ctx context.Context, m *manifests, path string) error {
	config, err := mgmt.ServiceAccountConfig(ctx, c.config, m.account.Namespace, m.account.Name)
	if err != nil {
		return err
	}
	return mgmt.WriteKubeconfig(path, config)
}

// InstallWebhooks has the API server ask the product's webhooks, a moment later.
func (p *Product) InstallWebhooks(ctx context.Context) error {
	return p.cluster.apply(ctx, p.manifests.webhooks)
}

// RemoveWebhooks has the API server ask no webhook of the product, a moment later.
func (p *Product) RemoveWebhooks(ctx context.Context) error {
	return p.cluster.remove(ctx, p.manifests.webhooks)
}
