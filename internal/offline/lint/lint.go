// Package lint checks proxy Secrets and labelled Clusters in manifests: everything that the product would reject, and
// everything that does not work as it seems. Findings name file, line, key and entry, and never hold a value of a
// Secret.
//
// The decisions are those of packages plan, settings and noproxy; docs/troubleshooting.md lists the codes. This package
// finds what to check and its place in the input.
package lint

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/cli/kit"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/controller"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/clusters"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Options are the input of Run.
type Options struct {
	// Inputs are the manifests.
	Inputs []clusters.Input
	// Secrets are additional files with proxy Secrets.
	Secrets []clusters.Input
	// DefaultSecret is the installation-wide Secret; its zero value means that there is none.
	DefaultSecret types.NamespacedName
	// Publisher knows what annotations about outputs may say, nil for nothing.
	Publisher kit.Publisher
	// Now is the time at which the expiry of certificates is checked.
	Now time.Time
}

// Run checks the proxy Secrets that labelled Clusters use, Secrets that look like one (clusters.IsProxySecret), and the
// annotations, network, NO_PROXY and bootstrap objects of each labelled Cluster. It returns an error only for inputs
// that cannot be read.
func Run(ctx context.Context, o Options) (Report, error) {
	manifests, err := clusters.Read(o.Inputs, o.Secrets, o.DefaultSecret)
	if err != nil {
		return Report{}, err
	}
	l := newLinter(manifests, o.Now)
	l.publisher = o.Publisher
	passes := clusters.Passes{
		Now: l.clock,
		Controller: func(s clusters.Surroundings) (clusters.Controller, error) {
			return controller.New(controller.Config{
				Client: s.Client, Live: s.Live, Memory: s.Memory, Now: s.Now, Recorder: &events.FakeRecorder{},
			})
		},
	}
	if l.passes, err = passes.Over(ctx, manifests); err != nil {
		return Report{}, err
	}
	if err := l.run(ctx); err != nil {
		return Report{}, err
	}
	report := l.report()
	report.Unread = manifests.Notes
	return report, nil
}

// linter collects findings.
type linter struct {
	publisher kit.Publisher // nil for none
	manifests *clusters.Manifests
	passes    *clusters.Passes
	objects   []*manifest.Object
	now       time.Time
	findings  []Row
	clusters  int
	places    map[string]bool // of the checked Secrets
	known     map[Row]bool    // without their lines
	order     map[*manifest.Object]int
	byPlace   map[string]*manifest.Object
	entries   map[block][]int // lines of the entries of a list, counted from its own
}

func newLinter(manifests *clusters.Manifests, now time.Time) *linter {
	l := &linter{
		manifests: manifests, objects: manifests.Objects(), now: now,
		known: map[Row]bool{}, order: map[*manifest.Object]int{}, byPlace: map[string]*manifest.Object{},
		entries: map[block][]int{}, places: map[string]bool{},
	}
	for i, o := range l.objects {
		l.order[o] = i
		l.byPlace[clusters.Place(o)] = o
	}
	return l
}

func (l *linter) clock() time.Time { return l.now }

// add adds findings about o, or about the objects that their places name. Duplicates are not added: a Secret is checked
// alone and for each Cluster that uses it.
func (l *linter) add(o *manifest.Object, level Level, found ...finding.Finding) {
	for _, f := range found {
		o, at := o, f.Place
		if named := l.byPlace[at.Object]; named != nil {
			o, at = named, at.Of("")
		}
		if o.Kind() == "Secret" {
			l.looked(clusters.Place(o))
		}
		row := l.row(o, level, f, at)
		if l.known[row] {
			continue
		}
		l.known[row] = true
		row.Line = l.line(o, at)
		l.findings = append(l.findings, row)
	}
}

// row is a finding at a place in o, without its line.
func (l *linter) row(o *manifest.Object, level Level, f finding.Finding, at finding.Place) Row {
	return Row{
		Level: level, Code: f.Code, File: o.File(), Document: o.Document(), Object: o.String(),
		Where: at.String(), Message: f.Message, Fix: f.Advice, order: l.order[o],
	}
}

// addError adds the findings of an error, which is about o unless a finding names another object.
func (l *linter) addError(o *manifest.Object, err error) error {
	if note, is := clusters.NotKnown(err); is {
		l.add(o, Note, note)
		return nil
	}
	found := finding.Of(err)
	if len(found) == 0 {
		return err // not about the input, or nil
	}
	for _, f := range found {
		level := Rejection
		if f.Reason == "" { // a warning about a rejected value
			level = Warning
		}
		l.add(o, level, f)
	}
	return nil
}

func (l *linter) addWarnings(o *manifest.Object, warnings []finding.Finding) {
	for _, w := range warnings {
		level := Warning
		if noproxy.IsUsual(w.Code) || w.Code == patch.CodeUnread {
			level = Note
		}
		l.add(o, level, w)
	}
}

