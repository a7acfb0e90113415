package cli

import (
	"cmp"
	"errors"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/manager"
)

func newManager(streams kit.Streams, capabilities []kit.Capability) *cobra.Command {
	var o manager.Options
	for _, one := range capabilities {
		if extension, runs := one.(manager.Extension); runs {
			o.Extensions = append(o.Extensions, extension)
		}
	}
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Run the controller in a management cluster",
		Args:  kit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return asUsage(manager.Run(kit.UntilSignal(cmd.Context()), o, cmd.Flags(), streams.Err))
		},
	}
	addGroups(cmd, o.Flags())
	return cmd
}

func newHooks(streams kit.Streams) *cobra.Command {
	var o manager.Hooks
	cmd := &cobra.Command{
		Use:   "hooks",
		Short: "Serve Cluster API's runtime hooks",
		Long: "Serves GeneratePatches, ValidateTopology and DiscoverVariables for Clusters with a ClusterClass. It asks\n" +
			"the API server only to authorize readers of the diagnostics.",
		Args: kit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return asUsage(manager.RunHooks(kit.UntilSignal(cmd.Context()), o, cmd.Flags(), streams.Err))
		},
	}
	addGroups(cmd, o.Flags())
	return cmd
}

// addGroups adds flags to cmd, which --help prints in groups.
func addGroups(cmd *cobra.Command, groups cliflag.NamedFlagSets) {
	groups.FlagSet("global").BoolP("help", "h", false, "help for "+cmd.Name())
	for _, name := range groups.Order {
		cmd.Flags().AddFlagSet(groups.FlagSets[name])
	}
	cmd.Long = cmp.Or(cmd.Long, cmd.Short+".")
	cliflag.SetUsageAndHelpFunc(cmd, groups, 0)
}

// asUsage makes a mistake in the flags of the manager one of the command line.
func asUsage(err error) error {
	if mistake, is := errors.AsType[manager.FlagError](err); is {
		return kit.Usage(mistake)
	}
	return err
}
