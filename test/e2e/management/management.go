//go:build e2e

// Package management runs a management cluster of Cluster API as processes on loopback, without containers: etcd,
// kube-apiserver, kube-controller-manager, the managers of Cluster API core, of the kubeadm bootstrap and of the
// kubeadm control plane provider with their webhooks and conversion, and the product, from the manifests that users
// install and by its own ServiceAccount.
//
// The managers of Cluster API listen on all addresses and cannot be told otherwise, so all of it belongs into a network
// namespace; see RunIsolated. An infrastructure provider is not part of it: see package infra.
package management

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ports"
)

// featureGates are the same for all managers of Cluster API.
const featureGates = "ClusterTopology=true,RuntimeSDK=true,MachinePool=true,KubeadmBootstrapFormatIgnition=true"

// auditPolicy keeps what the product asks, and what anybody writes that matters to it. Bodies are never kept.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  users: ["system:serviceaccount:capi-proxy-patcher-system:capi-proxy-patcher-manager"]
- level: Metadata
  verbs: [create, update, patch, delete]
  resources:
  - group: cluster.x-k8s.io
    resources: [clusters, machines, machinedeployments, machinepools]
  - group: bootstrap.cluster.x-k8s.io
    resources: [kubeadmconfigtemplates, kubeadmconfigs]
  - group: controlplane.cluster.x-k8s.io
    resources: [kubeadmcontrolplanes]
  - group: ""
    resources: [secrets]
