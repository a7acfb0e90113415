package faults

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// request is a request of a manager that the API server answered.
type request struct {
	user, verb, resource, namespace, name string
	code                                  int
}

// isWrite reports whether the request changed something, or would have if it had not been refused.
func (r request) isWrite() bool { return r.verb != "get" && r.verb != "list" }

// isOfSpec reports whether the request is a write of an object with a bootstrap spec.
func (r request) isOfSpec() bool { return r.isWrite() && strings.HasPrefix(r.resource, "kubeadm") }

// isOfSecret reports whether the request is a write of a Secret.
func (r request) isOfSecret() bool { return r.isWrite() && r.resource == "secrets" }

// done reports whether the API server did what was asked.
func (r request) done() bool { return r.code >= 200 && r.code < 300 }

// refused reports whether the object was not what the manager had taken it for: a conflict, or a failed test of a
// patch.
func (r request) refused() bool { return r.code == 409 || r.code == 422 }

// auditLog reads what the API server has logged, each line once.
type auditLog struct {
	path string

	mu       sync.Mutex
	offset   int64
	requests []request
}

// read returns the requests so far about a namespace, without events, which are sent in the background.
func (l *auditLog) read(t *testing.T, namespace string) []request {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.advance(); err != nil {
		t.Fatalf("reading audit log: %v", err)
	}
	var found []request
	for _, r := range l.requests {
		if r.namespace == namespace && r.resource != "events" {
			found = append(found, r)
		}
	}
	return found
}

// by returns the requests so far of a user.
func (l *auditLog) by(t *testing.T, user string) []request {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.advance(); err != nil {
		t.Fatalf("reading audit log: %v", err)
	}
	return slices.DeleteFunc(slices.Clone(l.requests), func(r request) bool { return r.user != user })
}

// writes returns how many requests there were that write, without those of leader election, which never end. Reads do
// not count as movement, because they may continue without end too.
func (l *auditLog) writes() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.advance(); err != nil {
		return 0, err
	}
	count := 0
	for _, r := range l.requests {
		if r.isWrite() && r.resource != "leases" && r.resource != "events" {
			count++
		}
	}
	return count, nil
}

func (l *auditLog) advance() error {
	file, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(l.offset, io.SeekStart); err != nil {
		return err
	}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // the rest of the line is still to be written
		}
		if err != nil {
			return err
		}
		l.offset += int64(len(line))
		var event struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ Resource, Namespace, Name string }
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return err
		}
		l.requests = append(l.requests, request{
			user: event.User.Username, verb: event.Verb, resource: event.ObjectRef.Resource, namespace: event.ObjectRef.Namespace,
			name: event.ObjectRef.Name,
			code: event.ResponseStatus.Code,
		})
	}
}

// mark is a point in time from which requests about a namespace are counted.
type mark struct {
	t         *testing.T
	namespace string
	from      int
}

func setMark(t *testing.T, namespace string) mark {
	t.Helper()
	return mark{t: t, namespace: namespace, from: len(shared.audit.read(t, namespace))}
}

// since returns the requests since the mark that are of all kinds asked for.
func (m mark) since(kinds ...func(request) bool) []request {
	m.t.Helper()
	found := shared.audit.read(m.t, m.namespace)[m.from:]
	return slices.DeleteFunc(slices.Clone(found), func(r request) bool {
		return slices.ContainsFunc(kinds, func(is func(request) bool) bool { return !is(r) })
	})
}
