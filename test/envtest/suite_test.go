// Package envtest runs the manager against a real API server and asserts the state of the world: what is in the
// objects, in the Secrets and in the condition. The manager works through the ServiceAccount of config/rbac.
package envtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/textlogger"
	"sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/check"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/manager"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/fleet"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/logbuffer"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

// resync is the interval at which the manager under test reconciles everything although nothing changed.
const resync = 2 * time.Second

// world is what the tests share: one API server, one manager.
type world struct {
	client   client.Client // of an administrator: the user
	config   *rest.Config  // of the manager's ServiceAccount
	requests *requestLog
	logs     *logbuffer.Buffer
	webhooks *mgmt.Webhooks
	// kubeconfig is a file of the administrator's, for kubectl.
	kubeconfig string
}

var shared *world

func TestMain(m *testing.M) {
	vocabulary.Main(m, "", func(ctx context.Context, cluster *mgmt.Cluster, dir string) (int, error) {
		return run(ctx, m, cluster, dir)
	})
}

func run(ctx context.Context, m *testing.M, cluster *mgmt.Cluster, dir string) (status int, err error) {
	if shared, err = newWorld(ctx, cluster, dir); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, shared.webhooks.Close()) }()
	stopped := make(chan struct{})
	managerCtx, stop := context.WithCancel(ctx)
	defer stop()
	if err := startManager(managerCtx, stopped); err != nil {
		return 1, err
	}
	if err = installWebhooks(ctx, cluster); err == nil {
		if status = m.Run(); status == 0 {
			err = checkGrants()
		}
	}
	stop()
	<-stopped
	if err == nil && status == 0 {
		err = checkStopped(ctx)
	}
	if status != 0 && os.Getenv("ENVTEST_LOGS") != "" {
		fmt.Fprintln(os.Stderr, shared.logs.String())
	}
	return status, err
}

func newWorld(ctx context.Context, cluster *mgmt.Cluster, dir string) (*world, error) {
	config, err := cluster.InstallProduct(ctx, "../..")
	if err != nil {
		return nil, err
	}
	user, err := vocabulary.NewClient(cluster.Config())
	if err != nil {
		return nil, err
	}
	w := &world{client: user, config: config, requests: &requestLog{used: map[grant]bool{}}, logs: &logbuffer.Buffer{}}
	config.Wrap(w.requests.wrap)
	installation := vocabulary.ProxySecret(defaultSecretNamespace, defaultSecretName, map[string]string{
		"httpProxy": "http://installation.example.com:3128", "noProxy": "installation.example.com",
	})
	if err := user.Create(ctx, installation); err != nil {
		return nil, err
	}
	if w.webhooks, err = mgmt.PrepareWebhooks("testdata/webhooks"); err != nil {
		return nil, err
	}
	w.kubeconfig = filepath.Join(dir, "kubeconfig")
	return w, mgmt.WriteKubeconfig(w.kubeconfig, cluster.Config())
}

// startManager starts the manager as the command line does.
func startManager(ctx context.Context, stopped chan struct{}) error {
	log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(5), textlogger.Output(shared.logs)))
	ctrl.SetLogger(log)
	serving := manager.Serving{
		HealthAddr: "0", ManagerOptions: flags.ManagerOptions{DiagnosticsAddress: "0"}, Log: log,
	}
	mgr, err := manager.New(ctrl.LoggerInto(ctx, log), shared.config, manager.Options{
		// On a busy machine it must not lose the Lease, for which nobody else waits, and end in the middle of the tests.
		Election: manager.Election{
			Enabled: true, Namespace: mgmt.SystemNamespace, LeaseDuration: 5 * time.Minute, RenewDeadline: 4 * time.Minute,
		},
		Extensions:  []manager.Extension{inplace.New(), publish.New()},
		Concurrency: 10, SyncPeriod: resync, QPS: -1, Serving: serving,
		DefaultProxySecret:     defaultSecretNamespace + "/" + defaultSecretName,
		DefaultProxyNamespaces: contract.LabelDefaultProxy + "=" + contract.DefaultProxyAllowed,
		WebhookBindAddress:     shared.webhooks.Host, WebhookPort: shared.webhooks.Port,
		WebhookCertDir: shared.webhooks.CertDir,
	})
	if err != nil {
		return err
	}
	go func() {
		defer close(stopped)
		if err := mgr.Start(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	return nil
}

// checkStopped fails if the gate before an old password is withdrawn opens for a Cluster that is labelled when no manager
// runs any more, or if it does not say why.
func checkStopped(ctx context.Context) error {
	const ns = "stopped"
	c := vocabulary.NewClassic(ns, "one", "demo")
	c.Cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, c.Cluster, c.ControlPlane, c.Deployment, c.Template,
		vocabulary.ProxySecret(ns, "one-http-proxy", map[string]string{"httpProxy": proxyURL}),
	} {
		if err := shared.client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	var out, errs bytes.Buffer
	status := cli.Main(ctx, []string{"status", "-n", ns, "--fail-on", "behind", "--kubeconfig", shared.kubeconfig},
		kit.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, fleet.New(), check.New())
	if status != 3 || !strings.HasPrefix(errs.String(), "The table may be old: no manager holds Lease ") ||
		!strings.Contains(errs.String(), "Cluster stopped/one: still to come: create Secret one-proxy-files, ") {
		return fmt.Errorf("without a manager the gate exits with %d: %s%s", status, errs.String(), out.String())
	}
	return nil
}

// requestLog records the requests of the manager when they have been answered.
type requestLog struct {
	mu       sync.Mutex
	requests []string
	used     map[grant]bool
}

func (l *requestLog) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if needed, is := grantOf(r); is {
			l.mu.Lock()
			l.used[needed] = true
			l.mu.Unlock()
		}
		response, err := next.RoundTrip(r)
		if r.URL.Query().Get("watch") == "" {
			l.mu.Lock()
			l.requests = append(l.requests, r.Method+" "+r.URL.Path)
			l.mu.Unlock()
		}
		return response, err
	})
}

// writes returns how many requests there were that write. Reads do not count as movement: a Cluster of a finished test
// may be reconciled without end, because something is missing.
func (l *requestLog) writes() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := 0
	for _, request := range l.requests {
		if !strings.HasPrefix(request, http.MethodGet+" ") && !strings.Contains(request, "/events") &&
			!strings.Contains(request, "/leases") {
			count++
		}
	}
	return count, nil
}

// in returns the requests so far that have to do with a namespace, events left out: they are sent in the background.
func (l *requestLog) in(namespace string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for _, request := range l.requests {
		if strings.Contains(request, "/namespaces/"+namespace+"/") && !strings.Contains(request, "/events") {
			found = append(found, request)
		}
	}
	return found
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
