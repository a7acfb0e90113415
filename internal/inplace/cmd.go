package inplace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/agent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/node"
)

// exitLeft says that a node is neither as it was nor as it should be.
const exitLeft = 3

func newNode(streams kit.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node COMMAND",
		Short: "Change the files of a running node",
		Long: `Commands that run on a node, in the Pods by which rollout InPlace reaches it. People need them to look at one
node. Each reads the keys of a Secret of namespace kube-system (node-files.json, proxy.env, trusted-ca.pem,
setup.sh, readiness-endpoints) as files of a folder. See docs/in-place.md.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return kit.Usage(fmt.Errorf("unknown command %q of %s", args[0], cmd.Name()))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newNodeApply(streams), newNodeRemove(streams), newNodeWatch(streams), newNodeCheck(streams),
		newNodeProbe(streams))
	return cmd
}

// nodeFlags adds what the commands have in common.
func nodeFlags(cmd *cobra.Command, o *agent.Options) {
	cmd.Flags().StringVar(&o.Root, "root", "/", "folder that is the root of the node")
	cmd.Flags().StringVar(&o.From, "from", "", "folder with the keys of the Secret as files")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if o.From == "" {
			return kit.Usage(errors.New("no version; use --from FOLDER"))
		}
		return nil
	}
}

func newNodeApply(streams kit.Streams) *cobra.Command {
	var (
		o     agent.Options
		slots int
	)
	cmd := &cobra.Command{
		Use:   "apply --from FOLDER",
		Short: "Bring the files of a node and its services to a version",
		Long: `Adds, replaces and removes the files of the product on a node until they are those of a version, and restarts
containerd and kubelet, each at most once, if what it reads has changed. It asks first whether they can be restarted,
and writes nothing if not. If a service does not come back, or a readiness endpoint does not answer, the previous files
are restored. A file without the line "Managed by capi-proxy-patcher" stays, and nothing is written if it is in the
way. SIGTERM does not end what has begun.

With --slots a node that has to change first takes one of the Leases capi-proxy-patcher-slot-0, -1, … of kube-system,
as Node $NODE_NAME, and waits until one is free; SIGTERM ends that. It keeps the Lease: node watch releases it.

One command at a time works on a node: it locks /run/capi-proxy-patcher/lock, which stays until the node reboots.

Exit status: 0 the node has the version, 1 it has not and is as it was, 2 wrong usage, 3 it has not and the previous
files could not be restored (the next run continues). The last line on standard error says why.`,
		Example: `  capi-proxy-patcher node apply --root /host --from /files --state /state --slots 1
  capi-proxy-patcher node apply --from /run/files --dry-run`,
		Args: kit.NoArgs,
	}
	nodeFlags(cmd, &o)
	cmd.Flags().StringVar(&o.Endpoint, "endpoint", "", "URL that has to answer if the Secret names no readiness endpoint")
	cmd.Flags().StringVar(&o.State, "state", "",
		"folder that remembers a version that was put back, which is not tried again")
	slotsFlag(cmd, &slots)
	applies(cmd, &o, &slots, streams)
	return cmd
}

func newNodeRemove(streams kit.Streams) *cobra.Command {
	var o agent.Options
	cmd := &cobra.Command{
		Use:   "remove",
		Short: "Remove the files of the product from a node",
		Long: `Removes the files of the product, takes its certificates out of the trust store, and restarts containerd and
kubelet, each at most once, if they have read any of them. What fails, and how it ends, is as with apply. A Pod of the
product on the node writes the files again.`,
		Args: kit.NoArgs,
	}
	cmd.Flags().StringVar(&o.Root, "root", "/", "folder that is the root of the node")
	applies(cmd, &o, new(int), streams)
	return cmd
}

// slotsFlag adds the flag by which nodes take turns.
func slotsFlag(cmd *cobra.Command, slots *int) {
	cmd.Flags().IntVar(slots, "slots", 0, "number of Leases by which nodes take turns, 0 without turns")
}

// turnOf returns the turn of this node, nil without slots.
func turnOf(slots int, log io.Writer) (*agent.Turn, error) {
	const variable = "NODE_NAME"
	name := os.Getenv(variable)
	switch {
	case slots == 0:
		return nil, nil //nolint:nilnil // none
	case slots < 0 || slots > agent.MaxSlots:
		return nil, kit.Usage(fmt.Errorf("--slots %d is not from 0 to %d", slots, agent.MaxSlots))
	case name == "":
		return nil, kit.Usage(fmt.Errorf("--slots needs the name of the Node in $%s", variable))
	}
	return agent.InCluster(name, slots, log)
}

// applies has a command apply a version or, with --dry-run, print what that would change.
func applies(cmd *cobra.Command, o *agent.Options, slots *int, streams kit.Streams) {
	dryRun := cmd.Flags().Bool("dry-run", false, "print what would change, without values, and change nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *dryRun {
			return agent.DryRun(*o, streams.Out)
		}
		turn, err := turnOf(*slots, streams.Err)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM) // what has begun ends, in bounded time
		defer stop()
		err = agent.Apply(ctx, *o, turn, streams.Err)
		if failed := (*node.RolledBackError)(nil); errors.As(err, &failed) && failed.Left != nil {
			_, _ = fmt.Fprintf(streams.Err, "capi-proxy-patcher: %v\n", err)
			return kit.StatusError{Status: exitLeft}
		}
		return err
	}
}

func newNodeWatch(streams kit.Streams) *cobra.Command {
	var (
		o     agent.Options
		slots int
	)
	cmd := &cobra.Command{
		Use:   "watch --from FOLDER",
		Short: "End with an error when the files of a node are not those of a version",
		Long: `Compares the files of the product on a node with a version, at once and each minute, and ends when they differ.
It changes nothing on the node.

With --slots it waits until Node $NODE_NAME is ready, and then releases the Lease that the node holds since node apply.

Exit status: 0 ended by a signal, 1 files differ or cannot be compared, or the Lease could not be released, 2 wrong
usage. The last line on standard error says why.`,
		Args: kit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			turn, err := turnOf(slots, streams.Err)
			if err != nil {
				return err
			}
			return agent.Watch(kit.UntilSignal(cmd.Context()), o, turn, agent.WatchInterval)
		},
	}
	nodeFlags(cmd, &o)
	slotsFlag(cmd, &slots)
	return cmd
}

func newNodeCheck(streams kit.Streams) *cobra.Command {
	var o agent.Options
	cmd := &cobra.Command{
		Use:   "check --from FOLDER",
		Short: "Ask the readiness endpoints, and compare what systemd gives to services",
		Long: `Asks each URL of readiness-endpoints with the variables and certificates of a version, beside the certificates
that the node trusts. Any response is an answer, except 407 and those of 5xx; redirects are not followed.

Then compares the variables with those that systemd gives to containerd and kubelet, as far as they have a drop-in of
the product, and names the file that wins where they differ. It asks systemd, or reads the unit files if there is none.

Exit status: 0 all is as it should be, 1 it is not, 2 wrong usage.`,
		Args: kit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return agent.Check(cmd.Context(), o, streams.Out)
		},
	}
	nodeFlags(cmd, &o)
	return cmd
}
