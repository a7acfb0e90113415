// Package lint checks proxy Secrets and labelled Clusters in manifests: everything that the product would reject, and everything that works
// differently from what it looks like. Findings have the file and the line, name the key and the entry, and never hold a value of a Secret.
//
// The decisions are those of packages source, proxyconfig and noproxy; docs/no-proxy.md lists the codes. This package finds what to look at
// and where it stands.
package lint

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/noproxy"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/manifest"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/render"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/source"
)

// Options say what is looked at.
type Options struct {
	// Inputs are the manifests.
	Inputs []render.Input
	// Secrets are further files with proxy Secrets.
	Secrets []render.Input
	// DefaultSecret is the installation-wide Secret; its zero value means that there is none.
	DefaultSecret types.NamespacedName
	// Now is the time by which certificates are expired or not.
	Now time.Time
}

// Run looks at the proxy Secrets that labelled Clusters use, at Secrets that look like one (render.IsProxySecret), and at the annotations,
// network and NO_PROXY of each labelled Cluster. It returns an error only for inputs that cannot be read.
func Run(ctx context.Context, o Options) (Report, error) {
	manifests, err := render.ReadManifests(o.Inputs, o.Secrets, o.DefaultSecret)
	if err != nil {
		return Report{}, err
	}
	l := newLinter(manifests, o.Now, o.DefaultSecret)
	if err := l.run(ctx); err != nil {
		return Report{}, err
	}
	report := l.report()
	report.Unread = manifests.Notes()
	return report, nil
}

// linter collects findings.
type linter struct {
	manifests     *render.Manifests
	objects       []*manifest.Object
	now           time.Time
	defaultSecret types.NamespacedName
	findings      []Finding
	clusters      int
	places        map[string]bool // of the Secrets that were looked at
	known         map[Finding]bool
	order         map[*manifest.Object]int
	byPlace       map[string]*manifest.Object // Secrets by their places
	entries       map[block][]int             // lines of the entries of a list, counted from its own
}

func newLinter(manifests *render.Manifests, now time.Time, defaultSecret types.NamespacedName) *linter {
	l := &linter{
		manifests: manifests, objects: manifests.Objects(), now: now, defaultSecret: defaultSecret,
		known: map[Finding]bool{}, order: map[*manifest.Object]int{}, byPlace: map[string]*manifest.Object{}, entries: map[block][]int{}, places: map[string]bool{},
	}
	for i, o := range l.objects {
		l.order[o] = i
		if o.Kind() == "Secret" {
			l.byPlace[render.Place(o)] = o
		}
	}
	return l
}

// add adds a finding about o, or about the object whose place is in front of where. What is known already is not added again: a Secret
// is looked at by itself and for each Cluster that uses it.
func (l *linter) add(o *manifest.Object, severity Level, code noproxy.Code, where, message, fix string) {
	o, where = l.split(o, where)
	if o.Kind() == "Secret" {
		l.looked(render.Place(o))
	}
	f := Finding{
		Level: severity, Code: code, File: o.File(), Document: o.Document(), Object: render.Name(o), Where: where, Message: message, Fix: fix,
		order: l.order[o],
	}
	if l.known[f] {
		return
	}
	l.known[f] = true
	f.Line = l.line(o, where)
	l.findings = append(l.findings, f)
}

// split separates the place of a Secret, if there is one, from where in it. A place is "<file>: document <n>: Secret <name>", and no name
// has a blank.
func (l *linter) split(o *manifest.Object, where string) (secret *manifest.Object, rest string) {
	_, after, ok := strings.Cut(where, ": Secret ")
	for ok {
		name, _, _ := strings.Cut(after, " ")
		place := where[:len(where)-len(after)+len(name)]
		if other := l.byPlace[place]; other != nil {
			return other, strings.TrimPrefix(where[len(place):], " ")
		}
		_, after, ok = strings.Cut(after, ": Secret ") // a file may be called so
	}
	return o, where
}

// addError adds the findings of an error, which is about o unless it says otherwise.
func (l *linter) addError(o *manifest.Object, err error) error {
	if missing, ok := errors.AsType[*source.NotFoundError](err); ok {
		l.add(o, Rejection, source.CodeSecretNotFound, "", missing.Message, "put it into the input or name its file with --secret")
		return nil
	}
	found := noproxy.Errors(err)
	if len(found) == 0 {
		return err // not about the input, or nil
	}
	for _, e := range found {
		l.add(o, Rejection, e.Code, e.Where, e.Why, e.Fix)
	}
	return nil
}

func (l *linter) addWarnings(o *manifest.Object, warnings []noproxy.Warning) {
	for _, w := range warnings {
		severity := Warning
		if w.Code.IsUsual() {
			severity = Note
		}
		l.add(o, severity, w.Code, w.Where, w.Message, w.Fix)
	}
}

