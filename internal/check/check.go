// Package check finds out whether an installation works: one result for each thing that has to be right, with a
// sentence, what to do, and a section of docs/troubleshooting.md. It reads the management cluster, and what it writes
// there is a dry run.
package check

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/reported"
)

// Status is the outcome of a check.
type Status string

// The outcomes.
const (
	OK Status = "ok"
	// Warning is something that works, and that may not be as it should be.
	Warning Status = "warning"
	// Skipped is a check that does not apply, or that the user has no right to make.
	Skipped Status = "skipped"
	// Failed is something that does not work.
	Failed Status = "failed"
	// Unknown is a check that could not be made: the API server did not answer.
	Unknown Status = "unknown"
)

// Result is the outcome of one check. Its JSON is an interface: field names do not change.
type Result struct {
	// Check is the name of the check.
	Check  finding.Code `json:"check"`
	Status Status       `json:"status"`
	// Message is what was found, in one sentence.
	Message string `json:"message"`
	// Do is what the user does, and Link where it is explained. Only what failed, and warnings, have them.
	Do   string `json:"do,omitempty"`
	Link string `json:"link,omitempty"`
}

// Group is what belongs together.
type Group struct {
	Name   string   `json:"name"`
	Checks []Result `json:"checks"`
}

// Report is the outcome of all checks.
type Report struct {
	Version int     `json:"version"`
	Status  Status  `json:"status"`
	Groups  []Group `json:"groups"`
}

// Options are what checks need.
type Options struct {
	// Client reads without a cache. What it writes is a dry run.
	Client client.Client
	// Namespace is that of the manager.
	Namespace string
	// Version is that of the program.
	Version string
	// Now is the clock of the API server.
	Now func() time.Time
	// Rows returns the status of labelled Clusters of a namespace, or of all namespaces; of one Cluster if it has a name.
	Rows func(ctx context.Context, cluster types.NamespacedName) ([]reported.Row, error)
	// Cluster is the Cluster that is checked, too, if it has a name.
	Cluster types.NamespacedName
	// NoProxy returns the value of that Cluster for its nodes.
	NoProxy func(ctx context.Context) (string, error)
	// Clients are the programs on a node that read NO_PROXY.
	Clients []NoProxyClient
	// FromNodes are the checks that are made from nodes of that Cluster, nil for none. They create Pods.
	FromNodes *FromNodes
}

// NoProxyClient is a program on a node.
type NoProxyClient struct {
	Name string
	// Proxied reports whether it sends a request for a URL through the proxy.
	Proxied func(noProxy, url string) bool
}

// Pre checks whether the product can be installed.
func Pre(ctx context.Context, o Options) Report {
	c := newChecker(o)
	return report(c.group(ctx, "Cluster API", c.clusterAPI()...), c.group(ctx, "Installation", one{CodeRights, c.rights}))
}

// Run checks whether the product works, and the Cluster of the options.
func Run(ctx context.Context, o Options) Report {
	c := newChecker(o)
	groups := []Group{
		c.group(ctx, "Cluster API", c.clusterAPI()...), c.group(ctx, "Installation", c.installation()...),
		c.group(ctx, "Clusters", c.clusters()...),
	}
	if o.Cluster.Name != "" {
		groups = append(groups, c.group(ctx, "Cluster "+o.Cluster.String(), c.cluster()...))
	}
	if o.FromNodes != nil {
		groups = append(groups, c.fromNodes(ctx)...)
	}
	return report(groups...)
}

// report sums up groups: what failed counts more than what is not known.
func report(groups ...Group) Report {
	r := Report{Version: 1, Status: OK, Groups: groups}
	for _, group := range groups {
		for _, result := range group.Checks {
			if result.Status == Failed || result.Status == Unknown && r.Status == OK {
				r.Status = result.Status
			}
		}
	}
	return r
}

// checker makes the checks of one report.
type checker struct {
	Options

	// deployments remembers those of the product.
	deployments func(ctx context.Context) ([]appsv1.Deployment, error)
}

func newChecker(o Options) *checker {
	o.Client = client.NewDryRunClient(o.Client)
	c := &checker{Options: o}
	var (
		found []appsv1.Deployment
		err   error
		asked bool
	)
	c.deployments = func(ctx context.Context) ([]appsv1.Deployment, error) {
		if !asked {
			var list appsv1.DeploymentList
			err = c.Client.List(ctx, &list, client.InNamespace(o.Namespace), ours)
			found, asked = list.Items, true
		}
		return found, err
	}
	return c
}

// one is one check.
type one struct {
	code finding.Code
	run  func(ctx context.Context) Result
}

func (c *checker) group(ctx context.Context, name string, checks ...one) Group {
	group := Group{Name: name, Checks: []Result{}}
	for _, check := range checks {
		result := check.run(ctx)
		result.Check, result.Message = check.code, bounded(result.Message)
		if result.Status == Failed || result.Status == Warning {
			result.Do = cmp.Or(result.Do, advice(check.code))
			result.Link = cmp.Or(result.Link, kit.Link(string(check.code)))
		}
		group.Checks = append(group.Checks, result)
	}
	return group
}

// maxMessage is how many characters of a message are shown: tenants write parts of them.
const maxMessage = 600

// bounded returns a message in one line and not too long.
func bounded(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(finding.OneLine(text), "?"), "\r", " ")
	if runes := []rune(text); len(runes) > maxMessage {
		return string(runes[:maxMessage]) + "…"
	}
	return text
}

func ok(format string, args ...any) Result {
	return Result{Status: OK, Message: fmt.Sprintf(format, args...)}
}

func skipped(format string, args ...any) Result {
	return Result{Status: Skipped, Message: fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) Result {
	return Result{Status: Failed, Message: fmt.Sprintf(format, args...)}
}

func warning(format string, args ...any) Result {
	return Result{Status: Warning, Message: fmt.Sprintf(format, args...)}
}

// unread is the result of a check that could not read what it needs.
func unread(err error) Result {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return skipped("missing right: %v", err)
	case meta.IsNoMatchError(err):
		return skipped("not installed: %v", err)
	}
	return Result{Status: Unknown, Message: err.Error()}
}

// maxNames is how many names a sentence has.
const maxNames = 3

// names lists names of objects.
func names(all []string) string {
	if more := len(all) - maxNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:maxNames], ", "), more)
	}
	return strings.Join(all, ", ")
}
