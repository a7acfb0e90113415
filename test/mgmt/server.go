package mgmt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// auditPolicy has the requests of ServiceAccounts logged when they are answered. Watches last, and a lease is renewed
// every two seconds.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: Metadata
  userGroups: ["system:serviceaccounts"]
  verbs: [get, list, create, update, patch, delete, deletecollection]
- level: None
`

// maxAuditLog is the size in megabytes from which on the API server begins another audit log, which nobody would read.
// Its own limit is reached by a few thousand Clusters.
const maxAuditLog = "10000"

// serverScript is run in place of kube-apiserver: it notes its process id and becomes kube-apiserver.
const serverScript = `#!/bin/sh
echo $$ >"${0%/*}/pid"
exec "$` + AssetsVariable + `/kube-apiserver" "$@"
`

// prepareServer gives an API server a folder of its own, which outlives it, and its audit log if that is not empty.
func prepareServer(server *envtest.APIServer, auditLog string) (string, error) {
	dir, err := os.MkdirTemp("", "capi-proxy-patcher-mgmt-")
	if err != nil {
		return "", fmt.Errorf("starting the management cluster: %w", err)
	}
	script, policy := filepath.Join(dir, "kube-apiserver"), filepath.Join(dir, "audit-policy.yaml")
	err = errors.Join(
		os.WriteFile(script, []byte(serverScript), 0o700), //nolint:gosec // a program has to be executable
		os.WriteFile(policy, []byte(auditPolicy), 0o600),
	)
	if err != nil {
		return "", errors.Join(fmt.Errorf("starting the management cluster: %w", err), os.RemoveAll(dir))
	}
	server.CertDir, server.Path = dir, script
	if auditLog != "" {
		server.Configure().
			Set("audit-policy-file", policy).
			Set("audit-log-path", auditLog).
			Set("audit-log-maxsize", maxAuditLog)
	}
	return dir, nil
}

// KillServer ends kube-apiserver in the middle of whatever it does and leaves etcd with all data.
func (c *Cluster) KillServer() error {
	text, err := os.ReadFile(filepath.Join(c.dir, "pid"))
	if err != nil {
		return fmt.Errorf("killing kube-apiserver: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("killing kube-apiserver: %w", err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing kube-apiserver: %w", err)
	}
	// This waits for the process.
	if err := c.env.ControlPlane.APIServer.Stop(); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("killing kube-apiserver: %w", err)
	}
	return nil
}

// StartServer starts kube-apiserver after KillServer, at the same address, with the same certificates and data, and
// returns when it is healthy. Every Config is good for it.
func (c *Cluster) StartServer() error {
	if err := c.env.ControlPlane.APIServer.Start(); err != nil {
		return fmt.Errorf("starting kube-apiserver again: %w", err)
	}
	return nil
}