- level: None
`

// Programs are the names of the programs that a cluster needs beside Cluster API, as hack/kube/build.sh builds them.
func Programs() []string {
	return []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "clusterctl",
	}
}

// MissingProgram returns the first of Programs that is not in the folder that mgmt.AssetsVariable names, or "".
func MissingProgram() string {
	for _, program := range Programs() {
		if _, err := exec.LookPath(Program(program)); err != nil {
			return program
		}
	}
	return ""
}

// Program returns the path of one of Programs.
func Program(name string) string { return filepath.Join(os.Getenv(mgmt.AssetsVariable), name) }

// Options configure a Cluster.
type Options struct {
	// Root is the folder of this repository.
	Root string
	// ClusterAPI is the version of Cluster API; see FindClusterAPI.
	ClusterAPI ClusterAPI
	// Logs is the folder, which exists, for the logs and the audit log.
	Logs string
	// CRDs are installed beside those of Cluster API: those of an infrastructure provider.
	CRDs []*apiextensionsv1.CustomResourceDefinition
	// FeatureGates are those of the managers of Cluster API beside the ones that all tests have, such as
	// "InPlaceUpdates=true".
	FeatureGates string
	// Progress is called with a short phrase before each step that takes time.
	Progress func(string)
}

// auditLog is the name of the audit log in the folder of logs.
const auditLog = "audit.log"

// Cluster is a management cluster.
type Cluster struct {
	// AuditLog has all requests of the product, and writes of others to Clusters, Machines, pools, bootstrap objects and
	// Secrets.
	*mgmt.AuditLog
	// Logs is the folder with the logs.
	Logs string
	// Kubeconfig is a file of the administrator's, for kubectl and clusterctl.
	Kubeconfig string
	// Authority has issued the certificates of all webhooks.
	Authority *pki.Authority
	// ClusterAPI is the version of Cluster API that runs.
	ClusterAPI ClusterAPI

	gates     string
	root      string
	dir       string // of what has to be removed in the end
	env       *envtest.Environment
	config    *rest.Config
	admin     client.Client
	processes []*Process
	providers []*provider
	closers   []io.Closer
}

// Start starts a management cluster and returns when the managers of Cluster API are ready and their webhooks are
// asked. Nothing is left running if it fails.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{
		AuditLog: mgmt.NewAuditLog(filepath.Join(o.Logs, auditLog)), Logs: o.Logs, root: o.Root,
		gates: strings.Trim(featureGates+","+o.FeatureGates, ","),
	}
	if err := c.start(ctx, o); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, o Options) error {
	if err := configureNetwork(ctx); err != nil {
		return err
	}
	var err error
	if c.dir, err = os.MkdirTemp("", "capi-proxy-patcher-e2e-"); err != nil {
		return fmt.Errorf("starting the management cluster: %w", err)
	}
	if c.Authority, err = pki.New("webhooks"); err != nil {
		return err
	}
	certificate, key, err := c.Authority.Issue("server", "127.0.0.1", "localhost")
	if err == nil {
		err = errors.Join(os.MkdirAll(c.certificates(), 0o700), pki.WritePair(c.certificates(), certificate, key))
	}
	if err != nil {
		return fmt.Errorf("writing certificates: %w", err)
	}
	o.Progress("starting etcd and kube-apiserver")
	if err := c.startServer(); err != nil {
		return err
	}
	if err := mgmt.InstallCRDs(c.Config(), o.CRDs); err != nil {
		return err
	}
	if err := c.startControllers(ctx); err != nil {
		return err
	}
	return c.installClusterAPI(ctx, o.ClusterAPI, o.Progress)
}

// installClusterAPI applies the manifests of Cluster API, starts its managers and has its webhooks asked.
func (c *Cluster) installClusterAPI(ctx context.Context, version ClusterAPI, progress func(string)) error {
	progress("installing Cluster API " + version.Version)
	c.ClusterAPI, c.providers = version, nil
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, of := range version.providers() {
		p, err := c.newProvider(ctx, of)
		if err != nil {
			return err
		}
		c.providers = append(c.providers, p)
		crds = append(crds, p.crds...)
	}
	if err := mgmt.InstallCRDs(c.Config(), crds); err != nil {
		return err
	}
	for _, p := range c.providers {
		if err := c.apply(ctx, p.objects); err != nil {
			return err
		}
	}
	progress("starting the managers of Cluster API")
	if err := c.startProviders(ctx); err != nil {
		return err
	}
	for _, p := range c.providers {
		if err := c.apply(ctx, p.webhooks); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) certificates() string { return filepath.Join(c.dir, "serving") }

// startServer starts etcd and kube-apiserver, and makes the administrator.
func (c *Cluster) startServer() error {
	policy := filepath.Join(c.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("writing audit policy: %w", err)
	}
	c.env = mgmt.NewEnvironment()
	server := c.env.ControlPlane.GetAPIServer()
	log, err := os.OpenFile(filepath.Join(c.Logs, "kube-apiserver.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("starting the management cluster: %w", err)
	}
	c.closers = append(c.closers, log)
	server.Out, server.Err = log, log
	server.Configure().
		// Nobody takes the taint off that it puts on new Nodes.
		Append("disable-admission-plugins", "TaintNodesByCondition").
		Set("audit-policy-file", policy).
		Set("audit-log-path", filepath.Join(c.Logs, auditLog)).
		Set("audit-log-maxsize", "2000")
	if c.config, err = c.env.Start(); err != nil {
		return fmt.Errorf("starting the management cluster: %w", err)
	}
	c.config.QPS = -1
	if c.admin, err = client.New(c.config, client.Options{}); err != nil {
		return fmt.Errorf("starting the management cluster: %w", err)
	}
	c.Kubeconfig = filepath.Join(c.dir, "kubeconfig")
	return mgmt.WriteKubeconfig(c.Kubeconfig, c.config)
}

// startControllers starts the controllers of Kubernetes that Cluster API relies on. Nobody waits for them.
func (c *Cluster) startControllers(ctx context.Context) error {
	port, err := ports.Free(ctx)
	if err != nil {
		return err
	}
	p := c.newProcess("kube-controller-manager", Program("kube-controller-manager"), "",
		"--kubeconfig", c.Kubeconfig, "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(port),
		"--cert-dir", c.dir,
		"--controllers=namespace-controller,garbage-collector-controller,clusterrole-aggregation-controller")
	if err := p.launch(ctx); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	return nil
}

// provider is a manager of Cluster API.
type provider struct {
	*manifests
	process *Process
}

func (c *Cluster) newProvider(ctx context.Context, of source) (*provider, error) {
	port, err := ports.Free(ctx)
	if err != nil {
		return nil, err
	}
	m, err := c.load(of.manifests, port)
	if err != nil {
		return nil, err
	}
	health, err := ports.Address(ctx)
	if err != nil {
		return nil, err
	}
	process := c.newProcess(of.name, c.ClusterAPI.program(of.name), health,
		"--kubeconfig", c.Kubeconfig, "--feature-gates", c.gates,
		"--webhook-port", strconv.Itoa(port), "--webhook-cert-dir", c.certificates(),
		"--health-addr", health, "--diagnostics-address", "127.0.0.1:0", "--insecure-diagnostics",
		"--kube-api-qps", "500", "--kube-api-burst", "1000")
	return &provider{manifests: m, process: process}, nil
}

func (c *Cluster) startProviders(ctx context.Context) error {
	failures := make(chan error, len(c.providers))
	for _, p := range c.providers {
		go func() { failures <- p.process.Start(ctx) }()
	}
	var err error
	for range c.providers {
		err = errors.Join(err, <-failures)
	}
	return err
}

// Stop ends all processes and removes their data, not the logs.
func (c *Cluster) Stop() error {
	stopAll(c.processes)
	var err error
	if c.config != nil {
		err = c.env.Stop()
	}
	for _, closer := range c.closers {
		err = errors.Join(err, closer.Close())
	}
	if err = errors.Join(err, os.RemoveAll(c.dir)); err != nil {
		return fmt.Errorf("stopping the management cluster: %w", err)
	}
	return nil
}

// Config returns the configuration of an administrator. The caller may change it.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }
