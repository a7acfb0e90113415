//go:build node

package node_test

import (
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/pki"
)

// certificates are two authorities and a server of the second, in PEM.
type certificates struct{ authorities, server, key []byte }

func newCertificates(t *testing.T) certificates {
	t.Helper()
	second := pki.Make(t, "second proxy CA")
	server, key := second.IssueFor(t, "127.0.0.1")
	return certificates{authorities: append(pki.Make(t, "first proxy CA").PEM, second.PEM...), server: server, key: key}
}
