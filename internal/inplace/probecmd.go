package inplace

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace/agent"
)

// maxMessage is how much a kubelet takes as the message of a container that has ended, in bytes.
const maxMessage = 4096

func newNodeProbe(streams kit.Streams) *cobra.Command {
	var (
		o      agent.ProbeOptions
		output string
	)
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Ask from a node as containerd does, for check --from-nodes",
		Long: `Reads the files of the product on a node, asks each endpoint with their variables and the certificates that the
node trusts, and asks the API server and a name of the cluster directly. It prints answers as JSON, without a value of
a variable. It changes nothing.

Exit status: 0 it has asked, whatever the answers are, 1 it could not, 2 wrong usage.`,
		Args: kit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answers, err := agent.Probe(cmd.Context(), o)
			if err != nil {
				return err
			}
			text, err := json.Marshal(answers)
			for err == nil && len(text) > maxMessage {
				answers = answers[:len(answers)-1]
				text, err = json.Marshal(answers)
			}
			if err != nil {
				return fmt.Errorf("writing answers: %w", err)
			}
			if output != "" {
				return os.WriteFile(output, text, 0o600)
			}
			_, err = io.WriteString(streams.Out, string(text)+"\n")
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Root, "root", "/", "folder that is the root of the node")
	f.StringArrayVar(&o.Endpoints, "endpoint", nil, "URL outside the cluster, at most 6")
	f.StringVar(&o.APIServer, "api-server", "", "URL of the API server")
	f.StringVar(&o.DNSName, "dns-name", "", "full name of the Service of the API server")
	f.StringVar(&o.DNSServer, "dns-server", "", "address of the DNS of the cluster")
	f.StringArrayVar(&o.Nodes, "node", nil, "address of another node, at most 6")
	f.StringVar(&output, "output", "", "file for the answers; defaults to standard output")
	return cmd
}
