package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

func newVersion(streams kit.Streams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of the program",
		Args:  kit.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info := contract.CurrentBuild()
			switch output {
			case "text":
				return writeVersion(streams)
			case "json":
				text, err := json.MarshalIndent(struct {
					contract.Build

					OutputVersion int `json:"outputVersion"`
				}{info, patch.OutputVersion}, "", "  ")
				if err != nil {
					return fmt.Errorf("encoding version: %w", err)
				}
				_, err = fmt.Fprintln(streams.Out, string(text))
				return err
			default:
				return kit.Usage(fmt.Errorf("unknown output %q; use text or json", output))
			}
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	kit.Complete(cmd, "output", "text", "json")
	return cmd
}

// writeVersion writes the version of the program as text.
func writeVersion(streams kit.Streams) error {
	_, err := fmt.Fprintln(streams.Out, "capi-proxy-patcher "+contract.CurrentBuild().String())
	return err
}
