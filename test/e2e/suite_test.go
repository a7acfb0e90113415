//go:build e2e

// Package e2e runs the product on a real management cluster: the managers of Cluster API with their webhooks, and the
// product from the manifests that users install, by its own ServiceAccount. What happens is what users do, with kubectl
// and clusterctl; what is looked at is what reaches the Machines, which of them are replaced, and the condition.
//
// See docs/development/testing.md.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/infra"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/e2e/management"
)

// root is the folder of the repository.
const root = "../.."

// clusterAPIVariable names the minor version of Cluster API, such as v1.13; that of go.mod if it is empty.
const clusterAPIVariable = "CAPI_PROXY_PATCHER_E2E_CLUSTER_API"

func clusterAPI(ctx context.Context) (management.ClusterAPI, error) {
	return management.FindClusterAPI(ctx, root, os.Getenv(clusterAPIVariable))
}

// figuresFile is the name of the file with the figures of a run.
const figuresFile = "figures.txt"

// world is what the tests share.
type world struct {
	cluster *management.Cluster
	product *management.Product
	hooks   *management.Process
	infra   *infra.Provider
	client  client.Client // of an administrator: the user
	binary  string
	// workloads are the API servers of the workload clusters of all management clusters.
	workloads *infra.Workloads
}

var (
	shared *world
	// skipReason says why there is no world.
	skipReason string
	results    = &figures{}
)

func TestMain(m *testing.M) {
	flag.Parse()
	status, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	if status != 0 {
		os.Exit(status) //nolint:forbidigo // the way a TestMain says that it failed
	}
}

func run(m *testing.M) (int, error) {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // there is no test yet to take it from
	defer cancel()
	if !management.Isolated() {
		if program := management.MissingProgram(); program != "" {
			skipReason = program + " is not in the folder that KUBEBUILDER_ASSETS names; run make test-e2e"
			return m.Run(), nil
		}
		if _, err := clusterAPI(ctx); errors.Is(err, management.ErrNoManagers) {
			skipReason = err.Error()
			return m.Run(), nil
		} else if err != nil {
			return 1, err
		}
		// Tests wait much of their time; more of them at once only wait longer, until requests time out.
		status, err := management.RunIsolated(ctx, "-test.parallel=10")
		if err != nil {
			skipReason = err.Error()
			return m.Run(), nil
		}
		return status, nil
	}
	// Not the folder of the results: another run may be going on.
	logs, err := os.MkdirTemp("", "capi-proxy-patcher-e2e-logs-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(logs) }()
	program, err := os.MkdirTemp("", "capi-proxy-patcher-e2e-program-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(program) }()
	log, err := os.Create(filepath.Join(logs, "infrastructure.log"))
	if err != nil {
		return 1, err
	}
	defer func() { _ = log.Close() }()
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log))))
	if shared, err = newWorld(ctx, logs, program); err != nil {
		return 1, err
	}
	status := m.Run()
	err = results.write(ctx, shared, filepath.Join(logs, figuresFile))
	cancel()
	if err := errors.Join(err, shared.cluster.Stop()); err != nil {
		return 1, errors.Join(err, keepResults(logs, false))
	}
	return status, keepResults(logs, status == 0 && os.Getenv(keepVariable) == "")
}

// keepVariable is an environment variable that has the logs kept even if all tests pass.
const keepVariable = "CAPI_PROXY_PATCHER_E2E_KEEP_LOGS"

// keepResults puts the figures into out/e2e, and the logs unless nobody needs them. Logs of a run that failed stay when its
// tests are run once more.
func keepResults(logs string, figuresOnly bool) error {
	results := filepath.Join(root, "out", "e2e")
	if !figuresOnly {
		if err := os.RemoveAll(results); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(results, 0o755); err != nil { //nolint:gosec // anybody may read them
		return err
	}
	if figuresOnly {
		text, err := os.ReadFile(filepath.Join(logs, figuresFile))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(results, figuresFile), text, 0o644) //nolint:gosec // anybody may read it
	}
	fmt.Fprintln(os.Stderr, "logs are in", results)
	return os.CopyFS(results, os.DirFS(logs))
}

func newWorld(ctx context.Context, logs, program string) (*world, error) {
	begin := time.Now() //nolint:forbidigo // how long it takes is printed
	progress := func(step string) {
		fmt.Fprintf(os.Stderr, "%5.1f s %s\n", time.Since(begin).Seconds(), step)
	}
	w := &world{}
	progress("building the product")
	var err error
	if w.binary, err = management.Build(ctx, root, program); err != nil {
		return nil, err
	}
	api, err := clusterAPI(ctx)
	if err != nil {
		return nil, err
	}
	if w.cluster, err = management.Start(ctx, management.Options{
		Root: root, ClusterAPI: api, Logs: logs, CRDs: infra.CRDs(),
		Progress: progress,
	}); err != nil {
		return nil, err
	}
	if err := w.start(ctx, progress); err != nil {
		return nil, errors.Join(err, w.cluster.Stop())
	}
	if err := w.installHooks(ctx); err != nil {
		return nil, errors.Join(err, w.cluster.Stop())
	}
	progress("ready")
	results.note("start of the management cluster: %.0f s", time.Since(begin).Seconds())
	return w, nil
}

// start starts what is needed beside Cluster API, and the product.
func (w *world) start(ctx context.Context, progress func(string)) error {
	if err := w.prepare(ctx); err != nil {
		return err
	}
	progress("installing the product")
	var err error
	w.product, err = w.cluster.InstallProduct(ctx, w.binary)
	return err
}

// prepare starts the infrastructure provider.
func (w *world) prepare(ctx context.Context) error {
	managed.add(w.cluster)
	var err error
	if w.workloads == nil {
		if w.workloads, err = infra.NewWorkloads(w.cluster.Config()); err != nil {
			return err
		}
	}
	if w.infra, err = infra.Start(ctx, w.cluster.Config(), w.workloads); err != nil {
		return err
	}
	scheme, err := infra.NewScheme()
	if err != nil {
		return err
	}
	w.client, err = client.New(w.cluster.Config(), client.Options{Scheme: scheme})
	return err
}

// installHooks has Cluster API ask the hooks.
func (w *world) installHooks(ctx context.Context) error {
	var err error
	w.hooks, err = w.cluster.InstallHooks(ctx, w.binary)
	return err
}

// start returns the world of a test, which is skipped if there is none.
func start(t *testing.T) *world {
	t.Helper()
	if shared == nil {
		t.Skip(skipReason)
	}
	return shared
}
