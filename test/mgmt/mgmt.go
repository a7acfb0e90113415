// Package mgmt starts a management cluster for tests and for the demo: etcd and kube-apiserver as processes on
// loopback, RBAC authorization, the CRDs of Cluster API core, of the kubeadm bootstrap and control plane providers, and
// those of a stand-in infrastructure provider.
//
// No controller runs in it and no node: a Deployment is stored and nothing more, a deleted Namespace stays Terminating,
// owned objects are not garbage collected, and there is no admission webhook of Cluster API. Those of this product can
// be installed with PrepareWebhooks and Install.
package mgmt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// AssetsVariable is the environment variable that names the folder with etcd and kube-apiserver. It is that of envtest;
// hack/kube-assets.sh prints a folder for it.
const AssetsVariable = "KUBEBUILDER_ASSETS"

// startTimeout is how long etcd and kube-apiserver may take each. A machine that compiles something else at the same
// time needs far more than the seconds of an idle one.
const startTimeout = 2 * time.Minute

// ErrNoAssets is returned by Start if the programs of the cluster are not there. Tests skip on it.
var ErrNoAssets = errors.New(AssetsVariable +
	" names no folder with etcd and kube-apiserver; run make test-envtest or set it to the output of hack/kube-assets.sh")

// Options configure a Cluster. The zero value is a working configuration.
type Options struct {
	// Dir is a folder inside of this module, from which the module of Cluster API and with it the CRDs are found.
	// Defaults to the working directory, which is right for tests.
	Dir string

	// Progress is called with a short phrase before each step that takes time, if it is set.
	Progress func(string)

	// Workload starts a workload cluster, which has no CRDs.
	Workload bool

	// AuditLog is a file to which the API server appends one event of audit.k8s.io/v1 as a line of JSON for each
	// request of a ServiceAccount, watches and leases left out, if it is set.
	AuditLog string
}

// Cluster is a running management cluster. Its methods may be called concurrently.
type Cluster struct {
	env    *envtest.Environment
	config *rest.Config
	// dir holds the certificates of the API server, so that it can be started again with them.
	dir string
}

// Start starts a cluster and returns when all CRDs are served, after about five seconds. The context bounds the start,
// not the life of the cluster: that ends with Stop, which has to be called. Nothing is left running if Start fails.
//
// An existing cluster is never used, whatever USE_EXISTING_CLUSTER of envtest says.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if !hasAssets() {
		return nil, ErrNoAssets
	}
	progress := opts.Progress
	if progress == nil {
		progress = func(string) {}
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	if !opts.Workload {
		var err error
		if crds, err = customResourceDefinitions(ctx, opts.Dir); err != nil {
			return nil, err
		}
	}

	env := NewEnvironment()
	dir, err := prepareServer(env.ControlPlane.GetAPIServer(), opts.AuditLog)
	if err != nil {
		return nil, err
	}

	progress("starting etcd and kube-apiserver")
	config, err := env.Start()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the management cluster: %w", err), env.Stop(), os.RemoveAll(dir))
	}
	c := &Cluster{env: env, config: config, dir: dir}
	if opts.Workload {
		return c, nil
	}
	progress(fmt.Sprintf("installing %d CRDs", len(crds)))
	if err := c.install(ctx, crds); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// install creates the CRDs and waits until they are served.
func (c *Cluster) install(ctx context.Context, crds []*apiextensionsv1.CustomResourceDefinition) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting the management cluster: %w", err)
	}
	return InstallCRDs(c.Config(), crds)
}

// NewEnvironment returns etcd and kube-apiserver as processes on loopback, which are still to be started.
func NewEnvironment() *envtest.Environment {
	env := &envtest.Environment{UseExistingCluster: new(false), ControlPlaneStartTimeout: startTimeout}
	// Loopback has to be given: a machine without a default route has no address that the API server finds suitable by
	// itself, and it refuses to publish one of loopback as an endpoint.
	env.ControlPlane.GetAPIServer().Configure().
		Set("advertise-address", "127.0.0.1").
		Set("endpoint-reconciler-type", "none")
	// etcd keeps all versions for five minutes; with the 2 GiB that it has by itself some thousand Clusters are too many.
	env.ControlPlane.Etcd = &envtest.Etcd{}
	env.ControlPlane.Etcd.Configure().Set("quota-backend-bytes", "16000000000")
	return env
}

// crdTime is how long API servers on a busy machine may take to serve CRDs; the ten seconds of envtest are too short.
const crdTime = 10 * time.Minute

// InstallCRDs creates CRDs and waits until they are served.
func InstallCRDs(config *rest.Config, crds []*apiextensionsv1.CustomResourceDefinition) error {
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: crds, MaxTime: crdTime}); err != nil {
		return fmt.Errorf("installing CRDs: %w", err)
	}
	return nil
}

// Stop ends the processes and removes their data. Config and what was made from it are useless afterwards.
func (c *Cluster) Stop() error {
	if err := errors.Join(c.env.Stop(), os.RemoveAll(c.dir)); err != nil {
		return fmt.Errorf("stopping the management cluster: %w", err)
	}
	return nil
}

// Config returns the configuration of an administrator in the group system:masters. The caller may change it.
func (c *Cluster) Config() *rest.Config {
	return rest.CopyConfig(c.config)
}

// hasAssets reports whether the programs are where envtest will look for them.
func hasAssets() bool {
	dir := os.Getenv(AssetsVariable)
	for _, program := range []string{"etcd", "kube-apiserver"} {
		if _, err := exec.LookPath(filepath.Join(dir, program)); dir == "" || err != nil {
			return false
		}
	}
	return true
}
