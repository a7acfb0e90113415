package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/api"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/hookrequests"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ports"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

const (
	namespace   = "default"
	pools       = 3
	proxySecret = "proxy"
	// writers is how many requests the seed and the plain writer send at once. The product has as many workers.
	writers = 10
)

// world is a management cluster, and the programs that run beside it.
type world struct {
	figures  *figures
	program  string
	clusters int
	began    time.Time

	cluster *mgmt.Cluster
	client  client.Client
	// account is the configuration of the product's ServiceAccount, kubeconfig a file with it.
	account    *rest.Config
	kubeconfig string
	webhooks   *mgmt.Webhooks
	http       *http.Client
	folder     string
	audit      audit
	// manager is the product, nil if it does not run.
	manager *process
	// written is when the proxy Secret was last sent to the API server.
	written time.Time
}

func newWorld(ctx context.Context, program string, clusters int) (w *world, err error) {
	w = &world{figures: &figures{clusters: clusters}, program: program, clusters: clusters, began: time.Now()}
	if w.folder, err = os.MkdirTemp("", "load-"); err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	defer func(made *world) {
		if err != nil {
			err = errors.Join(err, made.close())
		}
	}(w)
	w.audit.path = filepath.Join(w.folder, "audit.log")
	if w.cluster, err = mgmt.Start(ctx, mgmt.Options{Progress: w.progress, AuditLog: w.audit.path}); err != nil {
		return nil, err
	}
	if w.account, err = w.cluster.InstallProduct(ctx, "."); err != nil {
		return nil, err
	}
	w.account.QPS = -1
	w.kubeconfig = filepath.Join(w.folder, "kubeconfig")
	if err := mgmt.WriteKubeconfig(w.kubeconfig, w.account); err != nil {
		return nil, err
	}
	// Their certificate serves hooks, too. They are not installed: no write of a Cluster waits for them.
	if w.webhooks, err = mgmt.PrepareWebhooks(filepath.Join("config", "default")); err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(w.webhooks.Configurations[0].Webhooks[0].ClientConfig.CABundle)
	w.http = &http.Client{Transport: &http.Transport{
		TLSClientConfig:    &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12},
		DisableCompression: true, // a compressor would be measured, too
	}}
	scheme, err := api.NewScheme()
	if err != nil {
		return nil, err
	}
	config := w.cluster.Config()
	config.QPS = -1
	if w.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return w, w.client.Create(ctx, w.secret("proxy-1.example.com"))
}

// progress prints what is being done, and after how many seconds.
func (w *world) progress(text string) {
	fmt.Fprintf(os.Stderr, "load: %5.0f s %s\n", time.Since(w.began).Seconds(), text)
}

func (w *world) close() error {
	w.stop()
	var err error
	if w.webhooks != nil {
		err = w.webhooks.Close()
	}
	if w.cluster != nil {
		err = errors.Join(err, w.cluster.Stop())
	}
	return errors.Join(err, os.RemoveAll(w.folder))
}

// stop ends the manager.
func (w *world) stop() {
	if w.manager != nil {
		w.manager.stop()
		w.manager = nil
	}
}

// start starts the manager again. Its own limit of requests, which is no property of its work, is raised.
func (w *world) start(ctx context.Context, more ...string) (err error) {
	w.stop()
	p := &process{http: w.http}
	var health string
	for _, address := range []*string{&health, &p.metrics, &p.pprof} {
		if *address, err = ports.Address(ctx); err != nil {
			return err
		}
	}
	p.cmd = exec.CommandContext(ctx, w.program, append([]string{ //nolint:gosec // the developer names the program
		"manager", "--kubeconfig", w.kubeconfig, "--health-addr", health, "--diagnostics-address", p.metrics,
		"--insecure-diagnostics", "--profiler-address", p.pprof, "--webhook-bind-address", w.webhooks.Host,
		"--webhook-port", strconv.Itoa(w.webhooks.Port), "--webhook-cert-dir", w.webhooks.CertDir,
		"--default-proxy-secret", mgmt.SystemNamespace + "/" + proxySecret, "--default-proxy-namespaces",
		"kubernetes.io/metadata.name=" + namespace, "--kube-api-qps=10000", "--kube-api-burst=20000",
	}, more...)...)
	if p.cmd.Env, err = environment("config/manager/manager.yaml"); err != nil {
		return err
	}
	w.manager = p
	return p.launch(ctx, filepath.Join(w.folder, "manager.log"), "http://"+health+"/readyz")
}

// null starts the manager that does nothing.
func (w *world) null(ctx context.Context) (*process, error) {
	health, err := ports.Address(ctx)
	if err != nil {
		return nil, err
	}
	p := &process{http: w.http}
	if p.pprof, err = ports.Address(ctx); err != nil {
		return nil, err
	}
	p.cmd = exec.CommandContext(ctx, "/proc/self/exe", "-null", "manager", "-null-kubeconfig", w.kubeconfig, //nolint:gosec // ourselves
		"-null-health", health, "-null-pprof", p.pprof, "-null-port", strconv.Itoa(w.webhooks.Port), "-null-cert-dir",
		w.webhooks.CertDir)
	return p, p.launch(ctx, filepath.Join(w.folder, "null.log"), "http://"+health+"/readyz")
}

// environment returns that of this process with what a manifest adds for the first container of its Deployment.
func environment(manifest string) ([]string, error) {
	text, err := os.ReadFile(manifest) //nolint:gosec // one of ours
	if err != nil {
		return nil, fmt.Errorf("reading the environment of the program: %w", err)
	}
	deployment := &appsv1.Deployment{}
	if err := yaml.Unmarshal(text, deployment); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", manifest, err)
	}
	if len(deployment.Spec.Template.Spec.Containers) == 0 {
		return nil, fmt.Errorf("decoding %s: no Deployment with containers", manifest)
	}
	all := os.Environ()
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		all = append(all, variable.Name+"="+variable.Value)
	}
	return all, nil
}

func clusterName(i int) string { return fmt.Sprintf("cluster-%04d", i) }

// secret returns the proxy Secret of all Clusters.
func (w *world) secret(host string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: mgmt.SystemNamespace, Name: proxySecret, Labels: map[string]string{contract.LabelProxySecret: ""},
		},
		StringData: map[string]string{
			"httpProxy": "http://" + host + ":3128", "noProxy": ".corp.example.com,10.20.0.0/16",
			"username": "node", "password": "s3cr%t",
		},
	}
}

// create creates Cluster i with all its objects, in the order of a manifest.
func (w *world) create(ctx context.Context, i int) error {
	objects, err := classic(i)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := w.client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %s of Cluster %d: %w", object.GetName(), i, err)
		}
	}
	return nil
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

// configured returns whether the condition of Cluster i is True.
func (w *world) configured(ctx context.Context, i int) (bool, error) {
	cluster := &clusterv1.Cluster{}
	err := w.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterName(i)}, cluster)
	return meta.IsStatusConditionTrue(cluster.Status.Conditions, contract.ConditionProxyConfigured), err
}

// each calls f for 0 to n-1, some at once, and returns the first error.
func each(atOnce, n int, f func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error { return f(i) })
	}
	return group.Wait()
}
