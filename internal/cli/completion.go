package cli

import (
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/match"
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