// run looks at everything. Findings are in the order of the objects in the input.
func (l *linter) run(ctx context.Context) error {
	for _, c := range l.manifests.Clusters() {
		for _, e := range noproxy.Errors(c.View.Unclear) {
			level := Rejection
			if render.IsVariableLabel(c.Object) {
				level = Note
			}
			l.add(c.Object, level, e.Code, e.Where, e.Why, e.Fix)
		}
		if c.View.Enabled {
			l.clusters++
			if err := l.cluster(ctx, c); err != nil {
				return err
			}
		}
	}
	for _, o := range l.objects {
		for _, e := range render.CheckMetadata(o) {
			l.add(o, Rejection, e.Code, e.Where, e.Why, e.Fix)
		}
		l.addWarnings(o, render.CheckNames(o))
		if render.IsProxySecret(o) {
			if err := l.secret(o); err != nil {
				return err
			}
		}
	}
	slices.SortStableFunc(l.findings, func(a, b Finding) int { return a.order - b.order })
	return nil
}

// cluster looks at the annotations and the network of a Cluster, and at what comes of it with its Secrets.
func (l *linter) cluster(ctx context.Context, c render.Cluster) error {
	first := len(l.findings)
	options := c.Settings.Options
	if err := l.addError(c.Object, c.Invalid); err != nil {
		return err
	}
	// The network first, because a broken Secret ends the composition before it.
	composed, err := noproxy.Compose(source.NoProxyInput(c.View, options))
	if err := l.addError(c.Object, err); err != nil {
		return err
	}
	l.addWarnings(c.Object, resolved(composed.Warnings, c.Unresolved))
	resolver := source.Resolver{Secrets: l.manifests.Secrets(), Default: source.Installation{Secret: l.defaultSecret, Namespaces: source.EveryNamespace{}}}
	resolve := func(o *manifest.Object, override string) error {
		resolution, err := resolver.Resolve(ctx, c.View, options, override)
		if err != nil {
			return l.addError(o, err)
		}
		l.looked(resolution.Secret.Where)
		l.addWarnings(o, resolved(resolution.Warnings, c.Unresolved))
		l.addWarnings(o, l.trustedCA(resolution.Secret.Where, resolution.Settings))
		return nil
	}
	if err := resolve(c.Object, ""); err != nil {
		return err
	}
	for _, pool := range c.Pools {
		if pool.Secret == "" || pool.Secret == contract.SecretNone {
			continue
		}
		before := len(l.findings)
		if err := resolve(pool.Object, pool.Secret); err != nil {
			return err
		}
		l.network(c.Object, first, before)
	}
	for _, pool := range c.Settings.Pools {
		if pool.Override == "" || pool.Override == contract.SecretNone {
			continue
		}
		if err := resolve(c.Object, pool.Override); err != nil {
			return err
		}
	}
	return nil
}

// network takes back the findings from index on that repeat for a pool what has been said of the Cluster's own
// fields, whose findings begin at first.
func (l *linter) network(cluster *manifest.Object, first, from int) {
	said := l.findings[first:from]
	repeated := func(f Finding) bool {
		return slices.ContainsFunc(said, func(s Finding) bool {
			return s.Object == render.Name(cluster) && s.Code == f.Code && s.Where == f.Where
		})
	}
	l.findings = l.findings[:from+len(slices.DeleteFunc(l.findings[from:], repeated))]
}

// resolved leaves out warnings about fields whose value is a variable of clusterctl still.
func resolved(warnings []noproxy.Warning, unresolved []string) []noproxy.Warning {
	return slices.DeleteFunc(slices.Clone(warnings), func(w noproxy.Warning) bool {
		return slices.ContainsFunc(unresolved, func(field string) bool { return strings.HasPrefix(field, w.Where) })
	})
}

// secret looks at a proxy Secret by itself.
func (l *linter) secret(o *manifest.Object) error {
	l.looked(render.Place(o))
	secret, err := l.manifests.Secret(o)
	if err != nil {
		return l.addError(o, err)
	}
	settings, err := proxyconfig.Parse(secret.Data)
	if err := l.addError(o, err); err != nil {
		return err
	}
	l.addWarnings(o, settings.Warnings)
	l.addWarnings(o, l.trustedCA("", settings))
	composed, err := noproxy.Compose(noproxy.Input{User: noproxy.Layer{Key: contract.KeyNoProxy, Object: render.Place(o), Text: string(secret.Data[contract.KeyNoProxy])}})
	if err := l.addError(o, err); err != nil {
		return err
	}
	// The rest is about the network of a Cluster that is not there.
	l.addWarnings(o, slices.DeleteFunc(composed.Warnings, func(w noproxy.Warning) bool { return !strings.HasPrefix(w.Where, render.Place(o)) }))
	return nil
}

func (l *linter) looked(place string) {
	l.places[place] = true
}

// trustedCA returns what is odd about certificates today, with the place of their Secret in front.
func (l *linter) trustedCA(place string, settings proxyconfig.Settings) []noproxy.Warning {
	warnings := settings.TrustedCAWarnings(l.now)
	for i := range warnings {
		if place != "" {
			warnings[i].Where = place + " " + warnings[i].Where
		}
	}
	return warnings
}

// report counts.
func (l *linter) report() Report {
	r := Report{Findings: []Finding{}, Summary: Summary{Clusters: l.clusters, Secrets: len(l.places)}}
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
