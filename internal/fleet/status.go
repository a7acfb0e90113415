package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/manager"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/outdated"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/fleet/preview"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/fleet/status"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/reported"
)

// exitFound is the status if a Cluster is in a state of --fail-on.
const exitFound = 3

// Values of --fail-on.
const (
	failBehind  = "behind"
	failNotTrue = "not-true"
)

type statusOptions struct {
	installation                   installation // nil for none
	context, kubeconfig, namespace string
	cluster                        string
	all, watch, machines           bool
	output, defaultSecret          string
	failOn                         []string
}

func newStatus(streams kit.Streams, all []kit.Capability) *cobra.Command {
	var o statusOptions
	o.installation, _ = kit.Find[installation](all)
	cmd := &cobra.Command{
		Use:   "status [CLUSTER]",
		Short: "Show the proxy status of labelled Clusters",
		Long: `Shows for each labelled Cluster the proxy Secret, the status of condition ProxyConfigured, and the problem.
If a Cluster has any, more columns show its Machines that are behind, the age of the oldest, its outputs and its first
warning about NO_PROXY. A Machine is behind if its bootstrap data differs from that of a new one. It shows what the
controller has reported after its last pass, and says above the table whether a manager renews its Lease. Nothing is
written.

--fail-on does not rely on a report: it runs the controller's pass over each Cluster with dry runs, as plan does.

Exit status: 0 success, 1 a failure, 2 wrong usage, 3 with --fail-on, if a Cluster is in one of its states, a write is
still to come, or a Cluster cannot be read.`,
		Example: `  capi-proxy-patcher status -A
  capi-proxy-patcher status --namespace team-a --fail-on behind,not-true
  capi-proxy-patcher status --namespace team-a prod --machines`,
		Args: kit.ClusterArg(&o.cluster),
		RunE: func(cmd *cobra.Command, _ []string) error { return runStatus(cmd.Context(), o, streams) },
	}
	f := cmd.Flags()
	f.StringVar(&o.context, "context", "", "context of the kubeconfig; defaults to the current one")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; defaults to $KUBECONFIG, then ~/.kube/config")
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the Clusters; defaults to that of the context")
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "show the Clusters of all namespaces")
	f.StringVar(&o.cluster, "cluster", "", "show only this Cluster; name or namespace/name, as the argument")
	f.BoolVar(&o.machines, "machines", false, "with a Cluster, list the Machines that are behind")
	f.StringVar(&o.defaultSecret, "default-proxy-secret", "",
		"with --machines or --fail-on, the installation-wide proxy Secret as namespace/name, as given to the manager")
	f.BoolVarP(&o.watch, "watch", "w", false,
		"keep running, and print each Cluster again when its status changes, and say when it is gone")
	f.StringSliceVar(&o.failOn, "fail-on", nil, "states of a Cluster that make the exit status 3, as a pass with dry "+
		"runs finds them: behind, not-true")
	f.StringVarP(&o.output, "output", "o", "table", "table, wide, json or yaml")
	kit.Complete(cmd, "output", "table", "wide", "json", "yaml")
	kit.Complete(cmd, "fail-on", failBehind, failNotTrue)
	kit.CompleteContext(cmd)
	kit.CompleteClusters(cmd)
	return cmd
}

func (o statusOptions) check() error {
	for _, state := range o.failOn {
		if state != failBehind && state != failNotTrue {
			return fmt.Errorf("unknown state %q; use %s or %s", state, failBehind, failNotTrue)
		}
	}
	switch {
	case !slices.Contains([]string{"table", "wide", "json", "yaml"}, o.output):
		return fmt.Errorf("unknown output %q; use table, wide, json or yaml", o.output)
	case o.all && o.namespace != "":
		return errors.New("--all-namespaces and --namespace exclude each other")
	case o.machines && (o.cluster == "" || o.watch):
		return errors.New("--machines needs a Cluster, and excludes --watch")
	case o.defaultSecret != "" && !o.machines && len(o.failOn) == 0:
		return errors.New("--default-proxy-secret needs --machines or --fail-on; without them the controller's own " +
			"report is shown")
	case o.watch && len(o.failOn) > 0:
		return errors.New("--fail-on cannot be used with --watch")
	case o.watch && !o.isTable():
		return fmt.Errorf("--watch prints a table, not %s", o.output)
	}
	return nil
}

func (o statusOptions) isTable() bool { return o.output == "table" || o.output == "wide" }

