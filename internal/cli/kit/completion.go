package kit

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Complete offers values for a flag in completions of a shell.
func Complete(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteContext offers the contexts of the kubeconfig that flags name.
func CompleteContext(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("context",
		func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			rules := clientcmd.NewDefaultClientConfigLoadingRules()
			rules.ExplicitPath, _ = cmd.Flags().GetString("kubeconfig")
			config, err := rules.Load()
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			var names []string
			for name := range config.Contexts {
				names = append(names, name)
			}
			slices.Sort(names)
			return names, cobra.ShellCompDirectiveNoFileComp
		})
}

// completionTime bounds a request for completions: a shell waits for it.
const completionTime = 3 * time.Second

// CompleteClusters offers the names of the Clusters, and the namespaces that have one, in the management cluster that
// flags name. Names are those of the namespace that is chosen; if the argument of the command is a Cluster, there, too.
func CompleteClusters(cmd *cobra.Command) {
	names := func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return namesOfClusters(cmd, false, func(c metav1.PartialObjectMetadata) string { return c.Name })
	}
	_ = cmd.RegisterFlagCompletionFunc("cluster", names)
	_ = cmd.RegisterFlagCompletionFunc("namespace",
		func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return namesOfClusters(cmd, true, func(c metav1.PartialObjectMetadata) string { return c.Namespace })
		})
	if strings.Contains(cmd.Use, "CLUSTER") {
		cmd.ValidArgsFunction = names
	}
}

// namesOfClusters returns what name says of the Clusters, each once and in order.
func namesOfClusters(cmd *cobra.Command, everywhere bool, name func(metav1.PartialObjectMetadata) string,
) ([]string, cobra.ShellCompDirective) {
	flag := func(name string) string {
		value, _ := cmd.Flags().GetString(name)
		return value
	}
	config, namespace, err := LoadKubeconfig(flag("kubeconfig"), flag("context"))
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	namespace = cmp.Or(flag("namespace"), namespace)
	if all, _ := cmd.Flags().GetBool("all-namespaces"); all || everywhere {
		namespace = ""
	}
	config.Timeout = completionTime
	api, err := NewReader(config)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	clusters := metav1.PartialObjectMetadataList{}
	clusters.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("ClusterList"))
	if err := api.List(cmd.Context(), &clusters, client.InNamespace(namespace)); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, cluster := range clusters.Items {
		names = append(names, name(cluster))
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}
