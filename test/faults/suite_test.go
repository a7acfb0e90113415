// Package faults runs the program that users run, as separate processes, and removes what it relies on while it works:
// the API server, the leader, its webhooks, its Secrets. Whatever happens, every object has the proxy once, what the user
// wrote is there byte for byte, and then nothing is written any more. It attacks the servers the way a Pod could that has no
// certificate and wants them gone: the next honest request is answered. test/model crashes between two writes, and
// test/templates compares the content of objects with render.
package faults

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/wait"
)

const (
	// patience is for how long no manager may write anything before a wait is given up. The machine may be busy with
	// other packages.
	patience = 90 * time.Second
)

// shared is what the tests share, nil without the programs of a cluster.
var shared *world

type world struct {
	vocabulary.Product
	audit *mgmt.AuditLog
}

func TestMain(m *testing.M) {
	const audit = "audit.log"
	vocabulary.Main(m, audit, func(ctx context.Context, cluster *mgmt.Cluster, dir string) (int, error) {
		product, err := vocabulary.NewProduct(ctx, cluster, dir)
		if err != nil {
			return 1, err
		}
		shared = &world{product, mgmt.NewAuditLog(filepath.Join(dir, audit))}
		return m.Run(), nil
	})
}

// namespace makes a namespace of the test's own, in which the manager may hold a lease, and returns its name.
func namespace(t *testing.T) string {
	t.Helper()
	if shared == nil {
		t.Skipf("%s is not set; make test-envtest sets it", mgmt.AssetsVariable)
	}
	ns := vocabulary.Namespace(t, shared.Client, "faults-")
	role := vocabulary.Fetch(t, shared.Client, mgmt.SystemNamespace,
		"capi-proxy-patcher-leader-election-role", &rbacv1.Role{})
	create(t,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: role.Name}, Rules: role.Rules},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects: []rbacv1.Subject{{
				Kind: rbacv1.ServiceAccountKind, Namespace: mgmt.SystemNamespace,
				Name: mgmt.ManagerAccount,
			}},
		})
	return ns
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	vocabulary.Create(t, shared.Client, objects...)
}

// eventually fails if problem does not come to return "" while a manager writes anything, or a while later.
func eventually(t *testing.T, what string, problem func() string) {
	t.Helper()
	writes := func() (int, error) { return shared.audit.Writes("") }
	wait.Rule{Still: patience, Poll: 250 * time.Millisecond, Moved: writes}.Until(t, what, problem)
}
