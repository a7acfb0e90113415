package cli

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

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/explain/match"
)

// complete offers values for a flag in completions of a shell.
func complete(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeContext offers the contexts of the kubeconfig that flags name.
func completeContext(cmd *cobra.Command) {
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

// completeClusters offers the names of the Clusters, and the namespaces that have one, in the management cluster that
// flags name. Names are those of the namespace that is chosen; if the argument of the command is a Cluster, there, too.
func completeClusters(cmd *cobra.Command) {
	names := func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return namesOfClusters(cmd, false, func(c metav1.PartialObjectMetadata) string { return c.Name })
	}
	_ = cmd.RegisterFlagCompletionFunc("cluster", names)
	_ = cmd.RegisterFlagCompletionFunc("namespace",
		func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return namesOfClusters(cmd, true, func(c metav1.PartialObjectMetadata) string { return c.Namespace })
		})
	if strings.HasSuffix(cmd.Use, "[CLUSTER]") {
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
	config, namespace, err := loadKubeconfig(flag("kubeconfig"), flag("context"))
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	namespace = cmp.Or(flag("namespace"), namespace)
	if all, _ := cmd.Flags().GetBool("all-namespaces"); all || everywhere {
		namespace = ""
	}
	config.Timeout = completionTime
	api, err := newReader(config)
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

// clientNames are the names of clients, with and without a version.
func clientNames() []string {
	clients := match.Clients()
	names := make([]string, 0, 2*len(clients))
	for _, c := range clients {
		names = append(names, c.Name, c.Name+"@"+c.Version)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