func runStatus(ctx context.Context, o statusOptions, streams kit.Streams) error {
	if err := o.check(); err != nil {
		return kit.Usage(err)
	}
	secret, err := manager.ParseDefaultSecret(o.defaultSecret)
	if err != nil {
		return kit.Usage(err)
	}
	config, namespace, err := kit.LoadKubeconfig(o.kubeconfig, o.context)
	if err != nil {
		return err
	}
	switch {
	case o.all:
		o.namespace = ""
	case o.namespace == "":
		o.namespace = namespace
	}
	kit.CutNamespace(&o.namespace, &o.cluster)
	if o.machines {
		return o.listMachines(ctx, config, secret, streams)
	}
	config.QPS = -1 // few requests need no limit
	clock := &kit.ServerClock{}
	config.Wrap(clock.Wrap)
	api, err := kit.NewReader(config)
	if err != nil {
		return err
	}
	s := statusReader{
		statusOptions: o, api: api, streams: streams, now: clock.Now,
		table: &status.Table{Namespaces: o.all, Wide: o.output == "wide", All: o.watch},
	}
	rows, version, err := s.list(ctx)
	if errors.Is(err, reported.ErrNotLabelled) {
		err = cmp.Or(kit.NotFound(ctx, api, o.namespace, o.cluster), err)
	}
	if err != nil {
		return err
	}
	if o.isTable() {
		s.printManager(ctx)
	}
	if err := s.print(rows); err != nil {
		return err
	}
	if o.watch {
		return s.follow(ctx, rows, version)
	}
	if len(o.failOn) > 0 {
		return s.gate(ctx, config, secret, rows)
	}
	return nil
}

// gate runs a pass over each Cluster, because what is recorded may be old. It fails with a line for each Cluster that
// is in a state of --fail-on.
func (s statusReader) gate(ctx context.Context, config *rest.Config, secret types.NamespacedName,
	rows []reported.Row,
) error {
	clusters := make([]client.ObjectKey, len(rows))
	for i, row := range rows {
		clusters[i] = client.ObjectKey{Namespace: row.Namespace, Name: row.Name}
	}
	var lines []string
	var differs preview.Result
	err := preview.RunEach(ctx, preview.Options{Config: config, DefaultSecret: secret, Now: s.now}, clusters,
		func(key client.ObjectKey, result preview.Result, err error) {
			if line := s.lineOf(key, result, err); line != "" {
				lines = append(lines, line)
			}
			if result.Differs() {
				differs = result
			}
		})
	if err != nil {
		return err
	}
	noteDifference(differs, s.streams)
	slices.Sort(lines)
	_, _ = fmt.Fprint(s.streams.Err, strings.Join(lines, ""))
	if len(lines) > 0 {
		return kit.StatusError{Status: exitFound}
	}
	return nil
}

// lineOf returns a line about a Cluster that is in a state of --fail-on, or "". err is the error of its pass.
func (o statusOptions) lineOf(key client.ObjectKey, result preview.Result, err error) string {
	why := result.Unmet(slices.Contains(o.failOn, failBehind), slices.Contains(o.failOn, failNotTrue))
	if err != nil {
		why = []string{"cannot be read: " + finding.OneLine(err.Error())}
	}
	if len(why) == 0 || len(o.failOn) == 0 {
		return ""
	}
	return "Cluster " + key.String() + ": " + strings.Join(why, "; ") + "\n"
}

// installation is offered by what checks an installation.
type installation interface {
	// Brief says in one line whether a manager renews its Lease, and in another one what of the installation does not
	// work.
	Brief(ctx context.Context, api client.Client, now func() time.Time) string
}

// codeMachines is the section about Machines that are behind.
const codeMachines = "cluster-machines"

// briefTime bounds the look at the installation.
const briefTime = 5 * time.Second

// printManager prints above the table whether a manager renews its Lease, and whether the installation works.
func (s statusReader) printManager(ctx context.Context) {
	if s.installation == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, briefTime)
	defer cancel()
	_, _ = fmt.Fprint(s.streams.Err, s.installation.Brief(ctx, s.api, s.now))
}

// listMachines compares the Machines of one Cluster as the controller does.
func (o statusOptions) listMachines(ctx context.Context, config *rest.Config, secret types.NamespacedName,
	streams kit.Streams,
) error {
	now := time.Now //nolint:forbidigo // the clock enters here
	result, err := preview.Run(ctx, preview.Options{
		Config: config, Namespace: o.namespace, Cluster: o.cluster, DefaultSecret: secret, Now: now,
	})
	if err != nil {
		return err
	}
	noteDifference(result, streams)
	groups := []outdated.Group{}
	if result.Behind != nil {
		groups = append(groups, *result.Behind...)
	}
	switch {
	case !o.isTable():
		err = streams.WriteData(o.output, map[string]any{
			"version": 1, "behind": groups, "unknown": append([]string{}, result.Unknown...),
		})
	case len(groups) > 0:
		err = status.MachineTable(streams.Out, groups, now())
	case !result.IsKnown():
		_, err = fmt.Fprintf(streams.Err, "which Machines are behind is not known: %s\n%s",
			cmp.Or(result.Condition.Reason, "the Cluster is paused or has no label"),
			kit.Links(result.Condition.Reason))
	case len(result.Unknown) == 0:
		_, err = fmt.Fprintln(streams.Err, "no Machine is behind")
	}
	if len(result.Unknown) > 0 {
		_, _ = fmt.Fprintln(streams.Err, result.Incomparable())
	}
	if line := o.lineOf(client.ObjectKey{Namespace: o.namespace, Name: o.cluster}, result, nil); err == nil && line != "" {
		_, _ = fmt.Fprint(streams.Err, line)
		return kit.StatusError{Status: exitFound}
	}
	return err
}

