package explain

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
)

// fromAPI finds the Cluster in a management cluster. It reads the Cluster, the pool and the candidates for the proxy
// Secret by name, and lists the Clusters of the namespace only if no name is given or no Cluster has it. Bootstrap
// objects are read if mirrors are shown.
func (o explainOptions) fromAPI(ctx context.Context, streams kit.Streams) (target, error) {
	kit.CutNamespace(&o.namespace, &o.cluster)
	config, namespace, err := kit.LoadKubeconfig(o.kubeconfig, o.context)
	if err != nil {
		return target{}, err
	}
	if o.namespace == "" {
		o.namespace = namespace
	}
	api, err := kit.NewReader(config)
	if err != nil {
		return target{}, err
	}
	cluster, err := o.getCluster(ctx, api)
	if err != nil {
		return target{}, err
	}
	// What the controller has read is in the generated Secret. This command asks for no kind of a provider.
	known := &world.Memory{Cached: api, Live: api, Mapper: meta.NewDefaultRESTMapper(nil)}
	t := target{cluster: settings.ClusterOf(cluster), secrets: known}
	t.cluster.Provisioned = false
	told, err := known.Facts(ctx, t.cluster)
	if err != nil {
		return target{}, err
	}
	t.cluster.Facts = told.Facts
	t.settings, t.invalid = settings.Of(cluster)
	t.cluster = t.settings.ApplyTo(t.cluster)
	if o.pool != "" {
		var found bool
		if t.override, found = topologyPool(t.settings, o.pool); !found {
			t.override, err = o.getPool(ctx, api, cluster.Name)
		}
	}
	if err == nil && o.mirrors {
		var unread error
		if t.bootstrap, unread = bootstrapOf(ctx, api, cluster, t.override); unread != nil {
			_, _ = fmt.Fprintf(streams.Err, "registry mirrors are not shown: %v\n", unread)
		}
	}
	return t, err
}

func (o explainOptions) getCluster(ctx context.Context, api client.Reader) (*clusterv1.Cluster, error) {
	if o.cluster != "" {
		cluster := &clusterv1.Cluster{}
		err := api.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: o.cluster}, cluster)
		if !apierrors.IsNotFound(err) {
			return cluster, reading(err, "Cluster", o.namespace, o.cluster)
		}
	}
	var clusters clusterv1.ClusterList
	if err := api.List(ctx, &clusters, client.InNamespace(o.namespace)); err != nil {
		return nil, fmt.Errorf("listing Clusters in namespace %s: %w", o.namespace, err)
	}
	names := make([]string, len(clusters.Items))
	for i, c := range clusters.Items {
		names[i] = c.Namespace + "/" + c.Name
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no Cluster in namespace %s; choose another with --namespace", o.namespace)
	}
	i, err := o.choose(names)
	if err != nil {
		return nil, err
	}
	return &clusters.Items[i], nil
}

// getPool returns the Secret that a pool names.
func (o explainOptions) getPool(ctx context.Context, api client.Reader, cluster string) (string, error) {
	key := client.ObjectKey{Namespace: o.namespace, Name: o.pool}
	deployment := &clusterv1.MachineDeployment{}
	err := api.Get(ctx, key, deployment)
	if err == nil && deployment.Spec.ClusterName == cluster {
		return deployment.Annotations[contract.AnnotationSecret], nil
	}
	if client.IgnoreNotFound(err) != nil {
		return "", reading(err, "MachineDeployment", o.namespace, o.pool)
	}
	pool := &clusterv1.MachinePool{}
	err = api.Get(ctx, key, pool)
	switch {
	case err == nil && pool.Spec.ClusterName == cluster:
		return pool.Annotations[contract.AnnotationSecret], nil
	case client.IgnoreNotFound(err) != nil:
		return "", reading(err, "MachinePool", o.namespace, o.pool)
	}
	return "", fmt.Errorf("Cluster %s has neither a MachineDeployment nor a MachinePool %s",
		o.namespace+"/"+cluster, o.pool)
}

func reading(err error, kind, namespace, name string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("reading %s %s/%s: %w", kind, namespace, name, err)
}
