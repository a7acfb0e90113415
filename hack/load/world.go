package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ports"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const (
	namespace  = "default"
	pools      = 3
	secretName = "proxy"
	// quiet is how long nothing happens at the end of a phase: longer than any delay of the controller.
	quiet = 2500 * time.Millisecond
	// stuck is how long nothing happens before the end when something is wrong.
	stuck = 2 * time.Minute
)

// world is a management cluster, and the manager that runs beside it.
type world struct {
	figures  figures
	program  string
	clusters int

	folder  string
	cluster *mgmt.Cluster
	client  client.Client
	account *rest.Config // the configuration of the product's ServiceAccount
	audit   *mgmt.AuditLog
	// counted is how many requests of the audit log belong to phases that have ended.
	counted int
	// manager is nil if it does not run. log may be read after it.
	manager     *exec.Cmd
	log         bytes.Buffer
	diagnostics string
	// changed is how long a change of all Clusters took.
	changed time.Duration
}

func (w *world) n() float64 { return float64(w.clusters) }

func (w *world) open(ctx context.Context) (err error) {
	if w.folder, err = os.MkdirTemp("", "load-"); err != nil {
		return err
	}
	log := filepath.Join(w.folder, "audit.log")
	w.audit = mgmt.NewAuditLog(log)
	if w.cluster, err = mgmt.Start(ctx, mgmt.Options{AuditLog: log}); err != nil {
		return err
	}
	if w.account, err = w.cluster.InstallProduct(ctx, "."); err != nil {
		return err
	}
	if err := mgmt.WriteKubeconfig(filepath.Join(w.folder, "kubeconfig"), w.account); err != nil {
		return err
	}
	if w.client, err = vocabulary.NewClient(w.cluster.Config()); err != nil {
		return err
	}
	return w.client.Create(ctx, proxySecret("proxy-1.example.com"))
}

// close removes what open made, also a part of it.
func (w *world) close() (err error) {
	w.stop()
	if w.cluster != nil {
		err = w.cluster.Stop()
	}
	return errors.Join(err, os.RemoveAll(w.folder))
}

// each calls f for every Cluster, as many at once as the product has workers, and returns the first error.
func (w *world) each(f func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(10)
	for i := range w.clusters {
		group.Go(func() error { return f(i) })
	}
	return group.Wait()
}

// start starts the manager. Its own limit of requests, which is no property of its work, is raised.
func (w *world) start(ctx context.Context, more ...string) (err error) {
	if w.diagnostics, err = ports.Address(ctx); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, w.program, append([]string{ //nolint:gosec // the developer names the program
		"manager", "--kubeconfig", filepath.Join(w.folder, "kubeconfig"), "--health-addr=0", "--webhook-port=0",
		"--diagnostics-address", w.diagnostics, "--insecure-diagnostics", "--kube-api-qps=10000", "--kube-api-burst=20000",
		"--default-proxy-secret", mgmt.SystemNamespace + "/" + secretName,
		"--default-proxy-namespaces", "kubernetes.io/metadata.name=" + namespace,
	}, more...)...)
	text, err := os.ReadFile("config/manager/manager.yaml")
	if err != nil {
		return err
	}
	deployment := &appsv1.Deployment{}
	if err := yaml.Unmarshal(text, deployment); err != nil {
		return fmt.Errorf("decoding config/manager/manager.yaml: %w", err)
	}
	command.Env = os.Environ()
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		command.Env = append(command.Env, variable.Name+"="+variable.Value)
	}
	w.log.Reset()
	command.Stderr = &w.log
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting the program, which make build builds: %w", err)
	}
	w.manager = command
	return nil
}

// stop ends the manager. It may be called again.
func (w *world) stop() {
	if w.manager != nil {
		_ = w.manager.Process.Signal(syscall.SIGTERM)
		_ = w.manager.Wait()
		w.manager = nil
	}
}

// metrics are what the manager says of itself: how many reconciles are finished, how many Clusters wait for one, and
// its memory.
type metrics struct{ reconciles, waiting, residentMiB float64 }

func (w *world) metrics(ctx context.Context) (metrics, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.diagnostics+"/metrics", http.NoBody)
	if err != nil {
		return metrics{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return metrics{}, err
	}
	defer func() { _ = response.Body.Close() }()
	sums := map[string]float64{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		name, _, _ = strings.Cut(name, "{")
		if number, err := strconv.ParseFloat(value, 64); err == nil {
			sums[name] += number
		}
	}
	return metrics{
		sums["controller_runtime_reconcile_total"],
		sums["workqueue_depth"] + sums["controller_runtime_active_workers"],
		sums["process_resident_memory_bytes"] / (1 << 20),
	}, lines.Err()
}

