//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/fleet"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/fleet/preview"
)

// command runs the command line of the product as the administrator of the management cluster.
func (c *cluster) command(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	args = append(args, "--kubeconfig", c.world.cluster.Kubeconfig, "--namespace", c.namespace)
	var out, errs bytes.Buffer
	if exit := cli.Main(t.Context(), args, kit.Streams{In: strings.NewReader(stdin), Out: &out, Err: &errs}, fleet.New()); exit != 0 {
		t.Fatalf("%q: exit status %d: %s%s", args, exit, out.String(), errs.String())
	}
	return out.String()
}

// plan is what command plan says about a change, "" for none.
func (c *cluster) plan(t *testing.T, changed string) preview.Data {
	t.Helper()
	args := []string{"plan", "--cluster", c.name, "-o", "json"}
	if changed != "" {
		args = append(args, "-f", "-")
	}
	var data preview.Data
	if err := json.Unmarshal([]byte(c.command(t, changed, args...)), &data); err != nil {
		t.Fatal(err)
	}
	return data
}

// labelled is the Cluster as label would leave it.
func (c *cluster) labelled(t *testing.T) string {
	t.Helper()
	return c.kubectl(t, "", "label", "cluster", c.name, contract.LabelEnabled+"="+contract.LabelEnabledValue, "--overwrite",
		"--dry-run=client", "-o", "yaml")
}

// wantPlan fails unless a plan says that these Machines are replaced at once, and that those keep what they have.
func wantPlan(t *testing.T, data preview.Data, replaced, behind identity) {
	t.Helper()
	gone, left := identity{}, namesIn(data.Behind)
	for _, roll := range data.Replaced {
		for _, name := range roll.Machines {
			gone[name] = replaced[name]
		}
	}
	if !slices.Equal(sorted(gone), sorted(replaced)) || !slices.Equal(left, sorted(behind)) {
		t.Errorf("the plan replaces %v and leaves %v; want %v and %v", sorted(gone), left, sorted(replaced), sorted(behind))
	}
}

// listed are the Machines that command status lists as behind.
func (c *cluster) listed(t *testing.T) []string {
	t.Helper()
	var data struct{ Behind []outdated.Group }
	text := c.command(t, "", "status", "--cluster", c.name, "--machines", "-o", "json")
	if err := json.Unmarshal([]byte(text), &data); err != nil {
		t.Fatal(err)
	}
	return namesIn(data.Behind)
}

func namesIn(groups []outdated.Group) []string {
	names := []string{}
	for _, group := range groups {
		for _, machine := range group.Machines {
			names = append(names, machine.Name)
		}
	}
	slices.Sort(names)
	return names
}

func sorted(machines identity) []string {
	names := []string{}
	for name := range machines {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
