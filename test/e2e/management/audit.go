//go:build e2e

package management

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

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

// Request is one request to the API server, from its audit log.
type Request struct {
	Verb      string
	UserAgent string
	User      struct{ Username string }
	ObjectRef struct{ Resource, Subresource, Namespace, Name string }
	// ResponseStatus.Code is that of HTTP.
	ResponseStatus struct{ Code int }
	// Received and Answered are times of the API server.
	Received time.Time `json:"requestReceivedTimestamp"`
	Answered time.Time `json:"stageTimestamp"`
	// Annotations are what the API server noted.
	Annotations map[string]string
}

// FailedOpen reports whether the API server wrote although the product's webhook did not answer, or with an error.
func (r Request) FailedOpen() bool {
	for key, webhook := range r.Annotations {
		if strings.HasPrefix(key, "failed-open.mutating.webhook.admission.k8s.io/") &&
			strings.HasSuffix(webhook, "."+contract.Name+".io") {
			return true
		}
	}
	return false
}

// Succeeded reports whether the request did what it asked for.
func (r Request) Succeeded() bool { return r.ResponseStatus.Code >= 200 && r.ResponseStatus.Code < 300 }

// IsWrite reports whether the request changes something.
func (r Request) IsWrite() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// count is how much of the audit log has been counted.
type count struct {
	mu     sync.Mutex
	offset int64
	// writes are those of each namespace.
	writes map[string]int
}

// Writes returns how many writes to a namespace, or to all if there were none to it, succeeded so far, those of leader
// election and events left out: a number that grows while controllers, users or the product are at work.
func (c *Cluster) Writes(namespace string) (int, error) {
	c.counted.mu.Lock()
	defer c.counted.mu.Unlock()
	file, err := os.Open(c.auditLog())
	if err != nil {
		return 0, fmt.Errorf("reading audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(c.counted.offset, io.SeekStart); err != nil {
		return 0, fmt.Errorf("reading audit log: %w", err)
	}
	if c.counted.writes == nil {
		c.counted.writes = map[string]int{}
	}
	read, err := requests(file, func(r Request) {
		if r.IsWrite() && r.Succeeded() && r.ObjectRef.Resource != "leases" && r.ObjectRef.Resource != "events" {
			c.counted.writes[r.ObjectRef.Namespace]++
		}
	})
	c.counted.offset += read
	if own := c.counted.writes[namespace]; own > 0 {
		return own, err
	}
	sum := 0
	for _, writes := range c.counted.writes {
		sum += writes
	}
	return sum, err
}

func (c *Cluster) auditLog() string { return filepath.Join(c.Logs, "audit.log") }

// Requests returns the requests so far that keep reports true for, in the order of their answers: all of the product's,
// and writes of others to Clusters, Machines, pools, bootstrap objects and Secrets.
func (c *Cluster) Requests(keep func(Request) bool) ([]Request, error) {
	file, err := os.Open(c.auditLog())
	if err != nil {
		return nil, fmt.Errorf("reading audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	var found []Request
	_, err = requests(file, func(r Request) {
		if keep(r) {
			found = append(found, r)
		}
	})
	return found, err
}

// requests calls each with the requests in a part of an audit log, and returns how many bytes that were.
func requests(log io.Reader, each func(Request)) (int64, error) {
	var read int64
	for lines := bufio.NewReader(log); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return read, nil // the last line may still be being written
		}
		if err != nil {
			return read, fmt.Errorf("reading audit log: %w", err)
		}
		var r Request
		if err := json.Unmarshal(line, &r); err != nil {
			return read, fmt.Errorf("reading audit log: %w", err)
		}
		read += int64(len(line))
		each(r)
	}
}
