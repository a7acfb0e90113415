package mgmt

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
)

// Request is a request that an API server answered, from its audit log.
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
		if strings.HasPrefix(key, "failed-open.mutation.webhook.admission.k8s.io/") &&
			strings.HasSuffix(webhook, "."+contract.Domain) {
			return true
		}
	}
	return false
}

// Succeeded reports whether the request did what it asked for.
func (r Request) Succeeded() bool { return r.ResponseStatus.Code >= 200 && r.ResponseStatus.Code < 300 }

// IsWrite reports whether the request changes something, or would have if it had not been refused.
func (r Request) IsWrite() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// AuditLog reads the audit log of an API server, each line once. It may be used from several goroutines.
type AuditLog struct {
	path string

	mu       sync.Mutex
	offset   int64
	requests []Request
	// writes are how many succeeded in each namespace.
	writes map[string]int
}

// NewAuditLog returns the audit log in a file.
func NewAuditLog(path string) *AuditLog { return &AuditLog{path: path, writes: map[string]int{}} }

// Requests returns the requests so far that keep reports true for, in the order of their answers.
func (l *AuditLog) Requests(keep func(Request) bool) (found []Request, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.advance()
	for _, r := range l.requests {
		if keep(r) {
			found = append(found, r)
		}
	}
	return found, err
}

// Writes returns how many writes to a namespace, or to all if there were none to it, succeeded so far, those of leader
// election and events left out: a number that grows while controllers, users or the product are at work.
func (l *AuditLog) Writes(namespace string) (sum int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.advance()
	if own := l.writes[namespace]; own > 0 {
		return own, err
	}
	for _, writes := range l.writes {
		sum += writes
	}
	return sum, err
}

// advance reads what has been logged since the last time.
func (l *AuditLog) advance() error {
	file, err := os.Open(l.path)
	if err != nil {
		return fmt.Errorf("reading audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(l.offset, io.SeekStart); err != nil {
		return fmt.Errorf("reading audit log: %w", err)
	}
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // the rest of the line is still to be written
		}
		if err != nil {
			return fmt.Errorf("reading audit log: %w", err)
		}
		var r Request
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("reading audit log: %w", err)
		}
		l.offset += int64(len(line))
		l.requests = append(l.requests, r)
		if r.IsWrite() && r.Succeeded() && r.ObjectRef.Resource != "leases" && r.ObjectRef.Resource != "events" {
			l.writes[r.ObjectRef.Namespace]++
		}
	}
}