// settle waits until the manager, which may just have started, has finished a number of reconciles and nothing happens
// any more.
func (w *world) settle(ctx context.Context, atLeast float64) (metrics, error) {
	for last, seen := time.Now(), 0.0; ; time.Sleep(100 * time.Millisecond) {
		m, err := w.metrics(ctx)
		if err == nil && (m.reconciles != seen || m.waiting > 0) {
			last, seen = time.Now(), m.reconciles
		}
		if err == nil && m.reconciles >= atLeast && time.Since(last) > quiet {
			return m, nil
		}
		if time.Since(last) > stuck || ctx.Err() != nil {
			w.stop()
			return m, errors.Join(err, fmt.Errorf("it stopped after %.0f reconciles: %s", seen, &w.log))
		}
	}
}

// requests returns those of the product since the last call, in the order of their answers: all but watches, leases and
// discovery.
func (w *world) requests() ([]mgmt.Request, error) {
	all, err := w.audit.Requests(func(r mgmt.Request) bool { return r.ObjectRef.Resource != "" })
	fresh := all[w.counted:]
	w.counted = len(all)
	return fresh, err
}

func clusterName(i int) string { return fmt.Sprintf("cluster-%04d", i) }

// proxySecret returns the proxy Secret of all Clusters.
func proxySecret(host string) *corev1.Secret {
	return vocabulary.ProxySecret(mgmt.SystemNamespace, secretName, map[string]string{
		"httpProxy": "http://" + host + ":3128", "noProxy": ".corp.example.com,10.20.0.0/16",
		"username": "node", "password": "s3cr%t",
	})
}

// classic returns Cluster i with its control plane and pools. Endpoint, networks, machine templates and bootstrap specs
// are those of no other Cluster or pool.
func classic(i int) ([]client.Object, error) {
	request, err := hookrequests.Generate(hookrequests.Options{Cluster: i, Pools: pools, Distinct: true})
	if err != nil {
		return nil, err
	}
	const controlPlaneItem, firstWorkerItem = 1, 3
	name := clusterName(i)
	owned := map[string]string{clusterv1.ClusterNameLabel: name}
	c := vocabulary.NewClassic(namespace, name, name)
	c.Cluster.Labels = map[string]string{contract.LabelEnabled: contract.LabelEnabledValue}
	c.Cluster.Spec.ClusterNetwork = clusterv1.ClusterNetwork{
		Pods:          clusterv1.NetworkRanges{CIDRBlocks: []string{fmt.Sprintf("10.%d.%d.0/24", i/256%256, i%256)}},
		Services:      clusterv1.NetworkRanges{CIDRBlocks: []string{fmt.Sprintf("172.%d.%d.0/24", 16+i/256%16, i%256)}},
		ServiceDomain: name + ".internal",
	}
	var controlPlane controlplanev1.KubeadmControlPlaneTemplate
	if err := json.Unmarshal(request.Items[controlPlaneItem].Object.Raw, &controlPlane); err != nil {
		return nil, fmt.Errorf("decoding the template of a control plane: %w", err)
	}
	c.ControlPlane.Labels = owned
	c.ControlPlane.Spec.KubeadmConfigSpec = controlPlane.Spec.Template.Spec.KubeadmConfigSpec
	c.ControlPlane.Spec.Rollout = controlPlane.Spec.Template.Spec.Rollout
	objects := []client.Object{c.Cluster, vocabulary.MachineTemplate(namespace, name), c.ControlPlane}
	for pool := range pools {
		var template bootstrapv1.KubeadmConfigTemplate
		if err := json.Unmarshal(request.Items[firstWorkerItem+2*pool].Object.Raw, &template); err != nil {
			return nil, fmt.Errorf("decoding the template of a worker: %w", err)
		}
		md := fmt.Sprintf("%s-md-%d", name, pool)
		template.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: md, Labels: owned}
		deployment := c.Deployment.DeepCopy()
		deployment.Name, deployment.Labels = md, owned
		deployment.Spec.Template.Spec = vocabulary.MachineSpec(name, md, "KubeadmConfigTemplate", md)
		objects = append(objects, vocabulary.MachineTemplate(namespace, md), &template, deployment)
	}
	return objects, nil
}