// run checks everything. Findings are in the order of the objects in the input.
func (l *linter) run(ctx context.Context) error {
	for _, c := range l.manifests.Clusters() {
		level := Rejection
		if clusters.IsVariableLabel(c.Object) {
			level = Note
		}
		l.add(c.Object, level, finding.Of(c.View.Unclear)...)
		if c.View.Enabled {
			l.clusters++
			if err := l.cluster(ctx, c); err != nil {
				return err
			}
		}
	}
	for _, o := range l.objects {
		l.add(o, Rejection, clusters.CheckMetadata(o)...)
		l.addWarnings(o, l.manifests.CheckNames(o))
		if clusters.IsProxySecret(o) {
			if err := l.secret(o); err != nil {
				return err
			}
		}
	}
	slices.SortStableFunc(l.findings, func(a, b Row) int { return a.order - b.order })
	return nil
}

// cluster checks the annotations and the network of a Cluster, and the NO_PROXY that is composed with its Secrets.
func (l *linter) cluster(ctx context.Context, c clusters.Cluster) error {
	options := c.Settings.Options
	var unpublished error
	if l.publisher != nil {
		_, unpublished = l.publisher.Asked(c.View.Annotations, "")
	}
	for _, err := range []error{c.Invalid, unpublished} {
		if err := l.addError(c.Object, err); err != nil {
			return err
		}
	}
	// The network first, because a broken Secret ends the composition before it.
	composed, err := noproxy.Compose(settings.NoProxyInput(c.View, options))
	if err := l.addError(c.Object, err); err != nil {
		return err
	}
	l.addWarnings(c.Object, resolved(composed.Warnings, c.Unresolved))
	resolver := l.manifests.Resolver(l.clock)
	resolver.WarnUnlabelled = true
	var problems []error
	for _, one := range l.manifests.Resolve(ctx, c, resolver) {
		err := one.Err
		if found := finding.Of(err); len(found) > 0 {
			err = finding.Errors(ofCluster(c.Object, found))
		}
		if err == nil {
			l.looked(one.Resolution.Secret.Where)
			l.addWarnings(one.Object, ofCluster(c.Object, resolved(one.Warnings, c.Unresolved)))
		}
		problems = append(problems, l.addError(one.Object, err))
	}
	if c.Invalid == nil {
		problems = append(problems, l.decide(ctx, c))
	}
	return errors.Join(problems...)
}

// ofCluster assigns findings about fields of the Cluster to the Cluster, also those from the settings of a pool.
func ofCluster(cluster *manifest.Object, found []finding.Finding) []finding.Finding {
	placed := slices.Clone(found)
	for i, f := range placed {
		if f.Place.Object == "" && len(f.Place.Path) > 0 && f.Place.Path[0].Name == "spec" {
			placed[i].Place = f.Place.Of(clusters.Place(cluster))
		}
	}
	return placed
}

// resolved omits warnings about fields with an unresolved variable of clusterctl.
func resolved(warnings []finding.Finding, unresolved []finding.Place) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(warnings),
		func(w finding.Finding) bool { return clusters.IsUnresolved(w.Place, unresolved) })
}

// secret checks a proxy Secret without a Cluster.
func (l *linter) secret(o *manifest.Object) error {
	l.looked(clusters.Place(o))
	secret, err := l.manifests.Secret(o)
	if _, is := clusters.NotKnown(err); is || err == nil { // the label is there all the same
		l.addWarnings(o, settings.Unlabelled(secret))
	}
	if err != nil {
		return l.addError(o, err)
	}
	proxy, err := settings.ParseSecret(secret.Data)
	if err := l.addError(o, err); err != nil {
		return err
	}
	l.addWarnings(o, proxy.Warnings)
	l.addWarnings(o, proxy.TrustedCAWarnings(l.now))
	composed, err := noproxy.Compose(noproxy.Input{User: noproxy.Layer{
		Place: finding.Key(contract.KeyNoProxy).Of(clusters.Place(o)), Text: string(secret.Data[contract.KeyNoProxy]),
	}})
	if err := l.addError(o, err); err != nil {
		return err
	}
	// The rest is about the network of a Cluster, and there is none.
	l.addWarnings(o,
		slices.DeleteFunc(composed.Warnings, func(w finding.Finding) bool { return w.Place.Object != clusters.Place(o) }))
	return nil
}

func (l *linter) looked(place string) {
	l.places[place] = true
}

// report returns the findings and their counts.
func (l *linter) report() Report {
	r := Report{Findings: []Row{}, Summary: Summary{Clusters: l.clusters, Secrets: len(l.places)}}
	for _, f := range l.findings {
		r.Findings = append(r.Findings, f)
		switch f.Level {
		case Rejection:
			r.Summary.Rejections++
		case Warning:
			r.Summary.Warnings++
		case Note:
			r.Summary.Notes++
		}
	}
	return r
}
