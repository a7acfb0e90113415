// Package faults runs the program that users run, as processes of its own, and takes away what it relies on while it
// works: the API server, the leader, the process itself, its webhooks, its Secrets, and the peace in which an object is
// read and written. Whatever happens, it has to come to the same end as if nothing had: what render prints for the same
// manifests is in the objects, once, what the user wrote is there byte for byte, and then nothing is written any more.
package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/wait"
)

const (
	systemNamespace = "capi-proxy-patcher-system"
	managerAccount  = "capi-proxy-patcher-manager"
	// patience is for how long no manager may write anything before a wait is given up. The machine may be busy with other
	// packages.
	patience = 90 * time.Second
)

// world is what the tests share: one API server with the product's manifests, and the program.
type world struct {
	cluster *mgmt.Cluster
	client  client.Client // of an administrator: the user
	audit   *auditLog
	// binary is the program, kubeconfig that of its ServiceAccount.
	binary, kubeconfig string
}

var shared *world

func TestMain(m *testing.M) {
	if status := run(m); status != 0 {
		os.Exit(status) //nolint:forbidigo // the way a TestMain says that it could not begin
	}
}

func run(m *testing.M) int {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // there is no test yet to take it from
	defer cancel()
	dir, err := os.MkdirTemp("", "capi-proxy-patcher-faults-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	audit := filepath.Join(dir, "audit.log")
	cluster, err := mgmt.Start(ctx, mgmt.Options{AuditLog: audit})
	if errors.Is(err, mgmt.ErrNoAssets) {
		return m.Run() // every test skips and says why
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	if shared, err = newWorld(ctx, cluster, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared.audit = &auditLog{path: audit}
	return m.Run()
}

func newWorld(ctx context.Context, cluster *mgmt.Cluster, dir string) (*world, error) {
	w := &world{cluster: cluster, binary: filepath.Join(dir, "capi-proxy-patcher"), kubeconfig: filepath.Join(dir, "kubeconfig")}
	build := exec.CommandContext(ctx, "go", "build", "-o", w.binary, "../../cmd/capi-proxy-patcher")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the program: %w: %s", err, out)
	}
	if err := cluster.ApplyKustomize(ctx, "../../config/default"); err != nil {
		return nil, err
	}
	config, err := cluster.ServiceAccountConfig(ctx, systemNamespace, managerAccount)
	if err != nil {
		return nil, err
	}
	if err := mgmt.WriteKubeconfig(w.kubeconfig, config); err != nil {
		return nil, err
	}
	scheme, err := controller.NewScheme()
	if err != nil {
		return nil, err
	}
	admin := cluster.Config()
	admin.QPS = -1
	w.client, err = client.New(admin, client.Options{Scheme: scheme})
	return w, err
}

// namespace makes a namespace of the test's own, in which the manager may hold a lease, and returns its name.
func namespace(t *testing.T) string {
	t.Helper()
	if shared == nil {
		t.Skipf("%s is not set; make test-envtest sets it", mgmt.AssetsVariable)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "faults-"}}
	create(t, ns)
	role := &rbacv1.Role{}
	key := client.ObjectKey{Namespace: systemNamespace, Name: "capi-proxy-patcher-leader-election-role"}
	if err := shared.client.Get(t.Context(), key, role); err != nil {
		t.Fatal(err)
	}
	create(t,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: role.Name}, Rules: role.Rules},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: systemNamespace, Name: managerAccount}},
		})
	return ns.Name
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := shared.client.Create(t.Context(), object); err != nil {
			t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
		}
	}
}

// eventually fails if problem does not come to return "" while a manager writes anything, or a while later.
func eventually(t *testing.T, what string, problem func() string) {
	t.Helper()
	wait.Rule{Still: patience, Poll: 20 * time.Millisecond, Moved: shared.audit.writes}.Until(t, what, problem)
}
