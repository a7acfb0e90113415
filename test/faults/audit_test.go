package faults

import (
	"slices"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// ofSpec reports whether the request is a write of an object with a bootstrap spec.
func ofSpec(r mgmt.Request) bool {
	return r.IsWrite() && strings.HasPrefix(r.ObjectRef.Resource, "kubeadm")
}

// ofSecret reports whether the request is a write of a Secret.
func ofSecret(r mgmt.Request) bool { return r.IsWrite() && r.ObjectRef.Resource == "secrets" }

// refused reports whether the object was not what the manager had taken it for: a conflict, or a failed test of a
// patch.
func refused(r mgmt.Request) bool {
	return r.ResponseStatus.Code == 409 || r.ResponseStatus.Code == 422
}

// requests returns the requests of managers so far for which keep returns true.
func requests(t *testing.T, keep func(mgmt.Request) bool) []mgmt.Request {
	t.Helper()
	found, err := shared.audit.Requests(keep)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// by returns the writes of a user so far.
func by(t *testing.T, user string) []mgmt.Request {
	t.Helper()
	return requests(t, func(r mgmt.Request) bool { return r.IsWrite() && r.User.Username == user })
}

// mark is a point in time from which requests about a namespace are counted.
type mark struct {
	t         *testing.T
	namespace string
	from      int
}

func setMark(t *testing.T, namespace string) mark {
	t.Helper()
	m := mark{t: t, namespace: namespace}
	m.from = len(requests(t, m.isAbout))
	return m
}

// isAbout reports whether a request is about the namespace, and no event, which is sent in the background.
func (m mark) isAbout(r mgmt.Request) bool {
	return r.ObjectRef.Namespace == m.namespace && r.ObjectRef.Resource != "events"
}

// since returns the requests since the mark for which all functions return true.
func (m mark) since(all ...func(mgmt.Request) bool) []mgmt.Request {
	m.t.Helper()
	return slices.DeleteFunc(requests(m.t, m.isAbout)[m.from:], func(r mgmt.Request) bool {
		return slices.ContainsFunc(all, func(is func(mgmt.Request) bool) bool { return !is(r) })
	})
}