// statusReader reads the status of Clusters.
type statusReader struct {
	statusOptions

	api     client.WithWatch
	streams kit.Streams
	now     func() time.Time
	table   *status.Table
}

// list reads the rows, and the version of the list of Clusters.
func (s statusReader) list(ctx context.Context) (rows []reported.Row, version string, err error) {
	read, err := reported.Read(ctx, s.api, s.namespace, s.cluster)
	if read.NoSecrets {
		_, _ = fmt.Fprintln(s.streams.Err, "listing Secrets is forbidden; columns SECRET and WARNING are incomplete")
	}
	if err != nil {
		return nil, "", err
	}
	return read.Rows, read.Version, nil
}

func (s statusReader) print(rows []reported.Row) error {
	if s.isTable() && len(rows) == 0 {
		where := ""
		if !s.all {
			where = " in namespace " + s.namespace
		}
		_, err := fmt.Fprintf(s.streams.Err, "No labelled Clusters found%s.\n", where)
		return err //nolint:wrapcheck // of the standard error itself
	}
	if s.isTable() {
		if err := s.table.Write(s.streams.Out, s.now(), rows...); err != nil {
			return err //nolint:wrapcheck // of the table
		}
		_, err := fmt.Fprint(s.streams.Err, linksOfRows(rows))
		return err //nolint:wrapcheck // of the standard error itself
	}
	return s.streams.WriteData(s.output, map[string]any{"version": 1, "clusters": rows})
}

// linksOfRows returns the lines with the sections about what check would report of the Clusters.
func linksOfRows(rows []reported.Row) string {
	var names []string
	for _, row := range rows {
		if !row.IsTrue() {
			names = append(names, row.Reason)
		}
		if contract.ReasonOf(row.Published).Status != contract.StatusTrue {
			names = append(names, row.Published)
		}
		if row.IsBehind() {
			names = append(names, codeMachines)
		}
		names = append(names, row.Warning)
	}
	return kit.Links(names...)
}

// follow prints the row of each Cluster that differs from the one before, and says which are gone, until ctx ends or
// the Cluster that is named is gone.
func (s statusReader) follow(ctx context.Context, rows []reported.Row, version string) error {
	printed := map[client.ObjectKey]string{}
	keyOf := func(row reported.Row) client.ObjectKey {
		return client.ObjectKey{Namespace: row.Namespace, Name: row.Name}
	}
	fresh := func(row reported.Row) bool {
		text, _ := json.Marshal(row) //nolint:errchkjson,gosec // strings and numbers; a name of a Secret
		known := printed[keyOf(row)]
		printed[keyOf(row)] = string(text)
		return known != string(text)
	}
	for _, row := range rows {
		fresh(row)
	}
	for {
		events, err := s.api.Watch(ctx, &clusterv1.ClusterList{}, append(reported.Selected(s.namespace, s.cluster),
			&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})...)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the user has ended it
		}
		if err != nil {
			return fmt.Errorf("watching Clusters: %w", err)
		}
		for event := range events.ResultChan() {
			if event.Type == watch.Added || event.Type == watch.Modified || event.Type == watch.Deleted {
				break
			}
		}
		events.Stop()
		// Secrets change with the condition: both lists once more, for many Clusters that change at once.
		rows, version, err = s.list(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // as above
		}
		if err != nil && !errors.Is(err, reported.ErrNotLabelled) {
			return err
		}
		maps.DeleteFunc(printed, func(key client.ObjectKey, _ string) bool {
			gone := !slices.ContainsFunc(rows, func(row reported.Row) bool { return keyOf(row) == key })
			if gone {
				_, _ = fmt.Fprintf(s.streams.Err, "Cluster %s is gone, or has no label any more\n", key)
			}
			return gone
		})
		if err != nil {
			return nil //nolint:nilerr // the one that was named is gone
		}
		if changed := slices.DeleteFunc(rows, func(row reported.Row) bool { return !fresh(row) }); len(changed) > 0 {
			if err := s.table.Write(s.streams.Out, s.now(), changed...); err != nil {
				return err
			}
			_, _ = fmt.Fprint(s.streams.Err, linksOfRows(changed))
		}
	}
}
