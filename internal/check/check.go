// Package check finds out whether an installation works: one result for each thing that has to be right, with a
// sentence, what to do, and a section of docs/troubleshooting.md. It reads the management cluster, and what it writes
// there is a dry run.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
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
	// Unknown is a check that could not be made: the API server did not answer. A report is unknown, too, if the user has
	// no right to see any of what decides.
	Unknown Status = "unknown"
)

// Result is the outcome of one check. Its JSON is an interface: field names do not change.
type Result struct {
	// Check is the name of the check.
	Check  finding.Code `json:"check"`
	Status Status       `json:"status"`
	// Message is what was found, in one sentence.
	Message string `json:"message"`
	// Do is what the user does, "" if the message says it, and Link where it is explained. What is ok or skipped has none.
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
	// Namespace is that of the manager, "" to look for it.
	Namespace string
	// Version is that of the program.
	Version string
	// Now is the clock of the API server.
	Now func() time.Time
	// Done gets each group when its checks are made; it may be nil.
	Done func(Group)
	// Rows returns the status of labelled Clusters of a namespace, or of all namespaces; of one Cluster if it has a name.
	Rows func(ctx context.Context, cluster types.NamespacedName) (reported.Result, error)
	// Cluster is the Cluster that is checked, too, if it has a name. Then others cannot fail.
	Cluster types.NamespacedName
	// NoProxy returns the value of that Cluster for its nodes.
	NoProxy func(ctx context.Context) (string, error)
	// Clients are the programs on a node that read NO_PROXY.
	Clients []NoProxyClient
	// Waiting leaves out what is too much to be read again and again.
	Waiting bool
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
	return newChecker(o).report(ctx, 0, func(c *checker) {
		c.pre = true
		c.add(ctx, "Cluster API", c.clusterAPI()...)
		c.add(ctx, "Installation", one{CodeRights, c.rights})
	})
}

// Run checks whether the product works, and the Cluster of the options.
func Run(ctx context.Context, o Options) Report {
	decides := 1
	if o.Cluster.Name != "" {
		decides = 3
	}
	return newChecker(o).report(ctx, decides, func(c *checker) {
		c.add(ctx, "Cluster API", c.clusterAPI()...)
		c.add(ctx, "Installation", c.installation()...)
		c.add(ctx, "Clusters", c.clusters()...)
		if o.Cluster.Name != "" {
			c.add(ctx, "Cluster "+o.Cluster.String(), c.cluster()...)
		}
		c.add(ctx, "Labels", one{CodeLabels, c.labels}) // it reads most
		if o.FromNodes != nil {
			for _, group := range c.fromNodes(ctx) {
				c.done(group)
			}
		}
	})
}

// checker makes the checks of one report.
type checker struct {
	Options

	groups []Group
	// installed are the Deployments of the product, and elsewhere the managers in other namespaces.
	installed, elsewhere []appsv1.Deployment
	listed               bool
	// pre is before the installation.
	pre     bool
	listing error
}

func newChecker(o Options) *checker {
	o.Client = client.NewDryRunClient(o.Client)
	return &checker{Options: o}
}

// report makes checks, if an API server answers, and sums them up: what failed counts more than what is not known.
// decides is the index of the group of which something must have been seen.
func (c *checker) report(ctx context.Context, decides int, run func(*checker)) Report {
	_, err := c.deployments(ctx)
	if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && err != nil && !meta.IsNoMatchError(err) {
		c.add(ctx, "API server", one{CodeAPIServer, func(context.Context) Result { return unread(err) }})
	} else {
		run(c)
	}
	r := Report{Version: 1, Status: OK, Groups: c.groups}
	if decides < len(r.Groups) && !slices.ContainsFunc(r.Groups[decides].Checks, func(result Result) bool {
		return result.Status != Skipped && result.Status != Unknown
	}) {
		r.Status = Unknown
	}
	for _, group := range r.Groups {
		for _, result := range group.Checks {
			if result.Status == Failed || result.Status == Unknown && r.Status == OK {
				r.Status = result.Status
			}
		}
	}
	return r
}

func (c *checker) add(ctx context.Context, name string, checks ...one) {
	c.done(c.group(ctx, name, checks...))
}

func (c *checker) done(group Group) {
	c.groups = append(c.groups, group)
	if c.Done != nil {
		c.Done(group)
	}
}

// deployments returns those of the product in the namespace of the manager, which it looks for if no option names it.
func (c *checker) deployments(ctx context.Context) ([]appsv1.Deployment, error) {
	if c.listed {
		return c.installed, c.listing
	}
	c.listed = true
	const usual = contract.Name + "-system"
	var list appsv1.DeploymentList
	err := c.Client.List(ctx, &list, ours, maxList)
	if apierrors.IsForbidden(err) {
		c.Namespace = cmp.Or(c.Namespace, usual)
		err = c.Client.List(ctx, &list, client.InNamespace(c.Namespace), ours)
	}
	c.listing = err
	if c.Namespace == "" {
		c.Namespace = usual
		found := slices.DeleteFunc(slices.Clone(list.Items), func(d appsv1.Deployment) bool { return !isManager(d) })
		if !slices.ContainsFunc(found, func(d appsv1.Deployment) bool { return d.Namespace == usual }) && len(found) > 0 {
			c.Namespace = found[0].Namespace
		}
	}
	for _, d := range list.Items {
		if d.Namespace == c.Namespace {
			c.installed = append(c.installed, d)
		} else if isManager(d) {
			c.elsewhere = append(c.elsewhere, d)
		}
	}
	return c.installed, c.listing
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
		if result.Status != OK && result.Status != Skipped {
			result.Do = bounded(cmp.Or(result.Do, advice(check.code, result.Status)))
			result.Link = bounded(cmp.Or(result.Link, kit.Link(string(check.code))))
		}
		group.Checks = append(group.Checks, result)
	}
	return group
}

// maxMessage is how many characters of a text are shown: tenants write parts of them.
const maxMessage = 600

// bounded returns a text in one line and not too long.
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

// lacking finds the right that an API server names when it refuses a request.
var lacking = regexp.MustCompile(`cannot (\w+) resource "([^"]+)"`)

// isOfNoKind reports whether the API server does not serve a kind that a client was told of: no object is named.
func isOfNoKind(err error) bool {
	status, is := errors.AsType[*apierrors.StatusError](err)
	return is && apierrors.IsNotFound(err) && (status.ErrStatus.Details == nil || status.ErrStatus.Details.Name == "")
}

// unread is the result of a check that could not read what it needs.
func unread(err error) Result {
	var request *url.Error
	switch right := lacking.FindStringSubmatch(err.Error()); {
	case apierrors.IsForbidden(err) && right != nil:
		return skipped("missing right: %s %s", right[1], right[2])
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return skipped("missing right: %v", err)
	case meta.IsNoMatchError(err), isOfNoKind(err):
		return skipped("not installed: %v", err)
	case errors.As(err, &request):
		return Result{Status: Unknown, Message: kit.Unreachable(request)}
	}
	return Result{Status: Unknown, Message: err.Error()}
}
