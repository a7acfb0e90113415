//go:build e2e

package management

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// ClusterAPI is a version of Cluster API. Only hack/kube/cluster-api.sh knows what differs between minor versions.
type ClusterAPI struct {
	// Version is like v1.14.2.
	Version string
	// Dir is the folder of its module.
	Dir string

	core, programs string
}

// ErrNoManagers is returned by FindClusterAPI if the managers are not built.
var ErrNoManagers = errors.New("run make test-e2e, which builds them")

// FindClusterAPI returns the version of Cluster API that the tests of the checkout have for a minor version such as
// v1.13, or that of its go.mod for "".
func FindClusterAPI(ctx context.Context, root, minor string) (ClusterAPI, error) {
	script := filepath.Join(root, "hack", "kube", "cluster-api.sh")
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, script, minor) //nolint:gosec // of the checkout
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return ClusterAPI{}, fmt.Errorf("finding Cluster API %s: %w: %s", minor, err, strings.TrimSpace(stderr.String()))
	}
	said := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		said[name] = value
	}
	a := ClusterAPI{Version: said["version"], Dir: said["dir"], core: said["core"], programs: said["programs"]}
	for _, p := range a.providers() {
		if _, err := exec.LookPath(a.program(p.name)); err != nil {
			return ClusterAPI{}, fmt.Errorf("finding %s of Cluster API %s: %w; %w", p.name, a.Version, err, ErrNoManagers)
		}
	}
	return a, nil
}

// source is where a provider's manager and manifests come from.
type source struct{ name, manifests string }

func (a ClusterAPI) providers() []source {
	of := func(name, dir string) source {
		return source{name: name, manifests: filepath.Join(a.Dir, filepath.FromSlash(dir), "config", "default")}
	}
	return []source{
		of("capi-core", a.core), of("capi-bootstrap-kubeadm", "bootstrap/kubeadm"),
		of("capi-controlplane-kubeadm", "controlplane/kubeadm"),
	}
}

// program returns the path of the manager of a provider.
func (a ClusterAPI) program(name string) string { return Program(filepath.Join(a.programs, name)) }

// UpgradeClusterAPI replaces the managers, CRDs and webhooks of Cluster API by those of another version, and returns
// when they are ready. No manager runs and no webhook is asked meanwhile, as in clusterctl upgrade apply.
func (c *Cluster) UpgradeClusterAPI(ctx context.Context, to ClusterAPI) error {
	for _, p := range c.providers {
		p.process.Stop()
		if err := c.remove(ctx, p.webhooks); err != nil {
			return err
		}
	}
	return c.installClusterAPI(ctx, to, func(string) {})
}
