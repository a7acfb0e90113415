package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/manager"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/fleet/preview"
)

type planOptions struct {
	context, kubeconfig, namespace string
	cluster, defaultSecret, output string
	files                          []string
}

func newPlan(streams kit.Streams) *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan CLUSTER [-f FILE...]",
		Short: "Show what a label, a Secret or an annotation would change in a management cluster",
		Long: `Reconciles a Cluster of a management cluster as the controller does, with dry runs, and shows the writes, the
Machines that would be replaced at once, the nodes that would be changed in place, the Machines that would stay
unchanged, and the condition afterwards. Nothing is changed.

With -f it sees Clusters, Secrets, MachineDeployments and MachinePools as the API server answers a dry run of
"kubectl apply --server-side --force-conflicts", so a label that a file leaves out stays unless it was set that way.

Exit status: 0 success, 1 a failure, 2 wrong usage.`,
		Example: `  capi-proxy-patcher plan --namespace team-a prod
  capi-proxy-patcher plan prod -f labelled-cluster.yaml -f new-proxy-secret.yaml`,
		Args: kit.ClusterArg(&o.cluster),
		RunE: func(cmd *cobra.Command, _ []string) error { return runPlan(cmd.Context(), o, streams) },
	}
	f := cmd.Flags()
	f.StringVar(&o.context, "context", "", "context of the kubeconfig; defaults to the current one")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; defaults to $KUBECONFIG, then ~/.kube/config")
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the Cluster; defaults to that of the context")
	f.StringVar(&o.cluster, "cluster", "", "name of the Cluster, or namespace/name, as the argument")
	f.StringArrayVarP(&o.files, "filename", "f", nil,
		"file or folder with changed objects, - for standard input; may be repeated")
	f.StringVar(&o.defaultSecret, "default-proxy-secret", "",
		"installation-wide proxy Secret as namespace/name, as given to the manager")
	f.StringVarP(&o.output, "output", "o", "text", "text, json or yaml")
	kit.Complete(cmd, "output", "text", "json", "yaml")
	kit.CompleteContext(cmd)
	kit.CompleteClusters(cmd)
	return cmd
}

func runPlan(ctx context.Context, o planOptions, streams kit.Streams) error {
	kit.CutNamespace(&o.namespace, &o.cluster)
	switch {
	case o.cluster == "":
		return kit.Usage(errors.New("no Cluster; name it: plan NAME"))
	case !slices.Contains([]string{"text", "json", "yaml"}, o.output):
		return kit.Usage(fmt.Errorf("unknown output %q; use text, json or yaml", o.output))
	}
	secret, err := manager.ParseDefaultSecret(o.defaultSecret)
	if err != nil {
		return kit.Usage(err)
	}
	changes, err := o.changes(streams)
	if err != nil {
		return err
	}
	config, namespace, err := kit.LoadKubeconfig(o.kubeconfig, o.context)
	if err != nil {
		return err
	}
	if o.namespace == "" {
		o.namespace = namespace
	}
	result, err := preview.Run(ctx, preview.Options{
		Config: config, Namespace: o.namespace, Cluster: o.cluster, DefaultSecret: secret, Changes: changes,
		Now: time.Now, //nolint:forbidigo // the clock enters here
	})
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		noteDifference(result, streams)
	}
	if data := result.Data(); o.output != "text" {
		return streams.WriteData(o.output, data)
	}
	return result.Data().Print(streams.Out)
}

// noteDifference warns of a result that may differ from the controller's.
func noteDifference(result preview.Result, streams kit.Streams) {
	if result.Differs() {
		_, _ = fmt.Fprintln(streams.Err, "note: the generated Secret is out of date. Is the manager running, in the same "+
			"version as this program? Otherwise pass its --default-proxy-secret")
	}
}

// changes reads the files.
func (o planOptions) changes(streams kit.Streams) ([]unstructured.Unstructured, error) {
	if len(o.files) == 0 {
		return nil, nil
	}
	inputs, _, err := kit.ReadFiles(o.files, nil, streams.In)
	if err != nil {
		return nil, err
	}
	var changes []unstructured.Unstructured
	for _, input := range inputs {
		objects, err := preview.ReadChanges(strings.NewReader(string(input.Data)))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", input.Name, err)
		}
		changes = append(changes, objects...)
	}
	return changes, nil
}
